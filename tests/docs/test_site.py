"""The site that `make docs` builds: links, and pages in a browser; skipped if it has not been built."""

import functools
import http.server
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser import browsing, needs_browser, wait_until

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
pytestmark = pytest.mark.skipif(not (SITE / "index.html").exists(), reason="needs the site: run `make docs` first")
PAGES = ["index.html", "guide/ridge.html", "gallery/plot_digits.html", "api/generated/relunmd.ReLUNMD.html"]


class Links(HTMLParser):
    """The targets and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        self.targets += [found[name] for name in ("href", "src") if found.get(name)]


@pytest.fixture(scope="module")
def pages():
    """Every page with its links."""
    return {
        path: Links(path.read_text(encoding="utf-8")) for path in SITE.rglob("*.html") if "_static" not in path.parts
    }


def test_no_word_became_a_list(pages):
    """reST reads a line "W." as the first item of a list."""
    assert not [path for path in pages if "upperalpha" in path.read_text(encoding="utf-8")]


def test_internal_links_lead_somewhere(pages):
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = place / "index.html" if place.is_dir() else place
            known = pages.get(place)
            if not place.exists() or (known is not None and unquote(parts.fragment) not in known.anchors):
                broken.append(f"{path.relative_to(SITE)}: {target}")
    assert len(pages) > 80
    assert not broken


@pytest.fixture(scope="module")
def address():
    """The site on a local server: search needs one."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsing(tmp_path_factory.mktemp("profile"), offline=False) as found:
        yield found


@needs_browser
@pytest.mark.xdist_group("browser")
class TestInABrowser:
    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    @pytest.mark.parametrize("width", [1200, 360])
    @pytest.mark.parametrize("page", PAGES)
    def test_a_page(self, browser, address, page, width, dark):
        browser.open(f"{address}/{page}", width=width, dark=dark)
        wait_until(lambda: browser.run("document.documentElement.dataset.theme") == ("dark" if dark else "light"))
        assert not browser.errors
        assert browser.run("document.scrollingElement.scrollWidth") <= width
        assert all(request.startswith((address, "data:")) for request in browser.requests)
        shown = "Array.from(document.images).every(i => i.complete && (i.naturalWidth > 0 || i.loading === 'lazy'))"
        assert browser.run(shown)

    def test_search_finds_the_estimator(self, browser, address):
        browser.open(f"{address}/search.html?q=ReLUNMD")
        links = "Array.from(document.querySelectorAll('#search-results li a')).map(a => a.getAttribute('href'))"
        wait_until(lambda: any("relunmd.ReLUNMD.html" in link for link in browser.run(links)))
        assert not browser.errors

    def test_code_blocks_copy(self, browser, address):
        browser.open(f"{address}/getting_started.html")
        browser.run("addEventListener('copy', e => window.copied = e.target.value || String(getSelection()), true); 1")
        nth = browser.run(
            "Array.from(document.querySelectorAll('div.highlight')).findIndex(e => e.innerText.includes('decompose('))"
        )
        browser.click("button.copybtn", nth)
        wait_until(lambda: browser.run("window.copied || ''"))
        assert browser.run("window.copied").startswith("import relunmd\nfrom sklearn.datasets import load_digits")
