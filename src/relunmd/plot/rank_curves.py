"""The curve of `select_rank`: held-out error by rank."""

from typing import Any

from relunmd.plot import style
from relunmd.plot.chart import Axis, Chart, Series
from relunmd.selection import RankRow, RankSelection

_TRAINING = "training"


def rank_curve(selection: RankSelection, ax: Any = None, *, title: str = "") -> Any:
    """Plot the held-out error by rank, with standard errors, one curve for each ridge; the choice is marked.

    Parameters
    ----------
    selection : RankSelection
        What `select_rank` returned.
    ax : matplotlib.axes.Axes, default=None
        Axes to draw on. If None, a new pyplot figure is created.
    title : str, default=""
        Title of the axes.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. With a single ridge they show the training error too.

    See Also
    --------
    error_by_rank : Plot the error of fits by rank.

    Examples
    --------
    >>> import relunmd
    >>> from relunmd import plot
    >>> X = relunmd.datasets.synthetic(80, 60, 3, random_state=0)
    >>> found = relunmd.select_rank(X, [1, 2, 3, 4, 5], n_folds=3, refit=False, random_state=0)
    >>> ax = plot.rank_curve(found)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('rank', 'held-out error')
    """
    ax = style.draw(rank_curve_chart(selection, title), style.axes(ax))
    limits = ax.get_ylim()
    lines = {line.get_label(): line for line in ax.get_lines()}
    for label, rows in _curves(selection).items():
        points = [row.rank for row in rows], [row.error for row in rows], [row.standard_error for row in rows]
        ax.errorbar(*points, fmt="none", ecolor=lines[label].get_color(), elinewidth=1, capsize=2)
    ax.axvline(selection.rank, color=style.GRAY, linewidth=1.3, linestyle=(0, (2, 2)), zorder=0)
    ax.set_ylim(limits)
    return ax


def rank_curve_chart(selection: RankSelection, title: str) -> Chart:
    """Return the chart of `rank_curve`."""
    curves = _curves(selection)
    series = [Series.of(label, [r.rank for r in rows], [r.error for r in rows]) for label, rows in curves.items()]
    if len(curves) == 1:
        (rows,) = curves.values()
        series.append(Series.of(_TRAINING, [r.rank for r in rows], [r.training_error for r in rows]))
    errors = [row.error for row in selection.rows]
    wide = max(errors) > 5 * min(errors)
    ranks = sorted({row.rank for row in selection.rows})
    x = Axis("rank", log=ranks[-1] > 8, ticks=tuple(map(float, ranks)))
    return Chart(title, x, Axis("held-out error", log=wide), tuple(series), markers_everywhere=True)


def _curves(selection: RankSelection) -> dict[str, list[RankRow]]:
    """Return the rows by label."""
    ridges = sorted({row.ridge for row in selection.rows})
    labels = {ridge: f"ridge {ridge:g}" for ridge in ridges} if len(ridges) > 1 else {ridges[0]: "held out"}
    return {label: [row for row in selection.rows if row.ridge == ridge] for ridge, label in labels.items()}
