"""Charts and pictures of a report, drawn by Matplotlib: PNG files beside it, and SVG inside the page.

The page's security policy refuses style attributes, so they become presentation attributes, which the page's style
sheet can override: this is how colors follow the light and the dark scheme. Text remains text.
"""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from relunmd._util import printable
from relunmd.comparison.report.content import Drawing, Paragraph, Picture
from relunmd.errors import MissingDependencyError
from relunmd.io.atomic import write_beside
from relunmd.plot import style
from relunmd.plot.chart import LINE_STYLES, Chart, LineStyle

FRAMES = {"wide": (760, 430, 13, (9, 8)), "narrow": (330, 300, 11, (5, 7))}
"""Width, height and font size in pixels and most ticks on each axis. Letters must not shrink in a narrow window."""

DARK_COLORS = "".join(
    f'[stroke="{one.color}"]{{stroke:{one.dark_color}}}[fill="{one.color}"]{{fill:{one.dark_color}}}'
    for one in LINE_STYLES
)
"""Style sheet that replaces the colors of the line styles on a dark background."""


def drawing(charts: Sequence[Chart], path: Path, alt: str) -> Drawing:
    """Save charts side by side as a picture with one legend, and return them for the report."""
    several = len(charts) > 1
    beside = 1.7 if several or len(charts[0].series) > style.MOST_INSIDE else 0.0
    try:
        made, axes = style.figure(6.0 * len(charts) + beside if several else 7.6 + beside, 4.6, len(charts))
    except MissingDependencyError:
        return Drawing(charts, None, alt)
    for chart, ax in zip(charts, axes, strict=True):
        style.draw(chart, ax, legend=not several)
    if several:
        style.outer_legend(made, axes[0])
    save(made, path)
    return Drawing(charts, Picture(path.name, alt), alt)


def where_possible(draw: Callable[[], Picture]) -> Picture | Paragraph:
    """Return the picture, or a paragraph that names the missing package."""
    try:
        return draw()
    except MissingDependencyError as reason:
        return Paragraph(str(reason))


def save(made: Any, path: Path) -> None:
    """Write a figure as PNG."""
    with style.no_glyph_warnings():
        write_beside(path, lambda out: made.savefig(out, format="png"))


def chart_svg(chart: Chart, frame: str, label: str, salt: str) -> str:
    """Return a chart without title and legend as an SVG element.

    Its data attributes hold the position of the axes (left, bottom, right and top as fractions of the figure) and the
    limits of both axes, from which page.js computes where a point is. `salt` makes the ids of the
    element unique on the page.
    """
    width, height, size, most_ticks = FRAMES[frame]
    made, (ax,) = style.figure(width / 72, height / 72)
    style.draw(replace(chart, title=""), ax, legend=False, size=size, most_ticks=most_ticks)
    root = _inline_svg(made, salt)
    root.attrib = {
        "class": f"chart {frame}",
        "viewBox": f"0 0 {width} {height}",
        "role": "img",
        "aria-label": printable(label),
        "data-box": "{:.5f} {:.5f} {:.5f} {:.5f}".format(*ax.get_position().extents),
        "data-x": "{:.9g} {:.9g}".format(*ax.get_xlim()),
        "data-y": "{:.9g} {:.9g}".format(*ax.get_ylim()),
    }
    return ElementTree.tostring(root, encoding="unicode")


def swatch_svg(line: LineStyle, salt: str) -> str:
    """Return a short piece of a curve as an SVG element, for the legend."""
    from matplotlib import figure, lines

    made = figure.Figure((44 / 72, 14 / 72))
    made.add_artist(lines.Line2D([0.02, 0.5, 0.98], [0.5] * 3, markevery=[1], **style.line_options(line)))
    root = _inline_svg(made, salt)
    root.attrib = {"class": "swatch", "width": "44", "height": "14", "viewBox": "0 0 44 14", "aria-hidden": "true"}
    return ElementTree.tostring(root, encoding="unicode")


def _inline_svg(figure: Any, salt: str) -> ElementTree.Element:
    """Return a figure as an SVG element that can be part of an HTML page."""
    import matplotlib

    text = io.StringIO()
    options: Any = {"svg.fonttype": "none", "svg.hashsalt": salt, "text.usetex": False}
    with matplotlib.rc_context(options), style.no_glyph_warnings():
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    source = text.getvalue().replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)  # HTML implies the namespace.
    root = ElementTree.fromstring(source)  # noqa: S314 (Matplotlib wrote it.)
    for element in root.iter():
        for child in list(element):
            if child.tag in ("metadata", "style", "clipPath"):
                element.remove(child)
        element.attrib = dict(_attributes(element.attrib))
        element.tail = None
        element.text = element.text if element.tag == "text" else None
    return root


def _attributes(given: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the attributes of an element that the page needs, with short numbers."""
    for name, value in given.items():
        if name == "style":
            declarations = (declaration.split(": ", 1) for declaration in value.split("; "))
            yield from ((key, kept) for key, kept in declarations if key != "font-family")
        elif value == "series":
            yield "class", value
        elif name == "id" and not re.fullmatch("m[0-9a-f]{10}", value):  # Only markers are referred to.
            continue
        elif name != "clip-path" and not value.startswith("rotate(-0 "):
            short = re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found[0]):.4g}", " ".join(value.split()))
            yield name.rpartition("}")[2], short
