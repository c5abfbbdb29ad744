"""Missing, limited and weighted entries in the engine, against the model written down in NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from relunmd.engine import kernels
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.observed import EntryOptions, open_observed
from relunmd.engine.passes import look
from relunmd.engine.problem_setup import make_problem
from relunmd.engine.row_newton import fit_rows


def model(X, Theta, options, leak):
    """Oracle: E²‖X‖², F², −∂(½F²)/∂Θ and ‖X‖², entry by entry."""
    hidden = np.isnan(X) if options.get("mask") is None else np.isnan(X) | (options["mask"] != 0)
    w = np.where(hidden, 0.0, 1.0 if options.get("weights") is None else options["weights"])
    w = w / (1 if options.get("weights") is None else options["weights"].max())
    lower = np.broadcast_to(0.0 if options.get("lower") is None else options["lower"], X.shape)
    upper = np.broadcast_to(np.inf if options.get("upper") is None else options["upper"], X.shape)
    x = np.where(hidden, 0, X)
    lo = np.where(x >= upper, upper, np.where(x > lower, x, -np.inf))
    hi = np.where(x >= upper, np.inf, np.where(x > lower, x, lower))
    slope = np.where(Theta > 0, 1.0, leak)
    e, d = (np.clip(value, lo, hi) - value for value in (np.maximum(Theta, 0), slope * Theta))
    return (w * e * e).sum(), (w * d * d).sum(), w * slope * d, (w * np.maximum(lo, 0) ** 2).sum()


@st.composite
def problems(draw):
    m, n, seed = draw(st.integers(2, 40)), draw(st.integers(2, 300)), draw(st.integers(0, 2**31))
    random = np.random.default_rng(seed)
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    X = np.maximum(0, random.standard_normal((m, n))).astype(dtype)
    X[0, 0] = 3
    options = {}
    if draw(st.booleans()):
        X[random.random((m, n)) < draw(st.sampled_from([0.1, 0.9]))] = np.nan
        X[0, 0], options["missing_values"] = 3, np.nan
    if draw(st.booleans()):
        options["mask"] = random.random((m, n)) < 0.3
        options["mask"][0, 0] = False
    if draw(st.booleans()):
        options["weights"] = random.random((m, n)) * (random.random((m, n)) < 0.8) + np.eye(m, n)
    shapes = {"number": (), "column": (n,), "entry": (m, n)}
    for name, least in (("lower", 0.0), ("upper", 0.9)):
        kind = draw(st.sampled_from([None, *shapes]))
        if kind:
            options[name] = least + 0.8 * random.random(shapes[kind])
    rank = draw(st.integers(1, min(m, n, 5)))
    W, H = random.standard_normal((m, rank)).astype(dtype), random.standard_normal((rank, n)).astype(dtype)
    return X, options, W, H, draw(st.sampled_from([1.0, 0.3, 0.0]))


def evaluated(X, options, W, H, leak, n_threads=1):
    with ThreadExecutor(n_threads) as executor:
        problem = make_problem(open_observed(X, EntryOptions(**options)), W.dtype, len(H), executor)
        # The scaled X ≈ max(0, scale·WH).
        found = look(problem, W, H * H.dtype.type(problem.matrix.scale), leak)
        error = problem.error(W, H * H.dtype.type(problem.matrix.scale))
        return found, error, problem


@given(problems())
def test_value_and_gradient(given_problem):
    X, options, W, H, leak = given_problem
    squares, objective, G, norm2 = model(X.astype(float), W.astype(float) @ H, options, leak)
    found, error, problem = evaluated(X, options, W, H, leak)
    rel = 2e-3 if W.dtype == np.float32 else 1e-9
    assert problem.norm**2 == pytest.approx(norm2, rel=rel)
    assert found.error**2 * norm2 == pytest.approx(squares, rel=rel, abs=rel * norm2)
    assert error**2 * norm2 == pytest.approx(squares, rel=rel, abs=rel * norm2)
    assert found.objective**2 * norm2 == pytest.approx(objective, rel=rel, abs=rel * norm2)
    size = np.abs(G).sum() + 1
    scale = problem.matrix.scale
    np.testing.assert_allclose(found.GW / scale, G.T @ W, atol=rel * size * np.abs(W).max())
    # P = G·Hᵀ(HHᵀ)⁻¹ of the scaled H
    back = found.P.astype(float) @ (H.astype(float) @ H.T)
    np.testing.assert_allclose(back, G @ H.T, atol=10 * rel * size * np.abs(H).max() * np.linalg.cond(H) ** 2)


@given(problems())
def test_the_same_bits_however_it_is_stored(given_problem):
    X, options, W, H, leak = given_problem
    expected = evaluated(X, options, W, H, leak)
    others = dict(options)
    if "mask" in options:
        others["mask"] = sparse.coo_array(options["mask"])
    if "weights" in options:
        others["weights"] = sparse.csr_array(options["weights"])
    for storage, with_options in ((sparse.csr_array(X), others), (np.asfortranarray(X), options)):
        found = evaluated(storage, with_options, W, H, leak, n_threads=2)
        assert found[0].error == expected[0].error
        np.testing.assert_array_equal(found[0].GW, expected[0].GW)
        assert found[2].facts.checksum == expected[2].facts.checksum


@given(problems(), st.sampled_from([np.nan, np.inf, -7.0, 1e30]))
def test_values_under_a_mask_have_no_influence(given_problem, value):
    X, options, W, H, leak = given_problem
    options.setdefault("mask", np.random.default_rng(0).random(X.shape) < 0.4)
    options["mask"][0, 0] = False
    first = evaluated(X, options, W, H, leak)
    second = evaluated(np.where(options["mask"], value, X).astype(X.dtype), options, W, H, leak)
    assert first[2].fingerprint == second[2].fingerprint
    assert first[0].error == second[0].error
    np.testing.assert_array_equal(first[0].GW, second[0].GW)
    np.testing.assert_array_equal(first[0].P, second[0].P)


@given(problems())
def test_only_stored_entries(given_problem):
    """A sparse X of which stored entries alone are known is X with NaN elsewhere."""
    X, options, W, H, leak = given_problem
    X[-1, -1] = np.nan
    seen = ~np.isnan(X) & (options.pop("mask", np.zeros(X.shape, bool)) == 0)
    options = {name: limit for name, limit in options.items() if np.ndim(limit) < 2 and name != "missing_values"}
    stored = sparse.coo_array((X[seen], np.nonzero(seen)), shape=X.shape)
    found = evaluated(stored, options | {"missing_values": "unstored"}, W, H, leak, n_threads=2)
    expected = evaluated(np.where(seen, X, np.nan), options | {"missing_values": np.nan}, W, H, leak)
    rel = 1e-3 if W.dtype == np.float32 else 1e-10
    assert found[0].error == pytest.approx(expected[0].error, rel=rel)
    np.testing.assert_allclose(found[0].GW, expected[0].GW, atol=rel * (1 + np.abs(expected[0].GW).max()))
    np.testing.assert_allclose(found[2].facts.column_means, expected[2].facts.column_means, rtol=rel, atol=rel)
    assert found[2].facts.missing == expected[2].facts.missing


def test_weights_of_stored_entries():
    random = np.random.default_rng(0)
    X, w = random.random((30, 20)), random.random((30, 20))
    seen = random.random(X.shape) < 0.5
    stored, weights = (sparse.coo_array((A[seen], np.nonzero(seen)), shape=X.shape) for A in (X, w))
    W, H = random.standard_normal((30, 3)), random.standard_normal((3, 20))
    found = evaluated(stored, {"missing_values": "unstored", "weights": weights}, W, H, 1.0)[0]
    expected = evaluated(X, {"weights": np.where(seen, w, 0)}, W, H, 1.0)[0]
    assert found.error == pytest.approx(expected.error, rel=1e-12)
    np.testing.assert_allclose(found.GW, expected.GW, atol=1e-10)


@given(problems())
def test_row_solve(given_problem):
    """No initial value that the oracle tries improves a row, and stored entries alone give the same objective."""
    X, options, W, H, _ = given_problem
    with ThreadExecutor(1) as executor:
        problem = make_problem(open_observed(X, EntryOptions(**options)), W.dtype, len(H), executor)
        found = fit_rows(problem, H, W0=W)
    rel = 1e-3 if W.dtype == np.float32 else 1e-9
    squares, _, _, norm2 = model(X.astype(float), found.W.astype(float) @ H, options, 0.0)
    assert found.squares == pytest.approx(squares * problem.matrix.scale**2, rel=rel, abs=rel * problem.facts.squares)
    for other in (W, 0 * W, found.W * 1.001, found.W * 0.999):
        assert squares <= model(X.astype(float), other.astype(float) @ H, options, 0.0)[0] + 10 * rel * norm2 + 1e-12


def normal_in(lo, hi):
    """Oracle: mean and variance of a standard normal number in [lo, hi], by quadrature on many small pieces."""
    nearest = min(max(lo, 0), hi)
    reach = 40 / (1 + abs(nearest))
    ends = np.linspace(max(lo, nearest - reach), min(hi, nearest + reach), 101)
    x, w = np.polynomial.legendre.leggauss(20)
    half = np.diff(ends)[:, None] / 2
    u = ends[:-1, None] - nearest + half * (x + 1)  # From the nearest point, so that nothing cancels.
    density = half * w * np.exp(-u * (2 * nearest + u) / 2)
    mean = (density * u).sum() / density.sum()
    return nearest + mean, (density * (u - mean) ** 2).sum() / density.sum()


@pytest.mark.parametrize("lo", [-50.0, -3.0, -0.5, 0.0, 1e-3, 2.0, 8.0, 30.0, 200.0])
@pytest.mark.parametrize("width", [1e-6, 1e-2, 0.9, 1.1, 3.0, 40.0])
@pytest.mark.parametrize("mirrored", [False, True])
def test_moments_of_a_truncated_normal(lo, width, mirrored):
    lo, hi = (-lo - width, -lo) if mirrored else (lo, lo + width)
    ends, one = np.array([lo]), np.ones(1)
    high = np.array([hi])
    for array in (ends, high, one):
        array.flags.writeable = False
    mean, deviation = np.zeros(1), np.zeros(1)
    kernels.truncated_normal(ends, high, one, mean, deviation)
    expected = normal_in(lo, hi)
    assert mean[0] == pytest.approx(expected[0], rel=1e-9, abs=1e-11)
    assert deviation[0] ** 2 == pytest.approx(expected[1], rel=1e-5, abs=1e-13)
    assert lo <= mean[0] <= hi
