"""Plans carried out: every run once, resumed after a kill, the others going on when one fails."""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import relunmd
from relunmd.comparison.comparison_display import ComparisonDisplay
from relunmd.comparison.contenders import TSVD, Contender
from relunmd.comparison.result_file import MOST_POINTS, Results, Run, _kept_points
from relunmd.errors import DatasetError, RelunmdError
from relunmd.loop.criteria import Limits
from tests.comparison.conftest import improving, make, run_of, small
from tests.conftest import relative_error, synthetic


def test_records_say_everything(tmp_path, display):
    run = run_of(contender=Contender("improving", improving, {"depth": 3}), seed=4)
    make([run], Results(tmp_path), display)
    (line,) = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
    record = json.loads(line)
    assert record["settings"] == {"depth": 3}
    assert (record["matrix"], record["rank"], record["init"], record["seed"]) == ("small", 3, "random", 4)
    assert record["n_iter"] == 5
    assert record["curve"]["iteration"] == list(range(6))
    assert record["error"] == pytest.approx(min(record["curve"]["error"]), rel=1e-8)
    assert record["start_error"] == pytest.approx(record["curve"]["error"][0], rel=1e-8)
    assert {"python", "versions", "machine", "cores", "blas"} <= record["environment"].keys()
    assert record["environment"]["versions"]["numpy"] == np.__version__


def test_what_is_there_is_not_run_again(tmp_path, display):
    calls = []

    def counting(X, W, H):
        calls.append(1)
        yield W, H

    runs = [run_of(contender=Contender("counting", counting), seed=s) for s in (0, 1, 0)]
    make(runs, Results(tmp_path), display)
    assert len(calls) == 2
    make(runs, Results(tmp_path), display)
    assert len(calls) == 2
    make([run_of(contender=Contender("counting", counting, {"other": True}))], Results(tmp_path), display)
    assert len(calls) == 3


def test_matrices_are_loaded_once_and_starts_made_once(tmp_path, display, monkeypatch):
    from relunmd.comparison.timed_run import Evaluator

    loads, starts = [], []
    original = Evaluator.initialize

    def start(self, *args):
        starts.append(args)
        return original(self, *args)

    monkeypatch.setattr(Evaluator, "initialize", start)
    matrix = small(load=lambda: loads.append(1) or synthetic(30, 20, 3))
    others = [Contender(label, improving) for label in ("a", "b")]
    runs = [run_of(matrix, contender, seed) for contender in others for seed in (0, 1)]
    make(runs, Results(tmp_path), display)
    assert len(loads) == 1
    assert starts == [(3, "random", 0), (3, "random", 1)]


def test_the_others_run_on(tmp_path, display, output):
    def missing():
        raise DatasetError("get it from the library")

    def failing(X, W, H):
        yield W, H
        raise RuntimeError("no more ideas")

    runs = [
        run_of(small("absent", load=missing)),
        run_of(contender=Contender("failing", failing)),
        run_of(),
    ]
    results = Results(tmp_path)
    outcome = make(runs, results, display)
    assert outcome.missing == {"absent": "absent: get it from the library"}
    (why,) = outcome.failed.values()
    assert re.fullmatch(r"RuntimeError: no more ideas \(test_runner\.py, line \d+\)", why)
    assert [results.has(run) for run in runs] == [False, False, True]
    assert "get it from the library" in output.getvalue()
    assert "no more ideas" in output.getvalue()


def test_factors(tmp_path, display):
    run = run_of(keep_factors=True)
    results = Results(tmp_path)
    make([run], results, display)
    with np.load(tmp_path / results.factors_file(run)) as kept:
        error = relative_error(synthetic(30, 20, 3), kept["W"], kept["H"])
    assert error == pytest.approx(results.get(run)["error"])
    again = Results(tmp_path)
    assert again.has(run)
    next((tmp_path / "factors").iterdir()).unlink()
    assert not again.has(run)


def test_a_line_cut_short_is_made_again(tmp_path, display, caplog):
    runs = [run_of(seed=s) for s in range(3)]
    make(runs, Results(tmp_path), display)
    path = tmp_path / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    results = Results(tmp_path)
    assert "in the middle of a line" in caplog.text
    assert path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:2])
    assert [results.has(run) for run in runs] == [True, True, False]
    make(runs, results, display)
    assert len(path.read_bytes().splitlines()) == 3
    assert all(Results(tmp_path).has(run) for run in runs)


@pytest.mark.parametrize("end", ["", "\n", "\nmore", "\nmore\n"])
@pytest.mark.parametrize("line", ["nonsense", "{}", "[1]", "3"])
def test_a_foreign_file_is_refused_and_kept(tmp_path, line, end):
    (tmp_path / "results.jsonl").write_text(line + end)
    with pytest.raises(RelunmdError, match="line 1 is not one"):
        Results(tmp_path)
    assert (tmp_path / "results.jsonl").read_text() == line + end


def test_a_line_that_lacks_only_its_end_is_kept(tmp_path, display):
    runs = [run_of(seed=s) for s in range(2)]
    make(runs, Results(tmp_path), display)
    path = tmp_path / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert all(Results(tmp_path).has(run) for run in runs)
    assert path.read_bytes() == whole


