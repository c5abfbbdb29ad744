"""One run: same X and initial factors for all, only the contender's own work timed, scored in float64 outside of it."""

import runpy

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import relunmd
from relunmd import memory
from relunmd.algorithm import ALGORITHMS
from relunmd.algorithm.three_block_factored import ThreeBlockFactored
from relunmd.comparison import contenders, timed_run
from relunmd.comparison.contenders import Contender, built_in
from relunmd.comparison.timed_run import Evaluator
from relunmd.loop.criteria import Limits
from tests.comparison.conftest import improving
from tests.conftest import relative_error, synthetic

X = synthetic(60, 50, 4) * 37.0


@pytest.fixture(scope="module")
def evaluator():
    return Evaluator(X)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("init", ["random", "tsvd", "nuclear"])
def test_an_algorithm_runs_as_decompose_runs_it(evaluator, name, init):
    initial = evaluator.initialize(4, init, 7)
    trajectory = evaluator.run(built_in(name), initial, Limits(None, 0, 6, None), keep_best=True)
    d = relunmd.decompose(X, 4, name, init=(initial.W, initial.H), max_iter=6, tol=0, random_state=7)
    if name == "tsvd":
        assert trajectory.errors[1:] == [pytest.approx(d.error, rel=1e-6)]
    else:
        # The same initial factors in other units: qn's float32 pairs differ in the last digits.
        np.testing.assert_allclose(trajectory.errors, d.history.error, rtol=1e-6 if name == "qn" else 1e-7)
    assert trajectory.error == min(trajectory.errors[1:])
    assert relative_error(X, *trajectory.best) == pytest.approx(trajectory.error, rel=1e-9)


@pytest.mark.parametrize("init", ["random", "tsvd", "nuclear"])
def test_initial_factors_are_those_of_decompose(evaluator, init):
    d = relunmd.decompose(X, 4, "3b", init=init, max_iter=0, random_state=7)
    assert evaluator.initialize(4, init, 7).error == pytest.approx(d.error, rel=1e-9)


def test_scores_are_true_in_any_units_and_dtype(evaluator):
    random = np.random.default_rng(0)
    W, H = random.standard_normal((60, 4)), random.standard_normal((4, 50))
    assert evaluator.error(W, H) == pytest.approx(relative_error(X, W, H), rel=1e-12)
    single = W.astype(np.float32), H.astype(np.float32)
    expected = relative_error(X, single[0].astype(np.float64), single[1].astype(np.float64))
    assert evaluator.error(*single) == pytest.approx(expected, rel=1e-12)


def test_contenders_get_the_same_and_cannot_spoil_it(evaluator):
    initial = evaluator.initialize(4, "random", 0)
    W, H = initial.W.copy(), initial.H.copy()
    seen = []

    def greedy(X, W, H):
        seen.append((X.dtype, W.copy(), H.copy()))
        W[:] = H[:] = 0
        with pytest.raises(ValueError, match="read-only"):
            X[0, 0] = 1
        yield W, H

    for _ in range(2):
        trajectory = evaluator.run(Contender("greedy", greedy), initial, Limits(None, 0, 5, None))
        assert trajectory.status == "The method ended by itself."
        assert len(trajectory.errors) == 2
    for dtype, W_given, H_given in seen:
        assert dtype == np.float64
        np.testing.assert_array_equal(W_given, W)
        np.testing.assert_array_equal(H_given, H)


def test_only_the_contenders_work_is_timed(evaluator, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timed_run.time, "perf_counter", lambda: clock[0])

    def takes_three(X, W, H):
        while True:
            clock[0] += 3
            yield W, H

    def scoring_takes_a_hundred(W, H):
        clock[0] += 100
        return 0.5

    initial = evaluator.initialize(4, "random", 0)
    monkeypatch.setattr(evaluator, "error", scoring_takes_a_hundred)
    trajectory = evaluator.run(Contender("slow", takes_three), initial, Limits(None, 0, None, 9))
    assert trajectory.times == [0, 3, 6, 9]
    assert "max_time" in trajectory.status


def test_limits(evaluator):
    initial = evaluator.initialize(4, "tsvd", 0)
    naive = Contender("improving", improving)
    assert len(evaluator.run(naive, initial, Limits(None, 0, 0, None)).errors) == 1
    trajectory = evaluator.run(built_in("3b"), initial, Limits(1e-3, 0, 500, None))
    assert trajectory.errors[-1] <= 1e-3 < trajectory.errors[-2]
    assert "target_error" in trajectory.status


def test_what_is_not_finite_ends_it(evaluator):
    def breaks(X, W, H):
        yield W, H
        yield W * np.nan, H

    trajectory = evaluator.run(
        Contender("breaks", breaks), evaluator.initialize(4, "tsvd", 0), Limits(None, 0, 9, None)
    )
    assert len(trajectory.errors) == 2
    assert "not finite" in trajectory.status


def test_a_generator_is_closed(evaluator):
    closed = []

    def tidy(X, W, H):
        try:
            while True:
                yield W, H
        finally:
            closed.append(True)

    evaluator.run(Contender("tidy", tidy), evaluator.initialize(4, "tsvd", 0), Limits(None, 0, 2, None))
    assert closed == [True]


