"""A session as a new user would have it, each command in a process of its own, on a terminal and without one."""

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import relunmd
from tests.cli.terminal import COMMAND, interrupted, on_a_terminal, peak_memory, run, screen
from tests.io.readers import samples

MAX_TIME = "The time limit --max-time was reached."
LONG = shlex.split("fit digits.npy -r 12 --seed 0 --tol 0 --max-iter 1000000 --checkpoint run.npz -o long.npz")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


def test_from_data_to_a_reconstruction(home):
    out, err = run("data", "fetch", "digits", cwd=home)
    assert (out, err) == ("digits.npy: 1797 × 64, float64\n", "")
    X = np.load(home / "digits.npy")

    out, _ = run("info", "digits.npy", cwd=home)
    assert re.search(r"zeros +48.93 %", out)
    assert re.search(r"range|largest +16\b", out)

    out, err = run("fit", "digits.npy", "--rank", 16, "--seed", 0, "-o", "model.npz", cwd=home)
    d = relunmd.Decomposition.load(home / "model.npz")
    assert d.error < 0.16
    assert out.startswith(f"error {d.error:.6g} after {d.n_iter} iterations in ")
    assert out.endswith("The error stopped improving.\nmodel.npz: W 1797 × 16, H 16 × 64, float64\n")
    assert err.startswith("qn, rank 16: error ")
    assert "\x1b" not in out + err

    out, _ = run("info", "model.npz", cwd=home)
    assert re.search(rf"error +{d.error:.6g}\n", out)
    assert re.search(r"algorithm +qn\n", out)

    out, _ = run("transform", "model.npz", "digits.npy", "-o", "W.csv", cwd=home)
    W = np.loadtxt(home / "W.csv", delimiter=",")
    error = np.linalg.norm(X - np.maximum(0, W @ d.H)) / np.linalg.norm(X)
    assert out == f"W.csv: 1797 × 16, error {error:.6g}\n"
    assert error <= d.error

    out, _ = run("reconstruct", "model.npz", "--rows", "0:10", "-o", "first.csv", cwd=home)
    assert out == "first.csv: 10 × 64\n"
    first = np.loadtxt(home / "first.csv", delimiter=",")
    np.testing.assert_allclose(first, np.maximum(0, d.W[:10] @ d.H), atol=1e-12)

    _, err = run("fit", "digits.npy", "--rank", 16, "-o", "model.npz", cwd=home, code=2)
    assert err == "Error: model.npz already exists; use --force to overwrite it.\n"


def test_interrupted_and_resumed(home):
    if not (home / "digits.npy").exists():
        run("data", "fetch", "digits", cwd=home)
    code, out, err = interrupted(*LONG, cwd=home, after=r"iteration [1-9]\d*,.*\n")
    assert code == 130
    assert "Interrupted: the best factors so far are saved in long.npz. The same command resumes from run.npz." in err
    first = relunmd.Decomposition.load(home / "long.npz")
    assert first.status is relunmd.Status.INTERRUPTED
    assert out.startswith(f"error {first.error:.6g} after {first.n_iter} iterations")

    code, _, err = interrupted(*LONG, cwd=home, after=r"iteration \d+,.*\n", number=signal.SIGTERM)
    assert code == 130
    assert "Resuming from run.npz." in err
    second = relunmd.Decomposition.load(home / "long.npz")
    assert second.n_iter > first.n_iter
    np.testing.assert_array_equal(second.history.error[: first.n_iter + 1], first.history.error)

    limited = [word if word != "1000000" else str(second.n_iter + 20) for word in LONG]
    out, _ = run(*limited, "--json", "--quiet", cwd=home)
    told = json.loads(out)
    assert (told["iterations"], told["status"]) == (second.n_iter + 20, "MAX_ITER")
    at_once = relunmd.decompose(np.load(home / "digits.npy"), 12, random_state=0, tol=0, max_iter=second.n_iter + 20)
    third = relunmd.Decomposition.load(home / "long.npz")
    np.testing.assert_array_equal(third.W, at_once.W)


@pytest.mark.parametrize("word", ["SIGINT", "SIGTERM"])
def test_ctrl_c_pressed_again_and_again(home, word):
    """However often: the best so far is saved, and the exit code is the same."""
    if not (home / "digits.npy").exists():
        run("data", "fetch", "digits", cwd=home)
    words = [{"run.npz": f"run-{word}.npz", "long.npz": f"{word}.npz"}.get(part, part) for part in LONG]
    number = signal.SIGINT if word == "SIGINT" else signal.SIGTERM
    code, _, err = interrupted(*words, cwd=home, after=r"iteration [1-9]\d*,.*\n", number=number, times=60)
    assert code == 130, err
    assert f"Interrupted: the best factors so far are saved in {word}.npz." in err
    assert relunmd.Decomposition.load(home / f"{word}.npz").status is relunmd.Status.INTERRUPTED


