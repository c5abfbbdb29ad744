"""Curves: error over time, final error by rank, and singular values of the approximation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relunmd.engine.distributed import fetched
from relunmd.errors import InputError
from relunmd.plot import style
from relunmd.plot.chart import Axis, Chart, Line, Series
from relunmd.plot.image_sheets import dense
from relunmd.plot.subjects import Array, Factors, Subject, curves_of, errors_of, factors_of

ERROR = "relative error"
_OVER = {"time": ("time", "s"), "iteration": ("iteration", ""), "passes": ("passes over X", "")}


def convergence(runs: Subject, ax: Any = None, *, rank: int | None = None, over: str = "time", title: str = "") -> Any:
    """Plot the error over time.

    Parameters
    ----------
    runs : Decomposition, list or dict of Decomposition, or Comparison
        What to plot. The keys of a dict are the labels.
    ax : matplotlib.axes.Axes, default=None
        Axes to draw on. If None, a new pyplot figure is created.
    rank : int, default=None
        Plot only runs of this rank. If None, all runs, or those of the largest rank of a comparison.
    over : {"time", "iteration", "passes"}, default="time"
        Quantity on the x axis: seconds since the call, including the initialization; iterations; or passes over X. A
        comparison supports "time" only, without the initialization that its runs share.
    title : str, default=""
        Title of the axes.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. The y axis is logarithmic, as is the time axis.

    Raises
    ------
    InputError
        If an argument is invalid or there is no run of this rank.

    See Also
    --------
    error_by_rank : Plot the final error by rank.

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
        raise InputError(f"over must be one of {', '.join(_OVER)}; got {over!r}.")
    return style.draw(convergence_chart(curves_of(runs, rank, over), title, over), style.axes(ax))


def convergence_chart(series: Sequence[Series], title: str, over: str = "time", lines: tuple[Line, ...] = ()) -> Chart:
    """Return the chart of `convergence`."""
    x = Axis(*_OVER[over], log=over == "time", whole=over != "time")
    return Chart(title, x, Axis(ERROR, log=True), tuple(series), lines)


def error_by_rank(runs: Subject, ax: Any = None, *, title: str = "") -> Any:
    """Plot the final error by rank, one curve for each algorithm.

    Parameters
    ----------
    runs : Decomposition, list or dict of Decomposition, or Comparison
        What to plot. A list yields a curve for each algorithm, with the smallest error at each rank; a dict yields a
        curve for each key.
    ax : matplotlib.axes.Axes, default=None
        Axes to draw on. If None, a new pyplot figure is created.
    title : str, default=""
        Title of the axes.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    InputError
        If an argument is invalid.

    See Also
    --------
    convergence : Plot the error over time.

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
    errors: Mapping[str, Mapping[int, float]],
    title: str,
    name: str = ERROR,
    unit: str = "",
    lines: tuple[Line, ...] = (),
) -> Chart:
    """Return the chart of `error_by_rank`, also for other quantities than errors."""
    ranks = sorted({rank for values in errors.values() for rank in values})
    series = [Series.of(label, sorted(values), [values[r] for r in sorted(values)]) for label, values in errors.items()]
    x = Axis("rank", log=len(ranks) > 2 and ranks[-1] / ranks[0] >= 8, ticks=tuple(map(float, ranks)))
    return Chart(title, x, Axis(name, unit, log=True), tuple(series), lines, markers_everywhere=True)


def spectrum(
    runs: Subject, ax: Any = None, *, X: ArrayLike | None = None, rank: int | None = None, title: str = ""
) -> Any:
    """Plot the singular values of WH.

    Parameters
    ----------
    runs : Decomposition, list or dict of Decomposition, or Comparison
        What to plot. The keys of a dict are the labels.
    ax : matplotlib.axes.Axes, default=None
        Axes to draw on. If None, a new pyplot figure is created.
    X : {array-like, sparse matrix} of shape (m, n), default=None
        If given, its leading singular values are plotted too. They are computed from a dense copy.
    rank : int, default=None
        Plot only runs of this rank. If None, all runs, or those of the largest rank of a comparison.
    title : str, default=""
        Title of the axes.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, with a logarithmic y axis.

    Raises
    ------
    InputError
        If an argument is invalid or there is no run of this rank.

    See Also
    --------
    components : Plot the rows of H.

    Notes
    -----
    WH is not formed: the function needs as much memory as W and H.

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


def spectrum_chart(runs: Factors, title: str, own: Array | None = None) -> Chart:
    """Return the chart of `spectrum`; `own` are the singular values of X."""
    series = [_spectrum(label, singular_values(W, H)) for label, (W, H) in runs.items()]
    if own is not None:
        series.append(_spectrum("X itself", own[: 2 * max(len(one.x) for one in series)]))
    x, y = Axis("component", whole=True), Axis("singular value", log=True)
    return Chart(title, x, y, tuple(series), markers_everywhere=True)


def _spectrum(label: str, values: Array) -> Series:
    kept = values[values > 1e-12 * values.max(initial=0.0)]
    return Series.of(label, range(1, len(kept) + 1), kept)


def singular_values(W: Array, H: Array) -> Array:
    """Return the singular values of WH, computed from QR factors of W and of the transpose of H."""
    left: Array = fetched(np.linalg.qr(W)[1])
    right: Array = np.linalg.qr(H.T)[1]
    return np.asarray(np.linalg.svd(left @ right.T, compute_uv=False))
