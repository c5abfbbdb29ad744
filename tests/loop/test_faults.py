"""Rows that are lost with a worker, at any call: the run ends with a result, where it would have ended."""

import logging
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

import relunmd
from relunmd import Status
from relunmd.algorithm import State
from relunmd.errors import ClusterError
from relunmd.loop import driver, recovery
from relunmd.loop import race as races
from relunmd.loop.criteria import WINDOW, Limits
from relunmd.loop.trajectory import Trajectory
from tests import faults
from tests.faults import Case, FaultyExecutor

CASES = [
    Case("qn", "limit", checkpoint=False, copies_lost=True),
    Case("qn", "callback", checkpoint=False, copies_lost=False),
    Case("qn", "race", checkpoint=False, copies_lost=True),
    Case("qn", "stopped race", checkpoint=True, copies_lost=False),
    Case("qn", "resume", checkpoint=True, copies_lost=False),
    Case("3b-factored", "limit", checkpoint=True, copies_lost=True),
    Case("3b-factored", "callback", checkpoint=False, copies_lost=False, keep_every=None),
    Case("3b-factored", "Ctrl-C", checkpoint=True, copies_lost=False),
    Case("3b-factored", "race", checkpoint=False, copies_lost=False),
    Case("3b-factored", "resume", checkpoint=True, copies_lost=False, keep_every=None),
]


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, "relunmd")


def last(calls, kind):
    return max(number for number, call in enumerate(calls) if call == kind)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_loss(case):
    """At the last call of each kind and at every ninth call; `python -m tests.faults` takes them all."""
    whole = faults.undisturbed_run(case)
    calls = whole.executor.calls
    for number in sorted({last(calls, kind) for kind in calls} | set(range(0, len(calls), 9))):
        _, wrong = faults.fault(case, [number], whole)
        assert wrong is None, f"loss at call {number} ({calls[number]}): {wrong}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_another_loss_soon_after_and_during_recovery(case):
    whole = faults.undisturbed_run(case)
    first = len(whole.executor.calls) * 2 // 3
    for more in ((1,), (2,), (7,), (1, 2, 4)):
        losses = [first, *(first + number for number in more)]
        _, wrong = faults.fault(case, losses, whole)
        assert wrong is None, f"losses at calls {losses}: {wrong}"


@pytest.mark.parametrize("kind", ["handed_over", "_gram_block"])
@pytest.mark.parametrize("keep_every", [4, None])
def test_a_run_that_its_callback_stopped_does_not_go_on(tmp_path, kind, keep_every):
    """The loss is in `factors`: what was iterated since the last snapshot is repeated, and nothing more."""
    case = Case("qn", "callback", checkpoint=False, copies_lost=False, keep_every=keep_every)
    whole = faults.undisturbed_run(case)
    told = faults.run(case, tmp_path, [last(whole.executor.calls, kind)])
    assert (told.result.status, told.result.n_iter) == (Status.CALLBACK, faults.STOP)
    assert max(told.iterations) == faults.STOP
    assert told.iterations.count(faults.STOP) == 2  # It had gone back, and came to the same place.
    assert told.result.error == whole.result.error


def test_a_stop_survives_a_loss_in_the_snapshot_after_it(tmp_path):
    case = Case("qn", "callback", checkpoint=False, copies_lost=False)
    whole = faults.undisturbed_run(case)
    told = faults.run(case, tmp_path, [last(whole.executor.calls, "keep")])
    assert (told.result.status, told.result.n_iter) == (Status.CALLBACK, faults.STOP)
    assert told.result.error == whole.result.error


def test_iterations_that_are_repeated_after_the_end_have_no_time_limit():
    run = driver.Run(None, None, races.Race([], np.random.default_rng(0)), Limits(max_time=1.0), None, [])
    assert run._current_limits.max_time == 1.0
    run._end(Status.CONVERGED)
    assert run._current_limits.max_time is None


def test_a_loss_at_the_last_checkpoint_does_not_lose_the_result(tmp_path):
    case = Case("3b-factored", "limit", checkpoint=True, copies_lost=False)
    whole = faults.undisturbed_run(case)
    told = faults.run(case, tmp_path, [last(whole.executor.calls, "write_rows")])
    assert (told.result.status, told.result.error) == (Status.MAX_ITER, whole.result.error)
    assert faults.run(case, tmp_path, more=2).result.n_iter == 14


