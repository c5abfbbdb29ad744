"""The files of a report, report.html, report.md and points.csv, each written atomically."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from relunmd.comparison.report.content import Report
from relunmd.comparison.report.markdown import markdown
from relunmd.comparison.report.page import html
from relunmd.errors import MissingDependencyError, RelunmdError
from relunmd.io.atomic import write_beside
from relunmd.plot.chart import number


def write_report(report: Report, folder: Path) -> Path:
    """Write a report into the folder of its pictures.

    Returns
    -------
    Path
        report.html, or report.md if Jinja2 is not installed.
    """
    page, text = folder / "report.html", folder / "report.md"
    try:
        write_text(text, markdown(report))
        write_csv(folder / "points.csv", ("section", "chart", "curve", "x", "y", "x is", "y is"), _points(report))
        try:
            write_text(page, html(report, folder))
        except MissingDependencyError:
            page.unlink(missing_ok=True)  # It would be the page of an earlier run.
            return text
    except OSError as reason:
        raise RelunmdError(
            f"The report could not be written to {folder} ({reason}). The results are saved there; run the same "
            "command again to write the report."
        ) from reason
    return page


def _points(report: Report) -> Iterable[Sequence[str]]:
    """Yield the points of the charts with the digits that the page shows."""
    for section, chart in report.charts:
        for series in chart.series:
            for x, y in zip(series.x, series.y, strict=True):
                yield section, chart.title, series.label, x, y, chart.x.title, chart.y.title


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table as CSV in UTF-8, with an apostrophe before text that a spreadsheet would execute as a formula."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(map(_cell, row) for row in (columns, *rows))
    write_text(path, text.getvalue())


def _cell(value: object) -> object:
    """Return a cell that a spreadsheet does not execute; numbers as text are unchanged, others have six digits.

    >>> [_cell(value) for value in ("=1+1", "-0.5", -0.5, "qn", "@sum")]
    ["'=1+1", '-0.5', '-0.5', 'qn', "'@sum"]
    """
    if not isinstance(value, str):
        return number(value) if isinstance(value, float) else value
    value = value.replace("\r", "\n")  # The csv module does not quote carriage returns.
    if not value.startswith(("=", "+", "-", "@", "\t", "\n")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def write_text(path: Path, text: str) -> None:
    """Write text in UTF-8; surrogates, which file names may contain, are replaced."""
    write_beside(path, lambda out: out.write(text.encode("utf-8", "replace")))
