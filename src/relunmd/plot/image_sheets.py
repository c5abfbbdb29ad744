"""Sheets of small images: components, and rows of X with their reconstructions. Large values are dark."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from relunmd import memory
from relunmd.engine.distributed import fetched, refuse_distributed
from relunmd.engine.problem_setup import check_matrix
from relunmd.errors import InputError
from relunmd.inspection import row_parts
from relunmd.plot import style
from relunmd.plot.subjects import Array, Compared, Subject, factors_of

Shape = tuple[int, int] | None
_BACKGROUND = "#dbe4ee"


def components(
    run: Subject, ax: Any = None, *, image_shape: Shape = None, rank: int | None = None, most: int = 64, title: str = ""
) -> Any:
    """Plot the rows of H, as small images if the rows of X are images, else as one image.

    Each row is divided by its largest absolute entry: black is 1, middle gray 0, white -1.

    Parameters
    ----------
    run : Decomposition or Comparison
        What to plot. The algorithm with the smallest error is chosen from a comparison.
    ax : matplotlib.axes.Axes, default=None
        Axes to draw on. If None, a new pyplot figure is created.
    image_shape : tuple of two int, default=None
        Height and width of the images. If None, that of the comparison, or the rows are not drawn as images.
    rank : int, default=None
        Rank to select from a comparison. If None, the largest.
    most : int, default=64
        Largest number of components to show, strongest first.
    title : str, default=""
        Title of the axes.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    InputError
        If an argument is invalid or there is no run of this rank.

    See Also
    --------
    reconstructions : Plot rows of X and of max(0, WH).
    spectrum : Plot the singular values of WH.

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
        raise InputError(f"most must be an integer of at least 1; got {most!r}.")
    found = factors_of(run, rank)
    if len(found) > 1 and not isinstance(run, Compared):
        raise InputError(f"components plots one Decomposition; got {len(found)}. Pass one of them.")
    label, (W, H) = next(iter(found.items()))
    if isinstance(run, Compared) and not title:
        title = f"{label}, rank {len(H)}"
    ax, image_shape = style.axes(ax), _image_shape(run, image_shape)
    strongest = np.argsort(-fetched(np.linalg.norm(W, axis=0)) * np.linalg.norm(H, axis=1), kind="stable")[:most]
    rows = H[strongest] / np.maximum(np.abs(H[strongest]).max(axis=1, keepdims=True), 1e-300)
    if image_shape is None:
        _show(ax, rows, (-1, 1), aspect="auto")
        ax.set(xlabel="column of X", ylabel="component, strongest first")
    else:
        shape = check_image_shape(image_shape, H.shape[1])
        # About as wide as a page.
        across = max(1, min(len(rows), round((1.6 * len(rows) * shape[0] / shape[1]) ** 0.5)))
        _show(ax, mosaic(rows, shape, across, gap=np.nan), (-1, 1))
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    return style.titled(ax, title)


def _image_shape(subject: Any, image_shape: Any) -> Any:
    return subject.image_shape if image_shape is None and isinstance(subject, Compared) else image_shape


def _show(ax: Any, sheet: Array, limits: tuple[float, float], aspect: str = "equal") -> None:
    ax.imshow(sheet, cmap="gray_r", vmin=limits[0], vmax=limits[1], aspect=aspect, interpolation="nearest")
    if aspect == "equal":
        ax.set_facecolor(_BACKGROUND)  # Shows between the images, where the sheet is NaN.