def test_every_cut_is_survived(tmp_path, display):
    """The file cut at many bytes of its last line."""
    runs = [run_of(seed=s) for s in range(2)]
    make(runs, Results(tmp_path), display)
    path = tmp_path / "results.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        again = Results(tmp_path)
        assert [again.has(run) for run in runs] == [True, False]
        assert path.read_bytes() == whole[:first]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RelunmdError, match="must be a folder that can be written to"):
        Results(tmp_path / "file")


def test_a_full_disk_ends_it_with_a_sentence(tmp_path, display, monkeypatch):
    """The last good results stay, and nothing is glued to half a line."""
    results = Results(tmp_path)
    make([run_of(seed=0)], results, display)
    before = (tmp_path / "results.jsonl").read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(RelunmdError, match=r"No space left on device.*the same command resumes"):
            make([run_of(seed=s) for s in range(3)], results, display)
    assert (tmp_path / "results.jsonl").read_bytes() == before
    make([run_of(seed=s) for s in range(3)], Results(tmp_path), display)
    assert all(Results(tmp_path).has(run_of(seed=s)) for s in range(3))


def test_too_little_memory_is_noted(tmp_path, display):
    def huge():
        raise MemoryError("ten terabytes")

    outcome = make([run_of(small("huge", load=huge)), run_of()], Results(tmp_path), display)
    assert outcome.missing == {"huge": "huge: ten terabytes"}
    assert Results(tmp_path).has(run_of())


@pytest.mark.parametrize("init", ["tsvd", "nuclear"])
def test_the_baselines_record_is_the_baselines(tmp_path, display, init):
    """Not that of a start that happens to be better."""
    run = Run(small(), 2, Limits(None, 0, None, 5.0), TSVD, init)
    results = Results(tmp_path)
    make([run], results, display)
    wanted = relunmd.decompose(synthetic(30, 20, 3), 2, "tsvd").error
    assert results.get(run)["error"] == pytest.approx(wanted, rel=1e-6)


def test_curves_are_thinned_but_keep_what_matters():
    errors = list(np.linspace(1, 0.5, 5000))
    errors[3217] = 0.1
    kept = _kept_points(errors)
    assert len(kept) <= MOST_POINTS + 2
    assert kept == sorted(set(kept))
    assert {0, 1, 2, 50, 3217, 4999} <= set(kept)
    assert max(np.diff(np.log(kept[10:]))) < 0.15
    assert _kept_points([1.0, 0.5]) == [0, 1]


PLAN = """
import sys, time
from pathlib import Path
from relunmd.comparison.contenders import Contender
from relunmd.comparison.result_file import Results
from relunmd.loop.driver import Limits
from tests.comparison.conftest import make, run_of, silent

def slow(X, W, H):
    with open(sys.argv[2], "a") as log:
        log.write("run\\n")
    for _ in range(3):
        time.sleep(0.01)
        yield W, H

runs = [run_of(contender=Contender("slow", slow), seed=s, keep_factors=True) for s in range(24)]
with silent() as display:
    make(runs, Results(Path(sys.argv[1])), display)
print("complete")
"""


def test_resumes_after_being_killed(tmp_path):
    """SIGKILL at several moments; every run is there once in the end, and what was there was not made again."""
    folder, log = tmp_path / "out", tmp_path / "log"
    command = [sys.executable, "-c", PLAN, str(folder), str(log)]
    root = Path(__file__).parents[2]
    finished = 0
    for pause in (0.05, 0.21):
        process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not (folder / "results.jsonl").exists() or _lines(folder) <= finished:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(pause)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        finished = _lines(folder)
    assert 2 <= finished < 24
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert "complete" in done.stdout
    seeds = [json.loads(line)["seed"] for line in (folder / "results.jsonl").read_text().splitlines()]
    assert sorted(seeds) == list(range(24))
    assert 24 <= len(log.read_text().splitlines()) <= 26


def _lines(folder):
    return (folder / "results.jsonl").read_bytes().count(b"\n")


def test_progress_says_what_is_left(tmp_path, display, output):
    make([run_of(seed=s) for s in range(2)], Results(tmp_path), display)
    text = output.getvalue()
    assert "2 runs to make" in text
    assert "[2/2] small, r=3, random initialization 1: improving" in text
    assert text.rstrip().endswith("0 s left")


def test_on_a_narrow_terminal_the_time_left_is_seen(tmp_path, output):
    console = Console(file=output, width=80, force_terminal=True, legacy_windows=False)
    with ComparisonDisplay(console) as shown:
        make([run_of(small("a matrix with a name that is much too long for the line " * 2))], Results(tmp_path), shown)
    assert re.search(r"1/1, 0 s left\s+a matrix with.*…", output.getvalue())


def test_output_that_cannot_be_written_does_not_end_a_plan(tmp_path, caplog):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    with caplog.at_level("WARNING", "relunmd"), ComparisonDisplay(Console(file=Full())) as display:
        make([run_of(contender=Contender("improving", improving, {}))], Results(tmp_path), display)
    assert len((tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()) == 1
    assert [message for message in caplog.messages if "Progress is no longer shown" in message] == [
        "Progress is no longer shown: [Errno 28] No space left on device"
    ]
