"""The page in a browser: loaded from a file with the network off, used by pointer and by keys."""

import csv

import numpy as np
import pytest

import relunmd
from relunmd import datasets
from relunmd.comparison.report.report_files import write_report
from tests.browser import browsing, needs_browser
from tests.comparison.conftest import silent
from tests.comparison.report.conftest import NASTY, report_with

pytestmark = needs_browser

COLUMN = "Array.from(document.querySelectorAll('table')[{}].tBodies[0].rows, r => r.cells[{}].textContent)"
TABLE = "Array.from(document.querySelectorAll('table')).findIndex(t => t.tHead.textContent.includes('iterations'))"
READ_OUT = "document.querySelector('.tip:not([hidden])')?.innerText ?? ''"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsing(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A comparison on digits."""
    folder = tmp_path_factory.mktemp("page") / "out"
    found = relunmd.compare(
        datasets.digits()[:300], [4, 8], folder, algorithms=["qn", "3b", "em"], max_time=None, max_iter=12,
        display=silent(),
    )  # fmt: skip
    return found.page


@pytest.fixture
def loaded(browser, page):
    browser.open(page)
    return browser


def points_of(page):
    with page.with_name("points.csv").open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_it_loads_without_a_network_and_without_complaint(loaded, page):
    assert loaded.run("document.title") == "X: algorithms compared"
    assert loaded.run("document.querySelector('.finding').textContent").startswith("At rank 8 ")
    assert {address.partition(":")[0] for address in loaded.requests} <= {"file", "data"}
    assert all(loaded.run("Array.from(document.images, i => i.complete && i.naturalWidth > 0)"))
    assert len(loaded.run("Array.from(document.images, i => 1)")) == 2
    assert loaded.complaints == []


def test_the_table_sorts_by_click(loaded):
    which = loaded.run(TABLE)
    before = loaded.run(COLUMN.format(which, 2))
    loaded.run(f"document.querySelectorAll('table')[{which}].id = 'sorted'")
    selector = "#sorted thead th:nth-child(3) button"
    loaded.click(selector)
    rising = loaded.run(COLUMN.format(which, 2))
    assert rising == sorted(before, key=float) != before
    assert loaded.run(f"document.querySelector({selector!r}).closest('th').getAttribute('aria-sort')") == "ascending"
    loaded.click(selector)
    assert loaded.run(COLUMN.format(which, 2)) == rising[::-1]
    assert loaded.run("document.getElementById('said').textContent") == "Sorted by error, descending"
    assert loaded.complaints == []


@pytest.mark.parametrize("key", ["Enter", " "])
def test_the_table_sorts_by_keys(loaded, key):
    which = loaded.run(TABLE)
    before = loaded.run(COLUMN.format(which, 1))
    loaded.run(f"document.querySelectorAll('table')[{which}].tHead.querySelectorAll('button')[0].focus()")
    loaded.press("Tab")
    assert loaded.run("document.activeElement.textContent") == "algorithm"
    loaded.press(key)
    assert loaded.run(COLUMN.format(which, 1)) == sorted(before, key=str.casefold) != before
    # What has no value stays at the end, whichever way.
    iterations = f"document.querySelectorAll('table')[{which}].tHead.querySelectorAll('button')[4]"
    for _ in range(2):
        loaded.run(f"{iterations}.focus()")
        loaded.press(key)
        assert loaded.run(COLUMN.format(which, 4))[-2:] == ["–", "–"]


def test_a_series_switches_off_and_on(loaded):
    shown = (
        "document.querySelectorAll('figure.drawn')[1].querySelectorAll('svg.wide .series')[1].getClientRects().length"
    )
    assert loaded.run(shown) == 1
    loaded.click("main section:nth-of-type(2) .legend button", 1)
    assert loaded.run(shown) == 0
    pressed = "document.querySelectorAll('main section:nth-of-type(2) .legend button')[1].getAttribute('aria-pressed')"
    assert loaded.run(pressed) == "false"
    loaded.press(" ")  # It has the focus.
    assert (loaded.run(shown), loaded.run(pressed)) == (1, "true")


@pytest.mark.parametrize("width", [1200, 360])
def test_hover_shows_a_value_that_is_in_the_csv(browser, page, width):
    browser.open(page, width=width)
    rows = points_of(page)
    frame = "wide" if width > 500 else "narrow"
    count = browser.run("document.querySelectorAll('figure.drawn').length")
    assert count == 4
    seen = 0
    for figure in range(count):
        x, y = browser.middle(f"svg.{frame}", figure)
        for step in (-120, -60, 0, 60, 120):
            browser.point_at(x + step * width / 1200, y)
            told = browser.run(READ_OUT).split("\n")
            if told == [""]:
                continue
            label, value, place = told[:3]
            matching = [
                row
                for row in rows
                if row["curve"] == label
                and value.endswith(f" {row['y']}")
                and place.removesuffix(" s").endswith(f" {row['x']}")
            ]
            assert matching, told
            seen += 1
    assert seen >= 4
    browser.point_at(1, 1)
    assert browser.run(READ_OUT) == ""
    assert browser.complaints == []


def test_a_finger_that_lifts_leaves_the_value(browser, page):
    browser.open(page, width=360)
    x, y = browser.middle("svg.narrow", 1)
    browser.send("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        browser.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        browser.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        assert "relative error" in browser.run(READ_OUT)
        browser.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": 5, "y": 5}])
        browser.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        assert browser.run(READ_OUT) == ""
    finally:
        browser.send("Emulation.setTouchEmulationEnabled", enabled=False)


def test_a_series_that_is_off_is_not_read_out(loaded):
    figure = "main section:nth-of-type(2)"
    names = loaded.run(f"Array.from(document.querySelectorAll('{figure} .legend button'), b => b.textContent)")
    for which in range(1, 4):
        loaded.click(f"{figure} figure:nth-of-type(1) .legend button", which)
    x, y = loaded.middle(f"{figure} svg.wide")
    told = set()
    for across in range(-300, 301, 60):
        for down in range(-150, 151, 50):
            loaded.point_at(x + across, y + down)
            told.add(loaded.run(READ_OUT).split("\n")[0])
    assert told - {""} == {names[0]}


def test_keys_go_along_a_curve_and_say_where(loaded, page):
    loaded.run("document.querySelectorAll('svg.wide')[1].focus()")
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown"):
        loaded.press(key)
        said.append(loaded.run("document.getElementById('said').textContent"))
    assert len(set(said)) == 4
    label, _, rest = said[1].partition(": ")
    assert any(
        row["curve"] == label and f" {row['y']}, " in rest and rest.endswith(f" {row['x']} s")
        for row in points_of(page)
    )


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_nothing_scrolls_sideways(browser, page, dark):
    browser.open(page, width=360, height=740, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= 360
    assert browser.run(
        "Array.from(document.querySelectorAll('svg.narrow'), e => e.getClientRects().length > 0).every(Boolean)"
    )
    assert browser.run("document.querySelectorAll('svg.wide')[0].getClientRects().length") == 0
    buttons = browser.run(
        "Array.from(document.querySelectorAll('.legend button'), b => b.getBoundingClientRect().height)"
    )
    assert min(buttons) >= 30


def test_light_and_dark_are_readable(browser, page):
    """The words stand out from the paper in both by the contrast that guidelines ask for, 4.5."""

    def luminance(colour):
        channels = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    papers = set()
    for dark in (False, True):
        browser.open(page, dark=dark)
        paper = luminance(browser.run("getComputedStyle(document.body).backgroundColor"))
        papers.add(paper)
        for selector in (".finding", "footer p", ".hint", "thead button", "main p"):
            ink = luminance(browser.run(f"getComputedStyle(document.querySelector({selector!r})).color"))
            assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= 4.5, (dark, selector)
        curves = "Array.from(document.querySelectorAll('svg.wide .series > path'), e => getComputedStyle(e).stroke)"
        for stroke in browser.run(curves):
            drawn = luminance(stroke)
            assert (max(drawn, paper) + 0.05) / (min(drawn, paper) + 0.05) >= 2, (dark, stroke)
    assert len(papers) == 2


def test_in_print_it_is_whole(browser, page):
    browser.open(page, width=360, dark=True, media="print")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("document.querySelectorAll('svg.wide')[0].getClientRects().length") == 1
    assert browser.run("getComputedStyle(document.querySelector('.hint')).display") == "none"
    assert browser.run("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"


def test_names_execute_nothing(browser, tmp_path):
    browser.open(write_report(report_with(NASTY, tmp_path), tmp_path))
    legend = browser.run("Array.from(document.querySelectorAll('.legend button'), b => b.textContent)")
    assert legend == list(NASTY)
    assert browser.run(COLUMN.format(1, 0)) == list(NASTY)
    told = set()
    for which in range(len(NASTY)):
        browser.run("document.querySelector('svg.wide').focus()")
        browser.press("ArrowDown" if which else "ArrowRight")
        told.add(browser.run("document.querySelector('.tip b').textContent"))
    assert told == set(NASTY)
    assert browser.run("window.harm") is None
    assert browser.complaints == []
    browser.open(tmp_path / "report.html", width=360)
    assert browser.run("document.documentElement.scrollWidth") <= 360
