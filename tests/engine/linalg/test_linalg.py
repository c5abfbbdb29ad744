"""Small solves and truncated SVDs against LAPACK."""

import numpy as np
import pytest
from scipy import linalg as sl

from relunmd.engine.linalg.canonical import canonical_factors
from relunmd.engine.linalg.gram import gram_solve, right_inverse
from relunmd.engine.linalg.truncated_svd import factors_of, polish, starting_basis, sweep_rows, truncated_svd
from relunmd.engine.linalg.two_loop import Products, two_loop
from relunmd.engine.passes import sweep_of_x
from tests.conftest import synthetic


def lapack(A, rank):
    U, sigma, Vt = sl.svd(A, full_matrices=False)
    return (U[:, :rank] * sigma[:rank]) @ Vt[:rank]


def test_gram_solve_is_least_squares():
    random = np.random.default_rng(0)
    W, Z = random.standard_normal((30, 5)), random.standard_normal((30, 8))
    np.testing.assert_allclose(gram_solve(W.T @ W, W.T @ Z), np.linalg.lstsq(W, Z)[0], rtol=1e-10)
    np.testing.assert_allclose(Z.T @ right_inverse(W.T), np.linalg.lstsq(W, Z)[0].T, rtol=1e-10)


@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_gram_solve_survives_lost_rank(scale):
    random = np.random.default_rng(0)
    W = scale * random.standard_normal((30, 2)) @ random.standard_normal((2, 5))
    W[:, 3] = 0
    Z = random.standard_normal((30, 8))
    H = gram_solve(W.T @ W, W.T @ Z)
    assert np.isfinite(H).all()
    best = np.linalg.norm(Z - W @ np.linalg.lstsq(W, Z)[0])
    assert np.linalg.norm(Z - W @ H) <= best * (1 + 1e-6)


def test_gram_solve_of_zeros_is_zero():
    assert not gram_solve(np.zeros((3, 3)), np.zeros((3, 4))).any()


