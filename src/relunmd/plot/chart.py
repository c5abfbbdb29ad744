"""What a chart is, apart from how it is drawn: curves with names on two axes, and how an algorithm looks.

The pictures and the page draw from the same description, so a curve has one color,
dash and marker wherever it is seen, and the same numbers under it. Looks differ in lightness, dash and marker, so that
they can be told in grey.
"""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from relunmd._util import printable as visible

__all__ = ["PAPER", "Axis", "Chart", "Line", "Look", "Series", "looks", "number", "shown_name", "visible"]

PAPER = {
    "naive": "Naive",
    "a-naive": "A-Naive",
    "em": "EM",
    "a-em": "A-EM",
    "a-nmd": "A-NMD",
    "3b": "3B-NMD",
    "tsvd": "TSVD",
}
"""The paper's algorithms and their names in it; all others are shown by the name they have here."""


def shown_name(algorithm: str) -> str:
    """What pictures and tables call an algorithm.

    >>> from relunmd.plot.chart import shown_name
    >>> shown_name("3b"), shown_name("qn")
    ('3B-NMD', 'qn')
    """
    return PAPER.get(algorithm, algorithm)


@dataclass(frozen=True)
class Look:
    """A colour on white and one on black, the lengths of dashes and gaps (none: solid), and a marker by its letter."""

    colour: str
    on_black: str
    dashes: tuple[float, ...]
    marker: str


_FIRST = ("3B-NMD", "A-NMD", "A-EM", "EM", "A-Naive", "Naive", "TSVD", "NMF", "3b-factored", "qn")
"""Whose looks are always the same."""

# Colours that differ in lightness too (after Okabe and Ito).
_LOOKS = (
    Look("#0072b2", "#4db2f0", (9, 2, 1.5, 2), "^"),
    Look("#b0272f", "#ff7b80", (3, 1.2), "s"),
    Look("#000000", "#ffffff", (5, 2), "o"),
    Look("#777777", "#9a9a9a", (1.5, 1.5), "o"),
    Look("#e69f00", "#f0b429", (6, 2, 1.5, 2), "v"),
    Look("#56b4e9", "#8fd3ff", (5, 1, 1, 1, 1, 1), "D"),
    Look("#cc79a7", "#eba0c8", (6, 3), "d"),
    Look("#8c510a", "#d8a05a", (3, 1, 1, 1), "P"),
    Look("#5e3c99", "#b49be8", (8, 2), "p"),
    Look("#007a5a", "#35d0a0", (), "*"),
    Look("#a6a600", "#d6d640", (4, 2, 1, 2), "X"),
    Look("#333f99", "#8f9cff", (2, 1), "h"),
)


_MORE = tuple(
    Look(look.colour, look.on_black, _LOOKS[(k + 4) % len(_LOOKS)].dashes, _LOOKS[(k + 9) % len(_LOOKS)].marker)
    for k, look in enumerate(_LOOKS)
)
_OTHERS = (*_LOOKS[len(_FIRST) :], *_MORE)
"""For those that are not among the first."""


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """A look for each label, in whatever order and company it comes, but that two others may want the same one.

    >>> from relunmd.plot.chart import looks
    >>> looks(["mine", "qn"])["qn"] == looks(["qn", "yours"])["qn"]
    True
    """
    named = list(dict.fromkeys(labels))
    found = {label: _LOOKS[_FIRST.index(label)] for label in named if label in _FIRST}
    taken: set[int] = set()
    for label in sorted(set(named) - found.keys()):
        wanted = zlib.crc32(label.encode("utf-8", "replace"))
        free = [place for place in range(len(_OTHERS)) if (wanted + place) % len(_OTHERS) not in taken] or [0]
        place = (wanted + free[0]) % len(_OTHERS)
        taken.add(place)
        found[label] = _OTHERS[place]
    return {label: found[label] for label in named}


def number(value: float) -> str:
    """A number as tables of points and read-outs show it: six significant digits.

    >>> from relunmd.plot.chart import number
    >>> number(0.123456789), number(32.0)
    ('0.123457', '32')
    """
    return f"{value:.6g}"


