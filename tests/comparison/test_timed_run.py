"""One run: same X and start for all, only the contender's own work timed, scored in float64 outside of it."""

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
from relunmd.comparison.timed_run import Arena
from relunmd.loop.criteria import Limits
from relunmd.plot.chart import PAPER
from tests.comparison.conftest import improving
from tests.conftest import relative_error, synthetic

X = synthetic(60, 50, 4) * 37.0


@pytest.fixture(scope="module")
def arena():
    return Arena(X)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("init", ["random", "tsvd", "nuclear"])
def test_an_algorithm_runs_as_decompose_runs_it(arena, name, init):
    start = arena.start(4, init, 7)
    course = arena.run(built_in(name), start, Limits(None, 0, 6, None), keep_best=True)
    d = relunmd.decompose(X, 4, name, init=init, max_iter=6, tol=0, random_state=7)
    if name == "tsvd":
        assert course.errors[1:] == [pytest.approx(d.error, rel=1e-6)]
    else:
        # The same start in other units: rounded to float32, as qn's pairs are, it is not the same in the last places.
        np.testing.assert_allclose(course.errors, d.history.error, rtol=1e-6 if name == "qn" else 1e-7)
    assert course.error == min(course.errors[1:])
    assert relative_error(X, *course.best) == pytest.approx(course.error, rel=1e-9)


def test_scores_are_true_in_any_units_and_dtype(arena):
    random = np.random.default_rng(0)
    W, H = random.standard_normal((60, 4)), random.standard_normal((4, 50))
    assert arena.error(W, H) == pytest.approx(relative_error(X, W, H), rel=1e-12)
    single = W.astype(np.float32), H.astype(np.float32)
    expected = relative_error(X, single[0].astype(np.float64), single[1].astype(np.float64))
    assert arena.error(*single) == pytest.approx(expected, rel=1e-12)


def test_contenders_get_the_same_and_cannot_spoil_it(arena):
    start = arena.start(4, "random", 0)
    W, H = start.W.copy(), start.H.copy()
    seen = []

    def greedy(X, W, H):
        seen.append((X.dtype, W.copy(), H.copy()))
        W[:] = H[:] = 0
        with pytest.raises(ValueError, match="read-only"):
            X[0, 0] = 1
        yield W, H

    for _ in range(2):
        course = arena.run(Contender("greedy", greedy), start, Limits(None, 0, 5, None))
        assert course.status == "It ended by itself."
        assert len(course.errors) == 2
    for dtype, W_given, H_given in seen:
        assert dtype == np.float64
        np.testing.assert_array_equal(W_given, W)
        np.testing.assert_array_equal(H_given, H)


def test_only_the_contenders_work_is_timed(arena, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timed_run.time, "perf_counter", lambda: clock[0])

    def takes_three(X, W, H):
        while True:
            clock[0] += 3
            yield W, H

    def scoring_takes_a_hundred(W, H):
        clock[0] += 100
        return 0.5

    start = arena.start(4, "random", 0)
    monkeypatch.setattr(arena, "error", scoring_takes_a_hundred)
    course = arena.run(Contender("slow", takes_three), start, Limits(None, 0, None, 9))
    assert course.times == [0, 3, 6, 9]
    assert "max_time" in course.status


def test_limits(arena):
    start = arena.start(4, "tsvd", 0)
    naive = Contender("improving", improving)
    assert len(arena.run(naive, start, Limits(None, 0, 0, None)).errors) == 1
    course = arena.run(built_in("3b"), start, Limits(1e-3, 0, 500, None))
    assert course.errors[-1] <= 1e-3 < course.errors[-2]
    assert "target_error" in course.status


def test_what_is_not_finite_ends_it(arena):
    def breaks(X, W, H):
        yield W, H
        yield W * np.nan, H

    course = arena.run(Contender("breaks", breaks), arena.start(4, "tsvd", 0), Limits(None, 0, 9, None))
    assert len(course.errors) == 2
    assert "not finite" in course.status


def test_a_generator_is_closed(arena):
    closed = []

    def tidy(X, W, H):
        try:
            while True:
                yield W, H
        finally:
            closed.append(True)

    arena.run(Contender("tidy", tidy), arena.start(4, "tsvd", 0), Limits(None, 0, 2, None))
    assert closed == [True]


def test_the_best_is_kept_when_a_method_writes_over_its_arrays(arena):
    def forward_and_back(X, W, H):
        yield from zip([W], [H], strict=True)
        good = next(improving(X, W[:, :3], H[:3]))
        W[:, :3], H[:3] = good
        W[:, 3] = 0
        yield W, H
        W[:] = 0
        yield W, H

    start = arena.start(4, "random", 0)
    course = arena.run(Contender("x", forward_and_back), start, Limits(None, 0, 9, None), keep_best=True)
    assert relative_error(X, *course.best) == pytest.approx(course.error)
    assert course.errors[-1] == pytest.approx(1)


