"""A report as one HTML file that can be mailed: nothing is loaded from elsewhere, and it reads without a program too.

Text is escaped wherever it comes from, and the page's own policy lets no script run but ours, which is named by its
hash: a name that gets past the one is stopped by the other.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from relunmd.comparison.report.content import (
    ABOUT,
    CLAIMS,
    MIXED,
    Block,
    Cell,
    Claim,
    Code,
    Drawing,
    Link,
    Part,
    Picture,
    Report,
    Section,
    Strong,
    Table,
    Text,
    environment_line,
    parts,
    plain_text,
)
from relunmd.comparison.report.markdown import numeric
from relunmd.comparison.report.svg import NARROW, WIDE, svg, swatch
from relunmd.plot.chart import Chart, Look, looks, visible

__all__ = ["html"]

_HINT = (
    "Point at a curve for its values, or go along it with the arrow keys; the names below the picture switch curves "
    "off and on."
)


def html(report: Report, folder: Path) -> str:
    """The page; its pictures are taken from `folder`."""
    page = _Page(report, folder)
    style = _resource("page.css") + page.colours()
    script = _resource("page.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'"
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="generator" content="relunmd">',
            f"<title>{_plain(report.title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            page.body(),
            '<p id="said" class="unseen" aria-live="polite"></p>',
            f'<script type="application/json" id="charts">{page.data()}</script>',
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


class _Page:
    def __init__(self, report: Report, folder: Path) -> None:
        self._report = report
        self._folder = folder
        self._hinted = False
        labels = dict.fromkeys(series.label for _, chart in report.charts for series in chart.series)
        self._looks: Mapping[str, Look] = looks(labels)
        self._index = {label: index for index, label in enumerate(labels)}

    def colours(self) -> str:
        """The colour of each series, in the light and in the dark."""
        light = "".join(f".series-{self._index[name]}{{--series:{look.colour}}}" for name, look in self._looks.items())
        dark = "".join(f".series-{self._index[name]}{{--series:{look.on_black}}}" for name, look in self._looks.items())
        return f"{light}@media screen and (prefers-color-scheme: dark){{{dark}}}"

    def data(self) -> str:
        """What the charts show, as JSON that cannot end the element it is in."""
        found = [
            {
                "x": {"name": chart.x.name, "unit": chart.x.unit, "log": chart.x.log},
                "y": {"name": chart.y.name, "unit": chart.y.unit, "log": chart.y.log},
                "series": [{"label": visible(s.label), "x": s.x, "y": s.y} for s in chart.series],
            }
            for _, chart in self._report.charts
        ]
        written = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        for letter in "<>&\u2028\u2029":
            written = written.replace(letter, f"\\u{ord(letter):04x}")
        return written

    def body(self) -> str:
        report = self._report
        claims = [(section, claim) for section in report.sections for claim in section.claims]
        found = [
            '<a class="skip" href="#main">To the results</a>',
            f"<header><h1>{_plain(report.title)}</h1>",
            f'<p class="finding">{_text(report.finding)}</p></header>',
            '<main id="main">',
            *(f"<p>{_text(text)}</p>" for text in report.introduction),
            self._contents(),
        ]
        if claims:
            rows = [(section.name, claim.text, claim.verdict) for section, claim in claims]
            found.append(f'<section id="claims"><h2>{escape(CLAIMS)}</h2>')
            found.append(_table(Table(("from", "claim", "here"), rows, CLAIMS)))
            found.append("</section>")
        found += [self._section(index, section) for index, section in enumerate(report.sections)]
        found += ["</main>", self._about()]
        return "\n".join(found)

    def _contents(self) -> str:
        if len(self._report.sections) < 3:
            return ""
        links = "".join(
            f'<li><a href="#part-{index}">{_plain(section.title)}</a></li>'
            for index, section in enumerate(self._report.sections)
        )
        return f'<nav class="contents" aria-label="Contents"><ul>{links}</ul></nav>'

    def _section(self, index: int, section: Section) -> str:
        found = [f'<section id="part-{index}"><h2>{_plain(section.title)}</h2>']
        found += [self._block(block, section.title) for block in section.blocks]
        if section.claims:
            found.append(f'<ul class="claims">{"".join(map(_claim, section.claims))}</ul>')
        return "\n".join([*found, "</section>"])

    def _block(self, block: Block, title: str) -> str:
        if isinstance(block, Table):
            return _table(block, block.caption or title)
        if isinstance(block, Drawing):
            return "\n".join(self._chart(chart, block.alt) for chart in block.charts)
        if isinstance(block, Picture):
            return f'<figure class="sheet"><img src="{self._image(block.file)}" alt="{_plain(block.alt)}"></figure>'
        return f"<p>{_text(block.text)}</p>"

    def _chart(self, chart: Chart, alt: str) -> str:
        label = f"{chart.title}. {alt}"
        buttons = "".join(
            f'<li><button type="button" aria-pressed="true">{swatch(self._looks[one.label], self._index[one.label])}'
            f"<span>{_plain(one.label)}</span></button></li>"
            for one in chart.series
        )
        drawings = "".join(svg(chart, frame, visible(label), self._looks, self._index) for frame in (WIDE, NARROW))
        return (
            f'<figure class="drawn"><figcaption>{_plain(chart.title)}</figcaption>{drawings}'
            f'<ul class="legend" aria-label="Curves; press to switch off or on">{buttons}</ul>'
            f"{self._hint()}</figure>"
        )

    def _hint(self) -> str:
        """How a chart is used, below the first one."""
        told, self._hinted = self._hinted, True
        return "" if told else f'<p class="hint">{escape(_HINT)}</p>'

    def _image(self, file: str) -> str:
        return f"data:image/png;base64,{base64.b64encode((self._folder / file).read_bytes()).decode()}"

    def _about(self) -> str:
        report = self._report
        pairs = "".join(f"<dt>{_plain(name)}</dt><dd>{_plain(value)}</dd>" for name, value in report.settings.items())
        mixed = f"<p>{escape(MIXED)}</p>" if len(report.environments) > 1 else ""
        machines = "".join(f"<p>{_plain(environment_line(found))}</p>" for found in report.environments)
        settings = f"<dl>{pairs}</dl>" if pairs else ""
        return f"<footer><h2>{escape(ABOUT)}</h2>{settings}{mixed}{machines}</footer>"


def _claim(claim: Claim) -> str:
    kind = {True: "holds", False: "fails", None: "unknown"}[claim.holds]
    verdict = _plain(plain_text([claim.verdict]))
    return f'<li>{_plain(claim.text)}: <span class="{kind}">{verdict}</span> ({_plain(claim.evidence)}).</li>'


def _table(table: Table, caption: str = "") -> str:
    right = [all(numeric(row[i]) for row in table.rows) for i in range(len(table.columns))]
    kind = [' class="number"' if number else "" for number in right]
    head = "".join(
        f'<th scope="col" aria-sort="none"{kind[i]}><button type="button">{_plain(name)}</button></th>'
        for i, name in enumerate(table.columns)
    )
    rows = "".join(f"<tr>{_row(row, kind)}</tr>" for row in table.rows)
    name = _plain(f"Table: {caption or table.caption}")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{name}"><table>'
        f'<caption class="unseen">{name}; the buttons in its head sort it</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(row: Sequence[Cell], kind: Sequence[str]) -> str:
    cells = []
    for index, cell in enumerate(row):
        tag, scope = ("th", ' scope="row"') if index == 0 else ("td", "")
        value = _value(plain_text([cell]))
        number = f' data-value="{value:.9g}"' if value is not None else ""
        cells.append(f"<{tag}{scope}{kind[index]}{number}>{_text([cell])}</{tag}>")
    return "".join(cells)


def _value(text: str) -> float | None:
    """The number that a cell begins with, if it is one: to sort by."""
    found = re.match(r"[+−-]?\d[\d ]*(\.\d+)?(e[+-]?\d+)?(?=\s*(?:$|[%×(–]))", text.strip())
    return float(found[0].replace("−", "-").replace(" ", "")) if found else None


def _text(text: Text) -> str:
    return "".join(_part(part) for part in parts(text))


def _part(part: Part) -> str:
    if isinstance(part, Strong):
        return f"<strong>{_plain(part.text)}</strong>"
    if isinstance(part, Code):
        return f"<code>{_plain(part.text)}</code>"
    if isinstance(part, Link):
        return f'<a href="{_plain(part.address)}" rel="noreferrer">{_plain(part.text)}</a>'
    return _plain(part)


def _plain(text: str) -> str:
    return escape(visible(text))


def _resource(name: str) -> str:
    return files("relunmd.comparison.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
