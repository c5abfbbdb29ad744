"""The look of the pictures, and charts drawn on Matplotlib axes. Nothing global is touched."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from relunmd._util import need
from relunmd.errors import InputError
from relunmd.plot.chart import Axis, Chart, Look, visible

__all__ = ["MOST_INSIDE", "axes", "draw", "figure", "outer_legend", "shown", "titled"]

MOST_INSIDE = 5
"""How many names a legend may have within a picture; a longer one is beside it."""
_GREY = "#555555"
_LONGEST = 70
"""Letters of a name that a picture has room for."""
_LEGEND: dict[str, Any] = {"fontsize": 10.5, "frameon": False, "handlelength": 3.6}  # Long, so that dashes can be told.


def axes(ax: Any) -> Any:
    """The Axes to draw into: the given ones, or those of a new figure."""
    if ax is None:
        pyplot = need("matplotlib.pyplot", "Pictures need", "plot")
        return pyplot.subplots(figsize=(7.0, 4.4), layout="constrained")[1]
    if not hasattr(ax, "plot") or not hasattr(ax, "imshow"):
        raise InputError(f"ax must be a Matplotlib Axes, or None for a new one. Got {type(ax).__name__}.")
    return ax


def figure(width: float = 7.0, height: float = 4.4, panels: int = 1) -> tuple[Any, list[Any]]:
    """An empty figure to be saved, and its axes, side by side."""
    need("matplotlib", "Pictures need", "plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(made)
    return made, list(made.subplots(1, panels, squeeze=False)[0])


def draw(chart: Chart, ax: Any, legend: bool = True) -> Any:
    """Draw a chart."""
    _dress(ax)
    limits = chart.limits()
    for series in chart.series:
        points = np.array(series.points).reshape(-1, 2)
        for side, axis in enumerate((chart.x, chart.y)):
            if axis.log:
                points[points[:, side] <= 0, side] = limits[side][0]  # As the start, at no time at all.
        every = None if chart.markers_everywhere or len(points) < 3 else (0.04, 0.19)
        style = _style(chart.looks[series.label]) | {"linewidth": 1.9, "markersize": 7, "markevery": every}
        ax.plot(*points.T, label=_legend_name(series.label), clip_on=False, **style)
    for line in chart.lines:
        ax.axhline(line.y, color=_GREY, linewidth=1.3, linestyle=(0, (2, 2)))
        left = chart.freer_side(line) == "left"
        ax.annotate(
            shown(line.label),
            (limits[0][0 if left else 1], line.y),
            (4 if left else -3, 4),
            textcoords="offset points",
            ha="left" if left else "right",
            fontsize=10,
            color=_GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
        )
    for axis, name, (low, high) in ((chart.x, "x", limits[0]), (chart.y, "y", limits[1])):
        _set_axis(ax, axis, name, low, high)
    if chart.title:
        ax.set_title(shown(chart.title), fontsize=12.5, wrap=True)
    if legend and chart.series:
        many = len(chart.series) > MOST_INSIDE
        ax.legend(**_LEGEND, **({"loc": "upper left", "bbox_to_anchor": (1.0, 1.02)} if many else {}))
    return ax


def outer_legend(made: Any, ax: Any) -> None:
    """The legend of some axes at the right of the figure."""
    made.legend(*ax.get_legend_handles_labels(), loc="outside right upper", **_LEGEND)


def titled(ax: Any, title: str) -> None:
    """A title in which nothing is taken for mathematics."""
    ax.set_title(shown(title), fontsize=11.5, wrap=True)


def _style(look: Look) -> dict[str, Any]:
    dashes: Any = (0, look.dashes) if look.dashes else "-"
    return {"color": look.colour, "linestyle": dashes, "marker": look.marker}


def _dress(ax: Any) -> None:
    ax.grid(visible=True, which="major", color="#cccccc", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=11)
    ax.xaxis.label.set_size(12.5)
    ax.yaxis.label.set_size(12.5)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _set_axis(ax: Any, axis: Axis, name: str, low: float, high: float) -> None:
    if axis.log:
        getattr(ax, f"set_{name}scale")("log")
    ticks: Sequence[float] = axis.ticks_between(low, high, 9)
    getattr(ax, f"set_{name}ticks")(ticks, [f"{tick:g}" for tick in ticks])
    getattr(ax, f"set_{name}ticks")([], minor=True)
    getattr(ax, f"set_{name}lim")(low, high)
    getattr(ax, f"set_{name}label")(shown(axis.title))


def _legend_name(label: str) -> str:
    """What begins with an underscore Matplotlib would leave out."""
    name = shown(label, 32)
    return f" {name}" if name.startswith("_") else name


def shown(text: str, longest: int = _LONGEST) -> str:
    """A name as it is, but for its middle if it is too long: Matplotlib takes dollars for mathematics."""
    line = visible(" ".join(text.split()))
    if len(line) > longest:
        line = f"{line[: longest // 2]}…{line[len(line) - longest // 2 + 1 :]}"
    return line.replace("$", r"\$")
