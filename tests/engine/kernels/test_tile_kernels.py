"""Every kernel against NumPy, on tiles of all shapes, with zeros, ties and both float types."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import erfcx, log_ndtr

from relunmd.engine import kernels
from tests.conftest import projection

DTYPES = (np.float32, np.float64)


@st.composite
def tiles(draw, count):
    """A nonnegative read-only X with many zeros, `count` real tiles of its shape, and a power of two."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=9))
    width = np.finfo(dtype).bits
    entries = st.floats(-8, 8, width=width)
    X = draw(hnp.arrays(dtype, shape, elements=st.one_of(st.just(0.0), st.floats(0, 8, width=width))))
    X.flags.writeable = False
    others = [draw(hnp.arrays(dtype, shape, elements=entries)) for _ in range(count)]
    return X, others, 2.0 ** draw(st.integers(-3, 3))


def close(found, wanted, dtype):
    np.testing.assert_allclose(found, wanted, rtol=200 * np.finfo(dtype).eps, atol=200 * np.finfo(dtype).eps)


def squares(A):
    return np.sum(np.asarray(A, np.float64) ** 2)


def splitmix(z):
    """SplitMix64's finalizer in Python's integers."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def checksum(X, row, column, n_columns):
    """The sum of a hash of place and value over the nonzero entries, as `scan` documents it."""
    total = 0
    for (i, j), value in np.ndenumerate(X.astype(np.float64)):
        if value != 0:
            key = splitmix((((row + i) * n_columns + column + j) * 0x9E3779B97F4A7C15 + 1) % 2**64)
            total += splitmix(key ^ int.from_bytes(struct.pack("<d", value), "little"))
    return total % 2**64


@given(tiles(1))
def test_errors_and_products(given_tiles):
    X, (T,), scale = given_tiles
    S, relu = X * X.dtype.type(scale), np.maximum(0, T)
    close(kernels.squared_error(T, X, scale), squares(S - relu), X.dtype)
    close(kernels.cross_products(T, X, scale), (np.sum(S * relu, dtype=float), squares(relu)), X.dtype)
    close(kernels.entry_moments(X, scale), (S.sum(dtype=float), squares(S), np.sum(S > 0)), X.dtype)
    assert kernels.scan(X, 2, 3, 1000) == (X.max(), 0, 0, checksum(X, 2, 3, 1000), 0)
    Z = np.empty_like(T)
    close(kernels.project(T, X, scale, Z), squares(S - relu), X.dtype)
    close(Z, projection(S, T), X.dtype)
    kernels.raise_positive(X, scale, Z, 2.5)
    close(Z, np.where(S > 0, S + 2.5, 0), X.dtype)


@given(tiles(3), st.floats(0, 1))
def test_momentum(given_tiles, beta):
    X, (T, Theta, Z), scale = given_tiles
    S, out = X * X.dtype.type(scale), np.empty_like(T)
    plain, extrapolated = kernels.extrapolate(T, X, scale, Theta, out, beta)
    moved = T + beta * (T - Theta)
    close(out, moved, X.dtype)
    close(plain, squares(S - np.maximum(0, T)), X.dtype)
    close(extrapolated, squares(S - np.maximum(0, moved)), X.dtype)
    kernels.latent(Theta, X, scale, Z, out, beta)
    close(out, projection(S, Theta) + beta * (projection(S, Theta) - Z), X.dtype)
    kernels.descend(Theta, Z, X, scale, out, beta)
    close(out, projection(S, Theta - beta * Z), X.dtype)
    close(kernels.squared_difference(Z, T), squares(Z.astype(float) - T), X.dtype)
    out[:] = T
    kernels.add_difference(out, Theta, Z, beta)
    close(out, T + beta * (Theta - Z), X.dtype)


@given(tiles(1), st.sampled_from([1e-3, 0.05, 1.0, 30.0]))
def test_expectation(given_tiles, sigma):
    X, (T,), scale = given_tiles
    Z = np.empty_like(T)
    error, fit, tail, variance = kernels.expect(T, X, scale, Z, sigma)
    S, Theta = (X * X.dtype.type(scale)).astype(float), T.astype(float)
    zero = S == 0
    gamma = Theta / sigma
    with np.errstate(over="ignore"):
        rho = np.sqrt(2 / np.pi) / erfcx(gamma / np.sqrt(2))
    # Z is the difference of two numbers of the size of Θ, each right to γ²/2 machine epsilons or 1e-13.
    np.testing.assert_allclose(
        Z,
        np.where(zero, Theta - sigma * rho, S),
        rtol=200 * np.finfo(X.dtype).eps,
        atol=1e-12 * np.abs(T).max() + 1e-15,
    )
    close(error, squares(S - np.maximum(0, Theta)), X.dtype)
    close(fit, squares((S - Theta)[~zero]), X.dtype)
    np.testing.assert_allclose(tail, log_ndtr(-gamma)[zero].sum(), rtol=1e-9, atol=1e-12)
    # Both sides cancel where γ is large: 1 − (ρ − γ)ρ is about 1/γ², found to about γ²ε.
    np.testing.assert_allclose(
        variance, np.clip(1 - (rho - gamma) * rho, 0, 1)[zero].sum(), atol=1e-6 * zero.sum() + 1e-9
    )


@pytest.mark.parametrize("gamma", [-300.0, -40.0, -1.0, 0.0, 1.0, 35.3, 35.4, 1e3, 1e6])
def test_expectation_in_the_tails(gamma):
    """The two forms of the Mills ratio meet at γ = 25√2, and neither overflows anywhere."""
    X = np.zeros((1, 1))
    X.flags.writeable = False
    Z = np.empty((1, 1))
    _, _, tail, variance = kernels.expect(np.array([[gamma]]), X, 1.0, Z, 1.0)
    rho = 0.0 if gamma < -50 else np.sqrt(2 / np.pi) / erfcx(gamma / np.sqrt(2))
    assert Z[0, 0] == pytest.approx(gamma - rho, rel=1e-9, abs=2e-12 * abs(gamma))
    assert tail == pytest.approx(log_ndtr(-gamma), rel=1e-11, abs=1e-300)
    assert 0 <= variance <= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_scan_counts_what_is_wrong(dtype):
    X = np.array([[1, np.nan, -2], [np.inf, -np.inf, 5], [-0.0, -1, 0]], dtype)
    X.flags.writeable = False
    assert kernels.scan(X, 0, 0, 3)[:3] == (5.0, 2, 2)


def test_not_a_number_is_seen_in_the_error():
    X = np.ones((1, 2))
    X.flags.writeable = False
    assert np.isnan(kernels.squared_error(np.array([[np.nan, 1.0]]), X, 1.0))


@given(tiles(1), st.integers(0, 5), st.booleans())
def test_residuals_of_the_objectives(given_tiles, first, bytes_):
    """In place, with the sums of squares of each row, wherever in X's rows the tile begins, X floats or bytes."""
    X, (T,), scale = given_tiles
    dtype = T.dtype
    if bytes_:
        X = np.round(X).astype(np.uint8)
    wide = np.zeros((len(X), X.shape[1] + 7), X.dtype)
    wide[:, first : first + X.shape[1]] = X
    wide.flags.writeable = False
    S = X.astype(dtype) * dtype.type(scale)
    error, gap = S - np.maximum(0, T), projection(S, T) - T
    dead = (T <= 0) & (S > 0)
    leaking = np.where(dead, S - dtype.type(0.25) * T, gap)
    for leak, wanted, objective in (
        (1.0, gap, gap),
        (0.0, np.where(T > 0, error, 0), error),
        (0.25, np.where(dead, dtype.type(0.25) * leaking, leaking), leaking),
    ):
        found, sums = T.copy(), np.ones((len(T), 2))
        sampled = kernels.residual(found, wide, first, scale, leak, sums)
        close(found, wanted, dtype)
        assert not np.signbit(found[found == 0]).any()
        assert sampled == np.count_nonzero(found[:: kernels.SAMPLED])
        close(sums[:, 0] - 1, np.sum(error.astype(float) ** 2, axis=1), dtype)
        close(sums[:, 1] - 1, np.sum(objective.astype(float) ** 2, axis=1), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_residuals_of_long_rows(dtype):
    """Longer than the pieces that squares are summed in."""
    random = np.random.default_rng(0)
    T, X = (
        random.standard_normal((9, 1000)).astype(dtype),
        np.maximum(0, random.standard_normal((9, 1000))).astype(dtype),
    )
    X.flags.writeable = False
    found, sums = T.copy(), np.zeros((9, 2))
    kernels.residual(found, X, 0, 1.0, 1.0, sums)
    close(found, projection(X, T) - T, dtype)
    np.testing.assert_allclose(sums[:, 1], np.sum(found.astype(float) ** 2, axis=1), rtol=1e-6)
    W, before = T[:, :5].copy(), T[:, 5:10].copy()
    out = np.empty_like(W)
    kernels.extrapolate_rows(W, before, out, 0.5)
    close(out, W + 0.5 * (W - before), dtype)


@given(tiles(6))
def test_products_of_rows(given_tiles):
    _, (A, B, C, D, left, right), _ = given_tiles
    dtype = left.dtype
    close(kernels.dot(left, right), np.sum(left.astype(float) * right), dtype)
    rough = tuple(tile.astype(np.float32) for tile in (A, B, C, D))
    sums = np.ones((4, 2))
    kernels.four_dots(rough, left, right, sums)
    close(sums - 1, [[np.sum(tile * side.astype(float)) for side in (left, right)] for tile in rough], dtype)
    out = left.copy()
    kernels.add_four(out, rough, (0.5, -2.0, 0.0, 3.0))
    A, B, _, D = (tile.astype(float) for tile in rough)
    close(out, left + 0.5 * A - 2 * B + 3 * D, dtype)