@pytest.mark.parametrize("shape", [(40, 30), (30, 40), (1, 9), (9, 1), (300, 200)])
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_truncated_svd_is_lapacks(open_problem, shape, rank, dtype):
    rank = min(rank, *shape)
    X = np.random.default_rng(0).random(shape).astype(dtype)
    problem = open_problem(X, rank)
    found = truncated_svd(problem, lambda V: sweep_of_x(problem, V), rank, np.random.default_rng(1))
    S = X.astype(float) * problem.matrix.scale
    best = np.linalg.norm(S - lapack(S, rank))
    excess = np.linalg.norm(S - found.W.astype(float) @ found.H) - best
    assert excess <= (1e-8 if dtype == np.float64 else 1e-5) * np.linalg.norm(S)
    np.testing.assert_allclose(found.V.T @ found.V, np.eye(found.V.shape[1]), atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_truncated_svd_of_a_wide_spectrum(open_problem, dtype):
    random = np.random.default_rng(0)
    U, V = sl.qr(random.standard_normal((200, 60)), mode="economic")[0], sl.qr(random.standard_normal((60, 60)))[0]
    A = ((U * 10.0 ** -np.arange(60.0)) @ V).astype(dtype)
    problem = open_problem(np.ones((200, 60), dtype), 15)
    found = truncated_svd(problem, lambda W: sweep_rows(problem, A, W), 15, random)
    stated = 1e-8 if dtype == np.float64 else 1e-4
    assert np.linalg.norm(A - found.W.astype(float) @ found.H) <= stated
    used = np.linalg.norm(found.H, axis=1) > stated
    np.testing.assert_allclose((found.W.T @ found.W)[np.ix_(used, used)], np.eye(used.sum()), atol=1e-3)


def test_truncated_svd_of_a_corrected_matrix_that_is_never_formed(open_problem):
    X = synthetic(120, 90, 5)
    problem = open_problem(X, 4)
    random = np.random.default_rng(1)
    left, right = random.random((120, 1)), random.random((90, 1))
    formed = X * problem.matrix.scale
    formed = formed + 0.7 * (X > 0) - left @ right.T
    found = truncated_svd(problem, lambda V: sweep_of_x(problem, V, 0.7, left, right), 4, random)
    np.testing.assert_allclose(found.W @ found.H, lapack(formed, 4), atol=1e-6)


@pytest.mark.parametrize("rank_of_data", [0, 2])
def test_truncated_svd_above_the_rank_of_the_data(open_problem, rank_of_data):
    random = np.random.default_rng(0)
    A = random.random((50, rank_of_data)) @ random.random((rank_of_data, 40))
    problem = open_problem(np.ones((50, 40)), 6)
    found = truncated_svd(problem, lambda V: sweep_rows(problem, A, V), 6, random)
    np.testing.assert_allclose(found.W @ found.H, A, atol=1e-12)
    assert found.W.shape == (50, 6)
    assert found.V.shape == (40, 40)


def test_sweeps_never_lose_accuracy_and_reach_the_optimum(open_problem):
    A = np.random.default_rng(0).standard_normal((200, 150))
    problem = open_problem(np.abs(A), 6)
    V = starting_basis(np.random.default_rng(1).standard_normal((6, 150)), A.shape)
    residuals = []
    for _ in range(40):
        found = factors_of(problem, sweep_rows(problem, A, V), 6)
        residuals.append(np.linalg.norm(A - found.W @ found.H))
        V = found.V
    assert np.all(np.diff(residuals) <= 1e-10)
    assert residuals[-1] <= np.linalg.norm(A - lapack(A, 6)) * (1 + 1e-3)


def test_polish_tracks_a_matrix_that_changes_a_little(open_problem):
    random = np.random.default_rng(0)
    A = random.standard_normal((200, 5)) @ random.standard_normal((5, 150)) + 0.1 * random.standard_normal((200, 150))
    problem = open_problem(np.abs(A), 5)
    V = starting_basis(sl.svd(A)[2][:5], A.shape)
    A = A + 0.01 * random.standard_normal(A.shape)
    found = polish(problem, A, sweep_rows(problem, A, V), sweeps=2)
    assert np.linalg.norm(A - found.W @ found.H) <= np.linalg.norm(A - lapack(A, 5)) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.float64, 1.0), (np.float64, 2.0**-300), (np.float32, 2.0**7), (np.float32, 2.0**-100)]
)
def test_canonical_factors(dtype, scale):
    random = np.random.default_rng(0)
    W, H = random.standard_normal((20, 4)).astype(dtype), random.standard_normal((4, 30)).astype(dtype)
    left, right = canonical_factors(W, H, scale)
    assert left.dtype == right.dtype == dtype
    np.testing.assert_allclose(left @ right, W.astype(float) @ H / scale, rtol=1e-4 if dtype == np.float32 else 1e-9)
    strengths = np.linalg.norm(left, axis=0)
    np.testing.assert_allclose(strengths, np.linalg.norm(right, axis=1), rtol=1e-5)
    assert np.all(np.diff(strengths) <= 0)
    assert np.all(right[np.arange(4), np.abs(right).argmax(axis=1)] > 0)


@pytest.mark.parametrize("pairs", [0, 1, 4])
def test_two_loops_on_products_are_bfgs(pairs):
    """The inverse Hessian that BFGS builds from γM by its update formula, pair by pair, times −g."""
    random = np.random.default_rng(pairs)
    n = 12
    root = random.standard_normal((n, n))
    M, hessian = root @ root.T + np.eye(n), np.diag(random.random(n) + 0.5)
    S = random.standard_normal((pairs, n))
    Y = S @ hessian + 0.01 * random.standard_normal((pairs, n))
    g = random.standard_normal(n)
    inverse = (S[-1] @ Y[-1] / (Y[-1] @ M @ Y[-1]) if pairs else 0.5) * M
    for s, y in zip(S, Y, strict=True):
        rho = 1 / (s @ y)
        left = np.eye(n) - rho * np.outer(s, y)
        inverse = left @ inverse @ left.T + rho * np.outer(s, s)
    s_y = np.triu(S @ Y.T)  # What is below is never looked at.
    found = two_loop(Products(S @ g, s_y, Y @ M @ Y.T, Y @ M @ g, g @ M @ g))
    d = found.steps @ S + M @ (found.changes @ Y + found.gradient * g)
    np.testing.assert_allclose(d, -inverse @ g, atol=1e-9)
    assert found.slope == pytest.approx(g @ d)
