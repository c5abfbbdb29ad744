"""A report as Markdown: the text and tables of the page, with links to pictures of the charts."""

import re

from relunmd._util import printable
from relunmd.comparison.report import content
from relunmd.comparison.report.content import Block, Code, Drawing, Link, Part, Picture, Report, Strong, Table, Text


def markdown(report: Report) -> str:
    """Return the report as Markdown."""
    found = [f"# {_escaped(report.title)}", _text(report.finding), *map(_text, report.introduction)]
    if report.claims.rows:
        found += [f"## {content.CLAIMS}", _table(report.claims)]
    for section in report.sections:
        found += [f"## {_escaped(section.title)}", *map(_block, section.blocks)]
        claims = [
            f"- {_escaped(claim.text)}: {_part(claim.verdict)} ({_escaped(claim.evidence)})."
            for claim in section.claims
        ]
        found += ["\n".join(claims)] if claims else []
    found.append(f"## {content.ABOUT}")
    if report.settings:
        found.append("\n".join(f"- {_escaped(name)}: {_escaped(value)}" for name, value in report.settings.items()))
    return "\n\n".join([*found, *map(_escaped, report.machines)]) + "\n"


def _block(block: Block) -> str:
    shown = block.picture if isinstance(block, Drawing) else block
    if shown is None:
        return _escaped(content.NO_CHART)
    if isinstance(shown, Picture):
        return f"![{_escaped(shown.alt)}]({shown.file})"
    return _table(shown) if isinstance(shown, Table) else _text(shown.text)


def _table(table: Table) -> str:
    """Return a Markdown table with columns of numbers aligned right."""
    rows = [list(map(_escaped, table.columns)), ["---:" if number else "---" for number in table.numeric]]
    rows += [list(map(_part, row)) for row in table.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _text(text: Text) -> str:
    written = "".join(map(_part, content.parts(text))).strip()
    # Escape what begins a list, a heading or a rule.
    written = re.sub(r"^([-+#=])", r"\\\1", written)
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", written)


def _part(part: Part) -> str:
    match part:
        case Strong(text):
            return f"**{_escaped(text)}**"
        case Link(text, address):
            return f"[{_escaped(text)}]({address})"
        case Code(text):
            fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
            space = " " if text.startswith("`") or text.endswith("`") else ""
            return f"{fence}{space}{printable(text)}{space}{fence}"
    return _escaped(part)


def _escaped(text: str) -> str:
    """Return text in which Markdown finds no markup."""
    line = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"([\\`*\[\]|~$])", r"\\\1", line)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", line)
