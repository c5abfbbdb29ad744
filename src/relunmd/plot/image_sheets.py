"""Sheets of small images: components, and rows of X with their reconstructions. Dark is large."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from relunmd import memory
from relunmd.engine.distributed import fetched, refuse_distributed
from relunmd.engine.problem_setup import check_matrix
from relunmd.errors import InputError
from relunmd.inspection import row_parts
from relunmd.plot import style
from relunmd.plot.subjects import Compared, Subject, factors_of

__all__ = ["components", "draw_components", "draw_rows", "mosaic", "reconstructions"]

Array = NDArray[Any]
_BETWEEN = "#dbe4ee"
"""What is between images; a light grey in grey."""


def components(
    run: Subject,
    ax: Any = None,
    *,
    image_shape: tuple[int, int] | None = None,
    rank: int | None = None,
    most: int = 64,
    title: str = "",
) -> Any:
    """The rows of H: each as a small image where the rows of X are images, else all of them as one picture.

    Each is divided by its largest entry: black is 1, middle grey 0, white −1.

    Parameters
    ----------
    run : one Decomposition, or a Comparison, of which the best is shown
    ax : the Axes to draw into; a new figure's if None
    image_shape : height and width of the images that the rows of X are, if they are; a comparison knows it
    rank : of a comparison, the largest if None
    most : how many components are shown, the strongest first
    title : above the picture

    Returns
    -------
    The Axes.

    Examples
    --------
    >>> import relunmd
    >>> from relunmd import datasets, plot
    >>> d = relunmd.decompose(datasets.digits()[:200], 12, random_state=0, max_iter=30)
    >>> ax = plot.components(d, image_shape=(8, 8))
    >>> ax.images[0].get_array().shape  # 3 rows of 4, with lines between them
    (28, 37)
    """
    if not isinstance(most, int | np.integer) or most < 1:
        raise InputError(f"most must be a number of components, at least 1. Got {most!r}.")
    several = factors_of(run, rank)
    if len(several) > 1 and not isinstance(run, Compared):
        raise InputError(f"components draws one Decomposition. Got {len(several)}; name one of them.")
    found = several[0]
    told = f"{found.label}, rank {len(found.H)}" if isinstance(run, Compared) else ""
    return draw_components(found.W, found.H, style.axes(ax), _pixels(run, image_shape), most, title or told)


def _pixels(subject: Any, image_shape: Any) -> Any:
    return subject.image_shape if image_shape is None and isinstance(subject, Compared) else image_shape


def draw_components(W: Array, H: Array, ax: Any, image_shape: Any, most: int = 64, title: str = "") -> Any:
    """The sheet of `components`."""
    strongest = np.argsort(-fetched(np.linalg.norm(W, axis=0)) * np.linalg.norm(H, axis=1), kind="stable")[:most]
    rows = H[strongest] / np.maximum(np.abs(H[strongest]).max(axis=1, keepdims=True), 1e-300)
    if image_shape is None:
        ax.imshow(rows, cmap="gray_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        ax.set_xlabel("column of X")
        ax.set_ylabel("component, strongest first")
    else:
        shape = check_image_shape(image_shape, H.shape[1])
        # A sheet about as wide as a page is.
        across = max(1, min(len(rows), round((1.6 * len(rows) * shape[0] / shape[1]) ** 0.5)))
        ax.imshow(mosaic(rows, shape, across, gap=np.nan), cmap="gray_r", vmin=-1, vmax=1, interpolation="nearest")
        ax.set_facecolor(_BETWEEN)
        _bare(ax)
    style.titled(ax, title)
    return ax


def reconstructions(
    runs: Subject,
    X: Any,
    ax: Any = None,
    *,
    rows: ArrayLike | None = None,
    image_shape: tuple[int, int] | None = None,
    rank: int | None = None,
    title: str = "",
) -> Any:
    """Some rows of X, and below them max(0, WH) of every run, in one grey scale.

    Parameters
    ----------
    runs : a Decomposition, a list or a dict of them, or a Comparison
    X : the matrix that was decomposed
    ax : the Axes to draw into; a new figure's if None
    rows : numbers of the rows to show; twelve that are evenly spaced if None
    image_shape : height and width of the images that the rows are, which a comparison knows; if None each row is drawn
        as a line
    rank : which runs to show if they are of several; the largest of a comparison if None
    title : above the picture

    Returns
    -------
    The Axes.

    Examples
    --------
    >>> import relunmd
    >>> from relunmd import datasets, plot
    >>> X = datasets.digits()[:200]
    >>> runs = {name: relunmd.decompose(X, 8, name, random_state=0, max_iter=30) for name in ("tsvd", "qn")}
    >>> ax = plot.reconstructions(runs, X, image_shape=(8, 8))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['X', 'tsvd', 'qn']
    """
    refuse_distributed(X, "plot.reconstructions")
    found = factors_of(runs, rank)
    shape = check_matrix(X).shape
    chosen = sample_rows(shape[0]) if rows is None else np.atleast_1d(np.asarray(rows))
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or len(chosen) == 0:
        raise InputError(f"rows must be a list of row numbers. Got {rows!r}.")
    if chosen.min() < 0 or chosen.max() >= shape[0]:
        raise InputError(f"rows must be from 0 to {shape[0] - 1}. Got {rows!r}.")
    for run in found:
        if (len(run.W), run.H.shape[1]) != shape:
            raise InputError(f"X must be what was decomposed. Got {shape}, and {run.label} is of {run.W.shape[0]} × "
                             f"{run.H.shape[1]}.")  # fmt: skip
    made = {run.label: np.maximum(0, fetched(run.W[chosen]) @ run.H) for run in found}
    return draw_rows({"X": rows_of(X, chosen)} | made, style.axes(ax), _pixels(runs, image_shape), title)


def draw_rows(sheets: dict[str, Array], ax: Any, image_shape: Any, title: str = "") -> Any:
    """The sheet of `reconstructions`: the first are the originals, whose range is that of all."""
    first = next(iter(sheets.values()))
    bright = max(float(first.max(initial=0.0)), 1e-300)
    if image_shape is None:
        strips = [np.vstack([rows, np.full((1, rows.shape[1]), np.nan)]) for rows in sheets.values()]
        sheet, height = np.vstack(strips)[:-1], len(first) + 1
        ax.imshow(sheet, cmap="gray_r", vmin=0, vmax=bright, aspect="auto", interpolation="nearest")
        ax.set_xlabel("column of X")
        ax.set_xticks([])
    else:
        shape = check_image_shape(image_shape, first.shape[1])
        stacked = [mosaic(rows, shape, len(rows), gap=np.nan) for rows in sheets.values()]
        sheet, height = np.vstack([*(one[:-1] for one in stacked[:-1]), stacked[-1]]), shape[0] + 1
        ax.imshow(sheet, cmap="gray_r", vmin=0, vmax=bright, interpolation="nearest")
        ax.set_xticks([])
        ax.set_facecolor(_BETWEEN)
    ax.set_yticks(
        [height * k + (height - 1) / 2 for k in range(len(sheets))], [style.shown(label, 30) for label in sheets]
    )
    ax.tick_params(length=0, labelsize=10.5)
    _bare(ax, keep_labels=True)
    style.titled(ax, title)
    return ax


def _bare(ax: Any, keep_labels: bool = False) -> None:
    """Without a frame, and without ticks."""
    for spine in ax.spines.values():
        spine.set_visible(False)
    if not keep_labels:
        ax.set_xticks([])
        ax.set_yticks([])


def mosaic(rows: Array, shape: tuple[int, int], across: int, gap: float) -> Array:
    """Rows as images in a grid, with lines of the value `gap` around them."""
    height, width = shape
    down = -(-len(rows) // across)
    sheet = np.full((down * (height + 1) + 1, across * (width + 1) + 1), gap)
    for place, row in enumerate(rows):
        top, left = (place // across) * (height + 1) + 1, (place % across) * (width + 1) + 1
        sheet[top : top + height, left : left + width] = row.reshape(shape)
    return sheet


def check_image_shape(image_shape: Any, n_columns: int) -> tuple[int, int]:
    """Height and width whose product is the number of columns."""
    sides = tuple(image_shape) if isinstance(image_shape, Sequence | np.ndarray) else ()
    if len(sides) != 2 or not all(isinstance(side, int | np.integer) and side > 0 for side in sides):
        raise InputError(f"image_shape must be a height and a width, as (28, 28). Got {image_shape!r}.")
    if sides[0] * sides[1] != n_columns:
        raise InputError(
            f"image_shape must have as many pixels as X has columns, {n_columns}. Got {sides[0]} × {sides[1]}."
        )
    return int(sides[0]), int(sides[1])


def sample_rows(height: int, count: int = 12) -> Array:
    """Row numbers that are evenly spaced."""
    return np.unique(np.linspace(0, height - 1, min(count, height)).round().astype(int))


def rows_of(X: Any, chosen: Array) -> Array:
    """Some rows of X, whatever it is, as a dense array."""
    source = check_matrix(X)
    return np.vstack([_float(source.read(slice(row, row + 1))) for row in chosen.tolist()])


def dense(X: Any) -> Array:
    """All of X, whatever it is, as a dense array."""
    refuse_distributed(X, "plot.spectrum")
    source = check_matrix(X)
    memory.require(8 * source.shape[0] * source.shape[1], "A dense X", "Leave X out.")
    return np.vstack([_float(part) for _, part in row_parts(source)])


def _float(part: Any) -> Array:
    return np.asarray(part.toarray() if sparse.issparse(part) else part, dtype=np.float64)
