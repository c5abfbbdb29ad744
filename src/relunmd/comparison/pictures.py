"""Pictures of experiments: charts and sheets as PNG files, where Matplotlib is there."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relunmd.comparison.report import Drawing, Paragraph, Picture
from relunmd.errors import MissingDependencyError
from relunmd.io.atomic import write_beside
from relunmd.plot import style
from relunmd.plot.chart import Chart

__all__ = ["drawing", "save", "where_possible"]


def drawing(charts: Sequence[Chart], path: Path, alt: str) -> Drawing:
    """Charts side by side, for the page and as a picture with one legend for all."""
    try:
        several = len(charts) > 1
        beside = 1.7 if several or len(charts[0].series) > style.MOST_INSIDE else 0.0
        made, axes = style.figure(6.0 * len(charts) + beside if several else 7.6 + beside, 4.6, len(charts))
        for chart, ax in zip(charts, axes, strict=True):
            style.draw(chart, ax, legend=not several)
        if several:
            style.outer_legend(made, axes[0])
        save(made, path)
        picture = Picture(path.name, alt)
    except MissingDependencyError:
        picture = None
    return Drawing(charts, picture, alt)


def where_possible(draw: Callable[[], Picture]) -> Picture | Paragraph:
    """The picture, or in its place the sentence that says what it needs."""
    try:
        return draw()
    except MissingDependencyError as reason:
        return Paragraph(str(reason))


def save(made: Any, path: Path) -> None:
    """Write a figure as PNG."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # Letters that the font lacks are boxes; the page has them.
        write_beside(path, lambda out: made.savefig(out, format="png"))