def test_in_the_background_of_a_shell(home):
    """Where Ctrl-C is not heard, a job can still be ended, and what there is is saved."""
    if not (home / "digits.npy").exists():
        run("data", "fetch", "digits", cwd=home)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        words = [{"run.npz": "behind.npz", "long.npz": "b.npz"}.get(word, word) for word in LONG]
        code, _, _ = interrupted(*words, cwd=home, after=r"iteration [1-9]\d*,.*\n", number=signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130
    assert relunmd.Decomposition.load(home / "b.npz").status is relunmd.Status.INTERRUPTED


def test_killed_and_resumed(home):
    if not (home / "digits.npy").exists():
        run("data", "fetch", "digits", cwd=home)
    words = [{"run.npz": "kill.npz", "long.npz": "k.npz"}.get(word, word) for word in LONG]
    code, _, _ = interrupted(*words, "--checkpoint-every", 0, cwd=home, after=home / "kill.npz", number=signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert not (home / "k.npz").exists()
    code, _, err = interrupted(*words, cwd=home, after=r"iteration [1-9]\d*,.*\n")
    assert code == 130
    assert "Resuming from kill.npz." in err
    assert relunmd.Decomposition.load(home / "k.npz").n_iter > 0
    assert not [file for file in home.iterdir() if file.name.endswith(".partial")]


def test_interrupted_before_there_is_anything(home):
    """While a file is being read, for example: nothing is left behind."""
    os.mkfifo(home / "pipe.npy")
    _, err = run("fit", "pipe.npy", "-r", 3, "-o", "none.npz", cwd=home, code=2)
    assert "a pipe" in err
    np.save(home / "wide.npy", np.random.default_rng(0).random((2500, 2500)))
    words = shlex.split("fit wide.npy -r 300 --init nuclear -o none.npz --json")
    started = subprocess.Popen([*COMMAND, *words], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        started.wait(timeout=2.5)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    (home / "wide.npy").unlink()
    assert (started.returncode, out) == (130, "")
    assert err.endswith("Interrupted; nothing was written.\n")
    assert not (home / "none.npz").exists()


class TestOnATerminal:
    def test_the_display_moves_and_ends_clean(self, home):
        if not (home / "digits.npy").exists():
            run("data", "fetch", "digits", cwd=home)
        words = shlex.split("fit digits.npy -r 12 --seed 0 --tol 0 --max-time 2.5 --max-iter 1000000 -o moved.npz")
        code, written = on_a_terminal(*words, cwd=home, columns=80)
        assert code == 0
        iterations = [int(number) for number in re.findall(r"iteration (\d+)", written)]
        assert len(set(iterations)) >= 5
        assert iterations == sorted(iterations)
        assert re.search(r"error 0\.\d{6}, decreased by \d\.\de-\d\d in 10 iterations", written)
        assert re.search(r"[\d.e+]+ passes/s · 0:0\d elapsed · \d+ iterations or 0:0[0123] left", written)
        assert len(set(re.findall("[▁▂▃▄▅▆▇█]{8,}", written))) >= 2  # The curve moves too.
        d = relunmd.Decomposition.load(home / "moved.npz")
        assert screen(written) == [
            f"error {d.error:.6g} after {d.n_iter} iterations in {d.time:.3g} s. {MAX_TIME}",
            "moved.npz: W 1797 × 12, H 12 × 64, float64",
        ]
        assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")  # The cursor is there again.

    def test_ctrl_c(self, home):
        if not (home / "digits.npy").exists():
            run("data", "fetch", "digits", cwd=home)
        words = shlex.split("fit digits.npy -r 12 --seed 0 --tol 0 --max-iter 1000000 -o stopped.npz")
        code, written = on_a_terminal(*words, cwd=home, columns=60, stop_after=r"iteration \d{2}")
        assert code == 130
        d = relunmd.Decomposition.load(home / "stopped.npz")
        shown = " ".join(line.removeprefix("^C") for line in screen(written))
        assert shown == (
            f"Warning: Interrupted after iteration {d.n_iter}; keeping the best so far "
            f"error {d.error:.6g} after {d.n_iter} iterations in {d.time:.3g} s. "
            "stopped.npz: W 1797 × 12, H 12 × 64, float64 "
            "Interrupted: the best factors so far are saved in stopped.npz. Use --init stopped.npz to continue from "
            "these factors, and --checkpoint FILE to make a run resumable."
        )


def test_a_dozen_hostile_files(home):
    """Through the command itself: exit code 2, one sentence, no traceback, and no memory for what they promise."""
    folder = home / "hostile"
    folder.mkdir()
    wanted = {"shape.npy", "objects.npy", "bomb.npz", "rows.mtx", "bomb.csv.gz", "bomb.mat", "hdf.h5", "nested.npy"}
    for name, make in samples.absurd_files():
        if name in wanted:
            (folder / name).write_bytes(make())
    samples.write_all(folder / "whole")
    for name in ("a.parquet", "a.mat", "a.h5", "a.mtx.gz"):
        (folder / name).write_bytes((folder / "whole" / name).read_bytes()[:-40])
    names = sorted(file.name for file in folder.iterdir() if file.is_file())
    assert len(names) == 12
    for number, name in enumerate(names):
        words = ["info", name] if number % 2 else ["fit", name, "-r", "2", "-o", "m.npz"]
        code, out, err, peak = peak_memory(*words, cwd=folder)
        assert (code, out) == (2, ""), (name, out, err)
        assert re.fullmatch(r"Error: [^\n]*\.\n", err), (name, err)
        assert Path(name).stem in err
        assert peak < 1e9, name
    assert not (folder / "m.npz").exists()
