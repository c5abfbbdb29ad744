"""The flagship against a plain NumPy version, pass by pass, and what it promises: descent, rounds, safe failures."""

import numpy as np
import pytest
from scipy import sparse

import relunmd
from relunmd import QuasiNewton, datasets
from relunmd.algorithm import quasi_newton, row_metric
from tests.algorithm.test_three_block_factored import everything_that_x_can_be, planted
from tests.conftest import needs_data, relative_error, synthetic


def noisy(m=300, n=120, rank=4, noise=0.2):
    return synthetic(m, n, rank) + noise * synthetic(m, n, 30, seed=1)


class Oracle:
    """The method of docs/background/flagship.md on one long vector: Θ, the residual and everything else formed."""

    def __init__(self, X, W, H, memory, penalty, matrices):
        self.X, self.shapes, self.memory, self.penalty, self.matrices = X, (W.shape, H.shape), memory, penalty, matrices
        WW = W.T @ W
        self.x, self.B = np.concatenate([W.ravel(), H.ravel()]), np.linalg.inv(WW + 1e-6 * np.trace(WW) / 4 * np.eye(4))
        self.leak, self.patience, self.pairs, self.best = 1.0, 0.08, [], (np.inf, None)
        self.look_again()

    def factors(self, x):
        (m, r), (_, n) = self.shapes
        return x[: m * r].reshape(m, r), x[m * r :].reshape(r, n)

    def gaps(self, x):
        W, H = self.factors(x)
        T = W @ H
        slope = np.where(T > 0, 1.0, self.leak)
        D = np.where(self.X > 0, self.X - slope * T, -np.maximum(0, T))
        return W, H, D, np.where(self.X > 0, slope * D, D)

    def value(self, x):
        W, H, D, R = self.gaps(x)
        gradient = np.concatenate([(-R @ H.T).ravel(), (-W.T @ R).ravel()]) + self.penalty * x
        return 0.5 * np.sum(D**2) + 0.5 * self.penalty * x @ x, gradient

    def metric(self, x):
        W, H, _, R = self.gaps(x)

        def floor(gram):
            return (1e-6 * np.trace(gram) / len(gram) + self.penalty) * np.eye(len(gram))

        def own(factor, support, gram, inverse):
            """The metric of each row: `factor` has what it is multiplied with, and `support` where."""
            if self.matrices:
                sums = np.einsum("ij,ja,jb->iab", support, factor, factor)
                found = np.linalg.inv(sums + 0.02 * gram + floor(gram)).astype(np.float32)
                return found.astype(float)
            shares = support @ np.einsum("ja,ab,jb->j", factor, inverse, factor) / len(gram)
            factors = (1.05 / (shares + 0.05)).astype(np.float32).astype(float)
            return factors[:, None, None] * np.linalg.inv(gram + floor(gram))

        support, HH, WW = (R != 0).astype(float), H @ H.T, W.T @ W
        rows, columns = own(H.T, support, HH, np.linalg.inv(HH + floor(HH))), own(W, support.T, WW, self.B)
        self.B = np.linalg.inv(WW + floor(WW))

        def apply(g):
            by_W, by_H = self.factors(g)
            rows_W, columns_H = np.einsum("ia,iab->ib", by_W, rows), np.einsum("aj,jab->bj", by_H, columns)
            return np.concatenate([rows_W.ravel(), columns_H.ravel()])

        return apply

    def renewed(self):
        self.M, self.age = self.metric(self.x), 0

    def look_again(self):
        self.f, self.g = self.value(self.x)
        self.recent, self.step, self.trials, self.waiting = [self.f], 1.0, 0, False
        self.renewed()

    def direction(self):
        q, alphas = self.g.copy(), []
        for s, y in reversed(self.pairs):
            alphas.append(s @ q / (s @ y))
            q -= alphas[-1] * y
        s, y = self.pairs[-1] if self.pairs else (None, None)
        p = (s @ y / (y @ self.M(y)) if self.pairs else 0.5) * self.M(q)
        for (s, y), alpha in zip(self.pairs, reversed(alphas), strict=True):
            p += (alpha - y @ p / (s @ y)) * s
        return -p

    def next_level(self):
        self.waiting = True
        if self.leak > 0:
            self.leak = 0.3 * self.leak if 0.3 * self.leak >= 0.05 else 0.0
            return
        error = relative_error(self.X, *self.factors(self.x))
        self.best = min(self.best, (error, self.x), key=lambda end: end[0])
        self.x, self.pairs, self.leak, self.patience = self.best[1], [], 0.3, 0.3 * self.patience

    def one_pass(self):
        if self.waiting:
            self.look_again()
            return
        d = self.direction()
        x = self.x + self.step * d
        f, g = self.value(x)
        if f > self.f + 1e-4 * self.step * (self.g @ d):
            shorter = -(self.g @ d) * self.step**2 / (2 * (f - self.f - self.g @ d * self.step))
            self.step, self.trials = min(max(shorter, 0.1 * self.step), 0.5 * self.step), self.trials + 1
            return
        s, y = ((new - old).astype(np.float32).astype(float) for new, old in ((x, self.x), (g, self.g)))
        self.x, self.f, self.g, self.step, self.trials, self.age = x, f, g, 1.0, 0, self.age + 1
        if self.age >= 2 * len(self.pairs):
            self.renewed()
        if s @ y > 1e-8 * y @ self.M(y):
            self.pairs = [*self.pairs, (s, y)][-self.memory :]
        self.recent = [*self.recent, f]
        steps, fall = (5, self.patience) if self.leak > 0 else (11, 1e-5)
        if len(self.recent) > steps and self.recent[-6] - self.recent[-1] < fall * self.recent[-6]:
            self.next_level()


