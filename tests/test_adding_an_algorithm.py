"""An algorithm that is added breaks no test: what depends on the list of algorithms derives it from the registry."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

LISTS = [
    "tests/test_api.py::test_bad_argument",
    "tests/test_api.py::test_too_little_memory_is_said_before_anything_is_allocated",
    "tests/test_api.py::test_keeping_dense_arrays_for_a_sparse_matrix_is_said",
    "tests/test_package.py::test_public_names_are_documented",
    "tests/comparison/test_timed_run.py::TestRegistry",
    "tests/comparison/test_comparison.py::TestWhatIsRun::test_everything_by_default",
    "tests/comparison/report/test_report.py::TestCharts",
    "tests/cli/test_commands.py::TestHelp::test_algorithms",
    "tests/cli/test_commands.py::TestCompletion::test_what_it_completes",
    "src/relunmd/comparison/contenders.py",
    "src/relunmd/api.py",
]
"""Tests that name all algorithms, or all of some kind."""


def test_lists_are_derived_and_the_contract_runs():
    """In a process of its own, in which the algorithm of `tests.newest` is registered."""
    options = ["-n", "0", "-vv", "-p", "tests.newest", "-p", "no:cacheprovider"]
    chosen = [*LISTS, "tests/algorithm/test_contract.py", "-k", "not test_contract or (newest and not odd)"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for name in (
        "test_says_what_it_is[newest]",
        "test_the_layout_changes_nothing_but_rounding[newest]",
        "small layout",
    ):
        assert name in done.stdout
