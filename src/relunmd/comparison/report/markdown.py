"""A report as Markdown: the same words and tables as on the page, with pictures for charts."""

import re

from relunmd.comparison.report.content import (
    ABOUT,
    CLAIMS,
    MIXED,
    Block,
    Cell,
    Code,
    Drawing,
    Link,
    Part,
    Picture,
    Report,
    Strong,
    Table,
    Text,
    environment_line,
    parts,
    plain_text,
)
from relunmd.plot.chart import visible

__all__ = ["markdown"]


def markdown(report: Report) -> str:
    """The report as one Markdown text."""
    return "\n\n".join(_paragraphs(report)) + "\n"


def _paragraphs(report: Report) -> list[str]:
    found = [f"# {_escaped(report.title)}", _text(report.finding), *map(_text, report.introduction)]
    claims = [(section, claim) for section in report.sections for claim in section.claims]
    if claims:
        rows = [(section.name, claim.text, claim.verdict) for section, claim in claims]
        found += [f"## {CLAIMS}", _table(Table(("from", "claim", "here"), rows))]
    for section in report.sections:
        found.append(f"## {_escaped(section.title)}")
        found.extend(_block(block) for block in section.blocks)
        if section.claims:
            lines = [
                f"- {_escaped(claim.text)}: {_cell(claim.verdict)} ({_escaped(claim.evidence)})."
                for claim in section.claims
            ]
            found.append("\n".join(lines))
    found.append(f"## {ABOUT}")
    if report.settings:
        found.append("\n".join(f"- {_escaped(name)}: {_escaped(value)}" for name, value in report.settings.items()))
    if len(report.environments) > 1:
        found.append(MIXED)
    return found + [_escaped(environment_line(environment)) for environment in report.environments]


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Drawing):
        return _picture(block.picture) if block.picture is not None else "(A chart, which report.html shows.)"
    if isinstance(block, Picture):
        return _picture(block)
    return _text(block.text)


def _picture(picture: Picture) -> str:
    return f"![{_escaped(picture.alt)}]({picture.file})"


def _table(table: Table) -> str:
    """A Markdown table; columns of numbers stand to the right."""
    right = [all(numeric(row[i]) for row in table.rows) for i in range(len(table.columns))]
    lines = [table.columns, ["---:" if number else "---" for number in right]]
    rows = ["| " + " | ".join(_escaped(name) for name in lines[0]) + " |", "| " + " | ".join(lines[1]) + " |"]
    return "\n".join(rows + ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table.rows])


def numeric(cell: Cell) -> bool:
    """Whether a cell is of a column of numbers."""
    return plain_text([cell]).strip("*–+−-%×≤ .,0123456789e()") == ""


def _cell(cell: Cell) -> str:
    return _part(cell)


def _text(text: Text) -> str:
    written = "".join(_part(part) for part in parts(text)).strip()
    # What would begin a list, a heading or a rule.
    written = re.sub(r"^([-+#=])", r"\\\1", written)
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", written)


def _part(part: Part) -> str:
    if isinstance(part, Strong):
        return f"**{_escaped(part.text)}**"
    if isinstance(part, Link):
        return f"[{_escaped(part.text)}]({part.address})"
    if isinstance(part, Code):
        fence = "`" * (1 + max((len(run) for run in re.findall("`+", part.text)), default=0))
        room = " " if part.text.startswith("`") or part.text.endswith("`") else ""
        return f"{fence}{room}{visible(part.text)}{room}{fence}"
    return _escaped(part)


def _escaped(text: str) -> str:
    """Text in which Markdown finds nothing to do."""
    line = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"([\\`*\[\]|~$])", r"\\\1", line)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", line)
