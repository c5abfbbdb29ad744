"""The loop: limits, callbacks, interruption, failure, and the best so far."""

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import relunmd
from relunmd import algorithm, api
from relunmd.algorithm import Algorithm, State
from relunmd.engine.executor import ThreadExecutor
from relunmd.loop.criteria import WINDOW, Limits
from relunmd.loop.driver import solve
from relunmd.loop.race import FIRST_ROUND
from tests.conftest import relative_error, synthetic

X = synthetic(60, 50, 6, seed=1)
Status = relunmd.Status


@dataclasses.dataclass(frozen=True)
class Scripted(Algorithm):
    """Reports errors from a list, its factors being numbered by iteration; raises what it finds there."""

    errors: tuple = ()
    name = "scripted"
    summary = "for tests"

    def start(self, problem, W, H):
        return self._state(W, H, 0)

    def step(self, problem, state):
        return self._state(state.W, state.H, int(state.W[0, 0]) + 1)

    def _state(self, W, H, k):
        outcome = self.errors[min(k, len(self.errors) - 1)]
        if isinstance(outcome, BaseException):
            raise outcome
        return State(
            np.full_like(W, k),
            np.full_like(H, np.nan if outcome == "nan in H" else 1.0),
            0.5 if outcome == "nan in H" else outcome,
        )


def run(errors, **limits):
    return relunmd.decompose(X, 1, Scripted(tuple(errors)), init="random", **({"tol": 0} | limits))


def iteration_of(d):
    """Which iteration's factors came back: W was k everywhere, H one."""
    return round((d.W @ d.H).mean() / (2.0 ** np.floor(np.log2(X.max()))))


def test_target():
    d = run([0.9, 0.5, 0.2, 0.1], target_error=0.2)
    assert (d.status, d.n_iter, d.error) == (Status.TARGET, 2, 0.2)
    np.testing.assert_array_equal(d.history.error, [0.9, 0.5, 0.2])
    assert run([0.9, 0.5], target_error=0.95).n_iter == 0


def test_max_iter_and_best_so_far():
    d = run([0.9, 0.3, 0.8, 0.7], max_iter=3)
    assert (d.status, d.n_iter, d.error, iteration_of(d), d.best_iter) == (Status.MAX_ITER, 3, 0.3, 1, 1)
    assert run([0.9], max_iter=0).n_iter == 0


def test_max_time():
    d = relunmd.decompose(X, 3, tol=0, max_iter=None, max_time=0.2)
    assert d.status is Status.MAX_TIME
    assert d.history.time[-1] >= 0.2 > d.history.time[-2]
    assert d.init_time <= d.history.time[0]
    assert d.history.time[-1] <= d.time


def test_tol_is_the_fall_over_ten_iterations_of_the_best_error():
    falling = [0.5 * 0.99**k for k in range(15)]
    d = run(falling + [falling[-1]] * 100, tol=1e-2)
    assert d.status is Status.CONVERGED
    best = np.minimum.accumulate(d.history.error)
    assert best[-1 - WINDOW] - best[-1] <= 1e-2 * best[-1 - WINDOW]
    assert best[-2 - WINDOW] - best[-2] > 1e-2 * best[-2 - WINDOW]
    assert run(falling, tol=0, max_iter=50).status is Status.MAX_ITER


def test_an_exact_fit_stops():
    d = run([0.5, 0.0], tol=1e-4)
    assert (d.status, d.error, d.n_iter) == (Status.CONVERGED, 0.0, 11)


def test_the_target_goes_before_the_other_reasons():
    assert Limits(0.5, 0.1, 0, 1.0).reached(0.4, [0.4], 5.0) is Status.TARGET
    assert Limits(None, 0.1, 0, 1.0).reached(0.4, [0.4], 5.0) is Status.MAX_ITER


