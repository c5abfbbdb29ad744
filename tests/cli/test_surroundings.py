"""What happens around a command does not cost its result: dead output, signals, full disks, files that go away."""

import dataclasses
import logging
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import click
import pytest

import relunmd
from relunmd.cli import main, process, shared
from tests.cli.terminal import COMMAND, interrupted

FIT = "fit X.npy -r 4 --seed 0 --max-iter 5 --tol 0 -o m.npz"
LONG = shlex.split("fit X.npy -r 4 --seed 0 --tol 0 --max-iter 10000000 -o m.npz")
EVIL = "a\x1b[2Jb\x9bc"
ESCAPED = "a\\x1b[2Jb\\x9bc"


@pytest.fixture(autouse=True)
def signals_as_they_were():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


class TestOutputThatCannotBeWritten:
    @pytest.mark.parametrize(
        ("where", "code"),
        [
            ("2>&1 | true", 0),
            ("| true", 0),
            ("2>/dev/full", 0),
            (">/dev/full", 1),
            (">/dev/full 2>&1", 1),
            (">&- 2>&- <&-", 0),
        ],
    )
    def test_does_not_cost_the_model(self, folder, where, code):
        line = f"set -o pipefail; {shlex.join(COMMAND)} {FIT} {where}"
        done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=100)
        assert done.returncode == code, done.stderr
        assert relunmd.Decomposition.load("m.npz").n_iter == 5
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        if where == ">/dev/full":
            assert done.stderr.endswith("Error: stdout could not be written: No space left on device.\n")

    def test_a_refusal_keeps_its_exit_code(self, folder):
        line = f"{shlex.join(COMMAND)} fit nowhere.npy -r 4 -o m.npz >/dev/full 2>/dev/full"
        assert subprocess.run(["bash", "-c", line], cwd=folder, timeout=100).returncode == 2

    def test_a_warning_raises_nothing(self, monkeypatch):
        class Dead:
            def write(self, text):
                raise BrokenPipeError

        for stream in (Dead(), None):
            monkeypatch.setattr("sys.stderr", stream)
            with process._warnings_on_stderr():
                logging.getLogger("relunmd").warning("something")

    def test_what_there_is_room_for_later_is_written(self, tmp_path):
        """A disk that was full for a while, a pipe that takes nothing now."""
        descriptor = os.open("/dev/full", os.O_WRONLY)
        stream = process.TolerantStream(descriptor, "w")
        assert stream.write(b"first") == 5
        assert stream.failure.errno == 28
        with (tmp_path / "out").open("wb") as out:
            os.dup2(out.fileno(), descriptor)
        assert stream.write(b"second") == 6
        assert (tmp_path / "out").read_bytes() == b"second"
        stream.close()

    def test_a_full_pipe_does_not_block(self):
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        with process.TolerantStream(writing, "w") as stream:
            stream.write(bytes(1 << 20))
            assert stream.write(b"third") == 5
            assert isinstance(stream.failure, BlockingIOError)
        os.close(reading)


