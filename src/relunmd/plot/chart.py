"""Description of a chart, independent of how it is drawn: series on two axes, and the line style of each label.

The figures of `relunmd.plot` and the report draw the same description, so a label has one color, dash pattern and
marker everywhere. Line styles differ in lightness, dashes and marker, so they remain distinguishable in grayscale.
"""

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

PAPER = {"naive": "Naive", "a-naive": "A-Naive", "em": "EM", "a-em": "A-EM",
         "a-nmd": "A-NMD", "3b": "3B-NMD", "tsvd": "TSVD"}  # fmt: skip
"""The paper's names of its algorithms. Other algorithms are shown under their registered name."""


def shown_name(algorithm: str) -> str:
    """Return the name of an algorithm in figures and tables.

    >>> from relunmd.plot.chart import shown_name
    >>> shown_name("3b"), shown_name("qn")
    ('3B-NMD', 'qn')
    """
    return PAPER.get(algorithm, algorithm)


@dataclass(frozen=True)
class LineStyle:
    """Colors on a white and on a dark background, lengths of dashes and gaps (empty: solid), and Matplotlib marker."""

    color: str
    dark_color: str
    dashes: tuple[float, ...]
    marker: str


# Colors that also differ in lightness (after Okabe and Ito).
_FIXED = {
    "3B-NMD": LineStyle("#0072b2", "#4db2f0", (9, 2, 1.5, 2), "^"),
    "A-NMD": LineStyle("#b0272f", "#ff7b80", (3, 1.2), "s"),
    "A-EM": LineStyle("#000000", "#ffffff", (5, 2), "o"),
    "EM": LineStyle("#777777", "#9a9a9a", (1.5, 1.5), "o"),
    "A-Naive": LineStyle("#e69f00", "#f0b429", (6, 2, 1.5, 2), "v"),
    "Naive": LineStyle("#56b4e9", "#8fd3ff", (5, 1, 1, 1, 1, 1), "D"),
    "TSVD": LineStyle("#cc79a7", "#eba0c8", (6, 3), "d"),
    "NMF": LineStyle("#8c510a", "#d8a05a", (3, 1, 1, 1), "P"),
    "3b-factored": LineStyle("#5e3c99", "#b49be8", (8, 2), "p"),
    "qn": LineStyle("#007a5a", "#35d0a0", (), "*"),
}
_FREE = (LineStyle("#a6a600", "#d6d640", (4, 2, 1, 2), "X"), LineStyle("#333f99", "#8f9cff", (2, 1), "h"))
LINE_STYLES = (*_FIXED.values(), *_FREE)
_OTHERS = _FREE + tuple(
    replace(style, dashes=LINE_STYLES[(k + 4) % 12].dashes, marker=LINE_STYLES[(k + 9) % 12].marker)
    for k, style in enumerate(LINE_STYLES)
)


def line_styles(labels: Iterable[str]) -> dict[str, LineStyle]:
    """Return the line style of each label.

    A style depends on the label alone, except when two labels without a fixed style hash to the same one.

    >>> from relunmd.plot.chart import line_styles
    >>> line_styles(["mine", "qn"])["qn"] == line_styles(["qn", "yours"])["qn"]
    True
    """
    named = list(dict.fromkeys(labels))
    found = {label: _FIXED[label] for label in named if label in _FIXED}
    free = list(range(len(_OTHERS)))
    for label in sorted(set(named) - found.keys()):
        wanted = zlib.crc32(label.encode("utf-8", "replace")) % len(_OTHERS)
        place = min(free, key=lambda k: (k - wanted) % len(_OTHERS), default=wanted)
        free = [k for k in free if k != place]
        found[label] = _OTHERS[place]
    return {label: found[label] for label in named}


def number(value: float) -> str:
    """Return a number with six significant digits, as in points.csv and the page's read-outs.

    >>> from relunmd.plot.chart import number
    >>> number(0.123456789), number(32.0)
    ('0.123457', '32')
    """
    return f"{value:.6g}"


@dataclass(frozen=True)
class Series:
    """A labeled curve. Coordinates are stored as text, so that every output shows the same digits."""

    label: str
    x: tuple[str, ...]
    y: tuple[str, ...]

    @classmethod
    def of(cls, label: str, x: Iterable[float], y: Iterable[float]) -> "Series":
        """Build a series from numbers; points that are not finite are dropped."""
        points = [(number(a), number(b)) for a, b in zip(x, y, strict=True) if math.isfinite(a) and math.isfinite(b)]
        return cls(label, tuple(a for a, _ in points), tuple(b for _, b in points))

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(float(a), float(b)) for a, b in zip(self.x, self.y, strict=True)]


@dataclass(frozen=True)
class Line:
    """A labeled horizontal line, such as the error of a baseline."""

    label: str
    y: float


@dataclass(frozen=True)
class Axis:
    """Name, unit and scale of an axis; `ticks` fixes the tick locations, `whole` restricts them to integers."""

    name: str
    unit: str = ""
    log: bool = False
    ticks: tuple[float, ...] = ()
    whole: bool = False

    @property
    def title(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name


@dataclass(frozen=True)
class Chart:
    """Series and horizontal lines on two axes; `markers_everywhere` puts a marker on every point."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    lines: tuple[Line, ...] = ()
    markers_everywhere: bool = False

    def freer_side(self, line: Line) -> str:
        """Return the side, "left" or "right", where the label of a line is farther from the series."""

        def room(end: int) -> float:
            heights = [series.points[end][1] for series in self.series if series.points]
            scale = (lambda y: math.log(max(y, 1e-300))) if self.y.log else float
            return min((abs(scale(y) - scale(line.y)) for y in heights), default=0.0)

        return "left" if room(0) > room(-1) else "right"
