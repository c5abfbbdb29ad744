"""Charts and legend entries as SVG for the page: drawn by Matplotlib, then adapted to the page.

The page's security policy refuses style attributes, so they become presentation attributes, which the page's style
sheet can override: this is how colors follow the light and the dark scheme. Text remains text.
"""

import io
import re
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree

from relunmd._util import need
from relunmd.plot import style
from relunmd.plot.chart import LINE_STYLES, Chart, LineStyle, visible


@dataclass(frozen=True)
class Frame:
    """Size of a drawing and of its letters in pixels, and the largest number of ticks on each axis."""

    name: str
    width: int
    height: int
    size: float
    most_ticks: tuple[int, int]


FRAMES = (Frame("wide", 760, 430, 13, (9, 8)), Frame("narrow", 330, 300, 11, (5, 7)))
"""Every chart is drawn for wide and for narrow windows, because letters must not shrink."""

DARK_COLORS = "".join(
    f'[stroke="{one.color}"]{{stroke:{one.dark_color}}}[fill="{one.color}"]{{fill:{one.dark_color}}}'
    for one in LINE_STYLES
)
"""Style sheet that replaces the colors of the line styles on a dark background."""


def chart_svg(chart: Chart, frame: Frame, label: str, salt: str) -> str:
    """Return a chart without title and legend as an SVG element.

    Its data attributes hold the box of the axes in pixels (left, top, right, bottom) and the limits of both axes, from
    which page.js computes where a point is. `salt` makes the ids of the element unique on the page.
    """
    made, (ax,) = style.figure(frame.width / 72, frame.height / 72)
    style.draw(replace(chart, title=""), ax, legend=False, size=frame.size, most_ticks=frame.most_ticks)
    root = _inline_svg(made, salt)
    box = ax.get_position()
    edges = (frame.width * box.x0, frame.height * (1 - box.y1), frame.width * box.x1, frame.height * (1 - box.y0))
    root.attrib = {
        "class": f"chart {frame.name}",
        "viewBox": f"0 0 {frame.width} {frame.height}",
        "role": "img",
        "aria-label": visible(label),
        "data-box": " ".join(f"{edge:.2f}" for edge in edges),
        "data-x": " ".join(f"{limit:.9g}" for limit in ax.get_xlim()),
        "data-y": " ".join(f"{limit:.9g}" for limit in ax.get_ylim()),
    }
    return ElementTree.tostring(root, encoding="unicode")


def swatch_svg(line: LineStyle, salt: str) -> str:
    """Return a short piece of a curve as an SVG element, for the legend."""
    made = need("matplotlib.figure", "Figures need", "plot").Figure((44 / 72, 14 / 72))
    lines = need("matplotlib.lines", "Figures need", "plot")
    made.add_artist(lines.Line2D([0.02, 0.5, 0.98], [0.5] * 3, markevery=[1], **style.line_options(line)))
    root = _inline_svg(made, salt)
    root.attrib = {"class": "swatch", "width": "44", "height": "14", "viewBox": "0 0 44 14", "aria-hidden": "true"}
    return ElementTree.tostring(root, encoding="unicode")


def _inline_svg(figure: Any, salt: str) -> ElementTree.Element:
    """Return a figure as an SVG element that can be part of an HTML page."""
    text = io.StringIO()
    options = {"svg.fonttype": "none", "svg.hashsalt": salt, "text.usetex": False}
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with need("matplotlib", "Figures need", "plot").rc_context(options), style.no_glyph_warnings():
        figure.savefig(text, format="svg", metadata=nothing, transparent=True)
    root = ElementTree.fromstring(text.getvalue())  # noqa: S314 (Matplotlib wrote it.)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # HTML knows the namespace.
        for child in list(element):
            if child.tag.rpartition("}")[2] in ("metadata", "style", "clipPath"):
                element.remove(child)
        element.attrib = dict(_attributes(element.attrib))
        element.tail = None
        if element.tag != "text":
            element.text = None
    return root


def _attributes(given: dict[str, str]) -> Any:
    """Yield the attributes of an element that a page needs, with short numbers."""
    for name, value in given.items():
        if name == "style":
            declarations = (declaration.split(": ", 1) for declaration in value.split("; "))
            yield from ((key, kept) for key, kept in declarations if key != "font-family")
        elif name == "id":
            if value == "series":
                yield "class", value
            elif re.fullmatch("m[0-9a-f]{10}", value):  # A marker, which other elements refer to.
                yield name, value
        elif name != "clip-path" and not value.startswith("rotate(-0 "):
            short = re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found[0]):.4g}", " ".join(value.split()))
            yield name.rpartition("}")[2], short
