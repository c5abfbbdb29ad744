"""What an experiment has to say, as data (sections of paragraphs, tables, pictures and claims), and as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relunmd.files import write_beside

__all__ = ["Block", "Claim", "Paragraph", "Picture", "Report", "Section", "Table", "write_markdown"]


@dataclass(frozen=True)
class Paragraph:
    """Some sentences."""

    text: str


@dataclass(frozen=True)
class Table:
    """Cells as they are shown, row by row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A file beside the report, and in words what it shows for those who cannot see it."""

    file: str
    alt: str


Block = Paragraph | Table | Picture


@dataclass(frozen=True)
class Claim:
    """What the paper says, whether it holds here (None: it could not be seen), and by which figures."""

    text: str
    holds: bool | None
    evidence: str

    @property
    def verdict(self) -> str:
        return {True: "confirmed", False: "**not confirmed**", None: "not seen"}[self.holds]


@dataclass(frozen=True)
class Section:
    """One experiment's part."""

    name: str
    title: str
    blocks: Sequence[Block]
    claims: Sequence[Claim] = field(default_factory=tuple)


@dataclass(frozen=True)
class Report:
    """Everything that a page needs."""

    title: str
    introduction: Sequence[str]
    sections: Sequence[Section]
    environments: Sequence[dict[str, Any]]


def write_markdown(report: Report, path: Path) -> None:
    """Write the report as Markdown, beside its place first."""
    text = "\n\n".join(_lines(report)) + "\n"
    write_beside(path, lambda out: out.write(text.encode()))


def _lines(report: Report) -> list[str]:
    parts = [f"# {report.title}", *report.introduction]
    claims = [(section, claim) for section in report.sections for claim in section.claims]
    if claims:
        parts.append("## The paper's claims")
        rows = [(section.name, claim.text, claim.verdict) for section, claim in claims]
        parts.append(_table(Table(("from", "claim", "here"), rows)))
    for section in report.sections:
        parts.append(f"## {section.title}")
        parts.extend(_block(block) for block in section.blocks)
        if section.claims:
            parts.append("\n".join(f"- {claim.text}: {claim.verdict} ({claim.evidence})." for claim in section.claims))
    parts.append("## Machine and versions")
    if len(report.environments) > 1:
        parts.append(
            "Runs of different machines or versions stand side by side: ratios of times between them say nothing."
        )
    for found in report.environments:
        versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        parts.append(
            f"{found['machine']}, {found['cores']} cores; Python {found['python']}, {versions}, "
            f"BLAS: {', '.join(found['blas']) or 'unknown'}."
        )
    return parts


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Picture):
        return f"![{_escaped(block.alt)}]({block.file})"
    return block.text


def _table(table: Table) -> str:
    """A Markdown table; columns of numbers stand to the right."""
    right = [all(_numeric(row[i]) for row in table.rows) for i in range(len(table.columns))]
    lines = [table.columns, ["---:" if number else "---" for number in right], *table.rows]
    return "\n".join("| " + " | ".join(_escaped(cell) for cell in line) + " |" for line in lines)


def _numeric(cell: str) -> bool:
    return cell.strip("*–+−-%×≤ .,0123456789e()") == ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
