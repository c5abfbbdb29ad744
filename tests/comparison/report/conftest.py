"""A report with every kind of content, and names that try to inject code."""

import numpy as np
import pytest

from relunmd.comparison.report.content import (
    Claim,
    Code,
    Drawing,
    Link,
    Paragraph,
    Picture,
    Report,
    Section,
    Strong,
    Table,
)
from relunmd.plot.chart import Axis, Chart, Line, Series

MACHINE = {"python": "3", "versions": {"numpy": "2"}, "blas": [], "machine": "a <machine>", "cores": 2}
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364f80f00010501012718e366"
    "0000000049454e44ae426082"
)
NASTY = (
    "\"quotes\" and 'quotes'",
    "<script>window.harm = 1</script>",
    "</script><script>window.harm = 2</script>",
    "<img src=x onerror='window.harm = 3'>",
    "größe, 大きさ, размер, 👩‍🔬, é",
    "a|b *c* _d_ `e` [f](javascript:window.harm=4) $g$ ~~h~~ \\i & &amp; j",
    "-->]]>{{k}}${l}",
)


def report_with(names, folder):
    (folder / "p.png").write_bytes(PNG)
    times = np.geomspace(0.01, 10, 40)
    series = tuple(Series.of(name, times, 0.2 + 0.1 * k + 0.5 / (1 + times)) for k, name in enumerate(names))
    chart = Chart(
        f"Chart of {names[0]}", Axis("time", "s", log=True), Axis("error", log=True), series, (Line("level", 0.4),)
    )
    rows = [
        [name, f"{0.3 + ((k * 5) % 7) / 10:.2f}", "–" if k == 1 else str((k * 3) % 7)] for k, name in enumerate(names)
    ]
    rows[0][1] = Strong(rows[0][1])
    section = Section(
        "one",
        f"Section of {names[0]}",
        [
            Paragraph(["See ", Code(names[0]), " and ", Link(names[0], "https://example.org/a"), f", {names[1]}."]),
            Drawing([chart], Picture("p.png", names[0]), f"Alt of {names[0]}"),
            Table(["name", "error", f"count of {names[2]}"], rows, names[0]),
            Picture("p.png", names[0]),
        ],
        [Claim(names[0], True, names[1]), Claim("it does not", False, "2 > 1"), Claim("who knows", None, "–")],
    )
    return Report(
        f"Report of {names[0]}",
        f"Finding of {', '.join(names)}",
        [f"Introduction of {names[0]}"],
        [section, Section("two", "Another", []), Section("three", "Third", [])],
        {"name": names[0], names[1]: "value"},
        [MACHINE],
    )


@pytest.fixture
def plain(tmp_path):
    return report_with(["alpha", "beta", "gamma", "delta"], tmp_path)
