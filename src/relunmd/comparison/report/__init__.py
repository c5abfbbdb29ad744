"""One report builder for comparisons and for the paper's experiments: what is to be said as data, then as a page that
can be mailed, as Markdown, and the points of its charts as CSV.
"""

from relunmd.comparison.report.content import (
    Block,
    Cell,
    Claim,
    Code,
    Drawing,
    Link,
    Paragraph,
    Part,
    Picture,
    Report,
    Section,
    Strong,
    Table,
    plain_text,
)
from relunmd.comparison.report.markdown import markdown
from relunmd.comparison.report.page import html
from relunmd.comparison.report.report_files import write_csv, write_report

__all__ = [
    "Block",
    "Cell",
    "Claim",
    "Code",
    "Drawing",
    "Link",
    "Paragraph",
    "Part",
    "Picture",
    "Report",
    "Section",
    "Strong",
    "Table",
    "html",
    "markdown",
    "plain_text",
    "write_csv",
    "write_report",
]
