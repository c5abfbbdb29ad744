"""A chart as SVG that needs nothing else: it is there without a program, in mail and in print.

Colours are the page's (`--series-3`), so that they follow light and dark; dashes and markers are in the drawing, so
that curves can be told in grey. Each chart is drawn twice, for a wide and a narrow window: letters must not shrink.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from relunmd.plot.chart import Axis, Chart, Look

__all__ = ["NARROW", "WIDE", "Frame", "marker", "svg", "swatch"]

Place = tuple[float, float]
_STAR = [(math.sin(k * math.pi / 5) * (1.35 if k % 2 == 0 else 0.55),
          -math.cos(k * math.pi / 5) * (1.35 if k % 2 == 0 else 0.55)) for k in range(10)]  # fmt: skip
_PLUS = [(-0.4, -1), (0.4, -1), (0.4, -0.4), (1, -0.4), (1, 0.4), (0.4, 0.4), (0.4, 1), (-0.4, 1), (-0.4, 0.4),
         (-1, 0.4), (-1, -0.4), (-0.4, -0.4)]  # fmt: skip


def _regular(corners: int) -> list[Place]:
    return [
        (1.15 * math.sin(2 * math.pi * k / corners), -1.15 * math.cos(2 * math.pi * k / corners))
        for k in range(corners)
    ]


_MARKERS: dict[str, Sequence[Place]] = {
    "^": [(0, -1.1), (1.05, 0.85), (-1.05, 0.85)],
    "v": [(0, 1.1), (1.05, -0.85), (-1.05, -0.85)],
    "s": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    "D": [(0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)],
    "d": [(0, -1.3), (0.75, 0), (0, 1.3), (-0.75, 0)],
    "o": _regular(16),
    "p": _regular(5),
    "h": _regular(6),
    "*": _STAR,
    "P": _PLUS,
    "X": [((x - y) * 0.75, (x + y) * 0.75) for x, y in _PLUS],
}


@dataclass(frozen=True)
class Frame:
    """The size of a drawing and the room around it, in pixels."""

    name: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x_ticks: int
    y_ticks: int
    letter: int


WIDE = Frame("wide", 760, 430, 78, 16, 14, 50, 10, 9, 13)
NARROW = Frame("narrow", 330, 300, 62, 10, 10, 44, 5, 7, 11)


def marker(letter: str, x: float, y: float, size: float) -> str:
    """The outline of a marker as a path."""
    corners = " ".join(f"{x + size * a:.1f},{y + size * b:.1f}" for a, b in _MARKERS[letter])
    return f"M{corners}Z"


def swatch(look: Look, index: int) -> str:
    """A short piece of a curve, for the legend."""
    return (
        f'<svg class="swatch series-{index}" width="44" height="14" viewBox="0 0 44 14" aria-hidden="true">'
        f'<path class="curve" d="M1 7H43"{_dashes(look)}/>'
        f'<path class="mark" d="{marker(look.marker, 22, 7, 4)}"/></svg>'
    )


def svg(chart: Chart, frame: Frame, label: str, looks: Mapping[str, Look], index: Mapping[str, int]) -> str:
    """The drawing; `label` says in words what it shows, `index` which of the page's colours a curve has."""
    (x_low, x_high), (y_low, y_high) = chart.limits()
    across = _scale(chart.x, x_low, x_high, frame.left, frame.width - frame.right)
    down = _scale(chart.y, y_low, y_high, frame.height - frame.bottom, frame.top)
    parts = [
        (
            f'<svg class="chart {frame.name}" viewBox="0 0 {frame.width} {frame.height}" role="img" '
            f'aria-label="{escape(label)}" font-size="{frame.letter}" data-left="{frame.left}" '
            f'data-right="{frame.width - frame.right}" data-top="{frame.top}" '
            f'data-bottom="{frame.height - frame.bottom}" '
            f'data-x="{x_low:.9g} {x_high:.9g}" data-y="{y_low:.9g} {y_high:.9g}">'
        ),
        *_axes(chart, frame, across, down, (x_low, x_high, y_low, y_high)),
    ]
    right = frame.width - frame.right
    parts += [f'<path class="level" d="M{frame.left} {down(line.y):.1f}H{right}"/>' for line in chart.lines]
    for place, series in enumerate(chart.series):
        places = [(across(x), down(y)) for x, y in series.points]
        marked = places if chart.markers_everywhere else _marked(places, place, frame)
        parts.append(_curve(places, marked, looks[series.label], index[series.label], frame))
    for line in chart.lines:
        at_left = chart.freer_side(line) == "left"
        x, anchor = (frame.left + 4, "start") if at_left else (frame.width - frame.right - 3, "end")
        at = f'x="{x}" y="{down(line.y) - 4:.1f}" text-anchor="{anchor}"'
        parts.append(f'<text class="tick level-name" {at}>{escape(line.label)}</text>')
    parts.append('<path class="cross" d="" /><circle class="spot" r="5" cx="-9" cy="-9"/></svg>')
    return "".join(parts)