@pytest.mark.parametrize("matrices", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 1e-2])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_agrees_with_numpy(open_problem, monkeypatch, kind, ridge, matrices):
    if not matrices:
        monkeypatch.setattr(row_metric, "_MOST_NUMBERS", 0)
    X = noisy()
    problem = open_problem(kind(X), 4)
    S = X * problem.matrix.scale
    random = np.random.default_rng(0)
    W, H = random.standard_normal((300, 4)), random.standard_normal((4, 120))
    W /= np.linalg.norm(W)
    H /= np.linalg.norm(H)  # Alike, as the ridge wants them.
    algorithm = QuasiNewton(memory=5, ridge=ridge, warm_up=0)
    state = algorithm.first_state(problem, W, H)
    oracle = Oracle(S, W, H, 5, ridge * np.linalg.norm(S), matrices)
    leaks, refused = set(), 0
    for _ in range(70):
        assert state.leak == oracle.leak
        assert len(state.s_W) == len(oracle.pairs)
        if not oracle.waiting:
            assert state.objective == pytest.approx(oracle.f, rel=1e-7)
        P, Q = oracle.factors(oracle.x)
        np.testing.assert_allclose(state.W @ state.H, P @ Q, atol=1e-5 * np.abs(P @ Q).max())
        leaks.add(state.leak)
        refused += oracle.trials > 0
        state = algorithm.next_state(problem, state)
        oracle.one_pass()
    assert {1.0, 0.3, 0.09, 0.0} <= leaks or ridge
    assert refused  # The case has some.


def test_the_error_never_rises_once_it_is_the_objective_and_the_best_comes_back():
    d = relunmd.decompose(noisy(), 4, "qn", random_state=0, tol=0, max_iter=400)
    leak, error = d.history.leak, d.history.error
    at_zero = (leak[1:] == 0) & (leak[:-1] == 0)
    assert at_zero.sum() > 50
    assert (np.diff(error)[at_zero] <= 1e-15).all()
    assert d.error == error.min()


def test_tol_waits_for_the_error_to_be_the_objective():
    """On noise the latent residual lets E rise; nothing may stop there."""
    X = np.maximum(0, np.random.default_rng(0).standard_normal((80, 60)) - 1)
    d = relunmd.decompose(X, 6, random_state=0, tol=1e-3)
    assert d.algorithm == "qn"
    assert d.init == "shifted"
    assert d.status is relunmd.Status.CONVERGED
    assert (d.history.leak[-11:] == 0).all()
    others = [relunmd.decompose(X, 6, name, random_state=0).error for name in ("3b", "a-nmd", "3b-factored")]
    assert d.error < 0.95 * min(others)


def test_rounds_go_on_where_tol_does_not_stop():
    d = relunmd.decompose(np.eye(15), 2, init="random", random_state=2, tol=0, max_iter=1500)
    leak = d.history.leak
    begins = np.flatnonzero((leak[1:] > 0) & (leak[:-1] == 0))
    assert len(begins) > 1
    assert (leak[begins + 1] == 0.3).all()
    assert d.error < d.history.error[: begins[0]].min()


def test_every_round_is_less_patient(open_problem):
    """A level of the next round ends when F² falls by less than 0.3 times what the last one asked for."""
    _, _, state = some_state(open_problem)
    at_the_end = state.replace(leak=0.0)
    following = quasi_newton._next_level(at_the_end)
    assert following.leak == 0.3
    assert following.patience == pytest.approx(0.3 * state.patience)
    again = quasi_newton._next_level(following.replace(leak=0.0))
    assert again.patience == pytest.approx(0.09 * state.patience)


def test_no_more_pairs_than_asked_for():
    d = relunmd.decompose(noisy(), 4, QuasiNewton(memory=3), random_state=0, max_iter=40)
    assert d.history.pairs.max() == 3
    assert d.settings == {"memory": 3, "ridge": 0.0, "warm_up": 5}


def some_state(open_problem, steps=12):
    problem = open_problem(noisy(), 4)
    random = np.random.default_rng(0)
    algorithm = QuasiNewton(warm_up=0)
    state = algorithm.first_state(problem, random.standard_normal((300, 4)), random.standard_normal((4, 120)))
    for _ in range(steps):
        state = algorithm.next_state(problem, state)
    return problem, algorithm, state