@pytest.mark.parametrize("kind", ["read_rows", "placed", "_sum_block", "_squared_error"])
def test_a_loss_while_resuming_is_not_blamed_on_the_file(tmp_path, kind):
    case = Case("qn", "resume", checkpoint=True, copies_lost=False)
    whole = faults.undisturbed_run(case)
    faults.prepared(case, tmp_path)
    told = faults.run(case, tmp_path, [whole.executor.calls.index(kind)])
    assert told.reason is None
    assert told.result.error == whole.result.error
    assert min(told.iterations) == 7


@pytest.fixture
def worse_fits(monkeypatch):
    """Rows that are fitted again may be worse than those that were lost; here they always are."""
    original = recovery.fit_rows

    def worse(problem, H):
        found = original(problem, H)
        return replace(found, W=found.W * 0.5)

    monkeypatch.setattr(recovery, "fit_rows", worse)


class TestRebuiltRows:
    """What was kept is lost too: the rows are fitted to X and H, and the run goes on from another point."""

    @pytest.mark.parametrize("seed", [1, 3, 5])
    def test_a_worse_point_is_one_to_go_back_to(self, worse_fits, seed):
        """The rows that were fitted again are lost later on."""
        X = (np.random.default_rng(seed).random((60, 40)) < 0.08) * 1.0
        executor, told = FaultyExecutor(), []

        def lose(progress):
            told.append(progress)
            if len(told) in (281, 288):
                executor.lose(copies_too=len(told) == 281)

        with faults.patched(executor):
            d = relunmd.decompose(X, 6, tol=0, max_iter=300, random_state=0, callback=lose)
        assert executor.calls.count("restore") == 2
        assert told[281].error > told[280].best_error
        assert (d.status, d.n_iter) == (Status.MAX_ITER, 300)
        assert d.error == d.history.error.min()
        assert d.error <= told[281].error

    def test_a_worse_point_takes_the_place_of_the_best_one(self):
        trajectory = trajectory_of([0.9, 0.5, 0.3, 0.2, 0.25])
        assert trajectory.rewind(state(0.4)) == 3
        trajectory.record(Limits(), 9.0, 9)
        assert trajectory.history.error.tolist() == [0.9, 0.5, 0.4]
        assert trajectory.history.iteration.tolist() == [0, 1, 2]
        assert trajectory.best.error == trajectory._criteria[-1] == 0.4

    def test_so_does_a_better_one(self):
        trajectory = trajectory_of([0.9, 0.5, 0.3, 0.2, 0.25])
        assert trajectory.rewind(state(0.1)) == 2
        trajectory.record(Limits(), 9.0, 9)
        assert trajectory.history.error.tolist() == [0.9, 0.5, 0.3, 0.1]

    def test_one_that_is_worse_than_the_start_is_a_new_start(self):
        trajectory = trajectory_of([0.9, 0.5])
        trajectory.rewind(state(0.95))
        trajectory.record(Limits(), 9.0, 9)
        assert trajectory.history.error.tolist() == [0.95]

    def test_tol_does_not_take_the_jump_for_convergence(self):
        """The new point is hardly better than what the run had ten iterations before, and falls surely from there."""
        limits = Limits(tol=1e-2)
        trajectory = trajectory_of([0.9] + [0.22 - 1e-4 * k for k in range(9)] + [0.15, 0.1])
        assert trajectory.status is None
        trajectory.rewind(state(0.2191))
        for k in range(2 * WINDOW):
            trajectory.state = state(0.2191 * 0.995**k)
            trajectory.record(limits, 30.0 + k, 30)
            assert trajectory.status is None

    def test_after_the_end_the_run_comes_to_its_stop_again(self, tmp_path, worse_fits):
        case = Case("qn", "callback", checkpoint=False, copies_lost=True)
        whole = faults.undisturbed_run(case)
        told = faults.run(case, tmp_path, [last(whole.executor.calls, "handed_over")])
        assert (told.result.status, told.result.n_iter) == (Status.CALLBACK, faults.STOP)
        assert len(told.iterations) > faults.STOP + 2  # From an earlier iteration.

    def test_a_start_in_the_making_is_made_from_the_same_random_numbers(self):
        undisturbed, starts = FaultyExecutor(), []
        race(undisturbed, lambda p: starts.append(p.error) if p.iteration == 0 else None)
        assert len(starts) == 3
        second = [number for number, call in enumerate(undisturbed.calls) if call == "placed"][1]
        executor, again = FaultyExecutor([second], copies_lost=True), []
        race(executor, lambda p: again.append(p.error) if p.iteration == 0 else None)
        assert "restore" in executor.calls
        assert set(again) >= set(starts)

    def test_rows_that_cannot_be_rebuilt_are_a_cluster_error(self, tmp_path, monkeypatch):
        case = Case("qn", "limit", checkpoint=False, copies_lost=True)
        calls = faults.undisturbed_run(case).executor.calls
        original = recovery.fit_rows

        def overflowing(problem, H):
            found = original(problem, H)
            return replace(found, W=found.W * np.inf)

        monkeypatch.setattr(recovery, "fit_rows", overflowing)
        with np.errstate(all="ignore"):
            told = faults.run(case, tmp_path, [calls.index("keep") + 2])
        assert isinstance(told.reason, ClusterError)
        assert "could not be recomputed" in str(told.reason)


