"""The files of a report: report.html, report.md and points.csv, each written beside its place and renamed."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from relunmd.comparison.report.content import Report
from relunmd.comparison.report.markdown import markdown
from relunmd.comparison.report.page import html
from relunmd.errors import RelunmdError
from relunmd.io.atomic import write_beside

__all__ = ["write_csv", "write_report"]

_FORMULAS = ("=", "+", "-", "@", "\t", "\n")


def write_report(report: Report, folder: Path) -> Path:
    """Write a report in a folder that has its pictures; gives the path of the page."""
    page = folder / "report.html"
    try:
        _write(folder / "report.md", markdown(report))
        write_csv(folder / "points.csv", ("section", "chart", "curve", "x", "y", "x is", "y is"), _points(report))
        _write(page, html(report, folder))
    except OSError as reason:
        raise RelunmdError(
            f"The report could not be written to {folder} ({reason}). The results are there; the same command makes it."
        ) from reason
    return page


def _points(report: Report) -> Iterable[Sequence[str]]:
    """What the page's charts show, point by point, in the same digits."""
    for section, chart in report.charts:
        for series in chart.series:
            for x, y in zip(series.x, series.y, strict=True):
                yield section, chart.title, series.label, x, y, chart.x.title, chart.y.title


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table as CSV in UTF-8.

    Text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows(map(_cell, row) for row in rows)
    _write(path, text.getvalue())


def _cell(value: object) -> object:
    """A cell that a spreadsheet does not execute; numbers, also those written as text, stay as they are.

    >>> [_cell(value) for value in ("=1+1", "-0.5", -0.5, "qn", "@sum")]
    ["'=1+1", '-0.5', -0.5, 'qn', "'@sum"]
    """
    if not isinstance(value, str):
        return value
    value = value.replace("\r", "\n")  # Which the csv module writes without quotes.
    if not value.startswith(_FORMULAS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _write(path: Path, text: str) -> None:
    # A name of a file may hold halves of letters, which UTF-8 has no bytes for.
    write_beside(path, lambda out: out.write(text.encode("utf-8", "replace")))
