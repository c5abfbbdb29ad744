"""What is shown while a run goes on."""

import io

import numpy as np
import pytest
from rich.console import Console

import relunmd
from relunmd.progress import ProgressDisplay, curve
from relunmd.solve import Limits, Progress


def told(terminal, steps, limits=None, **options):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, color_system=None, **options)
    with ProgressDisplay("qn, rank 3", limits or Limits(), console) as display:
        for iteration, error in enumerate(steps):
            assert (
                display(Progress(iteration, iteration * 0.5, error, 2 * iteration, min(steps[: iteration + 1]), None))
                is False
            )
            if display._live is not None:
                display._live.refresh()
    return out.getvalue()


def test_lines_where_there_is_no_terminal():
    lines = told(False, [0.5, 0.4]).splitlines()
    assert lines == [
        "qn, rank 3: error 0.500000, iteration 0, 0:00 elapsed, 1000 iterations left",
        "qn, rank 3: error 0.400000, iteration 1, 4 passes/s, 0:00 elapsed, 999 iterations left",
    ]


def test_the_lines_grow_rarer(monkeypatch):
    now = iter(np.arange(10_000) * 0.1)
    monkeypatch.setattr("relunmd.progress.time.perf_counter", lambda: float(next(now)))
    lines = told(False, list(np.linspace(1, 0.5, 1000))).splitlines()
    assert 5 < len(lines) < 15
    assert "fell by" in lines[-1]
    assert "4 passes/s" in lines[-1]


def test_a_terminal_is_told_all_there_is():
    shown = told(True, list(0.9 ** np.arange(30)), Limits(max_iter=100, max_time=60))
    last = shown[shown.rindex("iteration 29") :]
    for word in ("4 passes/s", "elapsed", "71 iterations or 0:4"):
        assert word in last, word
    assert "error 0.047101, fell by 6.5e-01 in 10 iterations" in shown
    assert "█" in shown
    assert shown.endswith("\x1b[2K")  # Erased at the end.
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # The cursor is hidden, and shown again.


def test_several_starts_are_counted():
    out = io.StringIO()
    with ProgressDisplay("qn", Limits(), Console(file=out, force_terminal=False, width=200)) as display:
        display._next_line = np.inf
        for start in range(3):
            for iteration in range(3):
                display(Progress(iteration, 1.0, 0.5 + start, 1, 0.5, None))
        assert display._facts()[0] == "start 3, iteration 2"


@pytest.mark.parametrize(("errors", "bars"), [([1, 0.1, 0.01], "█▅▁"), ([0.5, 0.5], "▁▁"), ([1.0, 0.0], "█▁")])
def test_the_curve(errors, bars):
    assert curve(errors, 10) == bars
    assert len(curve(list(np.linspace(1, 0.1, 1000)), 32)) == 32
    assert curve([1, 0.1], 5, plain=True).isascii()


def test_progress_of_a_run_goes_to_stdout(capsys):
    relunmd.decompose(np.eye(12), 4, random_state=0, max_iter=5, progress=True)
    assert capsys.readouterr().out.startswith("qn, rank 4: error ")