def test_tol_is_the_decrease_in_ten_steps():
    """With ten steps an iteration it is compared over three of them, since their progress varies."""
    limits = Limits(tol=1e-2)
    slow, fast = ([0.5 * (1 - rate) ** i for i in range(4)] for rate in (0.009, 0.011))
    assert limits.reached(slow[-1], slow, 1.0, n_steps=10) is Status.CONVERGED
    assert limits.reached(fast[-1], fast, 1.0, n_steps=10) is None
    assert limits.reached(slow[-1], slow, 1.0) is None  # Four iterations of one step say nothing yet.
    assert limits.reached(slow[-2], slow[:-1], 1.0, n_steps=10) is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, "nan in H"])
def test_what_is_not_finite_ends_the_run_with_the_best_before(bad, caplog):
    d = run([0.9, 0.4, 0.6, bad])
    assert (d.status, d.error, iteration_of(d), d.n_iter) == (Status.FAILED, 0.4, 1, 2)
    assert np.isfinite(d.W).all()
    assert "not finite" in caplog.text


def test_ctrl_c_keeps_the_best_so_far(caplog):
    d = run([0.9, 0.4, 0.6, KeyboardInterrupt()])
    assert (d.status, d.error, iteration_of(d), d.n_iter) == (Status.INTERRUPTED, 0.4, 1, 2)
    assert "Interrupted after iteration 2" in caplog.text


def test_a_factorisation_that_fails_ends_the_run_with_the_best_before(caplog):
    d = run([0.9, 0.4, np.linalg.LinAlgError("SVD did not converge")])
    assert (d.status, d.error, d.n_iter) == (Status.FAILED, 0.4, 1)
    assert "SVD did not converge" in caplog.text