def reconstructions(
    runs: Subject,
    X: Any,
    ax: Any = None,
    *,
    rows: ArrayLike | None = None,
    image_shape: Shape = None,
    rank: int | None = None,
    title: str = "",
) -> Any:
    """Plot rows of X and below them the same rows of max(0, WH) of every run, in one gray scale.

    Parameters
    ----------
    runs : Decomposition, list or dict of Decomposition, or Comparison
        What to plot. The keys of a dict are the labels.
    X : {array-like, sparse matrix} of shape (m, n)
        The matrix that was decomposed.
    ax : matplotlib.axes.Axes, default=None
        Axes to draw on. If None, a new pyplot figure is created.
    rows : array-like of int, default=None
        Indices of the rows to show. If None, twelve that are evenly spaced.
    image_shape : tuple of two int, default=None
        Height and width of the images. If None, that of the comparison, or each row is drawn as a line.
    rank : int, default=None
        Plot only runs of this rank. If None, all runs, or those of the largest rank of a comparison.
    title : str, default=""
        Title of the axes.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    InputError
        If an argument is invalid, X is not the matrix that was decomposed, or there is no run of this rank.

    See Also
    --------
    components : Plot the rows of H.

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
    source = check_matrix(X)
    m, n = source.shape
    chosen = np.atleast_1d(np.unique(np.linspace(0, m - 1, min(12, m)).round().astype(int)) if rows is None else rows)
    integers = chosen.ndim == 1 and chosen.dtype.kind in "iu" and len(chosen) > 0
    if not integers or chosen.min() < 0 or chosen.max() >= m:
        raise InputError(f"rows must be a list of row indices from 0 to {m - 1}; got {rows!r}.")
    for W, H in found.values():
        if (len(W), H.shape[1]) != (m, n):
            raise InputError(f"X must be the matrix that was decomposed, {len(W)} × {H.shape[1]}; got {m} × {n}.")
    sheets = {"X": np.vstack([_dense(source.read(slice(row, row + 1))) for row in chosen.tolist()])}
    sheets |= {label: np.maximum(0, fetched(W[chosen]) @ H) for label, (W, H) in found.items()}
    return draw_rows(sheets, style.axes(ax), _image_shape(runs, image_shape), title)


def draw_rows(sheets: Mapping[str, Array], ax: Any, image_shape: Any, title: str = "") -> Any:
    """Draw the sheet of `reconstructions`; the gray scale is that of the first entry, the originals."""
    first, rows = next(iter(sheets.values())), np.vstack(list(sheets.values()))
    limits = 0.0, max(float(first.max(initial=0.0)), 1e-300)
    if image_shape is None:
        shape = first.shape
        _show(ax, mosaic(rows.reshape(len(sheets), -1), shape, 1, gap=np.nan)[1:-1, 1:-1], limits, aspect="auto")
        ax.set_xlabel("column of X")
    else:
        shape = check_image_shape(image_shape, first.shape[1])
        _show(ax, mosaic(rows, shape, len(first), gap=np.nan), limits)
    middles = [(shape[0] + 1) * place + shape[0] / 2 for place in range(len(sheets))]
    ax.set_yticks(middles, [style.shown(label, 30) for label in sheets])
    ax.set_xticks([])
    ax.tick_params(length=0, labelsize=10.5)
    ax.spines[:].set_visible(False)
    return style.titled(ax, title)


def mosaic(rows: Array, shape: tuple[int, int], across: int, gap: float) -> Array:
    """Return rows as images in a grid, `across` of them side by side, with lines of the value `gap` around them."""
    (height, width), down = shape, -(-len(rows) // across)
    images = np.full((down * across, height + 1, width + 1), gap)  # Each with a line above it and at its left.
    images[: len(rows), 1:, 1:] = rows.reshape(-1, height, width)
    sheet = images.reshape(down, across, height + 1, width + 1).swapaxes(1, 2)
    return np.pad(sheet.reshape(down * (height + 1), -1), ((0, 1), (0, 1)), constant_values=gap)


def check_image_shape(image_shape: Any, n_columns: int) -> tuple[int, int]:
    """Return height and width as integers; their product must be the number of columns."""
    sides = tuple(image_shape) if isinstance(image_shape, Sequence | np.ndarray) else ()
    if len(sides) != 2 or not all(isinstance(side, int | np.integer) and side > 0 for side in sides):
        raise InputError(f"image_shape must be a height and a width such as (28, 28); got {image_shape!r}.")
    height, width = map(int, sides)
    if height * width != n_columns:
        raise InputError(f"image_shape must have as many pixels as X has columns, {n_columns}; got {height} × {width}.")
    return height, width


def dense(X: Any) -> Array:
    """Return all of X as a dense float64 array, if it fits in memory."""
    refuse_distributed(X, "plot.spectrum")
    source = check_matrix(X)
    memory.require(8 * source.shape[0] * source.shape[1], "A dense X", "Leave X out.")
    return np.vstack([_dense(part) for _, part in row_parts(source)])


def _dense(part: Any) -> Array:
    return np.asarray(part.toarray() if sparse.issparse(part) else part, dtype=np.float64)
