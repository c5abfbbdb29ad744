"""The kernels of the row solve against NumPy: values, Newton's step as a linear system, what a line search promises."""

import numpy as np
import pytest

from relunmd.engine import kernels
from relunmd.engine.row_entries import no_intervals

SHAPES = [(1, 1, 1), (3, 5, 2), (6, 300, 4), (4, 9, 9), (5, 700, 16)]
CASES = [(shape, dtype, leak) for shape in SHAPES for dtype in (np.float32, np.float64) for leak in (1.0, 0.3, 0.0)]


def make(shape, dtype, seed=0):
    m, n, r = shape
    random = np.random.default_rng(seed)
    H, W = random.standard_normal((r, n)), random.standard_normal((m, r))
    X = np.maximum(0, random.standard_normal((m, n))).astype(dtype)
    X.flags.writeable = False
    return X, W, H, np.ascontiguousarray(H.T), (W @ H).astype(dtype)


def objective(x, w, H, leak, penalty):
    theta = w @ H
    gap = np.where(theta > 0, x - theta, np.where(x > 0, x - leak * theta, 0.0))
    return gap @ gap + penalty * w @ w


def slopes(x, theta, leak):
    return np.where(theta > 0, 1.0, np.where(x > 0, leak, 0.0))


def begun(X, W, T, scale, leak, penalty):
    facts = np.zeros((len(X), kernels.N_FACTS))
    kernels.begin_rows(kernels.Rows(T, X, scale, W, facts, no_intervals(X.dtype)), leak, penalty)
    return facts


def directions(X, W, Ht, T, scale, live, leak, metric, damping, penalty, facts):
    n, r = Ht.shape
    steps = np.empty((len(live), r))
    newton = kernels.Newton(Ht, metric, damping, penalty, np.empty((n, r)), np.empty((r, r)))
    kernels.newton_directions(kernels.Rows(T, X, scale, W, facts, no_intervals(X.dtype)), live, leak, newton, steps)
    return steps


@pytest.mark.parametrize(("shape", "dtype", "leak"), CASES)
def test_values_and_newton_steps(shape, dtype, leak):
    X, W, H, Ht, T = make(shape, dtype)
    r, scale, penalty, damping = len(H), 0.5, 0.7, 0.01
    metric = H @ H.T
    facts = begun(X, W, T, scale, leak, penalty)
    facts[:, kernels.WEIGHT] = np.arange(len(X)) / 3
    live = np.arange(0, len(X), 2)
    steps = directions(X, W, Ht, T, scale, live, leak, metric, damping, penalty, facts)
    for k, i in enumerate(live):
        x = X[i].astype(np.float64) * scale
        theta = T[i].astype(np.float64)
        assert facts[i, kernels.OBJECTIVE] == pytest.approx(objective(x, W[i], H, leak, penalty), rel=1e-4)
        assert facts[i, kernels.SQUARES] == pytest.approx(x @ x, rel=1e-6)
        s = slopes(x, theta, leak)
        system = (H * s**2) @ H.T + (penalty + damping) * np.eye(r) + i / 3 * metric
        downhill = H @ (s * (x - s * theta)) - penalty * W[i]
        np.testing.assert_allclose(steps[k], np.linalg.solve(system, downhill), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("shape", "dtype", "leak"), CASES)
@pytest.mark.parametrize("longest", [1.0, np.inf])
def test_searches_go_downhill_and_know_where_they_are(shape, dtype, leak, longest):
    X, W, H, Ht, T = make(shape, dtype, seed=1)
    r, penalty = len(H), 0.2
    facts = begun(X, W, T, 1.0, leak, penalty)
    before, W_before, T_before = facts.copy(), W.copy(), T.copy()
    live = np.arange(len(X) - 1, -1, -2)
    steps = directions(X, W, Ht, T, 1.0, live, leak, np.zeros((r, r)), 1e-8, penalty, facts)
    D, going = (steps @ H).astype(dtype), np.empty(len(live), np.int64)
    search = kernels.Search(leak, penalty, longest, 1e-3, 1e-20)
    kernels.search_rows(kernels.Rows(T, X, 1.0, W, facts, no_intervals(X.dtype)), live, steps, D, search, going)
    for k, i in enumerate(live):
        now, x = facts[i, kernels.OBJECTIVE], X[i].astype(np.float64)
        assert now <= before[i, kernels.OBJECTIVE]
        assert now == pytest.approx(objective(x, W[i], H, leak, penalty), rel=1e-4)
        np.testing.assert_allclose(T[i], W[i] @ H, atol=1e-4 if dtype == np.float32 else 1e-10)
        moved = W[i] - W_before[i]
        length = np.linalg.norm(moved) / np.linalg.norm(steps[k])
        assert length <= longest * (1 + 1e-9)
        fall = before[i, kernels.OBJECTIVE] - now
        assert going[k] == (fall > 1e-3 * before[i, kernels.OBJECTIVE])
        # No point of a fine grid along the step is much better, where the objective is convex.
        if leak == 1.0:
            grid = np.linspace(0, min(longest, 4.0), 400)
            best = min(objective(x, W_before[i] + a * steps[k], H, leak, penalty) for a in grid)
            assert now - best <= 0.05 * (before[i, kernels.OBJECTIVE] - best) + 1e-5 * now
    others = np.setdiff1d(np.arange(len(X)), live)
    np.testing.assert_array_equal(W[others], W_before[others])
    np.testing.assert_array_equal(T[others], T_before[others])


def test_an_exact_row_has_converged_and_a_blind_one_stays():
    H = np.array([[1.0, -1.0, 2.0]])
    W = np.array([[1.0], [-1.0]])
    X = np.array([[1.0, 0.0, 2.0], [1.0, 0.0, 2.0]])
    X.flags.writeable = False
    T = W @ H
    facts = begun(X, W, T, 1.0, 0.0, 0.0)
    assert facts[:, kernels.OBJECTIVE].tolist() == [0.0, 6.0]
    live, Ht = np.arange(2), np.ascontiguousarray(H.T)
    facts = begun(X, W, T, 1.0, 0.0, 0.0)
    # Row 1 is positive at column 1 only, where x is zero: its step leads to 0, and there it stays.
    for _ in range(3):
        steps = directions(X, W, Ht, T, 1.0, live, 0.0, np.zeros((1, 1)), 1e-12, 0.0, facts)
        going = np.empty(2, np.int64)
        search = kernels.Search(0.0, 0.0, np.inf, 1e-5, 1e-20)
        kernels.search_rows(
            kernels.Rows(T, X, 1.0, W, facts, no_intervals(X.dtype)), live, steps, steps @ H, search, going
        )
    assert going.tolist() == [0, 0]
    np.testing.assert_allclose(W.ravel(), [1.0, 0.0], atol=1e-9)
