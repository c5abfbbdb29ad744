"""Reports of comparisons and of the paper's experiments: content as data, written as an HTML page, Markdown and CSV."""

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
)
from relunmd.comparison.report.markdown import markdown
from relunmd.comparison.report.page import html
from relunmd.comparison.report.report_files import write_csv, write_report

__all__ = ["Block", "Cell", "Claim", "Code", "Drawing", "Link", "Paragraph", "Part", "Picture", "Report", "Section"]
__all__ += ["Strong", "Table", "html", "markdown", "write_csv", "write_report"]
