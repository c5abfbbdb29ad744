"""The shared looks at X against NumPy: values, gradients, products, rows with H fixed; on every kind of X."""

import numpy as np
import pytest
from scipy import sparse

from relunmd.engine import passes
from relunmd.engine.linalg.truncated_svd import truncated_svd
from tests.conftest import projection, synthetic

KINDS = {
    "dense": lambda X: X,
    "csr": sparse.csr_array,
    "bytes": lambda X: X.astype(np.uint8),
    "fortran": np.asfortranarray,
}
SHAPES = {"tall": (900, 50, 0.5), "wide": (70, 9000, 0.5), "wide and sparse": (300, 9000, 0.99)}


def gradient(problem, W, H, leak):
    """∇_W, ∇_H, ‖X − max(0, WH)‖² and twice the objective."""
    factors = H, np.ascontiguousarray(H.T)
    out, sums = problem.run(gradient_block, {"W": W}, {"W": W.shape[1]}, factors=factors, leak=leak)
    return out.W, -sums["H"].T, *sums["squares"].tolist()


def gradient_block(x, rows, out, *, factors, leak):
    W, by_H, squares = rows.W, x.sums(factors[1].shape), np.zeros((len(rows.W), 2))
    for at in x.strips:
        passes.gradient_strip(x, at, W[at], factors, leak, squares[at], (out.W[at], by_H))
    return {"H": by_H, "squares": squares.sum(axis=0)}


def counts(shape, zeros, seed=0):
    """Small whole numbers, so that every dtype holds them."""
    random = np.random.default_rng(seed)
    return (random.random(shape) > zeros) * random.integers(1, 9, shape).astype(np.float64)


def problem_and_factors(open_problem, kind, shape, dtype=np.float64, rank=5):
    m, n, zeros = SHAPES[shape]
    X = counts((m, n), zeros)
    problem = open_problem(KINDS[kind](X.astype(dtype)), rank, dtype=dtype)
    random = np.random.default_rng(1)
    W, H = random.standard_normal((m, rank)).astype(dtype), random.standard_normal((rank, n)).astype(dtype)
    if shape == "wide and sparse":  # Θ mostly negative, as it is on such data: the residual is then sparse too.
        W[:, 0], H[0] = 1, -3
    return problem, X * problem.matrix.scale, W, H


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_and_gradients(open_problem, kind, shape, dtype):
    problem, X, W, H = problem_and_factors(open_problem, kind, shape, dtype)
    Theta = W.astype(float) @ H
    gap, error = projection(X, Theta) - Theta, X - np.maximum(0, Theta)
    close = {"rtol": 1e-4, "atol": 2e-2} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-9}
    half = np.where((Theta <= 0) & (X > 0), X - 0.5 * Theta, gap)
    half_slope = np.where((Theta <= 0) & (X > 0), 0.5 * half, half)
    for leak, value, R in (
        (passes.LATENT, gap, -gap),
        (passes.ERROR, error, np.where(Theta > 0, -error, 0)),
        (0.5, half, -half_slope),
    ):
        by_W, by_H, error_squares, objective_squares = gradient(problem, W, H, leak)
        assert error_squares == pytest.approx(np.sum(error**2), rel=1e-5 if dtype == np.float32 else 1e-12)
        assert objective_squares == pytest.approx(np.sum(value**2), rel=1e-5 if dtype == np.float32 else 1e-12)
        np.testing.assert_allclose(by_W, R @ H.T, **close)
        np.testing.assert_allclose(by_H, W.T @ R, **close)
        assert by_W.dtype == dtype


@pytest.mark.parametrize("leak", [passes.LATENT, passes.ERROR, 0.3])
def test_gradients_are_those_of_the_values(open_problem, leak):
    problem = open_problem(synthetic(40, 30, 3), 3)
    random = np.random.default_rng(0)
    W, H = random.standard_normal((40, 3)), random.standard_normal((3, 30))
    dW, dH = random.standard_normal(W.shape), random.standard_normal(H.shape)

    def value(step):
        return gradient(problem, W + step * dW, H + step * dH, leak)[-1] / 2

    by_W, by_H, *_ = gradient(problem, W, H, leak)
    slope = np.vdot(by_W, dW) + np.vdot(by_H, dH)
    assert (value(1e-6) - value(-1e-6)) / 2e-6 == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_products_with_x(open_problem, kind, shape):
    problem, X, _, _ = problem_and_factors(open_problem, kind, shape)
    m, n = X.shape
    random = np.random.default_rng(2)
    Q = random.standard_normal((n, 4))
    plain = passes.sweep_of_x(problem, Q)
    np.testing.assert_allclose(plain.Y, X @ Q, atol=1e-9)
    np.testing.assert_allclose(plain.S, X.T @ (X @ Q), atol=1e-6)
    left, right = random.random((m, 1)), random.random((n, 1))
    A = X + 0.7 * (X > 0) - left @ right.T
    sweep = passes.sweep_of_x(problem, Q, 0.7, left, right)
    np.testing.assert_allclose(sweep.Y, A @ Q, atol=1e-8)
    np.testing.assert_allclose(sweep.S, A.T @ (A @ Q), atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_look_gives_the_same_bits_for_every_kind(open_problem, shape, dtype):
    found = set()
    for kind in KINDS:
        problem, _, W, H = problem_and_factors(open_problem, kind, shape, dtype)
        by_W, by_H, error_squares, _ = gradient(problem, W, H, passes.LATENT)
        svd = truncated_svd(
            problem, lambda V, problem=problem: passes.sweep_of_x(problem, V), 5, np.random.default_rng(3)
        )
        parts = by_W, by_H, np.array(error_squares), svd.W, svd.H
        found.add(b"".join(part.tobytes() for part in parts))
    assert len(found) == 1
