"""Curves: the error over time, the error by rank, and how strong the components are."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunmd.engine.distributed import fetched
from relunmd.errors import InputError
from relunmd.plot import style
from relunmd.plot.chart import Axis, Chart, Line, Series
from relunmd.plot.image_sheets import dense
from relunmd.plot.subjects import Factors, Subject, curves_of, errors_of, factors_of

__all__ = ["convergence", "convergence_chart", "error_by_rank", "error_by_rank_chart", "spectrum", "spectrum_chart"]

Array = NDArray[Any]
ERROR = "relative error"
_OVER = {"time": ("time", "s"), "iteration": ("iteration", ""), "passes": ("passes over X", "")}


def convergence(runs: Subject, ax: Any = None, *, rank: int | None = None, over: str = "time", title: str = "") -> Any:
    """The error over time, both axes logarithmic.

    Parameters
    ----------
    runs : a Decomposition, a list or a dict of them, or a Comparison
    ax : the Axes to draw into; a new figure's if None
    rank : which runs to show if they are of several; the largest of a comparison if None
    over : "time" in seconds since the call, the start included; "iteration"; or "passes" over X. A comparison has
        times alone, without the start that all have in common
    title : above the picture

    Returns
    -------
    The Axes.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> from relunmd import plot
    >>> d = relunmd.decompose(np.eye(30), 5, random_state=0, max_iter=20)
    >>> ax = plot.convergence(d, over="iteration", title="The identity")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('iteration', 'relative error')
    """
    if over not in _OVER:
        raise InputError(f"over must be one of {', '.join(_OVER)}. Got {over!r}.")
    return style.draw(convergence_chart(curves_of(runs, rank, over), title, over), style.axes(ax))


def convergence_chart(series: list[Series], title: str, over: str = "time", lines: tuple[Line, ...] = ()) -> Chart:
    """What `convergence` draws."""
    name, unit = _OVER[over]
    return Chart(
        title, Axis(name, unit, log=over == "time", whole=over != "time"), Axis(ERROR, log=True), tuple(series), lines
    )


def error_by_rank(runs: Subject, ax: Any = None, *, title: str = "") -> Any:
    """The final error by rank, a curve for each algorithm.

    Parameters
    ----------
    runs : Decompositions of several ranks, as a list (a curve for each algorithm, the best of several at one rank) or
        as a dict; or a Comparison
    ax : the Axes to draw into; a new figure's if None
    title : above the picture

    Returns
    -------
    The Axes.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> from relunmd import plot
    >>> ax = plot.error_by_rank([relunmd.decompose(np.eye(30), r, max_iter=20) for r in (2, 4, 8)])
    >>> [tick.get_text() for tick in ax.get_xticklabels()]
    ['2', '4', '8']
    """
    return style.draw(error_by_rank_chart(errors_of(runs), title), style.axes(ax))


def error_by_rank_chart(
    errors: Any, title: str, name: str = ERROR, unit: str = "", lines: tuple[Line, ...] = ()
) -> Chart:
    """What `error_by_rank` draws; also of other things than errors."""
    ranks = sorted({rank for values in errors.values() for rank in values})
    series = tuple(
        Series.of(label, sorted(values), [values[r] for r in sorted(values)]) for label, values in errors.items()
    )
    axis = Axis("rank", log=len(ranks) > 2 and ranks[-1] / ranks[0] >= 8, ticks=tuple(map(float, ranks)))
    return Chart(title, axis, Axis(name, unit, log=True), series, lines, markers_everywhere=True)


def spectrum(
    runs: Subject, ax: Any = None, *, X: ArrayLike | None = None, rank: int | None = None, title: str = ""
) -> Any:
    """How strong the components are: the singular values of WH, the strongest first.

    Parameters
    ----------
    runs : a Decomposition, a list or a dict of them, or a Comparison
    ax : the Axes to draw into; a new figure's if None
    X : if given, its own singular values are drawn too; all of them are computed, of a dense copy
    rank : which runs to show if they are of several; the largest of a comparison if None
    title : above the picture

    Returns
    -------
    The Axes.

    Notes
    -----
    WH is not formed: it takes the memory of W and H.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> from relunmd import plot
    >>> d = relunmd.decompose(np.eye(30), 5, random_state=0, max_iter=20)
    >>> ax = plot.spectrum(d, X=np.eye(30))
    >>> ax.get_ylabel()
    'singular value'
    """
    own = None if X is None else np.linalg.svd(dense(X), compute_uv=False)
    return style.draw(spectrum_chart(factors_of(runs, rank), title, own), style.axes(ax))


def spectrum_chart(runs: list[Factors], title: str, own: Array | None = None) -> Chart:
    """What `spectrum` draws."""
    series = [_strengths(run.label, singular_values(run.W, run.H)) for run in runs]
    if own is not None:
        longest = max((len(one.x) for one in series), default=len(own))
        series.append(_strengths("X itself", own[: 2 * longest]))
    return Chart(
        title, Axis("component", whole=True), Axis("singular value", log=True), tuple(series), markers_everywhere=True
    )


def _strengths(label: str, values: Array) -> Series:
    kept = values[values > 1e-12 * values.max(initial=0.0)]
    return Series.of(label, range(1, len(kept) + 1), kept)


def singular_values(W: Array, H: Array) -> Array:
    """Those of WH, from triangles of W and H."""
    left: Array = fetched(np.linalg.qr(W)[1])
    right: Array = np.linalg.qr(H.T)[1]
    return np.asarray(np.linalg.svd(left @ right.T, compute_uv=False))
