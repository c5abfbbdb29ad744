"""What a report has to say, as data: sections of paragraphs, tables, pictures, charts and claims.

Text is text: nothing in a string is markup, wherever a name in it comes from. What is to stand out is said by
`Strong`, `Code` and `Link`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relunmd.plot.chart import Chart

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
    "parts",
    "plain_text",
]


@dataclass(frozen=True)
class Strong:
    """Text that stands out."""

    text: str


@dataclass(frozen=True)
class Code:
    """What one would type."""

    text: str


@dataclass(frozen=True)
class Link:
    """A name for an address."""

    text: str
    address: str


Part = str | Strong | Code | Link
Text = str | Sequence[Part]
Cell = str | Strong


def parts(text: Text) -> Sequence[Part]:
    """A text as its parts."""
    return [text] if isinstance(text, str) else text


def plain_text(text: Text) -> str:
    """The words alone."""
    return "".join(part if isinstance(part, str) else part.text for part in parts(text))


@dataclass(frozen=True)
class Paragraph:
    """Some sentences."""

    text: Text


@dataclass(frozen=True)
class Table:
    """Cells as they are shown, row by row, and what the table is about for those who cannot see where it stands."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A PNG file beside the report, and in words what it shows for those who cannot see it."""

    file: str
    alt: str


@dataclass(frozen=True)
class Drawing:
    """Charts that a page draws itself; the picture is of the same, for where it cannot (None: there is none)."""

    charts: Sequence[Chart]
    picture: Picture | None
    alt: str


Block = Paragraph | Table | Picture | Drawing


@dataclass(frozen=True)
class Claim:
    """What the paper says, whether it holds here (None: it could not be seen), and by which figures."""

    text: str
    holds: bool | None
    evidence: str

    @property
    def verdict(self) -> Cell:
        if self.holds is None:
            return "not seen"
        return "confirmed" if self.holds else Strong("not confirmed")


@dataclass(frozen=True)
class Section:
    """One part of a report; `name` is short, and its own; `finding` what it adds to the sentences on top."""

    name: str
    title: str
    blocks: Sequence[Block]
    claims: Sequence[Claim] = field(default_factory=tuple)
    finding: str = ""


@dataclass(frozen=True)
class Report:
    """Everything that a page needs.

    Attributes
    ----------
    finding : what came out, in a sentence or two
    introduction : what was done
    settings : names and values of what was asked for
    environments : machines and versions
    """

    title: str
    finding: Text
    introduction: Sequence[Text]
    sections: Sequence[Section]
    settings: Mapping[str, str]
    environments: Sequence[Mapping[str, Any]]

    @property
    def charts(self) -> list[tuple[str, Chart]]:
        """Every chart, with the name of its section."""
        return [
            (section.name, chart)
            for section in self.sections
            for block in section.blocks
            if isinstance(block, Drawing)
            for chart in block.charts
        ]


def environment_line(found: Mapping[str, Any]) -> str:
    """A machine and its versions in a sentence."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    blas = ", ".join(found["blas"]) or "unknown"
    return f"{found['machine']}, {found['cores']} cores; Python {found['python']}, {versions}, BLAS: {blas}."


MIXED = "Runs of different machines or versions stand side by side: ratios of times between them say nothing."
CLAIMS = "The paper's claims"
ABOUT = "Settings and machine"