@pytest.mark.parametrize("algorithm", [name for name in relunmd.algorithms() if name != "tsvd"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_start_that_overflows_is_refused(algorithm, dtype):
    huge = np.finfo(dtype).max ** 0.9
    with np.errstate(all="ignore"), pytest.raises(relunmd.InputError, match="The initial factors must be finite"):
        relunmd.decompose(X.astype(dtype), 2, algorithm, init=(np.full((60, 2), huge), np.full((2, 50), huge)))


def test_ctrl_c_before_the_first_evaluation_is_raised():
    with pytest.raises(KeyboardInterrupt):
        run([KeyboardInterrupt()])


def test_an_error_in_a_step_comes_out():
    with pytest.raises(ZeroDivisionError):
        run([0.9, ZeroDivisionError()])


class TestReadFailed:
    @pytest.mark.parametrize("reason", [relunmd.FileError("chunk 3 of X is damaged"), OSError(5, "I/O error")])
    def test_keeps_the_best_so_far(self, caplog, reason):
        d = run([0.9, 0.4, 0.6, reason])
        assert (d.status, d.error, iteration_of(d), d.n_iter) == (Status.READ_FAILED, 0.4, 1, 2)
        assert f"X could not be read after iteration 2: {reason}" in caplog.text
        assert caplog.records[-1].levelname == "ERROR"

    def test_the_reason_is_handed_back(self, monkeypatch):
        outcomes, reason = [], relunmd.FileError("X has changed")
        monkeypatch.setattr(api, "solve", lambda *given: outcomes.append(solve(*given)) or outcomes[-1])
        run([0.9, 0.4, reason])
        run([0.9, 0.4], max_iter=3)
        assert [outcome.failure for outcome in outcomes] == [reason, None]

    def test_before_the_first_state_it_is_raised(self):
        reason = relunmd.FileError("chunk 3 of X is damaged")
        with pytest.raises(relunmd.FileError) as told:
            run([reason])
        assert told.value is reason
        assert told.value.__cause__ is told.value.__context__ is None

    def test_what_a_callback_cannot_read_is_its_own_affair(self):
        def callback(progress):
            raise FileNotFoundError("settings.toml")

        with pytest.raises(FileNotFoundError, match=r"settings\.toml"):
            relunmd.decompose(X, 3, callback=callback)

    @pytest.mark.parametrize("settings", [{}, {"n_starts": 3, "init": "random", "max_iter": 120}])
    def test_goes_on_from_its_checkpoint_once_x_can_be_read_again(self, tmp_path, monkeypatch, settings):
        settings = {"rank": 3, "tol": 0, "max_iter": 30, "random_state": 0} | settings
        whole, passes, original = relunmd.decompose(X, **settings), [], ThreadExecutor.run

        def damaged(self, *given, **named):
            passes.append(1)
            if len(passes) >= 25:
                raise relunmd.FileError("chunk 3 of X is damaged")
            return original(self, *given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(ThreadExecutor, "run", damaged)
            d = relunmd.decompose(X, checkpoint=tmp_path / "run.npz", **settings)
        assert d.status is Status.READ_FAILED
        assert relative_error(X, d.W, d.H) == pytest.approx(d.error, rel=1e-9)
        again = relunmd.decompose(X, checkpoint=tmp_path / "run.npz", **settings)
        assert again.W.tobytes() == whole.W.tobytes()
        assert again.history.error.tobytes() == whole.history.error.tobytes()


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_real_ctrl_c_in_mid_pass(n_jobs):
    """A process that runs for ever is sent SIGINT and prints a valid result."""
    program = f"""
        import numpy as np, relunmd, sys
        random = np.random.default_rng(0)
        X = np.maximum(0, random.standard_normal((1200, 9)) @ random.standard_normal((9, 1000)))
        tell = lambda p: print("iteration", p.iteration, flush=True) if p.iteration == 5 else None
        d = relunmd.decompose(X, 5, tol=0, max_iter=None, max_time=120, n_jobs={n_jobs}, callback=tell)
        E = np.linalg.norm(X - d.reconstruct()) / np.linalg.norm(X)
        print(d.status.name, abs(E - d.error) < 1e-9, d.n_iter >= 5, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "iteration 5\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == "INTERRUPTED True True\n", err


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_at_any_moment_neither_hangs_nor_loses_the_result(n_jobs):
    """A process under fire: 150 runs, each hit by SIGINT at a random moment."""
    program = f"""
        import os, random, signal, threading, time
        import numpy as np, relunmd
        rng = np.random.default_rng(0)
        X = np.maximum(0, rng.standard_normal((300, 9)) @ rng.standard_normal((9, 200)))
        relunmd.decompose(X, 5, max_iter=2)
        kept = raised = 0
        random.seed(0)
        for _ in range(150):
            shot = threading.Timer(random.uniform(0, 0.03), os.kill, (os.getpid(), signal.SIGINT))
            try:
                shot.start()
                d = relunmd.decompose(X, 5, tol=0, max_iter=None, max_time=20, n_jobs={n_jobs})
                E = np.linalg.norm(X - d.reconstruct()) / np.linalg.norm(X)
                assert d.status is relunmd.Status.INTERRUPTED and abs(E - d.error) < 1e-9, d
                kept += 1
            except KeyboardInterrupt:  # Before the first evaluation.
                raised += 1
            shot.join()
        print(kept + raised, kept > 50)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "150 True\n", done.stderr


def test_ctrl_c_in_a_callback_is_immediate():
    def callback(progress):
        if progress.iteration == 3:
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("not reached")

    d = relunmd.decompose(X, 3, callback=callback)
    assert (d.status, d.n_iter) == (Status.INTERRUPTED, 3)


def test_callback_is_told_everything_and_may_stop():
    seen = []

    def callback(progress):
        seen.append((progress.iteration, progress.time, progress.error, progress.passes))
        return progress.iteration == 4

    d = relunmd.decompose(X, 3, callback=callback, random_state=0)
    assert (d.status, d.n_iter) == (Status.CALLBACK, 4)
    history = d.history
    np.testing.assert_array_equal(
        seen, np.column_stack([history.iteration, history.time, history.error, history.passes])
    )


def test_callback_gets_factors_in_the_units_of_x():
    errors = []

    def callback(progress):
        errors.append((progress.error, relative_error(1e3 * X, progress.W, progress.H)))
        assert progress.W is progress.W
        assert "iteration=" in repr(progress)

    relunmd.decompose(1e3 * X, 3, callback=callback, max_iter=5)
    np.testing.assert_allclose(*np.array(errors).T, rtol=1e-9)


def test_what_a_callback_raises_comes_out():
    def callback(progress):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        relunmd.decompose(X, 3, callback=callback)


def test_a_callback_may_be_the_only_stop():
    d = relunmd.decompose(X, 3, tol=0, max_iter=None, callback=lambda progress: progress.iteration == 20)
    assert (d.status, d.n_iter) == (Status.CALLBACK, 20)


def test_an_algorithm_is_a_file_and_a_line(monkeypatch):
    monkeypatch.setitem(algorithm.ALGORITHMS, "scripted", Scripted)
    assert relunmd.algorithms()["scripted"] == "for tests"


def test_progress_shows_a_line_and_leaves_the_terminal_clean(capsys):
    relunmd.decompose(X, 3, progress=True, max_iter=5)
    shown = capsys.readouterr().out
    assert "qn" in shown
    assert "5 iterations" in shown
    assert "error 0." in shown


def test_progress_ends_with_the_error_that_is_handed_back(capsys):
    d = run([0.9, 0.25, 0.8], max_iter=2, progress=True)
    assert f"error {d.error:.6f}" in capsys.readouterr().out.splitlines()[-1]


def test_nothing_is_printed_by_itself(capsys):
    relunmd.decompose(X, 3, max_iter=5)
    assert capsys.readouterr() == ("", "")


def test_passes_count_what_was_looked_at():
    d = relunmd.decompose(X, 3, "3b", init=(np.ones((60, 3)), np.ones((3, 50))), tol=0, max_iter=7)
    np.testing.assert_array_equal(d.history.passes, np.arange(8) + 1)


def test_several_starts_are_raced_and_the_best_runs_on():
    settings = {"init": "random", "n_starts": 8, "random_state": 0, "max_iter": 900, "tol": 0}
    told = []
    many = relunmd.decompose(np.eye(15), 3, callback=told.append, **settings)
    firsts = [progress.error for progress in told if progress.iteration == 0]
    assert len(firsts) == len(set(firsts)) == 8
    assert many.history.error[0] in firsts
    assert many.n_iter == 900
    assert (np.diff(many.history.time) > 0).all()
    assert (np.diff(many.history.passes) > 0).all()
    made = [progress.iteration for progress in told]
    counts = [
        made.count(iteration) for iteration in (FIRST_ROUND, FIRST_ROUND + 1, 3 * FIRST_ROUND + 1, 7 * FIRST_ROUND + 1)
    ]
    assert counts == [8, 4, 2, 1]  # The worse half was dropped each time.
    again = relunmd.decompose(np.eye(15), 3, **settings)
    assert again.W.tobytes() == many.W.tobytes()
    assert again.error == many.history.error.min()


def test_a_race_ends_at_once_when_a_limit_is_reached():
    told = []
    d = relunmd.decompose(X, 2, n_starts=5, max_iter=None, tol=0, callback=lambda p: told.append(p) or len(told) == 40)
    assert d.status is Status.CALLBACK
    assert len(told) == 40
    assert d.error == min(progress.error for progress in told)
    assert relunmd.decompose(X, 2, n_starts=3, max_iter=10, tol=0).status is Status.MAX_ITER
    assert relunmd.decompose(X, 2, n_starts=3, target_error=0.99).status is Status.TARGET


def test_ctrl_c_in_a_race_keeps_the_best_of_all():
    told = []

    def interrupt(progress):
        told.append(progress.error)
        if len(told) == 160:
            raise KeyboardInterrupt

    d = relunmd.decompose(X, 2, n_starts=3, tol=0, callback=interrupt)
    assert d.status is Status.INTERRUPTED
    assert d.error == min(told)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "two", None])
def test_bad_numbers_of_starts_are_refused(bad):
    with pytest.raises(relunmd.InputError, match="n_starts must be an integer of at least 1"):
        relunmd.decompose(X, 2, n_starts=bad)