def state(error):
    return State(np.ones((4, 1)), np.ones((1, 3)), error)


def trajectory_of(errors):
    trajectory = Trajectory(relunmd.ThreeBlock(), state(errors[0]), 0.0, np.inf)
    for k, error in enumerate(errors):
        trajectory.state = state(error)
        trajectory.record(Limits(tol=1e-2), float(k), k)
    return trajectory


def test_a_checkpoint_whose_rows_are_gone_is_not_needed(tmp_path):
    """Copies and the files with the rows are lost: the rows are rebuilt."""
    case = Case("qn", "limit", checkpoint=True, copies_lost=True)
    whole = faults.undisturbed_run(case)
    executor = FaultyExecutor([last(whole.executor.calls, "_block")], copies_lost=True)
    original = executor.restore

    def restore():
        for file in (tmp_path / "run.npz.rows").rglob("*.npz"):
            file.unlink()
        return original()

    executor.restore = restore
    told = faults.run_on(executor, case, tmp_path)
    assert told.result.status is Status.MAX_ITER
    assert told.result.error <= 1.05 * whole.result.error
    again = faults.run(case, tmp_path, more=2).result
    assert again.n_iter == 14
    assert again.error <= told.result.error


def race(executor, callback, **settings):
    settings = {"init": "random", "n_starts": 3, "tol": 0, "max_iter": 8, "random_state": 1} | settings
    with faults.patched(executor):
        return relunmd.decompose(faults.X, 3, callback=callback, **settings)


def test_a_start_that_had_converged_before_a_loss_is_not_continued():
    """It converges after 33 of 40 iterations, and rows are lost in those of the second start."""
    told, again, executor = [], [], FaultyExecutor()

    def lose(progress):
        again.append(progress.error)
        if len(again) == 45:
            executor.lose(copies_too=False)

    with mock.patch.object(faults, "FIRST_LEG", 40):
        race(FaultyExecutor(), lambda p: told.append(p.error), n_starts=2, tol=0.05, max_iter=60)
        race(executor, lose, n_starts=2, tol=0.05, max_iter=60)
    assert "restore" in executor.calls
    assert set(again) == set(told)
    assert len(again) <= len(told) + 3


def test_a_loss_while_qn_is_compared_with_the_baseline_and_continues_from_it():
    def run(losses):
        executor = faults.FaultyExecutor(losses, False, 3)
        with faults.patched(executor):
            return relunmd.decompose(np.array([[1, 1], [0, 1.0]]), 1, random_state=0), executor

    whole, executor = run(())
    assert whole.error == pytest.approx(relunmd.decompose([[1, 1], [0, 1]], 1, "tsvd").error)
    sweeps = [number for number, call in enumerate(executor.calls) if call == "_sweep_block"]
    assert len(sweeps) > 4  # Two of the initialization, the others of the comparison.
    for number in [*sweeps[2:], *range(sweeps[-1], len(executor.calls), 17)]:
        d, _ = run([number])
        assert d.error == pytest.approx(whole.error, abs=1e-6), number
        assert d.status is whole.status
