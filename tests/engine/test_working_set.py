"""Working sets of very sparse X: what is in them, and that "qn" on them keeps its promises."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import relunmd
from relunmd import datasets
from relunmd.algorithm import set_steps
from relunmd.algorithm.quasi_newton_pass import evaluate
from relunmd.engine import working_set
from relunmd.engine.problem import Anchor
from relunmd.engine.working_set import screened
from tests.algorithm.test_three_block_factored import everything_that_x_can_be
from tests.conftest import relative_error

RANK = 4


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch):
    """Working sets also for the small matrices of these tests, and sweeps unless cycles are better."""
    monkeypatch.setattr(working_set, "_LEAST_ENTRIES", 1)
    monkeypatch.setattr(working_set, "MOST_DENSITY", 0.01)
    monkeypatch.setattr(set_steps, "_LITTLE", 1.0)


def counts():
    """Term counts of several tiles in a row, 0.9 % of them positive."""
    X = datasets.planted(400, 9000, RANK, 0.991, 0)
    X[7], X[:, 5] = 0, 0
    return np.minimum(200, np.ceil(X * 20))


def first_factors(X):
    d = relunmd.decompose(X, RANK, random_state=0, max_iter=1)
    return d.W, d.H


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_a_set_has_every_entry_that_matters(open_problem, convert, dtype):
    X = counts().astype(dtype)
    problem = open_problem(convert(X), RANK)
    scale = problem.matrix.scale
    W, H = (A.astype(dtype) for A in first_factors(X))
    W, H = W * dtype(np.sqrt(scale)), H * dtype(np.sqrt(scale))
    rows = screened(problem, W, H).inner.rows
    found = sparse.csr_array((rows.values, rows.columns, rows.starts), X.shape)
    inside = np.zeros(X.shape, int)
    np.add.at(inside, found.tocoo().coords, 1)
    assert np.array_equal(found.toarray(), X * dtype(scale))
    assert inside.max() == 1
    assert inside[X > 0].all()
    assert inside[W @ H > 1e-6].all()
    assert found.nnz < 8 * np.count_nonzero(X)


@pytest.mark.parametrize("leak", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_value_and_gradient_are_those_of_the_entries(open_problem, dtype, leak):
    X = counts().astype(dtype)
    problem, algorithm = open_problem(X, RANK), relunmd.QuasiNewton(warm_up=0)
    W, H = (A.astype(dtype) for A in first_factors(X))
    near = screened(problem, W, H)
    rng = np.random.default_rng(0)
    moved = W + 0.1 * rng.standard_normal(W.shape).astype(dtype), H + 0.1 * rng.standard_normal(H.shape).astype(dtype)
    state = algorithm._unevaluated(problem, *moved).replace(step=0.0, leak=leak)
    trial = evaluate(near, state, None, 0.0)
    rows = near.inner.rows
    inside = sparse.csr_array((np.ones_like(rows.values), rows.columns, rows.starts), X.shape).toarray() > 0
    Theta, scaled = state.W.astype(float) @ state.H.astype(float), X.astype(float) * problem.matrix.scale
    slope = np.where(Theta > 0, 1, leak)
    gap = np.where(inside, np.where(scaled > 0, slope * (scaled - slope * Theta), -np.maximum(Theta, 0)), 0)
    squares = np.where(scaled > 0, scaled - slope * Theta, np.maximum(Theta, 0))[inside] ** 2
    exact = {"rtol": 1e-9, "atol": 1e-9} if dtype is np.float64 else {"rtol": 1e-3, "atol": 1e-3}
    assert trial.objective == pytest.approx(squares.sum() / 2, rel=exact["rtol"])
    np.testing.assert_allclose(trial.by_W, -gap @ state.H.T, **exact)
    np.testing.assert_allclose(trial.by_H, -gap.T @ state.W, **exact)
    support, A, B = gap != 0, np.linalg.inv(state.H @ state.H.T), np.linalg.inv(state.W.T @ state.W)
    of_columns = np.einsum("aj,ab,bj->j", state.H, A, state.H) / RANK
    of_rows = np.einsum("ia,ab,ib->i", state.W, B, state.W) / RANK
    np.testing.assert_allclose(trial.own[0][0][:, 0], 1.05 / (support @ of_columns + 0.05), rtol=1e-4)
    np.testing.assert_allclose(trial.own[1][0][:, 0], 1.05 / (support.T @ of_rows + 0.05), rtol=1e-4)


def test_zeros_of_the_product_do_not_fill_the_set(open_problem):
    """Rows of X without entries have rows of zeros in W; zeros are not above a bound of 0, nor is what is negative."""
    X = counts()
    X[40:] = 0
    W, H = first_factors(X)
    W[40:], H = 0, -np.abs(H)
    W[:40] = np.abs(W[:40])
    assert len(screened(open_problem(X, RANK), W, H).inner.rows.values) < 20 * np.count_nonzero(X)


def test_no_set_if_the_product_is_positive_in_too_many_places(open_problem):
    X = counts()
    rng = np.random.default_rng(0)
    assert screened(open_problem(X, RANK), rng.random((400, RANK)), rng.random((RANK, 9000))) is None
    d = relunmd.decompose(X, RANK, init="random", random_state=0, max_iter=30)
    assert d.error == pytest.approx(relative_error(X, d.W, d.H), rel=1e-6)
    assert d.error < 0.9


def test_same_bits_whatever_x_is_stored_as_and_with_any_number_of_threads(tmp_path):
    X = counts()
    results = {}
    for kind, given in everything_that_x_can_be(X, tmp_path).items():
        for jobs in (1, 2, 5) if kind in ("dense", "csr") else (2,):
            d = relunmd.decompose(given, RANK, random_state=0, max_iter=8, tol=0, n_jobs=jobs)
            results[kind, jobs] = d.W.tobytes() + d.H.tobytes() + d.history.error.tobytes()
            assert d.error == pytest.approx(relative_error(X, d.W, d.H), rel=1e-6)
    assert len(set(results.values())) == 1


def test_an_iteration_counts_one_pass_and_the_error_is_no_larger_than_without_sets(monkeypatch):
    X = sparse.csr_array(counts())
    d = relunmd.decompose(X, RANK, random_state=0, max_iter=12, tol=0)
    assert set(np.diff(d.history.passes[:3])) == {1}
    monkeypatch.setattr(working_set, "_LEAST_ENTRIES", 2**60)
    plain = relunmd.decompose(X, RANK, random_state=0, max_iter=40, tol=0)
    assert d.history.passes[-1] < plain.history.passes[-1]
    assert d.error < 1.02 * plain.error


def test_the_error_never_increases_once_it_is_the_objective():
    d = relunmd.decompose(sparse.csr_array(counts()), RANK, random_state=0, max_iter=60, tol=0)
    last_level = d.history.error[np.flatnonzero(d.history.leak == 0)[0] :]
    first_round = last_level[: np.argmax(np.append(d.history.leak[-len(last_level) :] > 0, True))]
    assert len(first_round) > 5
    assert (np.diff(first_round) <= 1e-12).all()


def test_resumed_runs_have_the_same_bits(tmp_path):
    X, options = sparse.csr_array(counts()), {"random_state": 0, "tol": 0}
    whole = relunmd.decompose(X, RANK, max_iter=9, **options)
    for stop in (0, 3, 5, 9):
        file = tmp_path / "run.npz"
        relunmd.decompose(X, RANK, max_iter=stop, checkpoint=file, checkpoint_every=0, **options)
    resumed = relunmd.decompose(X, RANK, max_iter=9, checkpoint=file, **options)
    assert resumed.W.tobytes() == whole.W.tobytes()
    assert resumed.history.error.tobytes() == whole.history.error.tobytes()


def test_an_exact_fit_is_found():
    X = datasets.planted(300, 400, 2, 0.99, 0)
    d = relunmd.decompose(X, 2, random_state=0, tol=0, max_iter=2000, target_error=1e-10)
    assert d.error <= 1e-10


@pytest.mark.parametrize("ridge", [0.0, 0.01])
def test_a_ridge_is_part_of_what_decreases(ridge):
    X = sparse.csr_array(counts())
    d = relunmd.decompose(X, RANK, random_state=0, ridge=ridge, max_iter=40)
    W, H = d.W, d.H
    assert d.error == pytest.approx(relative_error(X.toarray(), W, H), rel=1e-6)
    assert d.error < relunmd.decompose(X, RANK, "tsvd").error + 10 * ridge


def test_the_pull_has_the_gradient_of_its_distance(open_problem):
    """Value and gradient of F² + weight·‖WH − W₀H₀‖² against plain NumPy, a step away from the anchor."""
    X = datasets.planted(60, 50, RANK, 0.9, 0)
    problem, algorithm = open_problem(X, RANK), relunmd.QuasiNewton(warm_up=0)
    rng = np.random.default_rng(0)
    W0, H0 = rng.standard_normal((60, RANK)), rng.standard_normal((RANK, 50))
    state = algorithm.first_state(problem, rng.standard_normal((60, RANK)), rng.standard_normal((RANK, 50)))
    near = replace(problem, anchor=Anchor(W0, np.ascontiguousarray(H0.T), 0.3))
    plain, pulled = (evaluate(each, state.replace(step=0.0), None, 0.0) for each in (problem, near))
    gap = state.W @ state.H - W0 @ H0
    assert pulled.objective - plain.objective == pytest.approx(0.15 * np.sum(gap**2), rel=1e-12)
    np.testing.assert_allclose(pulled.by_W - plain.by_W, 0.3 * gap @ state.H.T, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(pulled.by_H - plain.by_H, 0.3 * gap.T @ state.W, rtol=1e-9, atol=1e-9)
    assert pulled.error == plain.error
