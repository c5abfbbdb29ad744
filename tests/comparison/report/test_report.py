"""Reports as Markdown, HTML and CSV: the content is complete and unchanged, and no name is interpreted as markup."""

import csv
import html as html_of_python
import re
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
from matplotlib.markers import MarkerStyle

from relunmd.comparison.report.content import Claim, Paragraph, Picture, Report, Section, Table
from relunmd.comparison.report.markdown import markdown
from relunmd.comparison.report.page import html, sort_value
from relunmd.comparison.report.report_files import write_report
from relunmd.errors import RelunmdError
from relunmd.plot import style
from relunmd.plot.chart import Axis, Chart, Line, Series, line_styles, number
from tests.comparison.report.conftest import MACHINE, NASTY, report_with


def drawn(axis, values, most=9):
    """The axes of a chart of these values."""
    _, (ax,) = style.figure()
    chart = Chart("", axis, Axis("y"), (Series.of("a", values, [1.0] * len(values)),))
    return style.draw(chart, ax, most_ticks=(most, 9))


def ticks_of(axis, values, most):
    """The ticks that are within the axes."""
    ax = drawn(axis, values, most)
    low, high = ax.get_xlim()
    return [tick for tick in ax.get_xticks() if low <= tick <= high]


class Outline(HTMLParser):
    """The tags and the texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.attributes, self._skipping = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        self._skipping = tag if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self._skipping = None

    def handle_data(self, data):
        if self._skipping is None and data.strip():
            self.texts.append(data)


class TestMarkdown:
    def test_everything_is_there(self):
        section = Section(
            "fig9",
            "Figure 9: a | b",
            [Paragraph("Words."), Table(["n", "name"], [["1.5", "a|b"], ["–", "c"]]), Picture("p.png", "alt [text]")],
            [Claim("it holds", True, "1 < 2"), Claim("it does not", False, "2 > 1"), Claim("who knows", None, "–")],
        )
        text = markdown(Report("Title", "Found.", ["Intro."], [section], {"seed": "0"}, [MACHINE, MACHINE]))
        assert text.startswith("# Title\n\nFound.\n\nIntro.\n\n## The paper's claims\n")
        assert "their times are not comparable" in text
        assert "| n | name |\n| ---: | --- |\n| 1.5 | a\\|b |\n| – | c |" in text
        assert "| fig9 | it does not | **not confirmed** |" in text
        assert "- it holds: confirmed (1 &lt; 2)." in text
        assert "- who knows: not seen (–)." in text
        assert r"![alt \[text\]](p.png)" in text
        assert "- seed: 0" in text
        assert "a &lt;machine&gt;, 2 cores; Python 3, numpy 2, BLAS: unknown." in text

    def test_names_are_no_markup(self, tmp_path):
        text = markdown(report_with(NASTY, tmp_path))
        assert "<script" not in text
        assert "<img" not in text
        assert not re.search(r"(?<!\\)\]\(javascript", text)
        for line in text.splitlines():
            if line.startswith("|"):
                assert len(re.findall(r"(?<!\\)\|", line)) == 4, line  # Three columns.

    @pytest.mark.parametrize("text", ["- a", "# b", "1. c", "> d", "+ e", "2) f", "=== g"])
    def test_a_paragraph_begins_no_list(self, text):
        written = markdown(Report("t", text, [], [], {}, [])).splitlines()[2]
        assert "\\" in written or written.startswith("&gt;")
        assert "1986\\. A year" in markdown(Report("t", "1986. A year", [], [], {}, []))
        assert "0.5 of it" in markdown(Report("t", "  0.5 of it", [], [], {}, [])).splitlines()

    def test_words_with_underscores_stay_readable(self):
        assert "e_min of a_b" in markdown(Report("t", "e_min of a_b", [], [], {}, []))


class TestHtml:
    def test_names_appear_as_they_are(self, tmp_path):
        page = html(report_with(NASTY, tmp_path), tmp_path)
        outline = Outline(page)
        assert outline.tags.count("script") == 2
        assert outline.tags.count("img") == 1
        assert not [name for _, name, _ in outline.attributes if name.startswith("on") or name == "style"]
        shown = "\n".join(outline.texts)
        for name in NASTY:
            assert name in shown
        assert f"Report of {NASTY[0]}" in outline.texts

    def test_nothing_is_loaded_from_elsewhere(self, tmp_path, plain):
        page = html(plain, tmp_path)
        addresses = [value for _, name, value in Outline(page).attributes if name in ("src", "href")]
        outside = [a for a in addresses if not a.startswith(("data:image/png;base64,", "#"))]
        assert outside == ["https://example.org/a"]
        assert "@import" not in page
        assert "url(" not in page

    def test_it_is_the_same_as_the_markdown(self, tmp_path, plain):
        words = set(re.findall(r"\w+", " ".join(Outline(html(plain, tmp_path)).texts)))
        for word in set(re.findall(r"\w+", html_of_python.unescape(markdown(plain)))) - {
            "png",
            "p",
            "Alt",
            "https",
            "a",
        }:
            assert word in words or word in {"example", "org"}, word

    def test_control_characters_are_shown_as_such(self, tmp_path):
        report = Report("a\x00b\ud800c\u202ed\x1b[2J", "f", [], [], {}, [])
        write_report(report, tmp_path)
        assert "<h1>a\\x00b\\ud800c\\u202ed\\x1b[2J</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")

    def test_headings_and_labels_for_those_who_listen(self, tmp_path, plain):
        page = html(plain, tmp_path)
        outline = Outline(page)
        assert outline.tags.count("h1") == outline.tags.count("main") == 1
        assert ("html", "lang", "en") in outline.attributes
        assert all(value for tag, name, value in outline.attributes if name in ("alt", "aria-label"))
        assert page.count('scope="row"') == 4 + 3
        assert page.count('aria-sort="none"') == 6
        assert re.findall(r'<svg class="chart (\w+)"[^>]*role="img"', page) == ["wide", "narrow"]

    def test_the_same_report_gives_the_same_page(self, tmp_path):
        page = html(report_with(NASTY, tmp_path), tmp_path)
        with matplotlib.rc_context(
            {"lines.linewidth": 9, "axes.facecolor": "red", "font.size": 30, "axes.grid": False}
        ):
            before = dict(matplotlib.rcParams)
            assert html(report_with(NASTY, tmp_path), tmp_path) == page
            assert dict(matplotlib.rcParams) == before

    def test_ids_are_there_once(self, tmp_path, plain):
        found = [value for _, name, value in Outline(html(plain, tmp_path)).attributes if name == "id"]
        assert len(found) == len(set(found))
        assert all(re.fullmatch(r"main|claims|said|charts|part-\d|m[0-9a-f]{10}", value) for value in found)

    @pytest.mark.parametrize(
        ("cell", "value"),
        [
            ("0.1521", 0.1521),
            ("+0.4%", 0.4),
            ("−3.1%", -3.1),
            ("-27.9%", -27.9),
            ("0.545 (0.55)", 0.545),
            ("0.2048–0.2062", 0.2048),
            ("12 000", 12000),
            ("1e-05", 1e-5),
            ("–", None),
            ("A-NMD", None),
            ("3B-NMD", None),
            ("3b-factored", None),
            ("5 of 25 runs", None),
            ("", None),
        ],
    )
    def test_what_a_cell_is_sorted_by(self, cell, value):
        assert sort_value(cell) == value


class TestFiles:
    def test_points_are_what_the_page_shows(self, tmp_path):
        report = report_with(NASTY, tmp_path)
        write_report(report, tmp_path)
        with (tmp_path / "points.csv").open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        assert len(rows) == 40 * len(NASTY)
        # A label that a spreadsheet would take for a formula has an apostrophe before it.
        assert {row["curve"] for row in rows} == {f"'{name}" if name.startswith("-") else name for name in NASTY}
        series = report.sections[0].blocks[1].charts[0].series[0]
        assert (rows[7]["x"], rows[7]["y"]) == (series.x[7], series.y[7])
        assert rows[0]["x is"] == "time (s)"

    def test_a_folder_that_cannot_be_written(self, tmp_path, plain):
        with pytest.raises(RelunmdError, match="could not be written"):
            write_report(plain, tmp_path / "nowhere")

    def test_a_report_that_fails_leaves_the_old_one(self, tmp_path, plain):
        write_report(plain, tmp_path)
        before = (tmp_path / "report.html").read_bytes()
        (tmp_path / "p.png").unlink()
        with pytest.raises(RelunmdError):
            write_report(plain, tmp_path)
        assert (tmp_path / "report.html").read_bytes() == before


class TestCharts:
    @pytest.mark.parametrize("most", [3, 5, 9])
    @pytest.mark.parametrize(
        ("low", "high"), [(0.1, 0.3), (1e-9, 1), (0.15, 0.16), (3, 3000), (1e-3, 2e-3), (0.0451, 0.0452), (1, 1e12)]
    )
    @pytest.mark.parametrize("log", [True, False])
    def test_ticks_are_few(self, low, high, log, most):
        ticks = ticks_of(Axis("x", log=log), [low, high], most)
        assert 1 <= len(ticks) <= most + 1
        assert len({f"{tick:g}" for tick in ticks}) == len(ticks)

    def test_whole_numbers_and_tiny_ones(self):
        assert ticks_of(Axis("component", whole=True), [1, 2], 9) == [1, 2]
        assert len(ticks_of(Axis("x"), [1e-13, 3e-13], 5)) >= 3
        assert ticks_of(Axis("rank", ticks=(2, 4, 8), log=True), [2, 8], 9) == [2, 4, 8]

    @pytest.mark.parametrize("log", [True, False])
    @pytest.mark.parametrize("values", [[], [1.0], [0.5, 3.0], [0.0, 0.0, 2.0], [0.0]])
    def test_limits_hold_all(self, log, values):
        ax = drawn(Axis("x", log=log), values)
        low, high = ax.get_xlim()
        shown = [value for value in values if value > 0 or not log]
        assert low < min(shown, default=np.inf)
        assert high > max(shown, default=-np.inf)
        # What a logarithmic axis cannot show is at its lower end.
        assert ax.lines[0].get_xdata().tolist() == [value if value > 0 or not log else low for value in values]

    def test_what_is_not_finite_is_left_out(self):
        series = Series.of("a", [1, 2, float("inf"), 4], [1, float("nan"), 3, 4])
        assert series.points == [(1, 1), (4, 4)]

    def test_line_styles_can_be_told_in_grey_and_do_not_change(self):
        labels = [
            "3B-NMD",
            "A-NMD",
            "A-EM",
            "EM",
            "A-Naive",
            "Naive",
            "TSVD",
            "NMF",
            "3b-factored",
            "qn",
            "mine",
            "own",
        ]
        found = line_styles(labels)
        assert len({(one.dashes, one.marker) for one in found.values()}) == len(labels)
        assert line_styles(["qn"])["qn"] == found["qn"]
        assert all(one.marker in MarkerStyle.markers for one in found.values())
        assert len(line_styles([str(k) for k in range(40)])) == 40
        many = line_styles([*labels, "a", "b", "c", "d"])
        assert len({(one.dashes, one.marker) for one in many.values()}) == len(many)
        assert line_styles(["b", "a"])["a"] == line_styles(["a", "qn", "b"])["a"] == line_styles(["a"])["a"]

    def test_an_empty_chart_is_drawn(self, tmp_path):
        from relunmd.comparison.report.content import Drawing

        chart = Chart("none", Axis("x", log=True), Axis("y"), (Series("a", (), ()),))
        page = html(Report("t", "f", [], [Section("s", "S", [Drawing([chart], None, "alt")])], {}, []), tmp_path)
        assert "nan" not in page.partition("<script")[0]

    @pytest.mark.parametrize("log", [True, False])
    def test_a_level_is_named_where_there_is_room(self, log):
        series = (Series.of("a", [1, 2], [0.2, 0.5]), Series.of("b", [1, 2], [0.6, 0.51]), Series("c", (), ()))
        chart = Chart("t", Axis("x"), Axis("y", log=log), series)
        assert chart.freer_side(Line("level", 0.5)) == "left"
        assert chart.freer_side(Line("level", 0.21)) == "right"
        assert Chart("t", Axis("x"), Axis("y", log=log), ()).freer_side(Line("level", 0.5)) == "right"

    def test_a_single_point_is_seen(self, tmp_path):
        from relunmd.comparison.report.content import Drawing

        chart = Chart("one", Axis("x", log=True), Axis("y", log=True), (Series.of("a", [1], [0.5]),))
        page = html(Report("t", "f", [], [Section("s", "S", [Drawing([chart], None, "alt")])], {}, []), tmp_path)
        assert (
            len(re.findall(r'<g class="series">.*?<use ', page)) == 2
        )  # A marker in the wide chart and in the narrow one.

    def test_numbers(self):
        assert [number(v) for v in (0.1234567, 1e-9, 12345678.0)] == ["0.123457", "1e-09", "1.23457e+07"]
