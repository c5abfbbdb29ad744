"""Every code block of the README and of the site's pages runs as it is printed."""

import re
import shlex
import tomllib
from pathlib import Path

import anndata
import h5py
import pytest
from click.testing import CliRunner
from scipy import sparse

from relunmd import comparison
from relunmd.cli import main
from relunmd.comparison import contenders

ROOT = Path(__file__).parents[2]
_SKIPPED = {"_build", "gallery", "reproduction", "api"}
_DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *(path for path in _DOCS if not _SKIPPED & {*path.relative_to(ROOT / "docs").parts})]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
NOT_CODE = {"bibtex"}


def blocks(page):
    """The language and the text of each code block; MyST directives have braces and are not code."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(language, text) for language, text in found if language not in NOT_CODE]


def run_shell(text):
    makefile = (ROOT / "Makefile").read_text()
    for line in text.splitlines():
        command, *words = shlex.split(line, comments=True) or ["#"]
        if command == "relunmd":
            done = CliRunner().invoke(main, words, catch_exceptions=False)
            assert done.exit_code == 0, (line, done.output)
        elif command == "make":
            assert re.search(rf"^{words[0]}:", makefile, re.MULTILINE), line
        elif command == "pip":
            _, source, *more = words
            assert not more, line
            assert source.startswith("."), line
            assert {*re.findall(r"\w+", source)} <= {*EXTRAS}, line
        else:
            assert command == "#", f"There is no way to check {line!r}."


def write_cells(path):
    """The matrix of an AnnData file; anndata 0.12 cannot write the names with pandas 3."""
    with h5py.File(path, "w") as file:
        anndata.io.write_elem(file, "X", sparse.random(100, 30, 0.3, format="csr", random_state=0))


@pytest.mark.parametrize("page", PAGES, ids=[path.relative_to(ROOT).as_posix() for path in PAGES])
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(contenders, "_registered", dict(comparison.registered()))  # A block may register a method.
    write_cells("cells.h5ad")
    names = {"__name__": "page"}
    for language, text in blocks(page):
        if (
            language == "python" and "Client(" not in text
        ):  # That one is run by tests/engine/distributed/test_command.py.
            exec(compile(text, page.name, "exec"), names)
        elif language == "bash":
            run_shell(text)
        else:
            assert language == "python", f"{page.name} has a block of {language!r}, which nothing runs."


def test_pages_have_code():
    assert sum(len(blocks(page)) for page in PAGES) > 30


def test_the_readme_is_short():
    assert (ROOT / "README.md").stat().st_size <= 6000
