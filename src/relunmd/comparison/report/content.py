"""Content of a report as data: sections of paragraphs, tables, pictures, charts and claims.

Strings are plain text and never markup, wherever they come from. Use `Strong`, `Code` and `Link` for emphasis.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relunmd.plot.chart import Chart

CLAIMS = "The paper's claims"
ABOUT = "Settings and machine"
MIXED = "These runs come from different machines or versions: their times are not comparable."
NO_CHART = "This chart needs matplotlib (pip install 'relunmd[plot]'). Its points are in points.csv."


@dataclass(frozen=True)
class Strong:
    """Emphasized text."""

    text: str


@dataclass(frozen=True)
class Code:
    """Text to type or a file name."""

    text: str


@dataclass(frozen=True)
class Link:
    """Text that links to an address."""

    text: str
    address: str


Part = str | Strong | Code | Link
Text = str | Sequence[Part]
Cell = str | Strong


def parts(text: Text) -> Sequence[Part]:
    """Return the parts of a text."""
    return [text] if isinstance(text, str) else text


def plain_text(text: Text) -> str:
    """Return a text without emphasis and links."""
    return "".join(part if isinstance(part, str) else part.text for part in parts(text))


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text."""

    text: Text


@dataclass(frozen=True)
class Table:
    """Column names and formatted cells, row by row, with a caption for screen readers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds only numbers."""
        texts = [[plain_text([row[place]]) for row in self.rows] for place in range(len(self.columns))]
        return [all(cell.strip("*–+−-%×≤ .,0123456789e()") == "" for cell in column) for column in texts]


@dataclass(frozen=True)
class Picture:
    """A PNG file in the report's folder and its alternative text."""

    file: str
    alt: str


@dataclass(frozen=True)
class Drawing:
    """Charts, their picture for Markdown (None without Matplotlib), and their alternative text."""

    charts: Sequence[Chart]
    picture: Picture | None
    alt: str


Block = Paragraph | Table | Picture | Drawing


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, whether it holds here (None: not observed), and the evidence."""

    text: str
    holds: bool | None
    evidence: str

    @property
    def verdict(self) -> Cell:
        return {None: "not seen", True: "confirmed"}.get(self.holds, Strong("not confirmed"))


@dataclass(frozen=True)
class Section:
    """A part of a report with a unique short `name`; `finding` is what it contributes to the report's finding."""

    name: str
    title: str
    blocks: Sequence[Block]
    claims: Sequence[Claim] = ()
    finding: str = ""


@dataclass(frozen=True)
class Report:
    """Content of a report.

    Attributes
    ----------
    title : str
        Title of the page.
    finding : str or sequence of parts
        The result in one or two sentences.
    introduction : sequence of texts
        What was done, one text for each paragraph.
    sections : sequence of Section
        The body.
    settings : mapping of str to str
        Names and values of the settings.
    environments : sequence of mappings
        Machines and versions of the runs.
    """

    title: str
    finding: Text
    introduction: Sequence[Text]
    sections: Sequence[Section]
    settings: Mapping[str, str]
    environments: Sequence[Mapping[str, Any]]

    @property
    def charts(self) -> list[tuple[str, Chart]]:
        """Every chart with the name of its section."""
        drawings = [(part.name, block) for part in self.sections for block in part.blocks if isinstance(block, Drawing)]
        return [(name, chart) for name, drawing in drawings for chart in drawing.charts]

    @property
    def claims(self) -> Table:
        """The claims of all sections."""
        rows = [(part.name, claim.text, claim.verdict) for part in self.sections for claim in part.claims]
        return Table(("from", "claim", "here"), rows, CLAIMS)

    @property
    def machines(self) -> list[str]:
        """Machines and versions, one sentence each, preceded by a warning if there are several."""
        sentences = [MIXED] if len(self.environments) > 1 else []
        for found in self.environments:
            versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
            python = f"Python {found['python']}, {versions}, BLAS: {', '.join(found['blas']) or 'unknown'}."
            sentences.append(f"{found['machine']}, {found['cores']} cores; {python}")
        return sentences
