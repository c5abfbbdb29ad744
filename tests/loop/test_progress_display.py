"""What is shown while a run goes on."""

import io
import logging
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import relunmd
from relunmd.loop.criteria import Limits
from relunmd.loop.progress_display import ProgressDisplay, curve


def progress(iteration, time, error, passes, best_error):
    """What a callback gets, as far as the display reads it."""
    return SimpleNamespace(
        iteration=iteration,
        time=time,
        error=error,
        passes=passes,
        best_error=best_error,
        workers=None,
        bytes_moved=None,
    )


def told(terminal, steps, limits=None, **options):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, color_system=None, **options)
    with ProgressDisplay("qn, rank 3", limits or Limits(), console) as display:
        for iteration, error in enumerate(steps):
            assert (
                display(progress(iteration, iteration * 0.5, error, 2 * iteration, min(steps[: iteration + 1])))
                is False
            )
            if display.live is not None:
                display.live.refresh()
    return out.getvalue()


def test_lines_where_there_is_no_terminal():
    lines = told(False, [0.5, 0.4]).splitlines()
    assert lines == [
        "qn, rank 3: error 0.500000, iteration 0, 0:00 elapsed, 1000 iterations left",
        "qn, rank 3: error 0.400000, iteration 1, 4 passes/s, 0:00 elapsed, 999 iterations left",
    ]


def test_the_lines_grow_rarer(monkeypatch):
    now = iter(np.arange(10_000) * 0.1)
    monkeypatch.setattr("relunmd.loop.progress_display.time.perf_counter", lambda: float(next(now)))
    lines = told(False, list(np.linspace(1, 0.5, 1000))).splitlines()
    assert 5 < len(lines) < 15
    assert "decreased by" in lines[-1]
    assert "4 passes/s" in lines[-1]


def test_a_terminal_is_told_all_there_is():
    shown = told(True, list(0.9 ** np.arange(30)), Limits(max_iter=100, max_time=60))
    last = shown[shown.rindex("iteration 29") :]
    for word in ("4 passes/s", "elapsed", "71 iterations or 0:4"):
        assert word in last, word
    assert "error 0.047101, decreased by 6.5e-01 in 10 iterations" in shown
    assert "█" in shown
    assert shown.endswith("\x1b[2K")  # Erased at the end.
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # The cursor is hidden, and shown again.


def test_several_starts_are_counted():
    out = io.StringIO()
    with ProgressDisplay("qn", Limits(), Console(file=out, force_terminal=False, width=200)) as display:
        display._next_line = np.inf
        for start in range(3):
            for iteration in range(3):
                display(progress(iteration, 1.0, 0.5 + start, 1, 0.5))
        assert display._facts()[0] == "initialization 3, iteration 2"


@pytest.mark.parametrize(("errors", "bars"), [([1, 0.1, 0.01], "█▅▁"), ([0.5, 0.5], "▁▁"), ([1.0, 0.0], "█▁")])
def test_the_curve(errors, bars):
    assert curve(errors, 10) == bars
    assert len(curve(list(np.linspace(1, 0.1, 1000)), 32)) == 32
    assert curve([1, 0.1], 5, plain=True).isascii()


def test_progress_of_a_run_goes_to_stdout(capsys):
    relunmd.decompose(np.eye(12), 4, random_state=0, max_iter=5, progress=True)
    assert capsys.readouterr().out.startswith("qn, rank 4: error ")


class Failing(io.StringIO):
    """A stream that fails from some letters on."""

    def __init__(self, room, reason):
        super().__init__()
        self.room, self.reason = room, reason

    def write(self, text):
        if self.tell() + len(text) > self.room:
            raise self.reason
        return super().write(text)


@pytest.mark.parametrize(
    "reason", [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left"), ValueError("shut")]
)
class TestWhatCannotBeDrawn:
    @pytest.mark.parametrize("room", [0, 80])
    def test_does_not_end_a_run(self, monkeypatch, caplog, reason, room):
        out = Failing(room, reason)
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr("relunmd.loop.progress_display.FIRST_LINE", 0.0)
        d = relunmd.decompose(np.eye(12), 4, random_state=0, max_iter=5, tol=0, progress=True)
        assert d.n_iter == 5
        assert caplog.text.count("Progress is no longer shown") == 1
        assert str(reason) in caplog.text

    @pytest.mark.parametrize("room", [0, 10, 150, 400])
    def test_on_a_terminal(self, caplog, reason, room):
        streams, threads = (sys.stdout, sys.stderr), set(threading.enumerate())
        console = Console(file=Failing(room, reason), force_terminal=True, width=120, color_system=None)
        with caplog.at_level(logging.WARNING, "relunmd"), ProgressDisplay("qn", Limits(), console) as display:
            deadline = time.monotonic() + 30
            while not display.disabled and time.monotonic() < deadline:  # The thread that redraws comes to it too.
                display(progress(1, 0.5, 0.4, 2, 0.4))
                time.sleep(0.01)
            assert (sys.stdout, sys.stderr) == streams
            assert display(progress(2, 0.5, 0.4, 2, 0.4)) is False
        assert caplog.text.count("Progress is no longer shown") == 1
        for thread in set(threading.enumerate()) - threads:
            thread.join(10)
            assert not thread.is_alive()
