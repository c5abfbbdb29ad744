"""Learning from batches: one step beside ten lines of NumPy, columns that come to life, batches that say nothing."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from relunmd.algorithm.online import OnlineState
from relunmd.new_rows import fit_rows, learn_rows
from tests.conftest import relative_error

LEARN = {"ridge": 0.0, "max_iter": 100, "dtype": np.dtype(np.float64), "n_threads": 2}


def stream(m=900, n=50, r=5, seed=0, noise=0.3):
    random = np.random.default_rng(seed)
    H = random.standard_normal((r, n))
    return np.maximum(0, random.standard_normal((m, r)) @ H + noise * random.standard_normal((m, n))), H


def numpy_step(X, W, H, A, shares, past):
    """The formula at the head of algorithms/online.py; as the step may be shortened, the direction alone."""
    r = len(H)
    metric = A + 0.01 * np.trace(A) / r * np.eye(r)
    steps = np.empty_like(H)
    for j in range(H.shape[1]):
        theta = W @ H[:, j]
        active = W[theta > 0]
        system = active.T @ active + past * (shares[j] + 0.01) * metric
        steps[:, j] = np.linalg.solve(system, active.T @ (X[theta > 0, j] - theta[theta > 0]))
    return steps


def test_a_step_is_that_of_the_formula():
    X, H = stream(m=200)
    start = H + 0.3 * np.random.default_rng(1).standard_normal(H.shape)
    first, found = learn_rows(X, OnlineState.start(start), **LEARN)
    W = fit_rows(X, start).W
    np.testing.assert_array_equal(W, found.W)
    A, shares = W.T @ W / len(W), np.mean(W @ start > 0, axis=0)
    np.testing.assert_allclose(first.second_moment, A)
    np.testing.assert_allclose(first.shares, shares)
    wanted = numpy_step(X, W, start, A, shares, 8 * 5)
    step = first.H - start
    lengths = np.sum(step * wanted, axis=0) / np.sum(wanted * wanted, axis=0)
    np.testing.assert_allclose(step, lengths * wanted, atol=1e-7)
    assert (lengths <= 1 + 1e-9).all()
    assert np.mean(lengths > 0.999) > 0.5
    assert first.rows == 200
    assert first.norm == pytest.approx(np.linalg.norm(X))
    # The error of the batch falls in every column, W being as it was.
    assert (
        np.linalg.norm(X - np.maximum(0, W @ first.H), axis=0)
        <= np.linalg.norm(X - np.maximum(0, W @ start), axis=0) + 1e-9
    ).all()


def test_the_second_batch_remembers_the_first():
    X, H = stream(m=400)
    state, _ = learn_rows(X[:200], OnlineState.start(H), **LEARN)
    after, two = learn_rows(X[200:], state, **LEARN)
    fresh = 200 / 400
    np.testing.assert_allclose(after.second_moment, (1 - fresh) * state.second_moment + fresh * two.W.T @ two.W / 200)


def test_after_very_many_rows_a_new_one_still_counts():
    """Each row has a weight of at least 1e-4 in the running means, so that a stream may drift."""
    X, H = stream(m=400)
    state, _ = learn_rows(X[:200], OnlineState.start(H), **LEARN)
    state = replace(state, rows=10**8)
    after, found = learn_rows(X[200:], state, **LEARN)
    fresh = 200 * 1e-4
    np.testing.assert_allclose(
        after.second_moment, (1 - fresh) * state.second_moment + fresh * found.W.T @ found.W / 200
    )
    np.testing.assert_allclose(after.shares, (1 - fresh) * state.shares + fresh * found.shares)


@pytest.mark.parametrize("batch", [30, 300])
def test_the_error_of_all_rows_falls(batch):
    X, H = stream()
    start = H + np.random.default_rng(1).standard_normal(H.shape)
    state = OnlineState.start(start)
    for _ in range(2):
        for first in range(0, len(X), batch):
            state, _ = learn_rows(X[first : first + batch], state, **LEARN)
    begun, ended, best = (fit_rows(X, G).error for G in (start, state.H, H))
    assert ended < best + 0.1 * (begun - best)
    assert ended == pytest.approx(relative_error(X, fit_rows(X, state.H).W, state.H))


def test_sparse_batches_units_and_threads_give_the_same():
    X, H = stream(m=150)
    state = OnlineState.start(H)
    plain, _ = learn_rows(X, state, **LEARN)
    for other, threads in ((sparse.csr_array(X), 2), (sparse.csr_matrix(X), 3), (np.asfortranarray(X), 1)):
        found, _ = learn_rows(other, state, **LEARN | {"n_threads": threads})
        np.testing.assert_array_equal(found.H, plain.H)
    large, _ = learn_rows(X * 2.0**40, OnlineState.start(H * 2.0**20), **LEARN)
    np.testing.assert_array_equal(large.H, plain.H * 2.0**20)


@pytest.mark.parametrize("dead", [0.0, -1.0])
@pytest.mark.parametrize(("dtype", "ridge"), [("float64", 0.0), ("float32", 0.0), ("float64", 1e-4)])
def test_a_column_that_was_never_seen_comes_to_life(dead, dtype, ridge):
    X, H = stream(noise=0.0)
    start = H.copy()
    start[:, 7] = 0
    state = OnlineState.start(start)
    if dead:  # Negative for every row: no slope on the error.
        W = fit_rows(X, start).W
        start[:, 7] = dead * np.linalg.lstsq(W, np.ones(len(W)), rcond=None)[0]
    for first in range(0, 900, 300):
        batch = X[first : first + 300].astype(dtype)
        state, _ = learn_rows(batch, state, **LEARN | {"dtype": np.dtype(dtype), "ridge": ridge})
    W = fit_rows(X, state.H).W
    column = X[:, 7]
    assert np.linalg.norm(column - np.maximum(0, W @ state.H[:, 7])) < 0.3 * np.linalg.norm(column)


def test_a_batch_of_zeros_is_counted_and_changes_nothing():
    X, H = stream(m=100)
    fit = fit_rows(X, H)
    for state in (OnlineState.start(H), OnlineState.after(H, fit.W, fit.shares, fit.norm)):
        after, found = learn_rows(np.zeros((5, 50)), state, **LEARN)
        for name in ("H", "second_moment", "shares", "norm"):
            np.testing.assert_array_equal(getattr(after, name), getattr(state, name))
        assert after.rows == state.rows + 5
        assert not found.W.any()


@pytest.mark.parametrize("first", [1, 3, 20])
def test_a_few_rows_do_not_spoil_a_fit(first):
    X, H = stream()
    fit = fit_rows(X[:500], H)
    state = OnlineState.after(H, fit.W, fit.shares, fit.norm)
    for start in range(500, 560, first):
        state, _ = learn_rows(X[start : start + first], state, **LEARN)
    assert fit_rows(X, state.H).error < 1.02 * fit_rows(X, H).error


def test_an_exact_h_stays():
    X, H = stream(noise=0.0)
    state, found = learn_rows(X, OnlineState.start(H), **LEARN)
    assert found.error < 1e-9
    np.testing.assert_allclose(state.H, H, atol=1e-7)


def test_a_ridge_shrinks():
    X, H = stream(m=300)
    plain, loose = learn_rows(X, OnlineState.start(H), **LEARN)
    ridged, tight = learn_rows(X, OnlineState.start(H), **LEARN | {"ridge": 0.3})
    assert np.linalg.norm(tight.W) < np.linalg.norm(loose.W)
    assert np.linalg.norm(ridged.H) < np.linalg.norm(plain.H)
