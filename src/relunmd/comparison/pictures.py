"""Pictures of comparisons and experiments as PNG files, if Matplotlib is installed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relunmd.comparison.report import Drawing, Paragraph, Picture
from relunmd.errors import MissingDependencyError
from relunmd.io.atomic import write_beside
from relunmd.plot import style
from relunmd.plot.chart import Chart


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