def test_a_good_start_is_nobodys_merit(arena):
    def spoils(X, W, H):
        yield 0 * W, H

    start = arena.start(4, "tsvd", 0)
    course = arena.run(Contender("spoils", spoils), start, Limits(None, 0, 9, None), keep_best=True)
    assert start.error < 0.9
    assert course.error == pytest.approx(1)
    assert relative_error(X, *course.best) == pytest.approx(1)


def test_what_ends_after_the_time_does_not_count(arena, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timed_run.time, "perf_counter", lambda: clock[0])

    def late(X, W, H):
        clock[0] += 4
        yield W, H
        clock[0] += 7
        yield next(improving(X, W, H))

    start = arena.start(4, "random", 0)
    course = arena.run(Contender("late", late), start, Limits(None, 0, None, 10))
    assert course.times == [0, 4]
    assert course.error == pytest.approx(start.error)
    assert "max_time" in course.status


def test_preparations_count(arena, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timed_run.time, "perf_counter", lambda: clock[0])

    def prepares(X, W, H):
        clock[0] += 5
        return iter([(W, H), (W, H)])

    course = arena.run(Contender("prepares", prepares), arena.start(4, "random", 0), Limits(None, 0, None, 100))
    assert course.times == [0, 5, 5]


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (lambda W, H: (np.hstack([W, W]), np.vstack([H, H])), r"\(60, 8\), \(8, 50\)"),
        (lambda W, H: (np.vstack([W, W]), H), r"\(120, 4\)"),
        (lambda W, H: W, "ndarray"),
        (lambda W, H: (W, H, 1), r"\(4, 50\), \(\)"),
    ],
)
def test_what_is_yielded_must_be_two_factors_of_the_rank(arena, wrong, got):
    def method(X, W, H):
        yield wrong(W, H)

    sentence = rf"careless must yield W and H of shapes \(60, 4\) and \(4, 50\). Got .*{got}"
    with pytest.raises(relunmd.InputError, match=sentence):
        arena.run(Contender("careless", method), arena.start(4, "random", 0), Limits(None, 0, 3, None))


def test_memory_is_asked_for_first(arena, monkeypatch):
    start = arena.start(4, "random", 0)
    monkeypatch.setattr(memory, "available_bytes", lambda: 10)
    with pytest.raises(relunmd.InsufficientMemoryError):
        arena.start(4, "nuclear", 0)
    with pytest.raises(relunmd.InsufficientMemoryError):
        arena.run(built_in("3b"), start, Limits(None, 0, 3, None))


def test_every_contender_has_one_blas_thread(arena):
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
            arena.run(contender, arena.start(4, "random", 0), Limits(None, 0, 3, None))
        assert blas() == before
    assert seen == {"preparing": {1}, "mine": {1}, "ours": {1}}


class TestRegistry:
    def test_register_and_take_back(self):
        @contenders.register("mine", step=2)
        def mine(X, W, H, step):
            yield step * W, H

        try:
            (found,) = [c for c in contenders.added() if c.label == "mine"]
            assert next(found.method(X, 1, 1)) == (2, 1)
            assert found.settings == {"step": 2, "source": found.settings["source"]}
            with pytest.raises(relunmd.InputError, match="'mine', which takes part already"):
                contenders.register("mine")
        finally:
            contenders.unregister("mine")
        assert "mine" not in [c.label for c in contenders.added()]

    def test_an_edited_method_counts_as_another(self, tmp_path):
        found = []
        for body in ("yield W, H", "yield W, 2 * H", "yield W, H"):
            path = tmp_path / f"method{len(found)}.py"
            path.write_text(f"def method(X, W, H):\n    {body}\n")
            contenders.register("mine")(runpy.run_path(str(path))["method"])
            found.append(contenders.added()[-1].settings["source"])
            contenders.unregister("mine")
        assert found[0] == found[2] != found[1]
        assert all(found)

    def test_a_method_without_source(self):
        typed = {}
        exec("def method(X, W, H):\n    yield W, H", typed)
        contenders.register("typed in")(typed["method"])
        try:
            assert contenders.added()[-1].settings == {"source": ""}
        finally:
            contenders.unregister("typed in")

    def test_settings_must_be_plain(self):
        with pytest.raises(relunmd.InputError, match="settings of 'mine' must be numbers"):
            contenders.register("mine", start=np.zeros(3))

    @pytest.mark.parametrize("label", ["", "A-NMD", "tsvd", 3])
    def test_bad_labels(self, label):
        with pytest.raises(relunmd.InputError, match="label must"):
            contenders.register(label)

    def test_a_new_algorithm_of_the_library_joins_by_itself(self, monkeypatch):
        class Newest(ALGORITHMS["3b"]):
            name = "newest"

        monkeypatch.setitem(ALGORITHMS, "newest", Newest)
        assert [c.label for c in contenders.added()] == [name for name in ALGORITHMS if name not in PAPER]
        assert contenders.added()[-1].label == "newest"
