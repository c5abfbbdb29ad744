"""Checkpoints: a run that is stopped anyhow, anywhere, goes on with the same bits."""

import contextlib
import errno
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy import sparse

import relunmd
from relunmd import FileError, InputError, Status
from relunmd.engine.distributed.row_files import remove_other_rows
from relunmd.io import file_lock
from relunmd.io.archive import read_archive, write_archive
from relunmd.io.file_lock import FileLock, LockedError
from relunmd.loop import checkpoint as checkpoints
from tests import killed
from tests.conftest import synthetic
from tests.mutants import mutants

HERE = Path(__file__).parent
X = synthetic(40, 30, 4, seed=1)
NAMES = sorted(set(relunmd.algorithms()) - {"auto"})


def run(path, X=X, rank=4, algorithm="qn", **settings):
    given = {"tol": 0, "max_iter": 30, "random_state": 0, "checkpoint_every": 0}
    return relunmd.decompose(X, rank, algorithm, checkpoint=path, **given | settings)


def same_bits(one, other, but=("time",)):
    assert one.W.tobytes() == other.W.tobytes()
    assert one.H.tobytes() == other.H.tobytes()
    for name in ("error", "n_iter", "status", "best_iter"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.history.columns.keys() == other.history.columns.keys()
    for name, column in one.history.columns.items():
        if name not in but:
            assert column.tobytes() == other.history.columns[name].tobytes(), name


def stop_at(iteration):
    return lambda progress: progress.iteration >= iteration


class TestGoesOn:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("name", NAMES)
    def test_every_algorithm_with_the_same_bits(self, tmp_path, name, dtype):
        A = X.astype(dtype)
        whole = run(None, A, algorithm=name)
        for stop in (0, 3, 17):
            path = tmp_path / f"{stop}.npz"
            part = run(path, A, algorithm=name, callback=stop_at(stop))
            assert part.n_iter == min(stop, whole.n_iter)
            told = []
            same_bits(whole, run(path, A, algorithm=name, callback=told.append))
            assert [progress.iteration for progress in told] == list(range(part.n_iter + 1, whole.n_iter + 1))

    @pytest.mark.parametrize("kind", ["csr", "csc", "integer", "memory map", "h5"])
    @pytest.mark.parametrize("name", ["qn", "3b-factored", "a-em"])
    def test_every_kind_of_input(self, tmp_path, name, kind):
        with _stored(kind, tmp_path) as A:
            whole = run(None, A, algorithm=name)
            run(tmp_path / "run.npz", A, algorithm=name, callback=stop_at(7))
            same_bits(whole, run(tmp_path / "run.npz", A, algorithm=name))

    def test_with_another_number_of_threads(self, tmp_path):
        A = synthetic(3000, 60, 4)
        run(tmp_path / "run.npz", A, n_jobs=1, callback=stop_at(7))
        same_bits(run(None, A, n_jobs=3), run(tmp_path / "run.npz", A, n_jobs=2))

    @pytest.mark.parametrize("stop", [1, 40, 99, 100, 130, 260, 350])
    def test_in_the_middle_of_a_race(self, tmp_path, stop):
        """`stop` counts the iterations of all starts; the first leg alone has 3 × 100."""
        path, calls = tmp_path / "run.npz", []
        settings = {"n_starts": 3, "init": "random", "max_iter": 350}
        whole = run(None, np.eye(12), 3, **settings)

        def count(progress):
            calls.append(progress.iteration)
            return len(calls) > stop

        run(path, np.eye(12), 3, callback=count, **settings)
        begun = []
        same_bits(whole, run(path, np.eye(12), 3, callback=lambda p: begun.append(p.iteration), **settings))
        assert begun[0] != 0 or calls[-1] == 100

    @pytest.mark.parametrize("seed", range(6))
    def test_a_race_that_was_stopped_in_its_first_leg(self, tmp_path, seed):
        settings = {"X": np.eye(12), "rank": 3, "n_starts": 4, "init": "random", "random_state": seed}
        for limit in (40, 100, 150):
            run(tmp_path / "run.npz", max_iter=limit, **settings)
        # The starts take turns at other moments, which is what `passes` counts.
        whole, parts = run(None, max_iter=300, **settings), run(tmp_path / "run.npz", max_iter=300, **settings)
        same_bits(whole, parts, but=("time", "passes"))

    @pytest.mark.parametrize("seed", range(3))
    def test_interrupted_while_a_later_start_is_made(self, tmp_path, monkeypatch, seed):
        settings = {"X": np.eye(12), "rank": 3, "n_starts": 3, "init": "random", "random_state": seed, "max_iter": 120}
        whole, made = run(None, **settings), []
        original = relunmd.init.RandomInit.make

        def interrupted(self, problem, random):
            made.append(original(self, problem, random))
            if len(made) == 2:
                raise KeyboardInterrupt
            return made[-1]

        monkeypatch.setattr(relunmd.init.RandomInit, "make", interrupted)
        assert run(tmp_path / "run.npz", **settings).status is Status.INTERRUPTED
        same_bits(whole, run(tmp_path / "run.npz", **settings))

    def test_interrupted_in_the_middle_of_an_iteration(self, tmp_path, monkeypatch):
        """Some of its passes have been made already, and do not count."""
        whole, passes = run(None, algorithm="a-em"), []
        original = relunmd.engine.executor.ThreadExecutor.run

        def interrupted(self, *given, **named):
            passes.append(1)
            if len(passes) == 30:
                raise KeyboardInterrupt
            return original(self, *given, **named)

        monkeypatch.setattr(relunmd.engine.executor.ThreadExecutor, "run", interrupted)
        assert run(tmp_path / "run.npz", algorithm="a-em").status is Status.INTERRUPTED
        same_bits(whole, run(tmp_path / "run.npz", algorithm="a-em"))

    @pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
    def test_a_run_that_failed_fails_again(self, tmp_path):
        settings = {"X": np.eye(12, dtype=np.float32), "algorithm": relunmd.ThreeBlock(beta=0.99), "max_iter": 1500}
        first = run(tmp_path / "run.npz", **settings)
        assert first.status is Status.FAILED
        same_bits(first, run(tmp_path / "run.npz", **settings))
        assert run(tmp_path / "run.npz", **settings | {"max_iter": 2000}).status is Status.FAILED

    @pytest.mark.parametrize("stop", [60, 150, 250, 350])
    def test_in_a_race_of_which_starts_fail(self, tmp_path, caplog, stop):
        class Failing(relunmd.ThreeBlockFactored):
            def step(self, problem, state):
                following = super().step(problem, state)
                if int(abs(state.H[0, 0]) * 1e6) % 97 == 0:
                    raise np.linalg.LinAlgError("on purpose")
                return following

        settings = {"rank": 3, "algorithm": Failing(), "n_starts": 4, "init": "random", "max_iter": 160}
        calls = []
        whole = run(None, **settings)
        assert 2 <= caplog.text.count("was not finite") <= 3
        run(tmp_path / "run.npz", callback=lambda p: calls.append(p) or len(calls) > stop, **settings)
        same_bits(whole, run(tmp_path / "run.npz", **settings))

    def test_from_another_folder(self, tmp_path, monkeypatch):
        """The path is that of the folder in which the run began."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "other").mkdir()
        run("run.npz", callback=lambda progress: os.chdir(tmp_path / "other"))
        assert (tmp_path / "run.npz").exists()
        assert not list((tmp_path / "other").iterdir())

    def test_often(self, tmp_path):
        """Stopped after every single iteration."""
        whole = run(None)
        for stop in range(31):
            part = run(tmp_path / "run.npz", max_iter=stop)
            assert part.n_iter == stop
        same_bits(whole, part)

    @pytest.mark.parametrize("bits", ["MT19937", "Philox", "SFC64", "PCG64DXSM"])
    def test_generators_of_every_kind(self, tmp_path, bits):
        def random():
            return np.random.Generator(getattr(np.random, bits)(5))

        settings = {"n_starts": 2, "max_iter": 5, "init": "random"}
        whole = run(None, random_state=random(), **settings)
        run(tmp_path / "run.npz", random_state=random(), callback=stop_at(3), **settings)
        same_bits(whole, run(tmp_path / "run.npz", random_state=random(), **settings))

    def test_says_so_in_the_log(self, tmp_path, caplog):
        run(tmp_path / "run.npz", max_iter=4)
        with caplog.at_level(logging.INFO, "relunmd"):
            run(tmp_path / "run.npz", max_iter=6)
        assert "Resuming from" in caplog.text
        assert "iteration 4" in caplog.text


@contextlib.contextmanager
def _stored(kind, folder):
    if kind == "csr":
        yield sparse.csr_array(X)
    elif kind == "csc":
        yield sparse.csc_matrix(X)
    elif kind == "integer":
        yield np.rint(10 * X).astype(np.uint8)
    elif kind == "memory map":
        np.save(folder / "X.npy", X)
        yield np.load(folder / "X.npy", mmap_mode="r")
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(folder / "X.h5", "w") as file:
            yield file.create_dataset("X", data=X, chunks=(10, 30))


class TestLimits:
    def test_a_finished_run_comes_back_at_once(self, tmp_path):
        whole = run(tmp_path / "run.npz", max_iter=10)
        before = (tmp_path / "run.npz").read_bytes()
        called = []
        again = run(tmp_path / "run.npz", max_iter=10, callback=called.append)
        same_bits(whole, again)
        assert not called
        assert (tmp_path / "run.npz").read_bytes() == before
        assert again.time >= whole.history.time[-1]

    def test_a_raised_one_goes_on(self, tmp_path):
        run(tmp_path / "run.npz", max_iter=10)
        same_bits(run(None, max_iter=25), run(tmp_path / "run.npz", max_iter=25))

    def test_a_lower_target_goes_on(self, tmp_path):
        first = run(tmp_path / "run.npz", target_error=0.1, max_iter=200)
        assert first.status is Status.TARGET
        assert run(tmp_path / "run.npz", target_error=0.1, max_iter=200).n_iter == first.n_iter
        second = run(tmp_path / "run.npz", target_error=1e-4, max_iter=200)
        same_bits(second, run(None, target_error=1e-4, max_iter=200))

    def test_a_smaller_tol_goes_on(self, tmp_path):
        noise = np.random.default_rng(0).random(X.shape)
        settings = {"X": X + (X > 0) * noise, "algorithm": "naive", "max_iter": 500}
        first = run(tmp_path / "run.npz", tol=0.01, **settings)
        second = run(tmp_path / "run.npz", tol=0.001, **settings)
        assert first.status is second.status is Status.CONVERGED
        assert second.n_iter > first.n_iter
        same_bits(second, run(None, tol=0.001, **settings))

    def test_time_is_that_of_all_sittings(self, tmp_path):
        def slow(progress):
            time.sleep(0.02)

        first = run(tmp_path / "run.npz", max_iter=None, max_time=0.1, callback=slow)
        assert first.status is Status.MAX_TIME
        again = run(tmp_path / "run.npz", max_iter=None, max_time=0.1, callback=slow)
        assert (again.n_iter, again.status) == (first.n_iter, Status.MAX_TIME)
        second = run(tmp_path / "run.npz", max_iter=None, max_time=0.2, callback=slow)
        assert second.n_iter > first.n_iter
        assert np.all(np.diff(second.history.time) > 0)

    @pytest.mark.parametrize("ending", [KeyboardInterrupt, RuntimeError("the callback's own")])
    def test_what_interrupts_it_is_survived(self, tmp_path, ending):
        def end(progress):
            if progress.iteration == 6:
                raise ending

        with contextlib.suppress(RuntimeError):
            assert run(tmp_path / "run.npz", checkpoint_every=1e9, callback=end).status is Status.INTERRUPTED
        first = []
        same_bits(run(None), run(tmp_path / "run.npz", callback=lambda p: first.append(p.iteration)))
        assert first[0] == 7

    def test_pressed_while_the_end_is_written(self, tmp_path, monkeypatch):
        """The result comes back at once, and what is being written is written."""
        go_on, original = threading.Event(), checkpoints.write_archive

        def slow(*given):
            os.kill(os.getpid(), signal.SIGINT)
            go_on.wait(30)
            original(*given)

        monkeypatch.setattr(checkpoints, "write_archive", slow)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            d = run(tmp_path / "run.npz", checkpoint_every=1e9)
        finally:
            signal.signal(signal.SIGINT, before)
        assert (d.status, d.n_iter) == (Status.INTERRUPTED, 30)
        assert not (tmp_path / "run.npz").exists()
        with pytest.raises(InputError, match="in use by process"):
            run(tmp_path / "run.npz")
        go_on.set()
        killed.wait_for_writer()
        assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]

    def test_no_thread_to_be_had(self, tmp_path, monkeypatch):
        def fail(self):
            raise RuntimeError("can't start new thread")

        whole = run(None, n_jobs=1)
        monkeypatch.setattr(threading.Thread, "start", fail)
        same_bits(whole, run(tmp_path / "run.npz", n_jobs=1))
        same_bits(whole, run(tmp_path / "run.npz", n_jobs=1))

    def test_seldom_enough(self, tmp_path, monkeypatch):
        """No write but the last one, if the time has not come."""
        written = []
        original = checkpoints.write_archive
        monkeypatch.setattr(checkpoints, "write_archive", lambda *given: (written.append(1), original(*given)))
        run(tmp_path / "run.npz", checkpoint_every=1e9)
        assert len(written) == 1


def _seal(path, about, arrays):
    about = {name: value for name, value in about.items() if name in ("identity", "run")}
    write_archive(path, "checkpoint", 1, about, arrays)


class TestRefused:
    @pytest.fixture
    def path(self, tmp_path):
        run(tmp_path / "run.npz", max_iter=5)
        return tmp_path / "run.npz"

    CHANGES: ClassVar = {
        "rank: checkpoint has 4, this call has 3": {"rank": 3},
        "algorithm: checkpoint has 'qn', this call has '3b'": {"algorithm": "3b"},
        "settings: checkpoint has .*'memory': 10.*, this call has .*'memory': 3": {
            "algorithm": relunmd.QuasiNewton(memory=3)
        },
        "dtype: checkpoint has 'float64', this call has 'float32'": {"dtype": np.float32},
        "init: checkpoint has .*'shifted'.*, this call has .*'random'": {"init": "random"},
        "n_starts: checkpoint has 1, this call has 2": {"n_starts": 2},
        "random_state: checkpoint has 0, this call has 1": {"random_state": 1},
        r"shape of X: checkpoint has \(40, 30\), this call has \(39, 30\)": {"X": X[:-1]},
        "dtype of X: checkpoint has float64, this call has float32": {"X": X.astype(np.float32), "dtype": np.float64},
        "sum of X: checkpoint has .*, this call has": {"X": X + (X > 0) * 1e-6},
        "number of nonzeros of X": {"X": X * (X > 0.01)},
        "X has other entries, or its rows or columns are in another order": {"X": X[::-1]},
    }

    @pytest.mark.parametrize("sentence", CHANGES)
    def test_another_run(self, path, sentence):
        before = path.read_bytes()
        with pytest.raises(InputError, match=f"checkpoint must be of the same .*{sentence}"):
            run(path, **self.CHANGES[sentence])
        assert path.read_bytes() == before

    def test_a_binary_matrix_with_one_entry_moved(self, tmp_path):
        """Shape, number of nonzeros and sums agree."""
        one = (np.random.default_rng(0).random((40, 30)) < 0.2) * 1.0
        other = one.copy()
        i, j = np.argwhere(one)[0]
        other[i, j], other[i, np.flatnonzero(one[i] == 0)[0]] = 0, 1
        run(tmp_path / "run.npz", X=one, max_iter=5)
        with pytest.raises(InputError, match="X has other entries"):
            run(tmp_path / "run.npz", X=other, max_iter=6)
        for same in (sparse.csr_array(one), np.asfortranarray(one)):
            assert run(tmp_path / "run.npz", X=same, max_iter=6).n_iter == 6

    def test_a_given_start_is_part_of_it(self, tmp_path):
        W, H = np.ones((40, 4)), np.ones((4, 30))
        run(tmp_path / "run.npz", init=(W, H), max_iter=5)
        run(tmp_path / "run.npz", init=(W, H), max_iter=6)
        with pytest.raises(InputError, match="init: checkpoint has"):
            run(tmp_path / "run.npz", init=(2 * W, H))

    def test_a_seed_that_is_no_number_is_not_asked_and_the_file_keeps_its_own(self, path):
        run(path, random_state=None, max_iter=6)
        run(path, random_state=np.random.default_rng(3), max_iter=7)
        with pytest.raises(InputError, match="random_state: checkpoint has 0, this call has 6"):
            run(path, random_state=6, max_iter=8)
        same_bits(run(None), run(path, random_state=0))

    def test_a_number_where_there_was_none(self, tmp_path):
        run(tmp_path / "run.npz", random_state=None, max_iter=5)
        with pytest.raises(InputError, match="random_state: checkpoint has None, this call has 5"):
            run(tmp_path / "run.npz", random_state=5)

    def test_random_bits_of_another_kind(self, path):
        with pytest.raises(InputError, match="generator: checkpoint has 'PCG64', this call has 'MT19937'"):
            run(path, random_state=np.random.Generator(np.random.MT19937(0)))

    @pytest.mark.parametrize("reason", [OSError("the disk of X is gone"), MemoryError()])
    def test_what_is_not_the_files_fault_is_not_blamed_on_it(self, path, monkeypatch, reason):
        def fail(*given):
            raise reason

        monkeypatch.setattr("relunmd.engine.problem.Problem.error", fail)
        with pytest.raises(type(reason)):
            run(path)
        monkeypatch.setattr("relunmd.io.archive._read_member", fail)
        with pytest.raises(FileError, match="cannot be read") as told:
            run(path)
        assert "delete" not in str(told.value)

    def test_a_file_of_someone_who_knows_the_form(self, path):
        """Whole, with the right checksums, and yet not what a run would have written."""
        whole = path.read_bytes()
        with np.load(path) as members:
            arrays = dict(members)
        about = json.loads(arrays.pop("metadata").tobytes())
        trajectory = about["run"]["trajectories"][0]
        changes = {
            "more": {"0.history.more": arrays["0.history.time"]},
            "flat": {"0.history.time": np.ones((6, 2))},
            "nan": {"0.history.time": np.full(6, np.nan)},
            "long": {"0.state.step": np.array(0.5, np.longdouble)},
            "wide": {"0.history.leak": np.ones((6, 2))},
        }
        for name, change in changes.items():
            _seal(path, about, arrays | change)
            with pytest.raises(FileError, match="damaged, or something else"):
                run(path)
            assert name
        for missing in ("iteration", "time", "passes"):
            _seal(path, about, {name: x for name, x in arrays.items() if name != f"0.history.{missing}"})
            with pytest.raises(FileError, match="damaged, or something else"):
                run(path)
        _seal(path, about | {"run": about["run"] | {"trajectories": [trajectory | {"tol_iterations": 7}]}}, arrays)
        with pytest.raises(FileError, match="damaged, or something else"):
            run(path)
        path.write_bytes(whole)
        same_bits(run(None), run(path))

    @pytest.mark.parametrize(("bits", "inner", "name"), [("MT19937", True, "pos"), ("Philox", False, "buffer_pos")])
    def test_positions_beyond_the_buffers_of_random_bits(self, tmp_path, bits, inner, name):
        def random():
            return np.random.Generator(getattr(np.random, bits)(5))

        path = tmp_path / "run.npz"
        run(path, random_state=random(), max_iter=2)
        about, arrays = read_archive(path, "checkpoint", 1)
        state = about["run"]["random"]
        (state["state"] if inner else state)[name] = 10**6
        _seal(path, about, arrays)
        with pytest.raises(FileError, match="an impossible random state"):
            run(path, random_state=random())

    def test_the_same_matrix_stored_otherwise_is_the_same(self, path):
        assert run(path, sparse.csr_array(X)).n_iter == 30

    @pytest.mark.parametrize("every", [-1, None, "often", np.nan])
    def test_every(self, tmp_path, every):
        with pytest.raises(InputError, match="checkpoint_every must be a number of seconds of at least 0"):
            run(tmp_path / "run.npz", checkpoint_every=every)

    def test_places(self, tmp_path):
        with pytest.raises(InputError, match="a file in an existing folder"):
            run(tmp_path / "no" / "run.npz")
        with pytest.raises(InputError, match="a file in an existing folder"):
            run(tmp_path)
        with pytest.raises(InputError, match="must be the path of a file"):
            run(5)

    def test_something_else(self, tmp_path):
        (tmp_path / "run.npz").write_text("diary")
        with pytest.raises(FileError, match="Name another file, or delete that one if it is not needed"):
            run(tmp_path / "run.npz")
        run(None, max_iter=3).save(tmp_path / "run.npz")
        with pytest.raises(FileError, match=r"must be a checkpoint .* it is a relunmd model"):
            run(tmp_path / "run.npz")
        assert relunmd.Decomposition.load(tmp_path / "run.npz").n_iter == 3

    def test_another_version_of_the_algorithm(self, path, monkeypatch):
        monkeypatch.setattr(relunmd.QuasiNewton, "keeps", {})
        with pytest.raises(FileError, match="another version of the algorithm"):
            run(path)


@pytest.mark.parametrize("number", range(1, checkpoints._VERSION + 1))
def test_a_checkpoint_of_every_version_is_gone_on_from(tmp_path, number):
    shutil.copy(HERE.parent / "data" / f"checkpoint-{number}.npz", tmp_path / "run.npz")
    told = []
    d = run(tmp_path / "run.npz", max_iter=12, callback=told.append)
    assert [progress.iteration for progress in told] == [11, 12]
    assert d.n_iter == 12


@pytest.mark.parametrize("name", NAMES)
def test_what_is_being_written_is_not_written_over(tmp_path, monkeypatch, name):
    """A writer so slow that the run makes ten steps meanwhile."""
    go_on, compared = threading.Event(), []

    def slow(place, kind, number, about, arrays):
        before = {key: array.copy() for key, array in arrays.items()}
        go_on.wait(30)
        go_on.clear()
        compared.append(all(before[key].tobytes() == array.tobytes() for key, array in arrays.items()))

    def release(progress):
        if progress.iteration % 10 == 0:
            go_on.set()
            time.sleep(0.05)
        if progress.iteration == 40:
            threading.Thread(target=lambda: (time.sleep(0.2), go_on.set(), time.sleep(0.2), go_on.set())).start()

    monkeypatch.setattr(checkpoints, "write_archive", slow)
    d = run(tmp_path / "run.npz", algorithm=name, max_iter=40, callback=release)
    assert all(compared)
    assert len(compared) >= (2 if d.n_iter else 1)
    same_bits(d, run(None, algorithm=name, max_iter=40))


class TestLocked:
    def test_by_a_run_of_this_process(self, tmp_path):
        refused = []

        def another(progress):
            if progress.iteration == 3:
                with pytest.raises(InputError, match="checkpoint must not be in use by another run") as told:
                    run(tmp_path / "run.npz")
                refused.append(str(told.value))

        same_bits(run(None), run(tmp_path / "run.npz", callback=another))
        (sentence,) = refused
        assert str(tmp_path / "run.npz") in sentence
        assert f"process {os.getpid()} on {socket.gethostname()} since 20" in sentence
        assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]

    def test_by_another_process_until_it_is_killed(self, tmp_path):
        log = tmp_path / "log"
        log.touch()
        process = killed.CONTEXT.Process(target=killed.run, args=("qn", "dense", tmp_path / "run.npz", log))
        process.start()
        while not log.read_text():
            time.sleep(0.01)
        with pytest.raises(InputError, match=f"in use by process {process.pid} on"):
            relunmd.decompose(killed.X, checkpoint=tmp_path / "run.npz", **killed.RUN)
        process.kill()
        process.join()
        assert relunmd.decompose(killed.X, checkpoint=tmp_path / "run.npz", **killed.RUN).n_iter == 40

    def test_a_forked_process_does_not_keep_it(self, tmp_path):
        program = f"""
            import os, pathlib, time
            from relunmd.io.file_lock import FileLock
            lock = FileLock(pathlib.Path({str(tmp_path / "run.npz")!r}))
            lock.acquire()
            child = os.fork()
            if child == 0:
                os.close(1)
                time.sleep(60)
            print(child, flush=True)
            os._exit(0)
        """
        if not hasattr(os, "fork"):
            pytest.skip("no fork")
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, check=True)
        try:
            lock = FileLock(tmp_path / "run.npz")
            lock.acquire()
            lock.release()
        finally:
            os.kill(int(done.stdout), signal.SIGKILL)

    def test_what_its_holder_removes_meanwhile_is_not_locked(self, tmp_path, monkeypatch):
        """The one who waits has opened a file that is gone when it has locked it."""
        original, holder, locked = file_lock._lock, FileLock(tmp_path / "run.npz"), []
        holder.acquire()

        def late(descriptor):
            if not locked:
                holder.release()
            locked.append(descriptor)
            original(descriptor)

        monkeypatch.setattr(file_lock, "_lock", late)
        lock = FileLock(tmp_path / "run.npz")
        lock.acquire()
        assert len(locked) == 2
        with pytest.raises(LockedError, match=f"process {os.getpid()} on"):
            FileLock(tmp_path / "run.npz").acquire()
        lock.release()
        assert not list(tmp_path.iterdir())

    def test_where_files_cannot_be_locked_the_run_goes_on(self, tmp_path, monkeypatch, caplog):
        def fail(descriptor):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(file_lock, "_lock", fail)
        same_bits(run(None), run(tmp_path / "run.npz"))
        assert "run.npz cannot be locked against other runs: [Errno" in caplog.text

    def test_a_planted_link_is_not_followed(self, tmp_path, caplog):
        lock, diary = FileLock(tmp_path / "run.npz"), tmp_path / "diary"
        diary.write_text("dear diary")
        lock._path.symlink_to(diary)
        same_bits(run(None), run(tmp_path / "run.npz"))
        assert diary.read_text() == "dear diary"
        assert "cannot be locked" in caplog.text


class TestRowsBeside:
    """`<checkpoint>.rows`, where a run on a cluster puts its rows."""

    OURS: ClassVar = ("0123456789ab", "cdef01234567")

    @pytest.fixture
    def home(self, tmp_path):
        home = tmp_path / "run.npz.rows"
        for name in (*self.OURS, "photos", "abcdef"):
            (home / name).mkdir(parents=True)
            (home / name / "part-000000.npz").write_text("rows")
        (home / self.OURS[0] / ".relunmd-01234567-0123456789ab.partial").write_text("rows")
        return home

    def test_of_earlier_checkpoints_are_removed_and_no_others(self, home):
        (home / "aaaaaaaaaaaa").mkdir()
        (home / "aaaaaaaaaaaa" / "thesis.tex").write_text("mine")
        (home / "bbbbbbbbbbbb").symlink_to(home / "photos")
        (home / "cccccccccccc").mkdir()
        (home / "cccccccccccc" / "part-000000.npz").symlink_to(home / "photos" / "part-000000.npz")
        before = {file.name for file in home.iterdir()}
        remove_other_rows(home.with_name("run.npz"), {"folder": f"run.npz.rows/{self.OURS[1]}"})
        assert {file.name for file in home.iterdir()} == before - {self.OURS[0]}
        assert (home / "photos" / "part-000000.npz").exists()

    def test_a_link_is_not_followed(self, home, caplog):
        elsewhere = home.rename(home.with_name("elsewhere"))
        home.symlink_to(elsewhere)
        remove_other_rows(home.with_name("run.npz"), None)
        assert (elsewhere / self.OURS[0]).exists()
        assert "is a symbolic link" in caplog.text

    def test_a_run_on_one_machine_removes_none(self, home):
        before = sorted(home.rglob("*"))
        run(home.with_name("run.npz"))
        assert sorted(home.rglob("*")) == before


class TestKilled:
    @pytest.mark.parametrize("kind", killed.KINDS)
    @pytest.mark.parametrize("name", ["qn", "a-nmd", "em", "3b-factored"])
    def test_at_twenty_moments(self, tmp_path, name, kind):
        path, log = tmp_path / "run.npz", tmp_path / "log"
        whole = relunmd.decompose(killed.KINDS[kind], algorithm=name, **killed.RUN)
        random = np.random.default_rng(len(name) + len(kind))
        kills = resumed = while_writing = 0
        while kills < 20:
            existed = path.exists()
            log.write_text("")
            process = killed.CONTEXT.Process(target=killed.run, args=(name, kind, path, log))
            process.start()
            in_writing = kills % 2 == 0 and _partial_appears(path, process)
            if kills % 4 == 1:  # At some other time a run of its own speed may have made no iteration yet.
                _iteration_appears(log, process)
            time.sleep(random.uniform(0, 0.002 if in_writing else 0.2))
            process.kill()
            process.join()
            iterations = [int(line) for line in log.read_text().split()]
            if existed and iterations:
                assert iterations[0] > 0
                resumed += 1
            if process.exitcode == 0:  # It had ended before.
                same_bits(whole, relunmd.decompose(killed.KINDS[kind], algorithm=name, checkpoint=path, **killed.RUN))
                path.unlink()
                continue
            assert process.exitcode == -9
            kills += 1
            while_writing += bool(_partials(path))
        assert resumed >= 3
        assert while_writing >= 1
        same_bits(whole, relunmd.decompose(killed.KINDS[kind], algorithm=name, checkpoint=path, **killed.RUN))
        assert not _partials(path)


def _partials(path):
    return [file for file in path.parent.iterdir() if file.name.endswith(".partial")]


def _iteration_appears(log, process):
    """Wait until the run has made an iteration."""
    while process.is_alive() and not log.read_text():
        time.sleep(0.002)


def _partial_appears(path, process):
    """Wait until a checkpoint is being written."""
    before = set(_partials(path))
    while process.is_alive():
        if set(_partials(path)) - before:
            return True
    return False


class TestDisk:
    @pytest.mark.parametrize("name", ["qn", "a-nmd"])
    @pytest.mark.parametrize("misfortune", [killed.run_on_a_full_disk, killed.run_in_a_folder_made_read_only])
    def test_what_the_disk_refuses(self, tmp_path, misfortune, name):
        folder = tmp_path / "folder"
        folder.mkdir()
        for parent in [tmp_path, *tmp_path.parents]:  # For the user that root becomes.
            with contextlib.suppress(OSError):
                parent.chmod(parent.stat().st_mode | 0o055)
        process = killed.CONTEXT.Process(target=misfortune, args=(name, folder / "run.npz", tmp_path / "outcome"))
        process.start()
        process.join(60)
        folder.chmod(0o755)
        assert process.exitcode == 0
        with np.load(tmp_path / "outcome") as told:
            assert told["intact"]
            assert [name for name in told["files"].tolist() if not name.endswith(".lock")] == ["run.npz"]
            assert told["status"] == "MAX_ITER"
            assert "run.npz could not be written" in str(told["log"])
            found = told["W"].tobytes(), told["H"].tobytes()
        whole = relunmd.decompose(killed.X, algorithm=name, **killed.RUN)
        assert found == (whole.W.tobytes(), whole.H.tobytes())
        same_bits(whole, relunmd.decompose(killed.X, algorithm=name, checkpoint=folder / "run.npz", **killed.RUN))


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
@pytest.mark.parametrize("name", ["qn", "a-em"])
def test_mutated_checkpoints_go_on_or_give_a_sentence(tmp_path, name, capfd):
    settings = {"algorithm": name, "max_iter": 12, "checkpoint_every": 1e9}
    run(tmp_path / "run.npz", **settings)
    whole = (tmp_path / "run.npz").read_bytes()
    sentences, gone_on = [], 0
    tracemalloc.start()
    for what, content in mutants(whole, 250, seed=1):
        mutant = tmp_path / "mutant.npz"
        mutant.write_bytes(content)
        try:
            d = run(mutant, **settings | {"max_iter": 15})
        except (FileError, InputError) as reason:
            sentences.append((what, str(reason)))
            continue
        gone_on += 1
        assert np.isfinite(d.W).all(), what
        assert np.isfinite(d.H).all(), what
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    assert all("mutant.npz" in sentence or "checkpoint" in sentence for _, sentence in sentences)
    assert len(sentences) > 150
    assert gone_on > 10
    assert "EXECUTED" not in "".join(capfd.readouterr())
