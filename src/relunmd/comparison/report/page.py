"""A report as one HTML file that can be mailed: it loads nothing from elsewhere and is readable without scripts.

All text is escaped by the template engine. In addition, the page's security policy allows only its own script and
style sheet, identified by their hashes.
"""

import base64
import hashlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from relunmd._util import need, printable
from relunmd.comparison.report import content
from relunmd.comparison.report.content import Cell, Report, plain_text
from relunmd.comparison.report.figures import DARK_COLORS, FRAMES, chart_svg, swatch_svg
from relunmd.errors import MissingDependencyError
from relunmd.plot.chart import Chart, line_styles


def html(report: Report, folder: Path) -> str:
    """Return the page with the pictures that are in `folder`.

    Raises
    ------
    MissingDependencyError
        If Jinja2 is not installed.
    """
    jinja2 = need("jinja2", "The page report.html needs", "plot")
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    sheet = f"{_resource('page.css')}@media screen and (prefers-color-scheme: dark){{{DARK_COLORS}}}"
    script = _resource("page.js")
    page = environment.from_string(_resource("page.html")).render(
        report=report,
        content=content,
        kind=lambda value: type(value).__name__,
        sort_value=sort_value,
        svgs=partial(_svgs, map(str, itertools.count())),
        image=lambda file: base64.b64encode((folder / file).read_bytes()).decode(),
        data=[_data(chart) for _, chart in report.charts],
        sheet=sheet,
        script=script,
        hashes=[_hash(sheet), _hash(script)],
    )
    return str(page)


def _svgs(salts: Iterator[str], chart: Chart, alt: str) -> tuple[list[str], list[str]] | None:
    """Return the drawings of a chart and of its legend entries, or None without Matplotlib."""
    styles = line_styles(series.label for series in chart.series)
    try:
        with need("matplotlib.style", "Figures need", "plot").context("default"):  # Whatever the user's settings are.
            charts = [chart_svg(chart, frame, f"{chart.title}. {alt}", next(salts)) for frame in FRAMES]
            return charts, [swatch_svg(styles[series.label], next(salts)) for series in chart.series]
    except MissingDependencyError:
        return None


def _data(chart: Chart) -> dict[str, Any]:
    """Return what page.js needs to read out the points of a chart."""
    series = [{"label": printable(one.label), "x": one.x, "y": one.y} for one in chart.series]
    return {"x": asdict(chart.x), "y": asdict(chart.y), "series": series}


def sort_value(cell: Cell) -> float | None:
    """Return the number that a cell begins with, or None, to sort the table by."""
    found = re.match(r"[+−-]?\d[\d ]*(\.\d+)?(e[+-]?\d+)?(?=\s*(?:$|[%×(–]))", plain_text([cell]).strip())
    return float(found[0].replace("−", "-").replace(" ", "")) if found else None


def _resource(name: str) -> str:
    return files("relunmd.comparison.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
