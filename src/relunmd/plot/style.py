"""Drawing of charts with Matplotlib. The state of pyplot and rcParams is left unchanged."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd._util import need, printable
from relunmd.errors import InputError
from relunmd.plot.chart import Axis, Chart, LineStyle, line_styles

MOST_INSIDE = 5
"""Longest legend that is placed inside the axes; a longer one is placed beside them."""
GRAY, GRID = "#555555", "#cccccc"
_LABEL_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}
_LEGEND: dict[str, Any] = {"fontsize": 10.5, "frameon": False, "handlelength": 3.6}  # Long enough to show the dashes.


def axes(ax: Any) -> Any:
    """Return the given Axes, or those of a new pyplot figure if None."""
    if ax is None:
        pyplot = need("matplotlib.pyplot", "Figures need", "plot")
        return pyplot.subplots(figsize=(7.0, 4.4), layout="constrained")[1]
    if not hasattr(ax, "plot") or not hasattr(ax, "imshow"):
        raise InputError(f"ax must be a Matplotlib Axes or None; got {type(ax).__name__}.")
    return ax


def figure(width: float = 7.0, height: float = 4.4, panels: int = 1) -> tuple[Any, list[Any]]:
    """Return an empty figure that pyplot does not know, and its axes side by side. Sizes are in inches."""
    made = need("matplotlib.figure", "Figures need", "plot").Figure((width, height), dpi=150, layout="constrained")
    return made, list(made.subplots(1, panels, squeeze=False)[0])


def draw(chart: Chart, ax: Any, legend: bool = True, size: float = 11.0, most_ticks: tuple[int, int] = (9, 9)) -> Any:
    """Draw a chart on axes.

    Parameters
    ----------
    chart : Chart
        What to draw.
    ax : matplotlib.axes.Axes
        Where to draw it.
    legend : bool, default=True
        Whether to add a legend.
    size : float, default=11.0
        Font size of the tick labels, in points.
    most_ticks : tuple of int, default=(9, 9)
        Largest number of ticks on the x and on the y axis.

    Returns
    -------
    matplotlib.axes.Axes
        The same axes.
    """
    ax.grid(visible=True, which="major", color=GRID, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=size)
    for line in chart.lines:
        if line.y > 0 or not chart.y.log:
            x, side = (0.005, "left") if chart.freer_side(line) == "left" else (0.995, "right")
            ax.axhline(line.y, color=GRAY, linewidth=1.3, linestyle=(0, (2, 2)))
            label = {"color": GRAY, "fontsize": size - 1, "ha": side, "va": "bottom", "bbox": _LABEL_BOX}
            ax.text(x, line.y, shown(line.label), transform=ax.get_yaxis_transform(), **label)
    limits = _draw_series(chart, ax)
    ax.minorticks_off()
    for axis, of_ax, limit, most in zip((chart.x, chart.y), (ax.xaxis, ax.yaxis), limits, most_ticks, strict=True):
        of_ax.set_major_locator(_locator(axis, limit, most))
        of_ax.set_major_formatter("{x:g}")
        of_ax.set_label_text(shown(axis.title), fontsize=1.1 * size)
    if legend and chart.series:
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02)}
        ax.legend(**_LEGEND, **(beside if len(chart.series) > MOST_INSIDE else {}))
    return titled(ax, chart.title, 12.5) if chart.title else ax


def _draw_series(chart: Chart, ax: Any) -> NDArray[Any]:
    """Draw the curves and return the limits of the axes.

    A point that a logarithmic axis cannot show, such as the initial error at time 0, is drawn at the lower limit.
    """
    logs = [chart.x.log, chart.y.log]
    ax.set(xscale="log" if chart.x.log else "linear", yscale="log" if chart.y.log else "linear")
    ax.autoscale()
    ax.margins(0.04)
    styles = line_styles(series.label for series in chart.series)
    points = [np.array(series.points).reshape(-1, 2) for series in chart.series]
    every = np.vstack([np.empty((0, 2)), *points])
    lowest = np.where(logs, np.min(every, axis=0, where=every > 0, initial=np.inf), -np.inf)
    curves = [
        ax.plot(
            *np.maximum(points[place], lowest).T,
            **line_options(styles[series.label]),
            markevery=None if chart.markers_everywhere or len(series.x) < 3 else (0.03 + 0.02 * (place % 7), 0.19),
            label=re.sub("^_", " _", shown(series.label, 32)),  # Matplotlib omits labels that begin with _.
            clip_on=False,
            gid="series",
        )[0]
        for place, series in enumerate(chart.series)
    ]
    limits = np.array([ax.get_xlim(), ax.get_ylim()])
    for curve, given in zip(curves, points, strict=True):
        curve.set_data(*np.maximum(given, np.where(logs, limits[:, 0], -np.inf)).T)
    ax.set(xlim=limits[0], ylim=limits[1])
    return limits


def line_options(style: LineStyle) -> dict[str, Any]:
    """Return the keyword arguments of Matplotlib's `plot` for a line style."""
    dashes: Any = (0, style.dashes) if style.dashes else "-"
    return {"color": style.color, "linestyle": dashes, "marker": style.marker, "markersize": 7, "linewidth": 1.9}


@contextmanager
def no_glyph_warnings() -> Iterator[None]:
    """Silence warnings about characters that the font lacks; they are drawn as boxes, and the page has the text."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        yield


def _locator(axis: Axis, limits: Any, most: int) -> Any:
    """Return a tick locator with at most about `most` round numbers."""
    from matplotlib import ticker

    low, high = limits
    if axis.ticks:
        return ticker.FixedLocator(axis.ticks, nbins=most)
    if not axis.log or high < 3 * low:
        return ticker.MaxNLocator(most, steps=[1, 2, 5, 10], integer=axis.whole, min_n_ticks=1)
    # LogLocator by itself labels too few ticks on one or two decades (matplotlib issues 4867 and 29694).
    for subs in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3)):
        found = ticker.LogLocator(subs=subs, numticks=most)
        if 2 <= sum(low <= tick <= high for tick in found.tick_values(low, high)) <= most:
            return found
    return ticker.LogLocator(numticks=most)


def outer_legend(made: Any, ax: Any) -> None:
    """Place the legend of some axes at the right of the figure."""
    made.legend(*ax.get_legend_handles_labels(), loc="outside right upper", **_LEGEND)


def titled(ax: Any, title: str, size: float = 11.5) -> Any:
    """Set a title that is not interpreted as mathematical notation, and return the axes."""
    ax.set_title(shown(title), fontsize=size, wrap=True)
    return ax


def shown(text: str, longest: int = 70) -> str:
    """Return text shortened in the middle, with dollar signs escaped so that Matplotlib does not parse mathematics."""
    line = printable(" ".join(text.split()))
    if len(line) > longest:
        line = f"{line[: longest // 2]}…{line[len(line) - longest // 2 + 1 :]}"
    return line.replace("$", r"\$")