def test_the_best_is_kept_when_a_method_writes_over_its_arrays(evaluator):
    def forward_and_back(X, W, H):
        yield from zip([W], [H], strict=True)
        good = next(improving(X, W[:, :3], H[:3]))
        W[:, :3], H[:3] = good
        W[:, 3] = 0
        yield W, H
        W[:] = 0
        yield W, H

    initial = evaluator.initialize(4, "random", 0)
    trajectory = evaluator.run(Contender("x", forward_and_back), initial, Limits(None, 0, 9, None), keep_best=True)
    assert relative_error(X, *trajectory.best) == pytest.approx(trajectory.error)
    assert trajectory.errors[-1] == pytest.approx(1)


def test_a_good_start_is_nobodys_merit(evaluator):
    def spoils(X, W, H):
        yield 0 * W, H

    initial = evaluator.initialize(4, "tsvd", 0)
    trajectory = evaluator.run(Contender("spoils", spoils), initial, Limits(None, 0, 9, None), keep_best=True)
    assert initial.error < 0.9
    assert trajectory.error == pytest.approx(1)
    assert relative_error(X, *trajectory.best) == pytest.approx(1)


def test_what_ends_after_the_time_does_not_count(evaluator, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timed_run.time, "perf_counter", lambda: clock[0])

    def late(X, W, H):
        clock[0] += 4
        yield W, H
        clock[0] += 7
        yield next(improving(X, W, H))

    initial = evaluator.initialize(4, "random", 0)
    trajectory = evaluator.run(Contender("late", late), initial, Limits(None, 0, None, 10))
    assert trajectory.times == [0, 4]
    assert trajectory.error == pytest.approx(initial.error)
    assert "max_time" in trajectory.status


def test_preparations_count(evaluator, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timed_run.time, "perf_counter", lambda: clock[0])

    def prepares(X, W, H):
        clock[0] += 5
        return iter([(W, H), (W, H)])

    trajectory = evaluator.run(
        Contender("prepares", prepares), evaluator.initialize(4, "random", 0), Limits(None, 0, None, 100)
    )
    assert trajectory.times == [0, 5, 5]


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (lambda W, H: (np.hstack([W, W]), np.vstack([H, H])), r"\(60, 8\), \(8, 50\)"),
        (lambda W, H: (np.vstack([W, W]), H), r"\(120, 4\)"),
        (lambda W, H: W, "ndarray"),
        (lambda W, H: (W, H, 1), r"\(4, 50\), \(\)"),
    ],
)
def test_what_is_yielded_must_be_two_factors_of_the_rank(evaluator, wrong, got):
    def method(X, W, H):
        yield wrong(W, H)

    sentence = rf"careless must yield W and H of shapes \(60, 4\) and \(4, 50\); got .*{got}"
    with pytest.raises(relunmd.InputError, match=sentence):
        evaluator.run(Contender("careless", method), evaluator.initialize(4, "random", 0), Limits(None, 0, 3, None))


def test_memory_is_asked_for_first(evaluator, monkeypatch):
    initial = evaluator.initialize(4, "random", 0)
    monkeypatch.setattr(memory, "available_bytes", lambda: 10)
    with pytest.raises(relunmd.InsufficientMemoryError):
        evaluator.initialize(4, "nuclear", 0)
    with pytest.raises(relunmd.InsufficientMemoryError):
        evaluator.run(built_in("3b"), initial, Limits(None, 0, 3, None))


def test_every_contender_has_one_blas_thread(evaluator):
    def blas():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    seen = {}

    def mine(X, W, H):
        seen["preparing"] = blas()
        while True:
            seen["mine"] = blas()
            yield W, H

    class Ours(ThreeBlockFactored):
        def step(self, problem, state):
            seen["ours"] = blas()
            return super().step(problem, state)

    with threadpool_limits(3, "blas"):
        before = blas()
        for contender in (Contender("mine", mine), built_in(Ours())):
            evaluator.run(contender, evaluator.initialize(4, "random", 0), Limits(None, 0, 3, None))
        assert blas() == before
    assert seen == {"preparing": {1}, "mine": {1}, "ours": {1}}


class TestRegistry:
    def test_register_and_take_back(self):
        @contenders.register("mine", step=2)
        def mine(X, W, H, step):
            yield step * W, H

        try:
            (found,) = [c for c in contenders.registered() if c.label == "mine"]
            assert next(found.method(X, 1, 1)) == (2, 1)
            assert found.settings == {"step": 2, "source": found.settings["source"]}
            with pytest.raises(relunmd.InputError, match="'mine' already takes part"):
                contenders.register("mine")
        finally:
            contenders.unregister("mine")
        assert "mine" not in [c.label for c in contenders.registered()]

    def test_an_edited_method_counts_as_another(self, tmp_path):
        found = []
        for body in ("yield W, H", "yield W, 2 * H", "yield W, H"):
            path = tmp_path / f"method{len(found)}.py"
            path.write_text(f"def method(X, W, H):\n    {body}\n")
            contenders.register("mine")(runpy.run_path(str(path))["method"])
            found.append(contenders.registered()[-1].settings["source"])
            contenders.unregister("mine")
        assert found[0] == found[2] != found[1]
        assert all(found)

    def test_a_method_without_source(self):
        typed = {}
        exec("def method(X, W, H):\n    yield W, H", typed)
        contenders.register("typed in")(typed["method"])
        try:
            assert contenders.registered()[-1].settings == {"source": ""}
        finally:
            contenders.unregister("typed in")

    def test_settings_must_be_plain(self):
        with pytest.raises(relunmd.InputError, match="settings of 'mine' must be numbers"):
            contenders.register("mine", start=np.zeros(3))

    @pytest.mark.parametrize("label", ["", "A-NMD", "tsvd", 3])
    def test_bad_labels(self, label):
        with pytest.raises(relunmd.InputError, match="label must"):
            contenders.register(label)