def _axes(
    chart: Chart,
    frame: Frame,
    across: Callable[[float], float],
    down: Callable[[float], float],
    limits: tuple[float, float, float, float],
) -> list[str]:
    x_low, x_high, y_low, y_high = limits
    bottom, right = frame.height - frame.bottom, frame.width - frame.right
    parts = []
    for tick in chart.x.ticks_between(x_low, x_high, frame.x_ticks):
        x = across(tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {frame.top}V{bottom}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + frame.letter + 5}" text-anchor="middle">{tick:g}</text>'
        )
    for tick in chart.y.ticks_between(y_low, y_high, frame.y_ticks):
        y = down(tick)
        parts.append(f'<path class="grid" d="M{frame.left} {y:.1f}H{right}"/>')
        parts.append(
            f'<text class="tick" x="{frame.left - 6}" y="{y + frame.letter / 3:.1f}" text-anchor="end">{tick:g}</text>'
        )
    middle = (frame.top + bottom) / 2
    parts.append(f'<path class="axis" d="M{frame.left} {frame.top}V{bottom}H{right}"/>')
    parts.append(
        f'<text class="name" x="{(frame.left + right) / 2:.0f}" y="{frame.height - 6}" text-anchor="middle">'
        f"{escape(chart.x.title)}</text>"
    )
    parts.append(
        f'<text class="name" transform="translate({frame.letter + 1} {middle:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.y.title)}</text>"
    )
    return parts


def _curve(places: Sequence[Place], marked: Sequence[Place], look: Look, index: int, frame: Frame) -> str:
    path = "M" + " ".join(f"{x:.1f},{y:.1f}" for x, y in _thinned(places)) if places else ""
    marks = "".join(marker(look.marker, x, y, frame.letter / 3.2) for x, y in dict.fromkeys([*marked, *places[-1:]]))
    return (
        f'<g class="series series-{index}"><path class="curve" d="{path}"{_dashes(look)}/>'
        f'<path class="mark" d="{marks}"/></g>'
    )


def _marked(places: Sequence[Place], order: int, frame: Frame) -> list[Place]:
    """Some places on a curve, shifted from curve to curve so that markers of close ones do not lie upon each other."""
    step = (frame.width - frame.left - frame.right) / 5
    return _at(places, [frame.left + step * (k + 0.35 + 0.6 * (order % 7) / 7) for k in range(5)])


def _thinned(places: Sequence[Place]) -> list[Place]:
    """The points that can be told apart on a screen, the last one among them."""
    kept: list[Place] = []
    for place in places:
        if not kept or abs(place[0] - kept[-1][0]) + abs(place[1] - kept[-1][1]) >= 0.7:
            kept.append(place)
    if places and kept[-1] != places[-1]:
        kept.append(places[-1])
    return kept


def _at(places: Sequence[Place], wanted: Sequence[float]) -> list[Place]:
    """Where a curve is at some places across, between its points."""
    found = []
    for x in wanted:
        for (x0, y0), (x1, y1) in itertools.pairwise(places):
            if x0 <= x <= x1 and x1 > x0:
                found.append((x, y0 + (y1 - y0) * (x - x0) / (x1 - x0)))
                break
    return found


def _dashes(look: Look) -> str:
    return f' stroke-dasharray="{" ".join(f"{2.2 * length:g}" for length in look.dashes)}"' if look.dashes else ""


def _scale(axis: Axis, low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    """From values to pixels; what has no logarithm is at the beginning."""

    def linear(value: float) -> float:
        return begin + (end - begin) * (value - low) / (high - low)

    def logarithmic(value: float) -> float:
        if value <= 0:
            return begin
        return begin + (end - begin) * (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))

    return logarithmic if axis.log else linear