class TestSignals:
    @pytest.mark.parametrize("times", [1, 20])
    def test_hangup_saves(self, folder, times):
        """A terminal that goes away may send it twice, the kernel and the shell."""
        code, _, err = interrupted(
            *LONG, cwd=folder, after=r"iteration [1-9]\d*,.*\n", number=signal.SIGHUP, times=times
        )
        assert code == 130, err
        assert relunmd.Decomposition.load("m.npz").status is relunmd.Status.INTERRUPTED

    def test_a_terminal_that_goes_away(self, folder):
        """As when ssh is dropped: SIGHUP comes, and stdout and stderr fail from then on."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(COMMAND[0], [*COMMAND, *LONG])
        written, deadline = b"", time.monotonic() + 100
        while not re.search(rb"iteration \d{2}", written):
            assert time.monotonic() < deadline, written
            if select.select([terminal], [], [], 0.1)[0]:
                written += os.read(terminal, 1 << 16)
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 130
        assert relunmd.Decomposition.load("m.npz").status is relunmd.Status.INTERRUPTED

    def test_under_nohup_it_is_ignored(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with process._terminations_as_ctrl_c():
                assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
                assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        finally:
            signal.signal(signal.SIGHUP, before)

    def test_where_there_is_no_such_signal(self, monkeypatch):
        monkeypatch.setattr(process, "_TERMINATIONS", (signal.SIGTERM,))
        monkeypatch.setattr(process.InterruptHandler, "ends_process", True)
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        with process._terminations_as_ctrl_c(), process.InterruptHandler() as interrupts:
            interrupts.interrupted = True
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)

    def test_a_run_that_does_not_react_can_be_ended(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(process.time, "monotonic", lambda: now[0])
        with process.InterruptHandler() as interrupts:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            interrupts.can_save = True
            for _ in range(60):
                signal.raise_signal(signal.SIGINT)
            assert interrupts.interrupted
            now[0] = 1.1 * process._INSIST_AFTER
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            interrupts.saving = True
            signal.raise_signal(signal.SIGINT)

    def test_the_best_so_far_of_such_a_run_is_saved(self, run, folder, monkeypatch):
        """It waits for a thread that never comes back, or only after Ctrl-C has been pressed thrice."""
        monkeypatch.setattr(process, "_INSIST_AFTER", -1.0)
        step = relunmd.QuasiNewton.step

        def stuck(algorithm, problem, state):
            if threading.current_thread() is threading.main_thread() and problem.executor.passes > 20:
                for _ in range(3):
                    signal.raise_signal(signal.SIGINT)
                raise AssertionError("not reached")
            return step(algorithm, problem, state)

        monkeypatch.setattr(relunmd.QuasiNewton, "step", stuck)
        done = run("fit X.npy -r 4 --seed 0 --tol 0 -q -o m.npz", code=130)
        assert "Interrupted: the best factors so far are saved in m.npz." in done.stderr
        assert relunmd.Decomposition.load("m.npz").n_iter > 5


class TestFullDisks:
    @pytest.fixture
    def places(self, folder, monkeypatch):
        """Folders of all kinds; those in the list that is given have no room left."""
        made = {name: folder / name for name in ("out", "tmp", "here", "home", "run")}
        for place in made.values():
            place.mkdir()
        (folder / "X.npy").rename(made["here"] / "X.npy")
        monkeypatch.chdir(made["here"])
        monkeypatch.setenv("HOME", str(made["home"]))
        monkeypatch.setattr("tempfile.tempdir", str(made["tmp"]))
        full = set()
        save = relunmd.Decomposition.save

        def refusing(d, path):
            if any(made[name] in Path(path).resolve().parents for name in full):
                raise relunmd.FileError(f"{path} could not be written: No space left on device.")
            save(d, path)

        monkeypatch.setattr(relunmd.Decomposition, "save", refusing)
        return made, full

    @pytest.mark.parametrize("refuge", ["tmp", "here", "home", "run"])
    def test_the_model_goes_where_there_is_room(self, run, places, refuge):
        made, full = places
        order = ["out", "tmp", "here", "home", "run"]
        full.update(order[: order.index(refuge)])
        words = "fit X.npy -r 4 --seed 0 --max-iter 3 -q --checkpoint ../run/run.npz -o ../out/m.npz"
        done = run(words, code=1)
        place = Path(re.search(r"No space left on device\. The model is saved in (\S+) instead\.", done.stderr)[1])
        assert place.parent.parent == made[refuge]
        assert relunmd.Decomposition.load(place).n_iter == 3
        for name in full:
            assert not list(made[name].glob("relunmd-*")), name

    @pytest.mark.parametrize("checkpoint", [True, False])
    def test_no_room_anywhere(self, run, places, checkpoint):
        made, full = places
        full.update(made)
        more = " --checkpoint ../run/run.npz" if checkpoint else ""
        done = run(f"fit X.npy -r 4 --seed 0 --max-iter 3 --tol 0 -q -o ../out/m.npz{more}", code=1)
        assert done.stdout == ""
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1
        assert ("The run is kept in ../run/run.npz" in done.stderr) == checkpoint
        assert ("The result is lost" in done.stderr) != checkpoint
        assert not [file for place in made.values() for file in place.glob("relunmd-*")]
        if checkpoint:
            full.clear()
            run(f"fit X.npy -r 4 --seed 0 --max-iter 3 --tol 0 -q -o ../out/m.npz{more}")
            assert relunmd.Decomposition.load("../out/m.npz").n_iter == 3


def test_a_matrix_that_cannot_be_read_any_more(run, folder, monkeypatch):
    decompose = relunmd.decompose

    def cut(*given, **options):
        return dataclasses.replace(decompose(*given, **options), status=relunmd.Status.READ_FAILED)

    monkeypatch.setattr(relunmd, "decompose", cut)
    done = run(FIT, code=1)
    assert done.stderr.endswith(
        "Error: X.npy can no longer be read: the best factors so far are saved in m.npz. Use --init m.npz to continue "
        "from these factors, and --checkpoint FILE to make a run resumable.\n"
    )
    assert done.stdout.splitlines()[0].endswith(" s.")
    assert relunmd.Decomposition.load("m.npz").status is relunmd.Status.READ_FAILED
    done = run(f"{FIT} --force -q --checkpoint run.npz", code=1)
    assert "are saved in m.npz. The same command resumes from run.npz." in done.stderr


class TestThreads:
    """All cores where --threads is not given, whatever the library does without `n_jobs`."""

    @pytest.mark.parametrize(("words", "n_jobs"), [("", -1), (" --threads 3", 3)])
    def test_they_are_passed_on(self, run, folder, monkeypatch, words, n_jobs):
        seen = []

        def noting(function):
            def noted(*given, **options):
                seen.append(options["n_jobs"])
                return function(*given, **options)

            return noted

        for name in ("decompose", "fit_rows"):
            monkeypatch.setattr(relunmd, name, noting(getattr(relunmd, name)))
        run(f"{FIT} -q{words}")
        run(f"transform m.npz X.npy -q -o W.npy{words}")
        assert seen == [n_jobs, n_jobs]


class TestNamesCannotCommandTheTerminal:
    """Not one of the places where names of files and arguments are shown passes them on as they are."""

    @pytest.mark.parametrize(
        "words",
        [
            [EVIL],
            [f"--{EVIL}"],
            ["fit", f"--{EVIL}"],
            ["fit", EVIL, "-r", "4", "-o", "m.npz"],
            ["fit", "X.npy", EVIL, "-r", "4", "-o", "m.npz"],
            ["fit", "X.npy", "-r", EVIL, "-o", "m.npz"],
            ["fit", "X.npy", "-r", "4", "-o", f"{EVIL}.csv"],
            ["fit", "X.npy", "-r", "4", "-o", f"{EVIL}/m.npz"],
            ["fit", "X.npy", "-r", "4", "--algorithm", EVIL, "-o", "m.npz"],
            ["fit", "X.npy", "-r", "4", "--init", EVIL, "-o", "m.npz"],
            ["fit", "X.npy", "-r", "4", "--dtype", EVIL, "-o", "m.npz"],
            ["fit", "X.npy", "-r", "4", "--array", EVIL, "-o", "m.npz"],
            ["transform", EVIL, "X.npy", "-o", "W.npy"],
            ["reconstruct", EVIL, "-o", "Y.npy"],
            ["info", EVIL],
            ["convert", "X.npy", f"Y.{EVIL}"],
            ["data", EVIL],
            ["data", "fetch", EVIL],
            ["completion", EVIL],
            ["reproduce", EVIL, "-o", "out"],
            ["compare", EVIL, "--ranks", "2", "-o", "out"],
            ["compare", "X.npy", "--ranks", EVIL, "-o", "out"],
            ["compare", "X.npy", "--ranks", "2", "--column-names", EVIL, "-o", "out"],
        ],
    )
    def test_in_refusals(self, run, folder, words):
        done = run(*words, code=2)
        assert not re.search("[\x1b\x9b]", done.stdout + done.stderr)
        assert ESCAPED in done.stderr

    def test_in_what_is_told(self, run, folder):
        Path(f"{EVIL}.csv").write_text("id,a,b,c\n7,1,0,3\n8,0,2,1\n9,1,1,0\n")
        model, checkpoint = f"{EVIL}.npz", f"{EVIL}.run"
        fit = ["fit", f"{EVIL}.csv", "-r", 2, "--max-iter", 2, "--checkpoint", checkpoint, "-o", model]
        for words in (
            fit,
            fit,
            ["transform", model, f"{EVIL}.csv", "-o", f"{EVIL}.npy"],
            ["reconstruct", model, "-o", f"{EVIL}.mtx"],
            ["convert", f"{EVIL}.csv", f"{EVIL}.h5"],
            ["info", f"{EVIL}.csv"],
            ["info", model],
            ["data", "fetch", "digits", "-o", f"{EVIL}2.npy"],
            ["compare", f"{EVIL}.csv", "--ranks", 1, "--algorithms", "qn", "--max-iter", 1, "-o", f"{EVIL}-out"],
        ):
            done = run(*words)
            assert not re.search("[\x1b\x9b]", done.stdout + done.stderr), words
            assert ESCAPED in done.stdout + done.stderr

    def test_while_something_is_going_on(self, monkeypatch):
        """Nor are they taken for rich's markup."""
        shown = []

        class Terminal:
            is_terminal, is_dumb_terminal = True, False

            def status(self, what):
                shown.append(what.plain)
                return nullcontext()

        monkeypatch.setattr(shared, "console", Terminal)
        with click.Context(main), shared.working(f"reading [bold]{EVIL}[/]"):
            pass
        assert shown == [f"reading [bold]{ESCAPED}[/]"]


def test_data_list_without_docstrings(run, folder, monkeypatch):
    """As with python -OO."""
    from relunmd import datasets

    for loader in datasets.LOADERS.values():
        monkeypatch.setattr(loader, "__doc__", None)
    assert "digits" in run("data list").stdout


def test_every_message_goes_through_echo():
    """click.echo shows what it is given; it is left to what is no message."""
    folder = Path(shared.__file__).parent
    found = {file.name: file.read_text().count("click.echo(") for file in folder.glob("*.py")}
    assert {name: count for name, count in found.items() if count} == {"shared.py": 1, "data_commands.py": 1}
