"""Sweeps of Newton steps over very sparse X, against NumPy on all of X."""

import numpy as np
import pytest
from scipy import sparse

from relunmd import datasets
from relunmd.engine import newton_sweep
from relunmd.engine.newton_sweep import sweep

RANK = 4


@pytest.fixture
def planted():
    """W, H and X = max(0, WH) of several tiles in a row, 1 % positive, with an empty row and column."""
    rng = np.random.default_rng(0)
    W, H = rng.standard_normal((300, RANK)), rng.standard_normal((RANK, 9000))
    W[:, 0], H[0] = 1 + W[:, 0] ** 2, -1.5 - H[0] ** 2
    W[7], H[:, 5] = 0, 0
    return W, H, np.maximum(0, W @ H)


def objective(X, W, H, penalty, axis):
    """The squared error of each row or column, with the penalty of its factor."""
    factor = W if axis == 1 else H.T
    return np.sum((X - np.maximum(0, W @ H)) ** 2, axis=axis) + penalty * np.sum(factor**2, axis=1)


def scaled(problem, *arrays):
    """Factors whose product fits the scaled X as that of these fits X."""
    root = np.sqrt(problem.matrix.scale)
    return tuple(np.ascontiguousarray(A * root).astype(problem.dtype) for A in arrays)


@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_no_row_and_no_column_gets_worse(open_problem, planted, noise, dtype, kind, penalty):
    W, H, X = planted
    rng = np.random.default_rng(1)
    problem = open_problem(kind(X.astype(dtype)), RANK)
    A = X * problem.matrix.scale
    W, H = scaled(problem, W + noise * rng.standard_normal(W.shape), H + noise * rng.standard_normal(H.shape))
    moved, Ht = sweep(problem, W, H, penalty)
    steps = [objective(A, W, H, penalty, 1), objective(A, moved, H, penalty, 1)]
    steps += [objective(A, moved, H, penalty, 0), objective(A, moved, Ht.T, penalty, 0)]
    rounding = 1e-5 if dtype == np.float32 else 1e-12
    for before, after in ((steps[0], steps[1]), (steps[2], steps[3])):
        assert (after <= before * (1 + rounding) + rounding * 1e-3).all()
        assert after.sum() < (0.7 if penalty == 0 else 1) * before.sum()


def test_rows_are_found_again_for_the_true_columns(open_problem, planted):
    """Once the positive entries are known, a Newton step is least squares but for its damping."""
    W, H, X = planted
    problem = open_problem(X, RANK)
    W0, H = scaled(problem, W * (1 + 0.01 * np.random.default_rng(2).random(W.shape)), H)
    A, enough = X * problem.matrix.scale, (X > 0).sum(axis=1) > 3 * RANK
    left = []
    for _ in range(5):
        left.append(np.linalg.norm((A - np.maximum(0, W0 @ H))[enough]))
        W0 = newton_sweep._improved(problem, W0, H, 0.0)
    assert enough.sum() > 200
    assert left[-1] < 1e-4 * left[0]


def test_without_a_bound_there_is_no_sweep(open_problem):
    X = datasets.planted(300, 9000, RANK, 0.99, 0)
    rng = np.random.default_rng(0)
    assert sweep(open_problem(X, RANK), rng.random((300, RANK)), rng.random((RANK, 9000)), 0.0) is None


def test_the_transposed_problem_has_the_same_entries(open_problem, planted):
    X = planted[2]
    for given in (X, sparse.csr_array(X)):
        problem = open_problem(given, RANK)
        found = newton_sweep._transposed(problem)
        assert np.array_equal(found.to_dense(), X.T * problem.matrix.scale)
        assert newton_sweep._transposed(problem).matrix is found.matrix


def test_zeros_that_steps_make_positive_count(open_problem, planted, monkeypatch):
    """With sets of the positive entries alone every step looks good, and must be shortened."""
    W, H, X = planted
    monkeypatch.setattr(newton_sweep, "bound_of", lambda problem, W, H: -0.0)
    problem = open_problem(X, RANK)
    A = X * problem.matrix.scale
    W, H = scaled(problem, W, H)
    W[:, 0] *= 1.3  # Fewer positive entries.
    moved, Ht = sweep(problem, W, H, 0.0)
    before, after = (objective(A, *pair, 0.0, 1) for pair in ((W, H), (moved, Ht.T)))
    assert after.sum() < before.sum()
    assert (objective(A, moved, H, 0.0, 1) <= before * (1 + 1e-12) + 1e-15).all()