@dataclass(frozen=True)
class Series:
    """A curve: its name and its points, as text, so that every place shows the same digits."""

    label: str
    x: tuple[str, ...]
    y: tuple[str, ...]

    @classmethod
    def of(cls, label: str, x: Iterable[float], y: Iterable[float]) -> "Series":
        """A curve from numbers; points that are not finite are left out."""
        points = [(number(a), number(b)) for a, b in zip(x, y, strict=True) if math.isfinite(a) and math.isfinite(b)]
        return cls(label, tuple(a for a, _ in points), tuple(b for _, b in points))

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(float(a), float(b)) for a, b in zip(self.x, self.y, strict=True)]


@dataclass(frozen=True)
class Line:
    """A level to compare with."""

    label: str
    y: float


@dataclass(frozen=True)
class Axis:
    """What is on an axis, in which unit, whether it is logarithmic, and its ticks if they are not to be found."""

    name: str
    unit: str = ""
    log: bool = False
    ticks: tuple[float, ...] = ()
    whole: bool = False
    """Whether it has whole numbers alone."""

    @property
    def title(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def limits(self, values: Sequence[float]) -> tuple[float, float]:
        """Where the axis begins and ends for these values, with some room around them."""
        shown = [value for value in values if value > 0] if self.log else list(values)
        if not shown:
            return (0.1, 1.0) if self.log else (0.0, 1.0)
        low, high = min(shown), max(shown)
        if self.log:
            if low == high:
                return low / 1.5, high * 1.5
            room = (high / low) ** 0.04
            return low / room, high * room
        room = 0.04 * (high - low) or 0.1 * abs(high) or 0.5
        return low - room, high + room

    def ticks_between(self, low: float, high: float, most: int) -> list[float]:
        """Round numbers from `low` to `high`, about `most` of them at most."""
        if self.ticks:
            step = -(-len(self.ticks) // most)
            return [tick for tick in self.ticks[::step] if low <= tick <= high]
        return _logarithmic(low, high, most) if self.log else _even(low, high, most, self.whole)


def _even(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(by * power for by in (1, 2, 5, 10) if (high - low) / (by * power) <= most)
    step = max(1.0, step) if whole else step
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def _apart(ticks: list[float], low: float, high: float) -> list[float]:
    """Those of which the numbers do not touch each other."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or math.log(tick / kept[-1]) > 0.055 * math.log(high / low):
            kept.append(tick)
    return kept


def _logarithmic(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 4, 5, 7), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3)):
        found = [by * 10.0**power for power in range(first, last + 1) for by in factors]
        found = _apart([float(f"{tick:.6g}") for tick in found if low <= tick <= high], low, high)
        if 2 <= len(found) <= most:
            return found
    for step in (1, 2, 3, 5):
        powers = [power for power in range(first, last + 1) if power % step == 0 and low <= 10.0**power <= high]
        if 2 <= len(powers) <= most:
            return [float(f"1e{power}") for power in powers]
    return _even(low, high, most)


@dataclass(frozen=True)
class Chart:
    """Curves on two axes, and levels to compare them with."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    lines: tuple[Line, ...] = ()
    markers_everywhere: bool = False
    """Whether every point has a marker, as with few points, or only some."""

    @property
    def looks(self) -> Mapping[str, Look]:
        return looks(series.label for series in self.series)

    def freer_side(self, line: Line) -> str:
        """On which side, "left" or "right", the name of a level is farther from the curves."""
        rooms = []
        for end in (0, -1):
            heights = [series.points[end][1] for series in self.series if series.points]
            if self.y.log:
                rooms.append(min((abs(math.log(y / line.y)) for y in heights if y > 0 < line.y), default=0.0))
            else:
                rooms.append(min((abs(y - line.y) for y in heights), default=0.0))
        return "left" if rooms[0] > rooms[1] else "right"

    def limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Where the axes begin and end."""
        points = [point for series in self.series for point in series.points]
        heights = [y for _, y in points] + [line.y for line in self.lines]
        return self.x.limits([x for x, _ in points]), self.y.limits(heights)