def test_a_step_into_the_void_is_refused_and_a_shorter_one_tried(open_problem):
    problem, algorithm, state = some_state(open_problem)
    state = state.replace(step=1e200)
    with np.errstate(all="ignore"):
        after = algorithm.next_state(problem, state)
    assert after.error == state.error
    assert after.W is state.W
    assert after.step == pytest.approx(1e199)
    for _ in range(12):
        with np.errstate(all="ignore"):
            after = algorithm.next_state(problem, after)
    assert np.isfinite(after.error)
    assert np.isfinite(after.by_W).all()


def test_when_no_step_helps_the_pairs_go_first_and_then_the_level(open_problem):
    _, _, state = some_state(open_problem)
    trial = quasi_newton.Trial(
        state.W,
        state.H,
        state.by_W,
        state.by_H,
        (state.W,) * 2,
        (state.W,) * 2,
        1.0,
        1.0,
        np.inf,
        (),
        (),
        0,
        quasi_newton.products_of(state),
    )
    state = state.replace(trials=9)
    assert len(state.s_W) > 0
    without = quasi_newton._rejected(state, trial, -1.0)
    assert (len(without.s_W), without.trials, without.step, without.leak) == (0, 0, 1.0, state.leak)
    lower = quasi_newton._rejected(without.replace(trials=9), trial, -1.0)
    assert (lower.leak, lower.step) == (pytest.approx(0.3 * state.leak), 0.0)


def test_uphill_among_the_pairs_is_noticed(open_problem):
    problem, algorithm, state = some_state(open_problem)
    wrong = 1e6 * quasi_newton.two_loop(quasi_newton.products_of(state)).changes  # Products that no vectors have.
    misled = state.replace(y_Mg=wrong)
    assert quasi_newton.two_loop(quasi_newton.products_of(misled)).slope > 0
    after = algorithm.next_state(problem, misled)
    assert len(after.s_W) <= 1
    assert after.objective <= state.objective


def test_same_bits_whatever_x_is_stored_as_and_with_any_number_of_threads(tmp_path):
    X = planted()
    results = {}
    for kind, given in everything_that_x_can_be(X, tmp_path).items():
        for jobs in (1, 2, 5) if kind in ("dense", "csr") else (2,):
            d = relunmd.decompose(given, 4, "qn", random_state=0, max_iter=6, n_jobs=jobs)
            results[kind, jobs] = d.W.tobytes() + d.H.tobytes() + d.history.error.tobytes()
            assert d.error == pytest.approx(relative_error(X, d.W, d.H), rel=1e-9)
    assert len(set(results.values())) == 1


def test_float32_ends_where_float64_does():
    X = synthetic(400, 300, 8) + 0.05 * synthetic(400, 300, 60, seed=1)
    errors = [
        relunmd.decompose(X.astype(dtype), 8, "qn", random_state=0, max_iter=400).error
        for dtype in (np.float64, np.float32)
    ]
    assert errors[1] == pytest.approx(errors[0], abs=1e-5)


@pytest.mark.parametrize(
    "settings", [{"memory": 0}, {"memory": 2.5}, {"memory": True}, {"ridge": -1}, {"ridge": "a"}, {"warm_up": -1}]
)
def test_bad_settings_are_rejected(settings):
    with pytest.raises(relunmd.InputError, match="must be"):
        QuasiNewton(**settings)


def test_the_first_steps_are_those_of_3b():
    X = noisy()
    first = relunmd.decompose(X, 4, "3b-factored", "shifted", random_state=0, tol=0, max_iter=5)
    d = relunmd.decompose(X, 4, QuasiNewton(warm_up=5), random_state=0, tol=0, max_iter=20)
    np.testing.assert_allclose(d.history.error[:6], first.history.error, rtol=1e-9)
    assert (d.history.pairs[:7] == 0).all()
    assert d.history.pairs[-1] > 5
    assert (np.diff(d.history.passes) == 1).all()


@needs_data
def test_ahead_of_the_others_on_mnist(data_folder):
    """A third of the way of `benchmarks/flagship.py`: 100 passes, with initialization and baseline."""
    X = datasets.mnist(50, every=10, data=data_folder)
    d = relunmd.decompose(X, 32, random_state=0, tol=0, max_iter=90)
    assert d.history.passes[-1] <= 100
    assert d.error <= 0.1635


@pytest.mark.parametrize(("rank", "ridge"), [(2, 0), (16, 0.03), (16, 1)])
def test_tol_ends_a_run_that_stalls_as_soon_as_the_leak_is_zero(rank, ridge):
    d = relunmd.decompose(relunmd.datasets.digits(), rank, relunmd.QuasiNewton(ridge=ridge), random_state=0)
    assert d.status is relunmd.Status.CONVERGED
    assert d.n_iter < 100
