"""What the doctests of the package need: a comparison in the folder where those of `Comparison` run."""

import io

import pytest
from rich.console import Console

import relunmd
from relunmd.comparison.comparison_display import ComparisonDisplay


@pytest.fixture(scope="session")
def compared(tmp_path_factory):
    """A folder with the comparison that the examples of `Comparison` load."""
    folder = tmp_path_factory.mktemp("compared")
    relunmd.compare(
        relunmd.datasets.digits()[:200],
        [4, 8],
        folder / "comparison",
        algorithms=["qn"],
        max_time=None,
        max_iter=30,
        display=ComparisonDisplay(Console(file=io.StringIO())),
    )
    return folder


@pytest.fixture(autouse=True)
def _where_examples_run(request, monkeypatch):
    if request.path.name == "comparison_result.py":
        monkeypatch.chdir(request.getfixturevalue("compared"))
