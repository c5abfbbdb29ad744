"""Newton's method for the rows of a tile, each a problem of its own: X ≈ max(0, wH) with H fixed.

With Θ = wH the objective of a row is F² = Σ (X − leak·Θ)² over Θ ≤ 0 < X and Σ (X − Θ)² over Θ > 0, plus penalty·‖w‖²:
piecewise quadratic in w, so that Newton's step on the piece and a line search end it after some ten steps. Sums and
everything of size r are in float64.

`facts` has a row for each row of the tile and these columns:
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.engine.kernels._compile import helper, kernel

__all__ = ["N_FACTS", "OBJECTIVE", "SQUARES", "WEIGHT", "begin_rows", "newton_directions", "search_rows"]

Tile = NDArray[np.floating]
Numbers = NDArray[np.int64]

OBJECTIVE, SLOPE, SQUARES, WEIGHT, N_FACTS = 0, 1, 2, 3, 4
"""F² at the row's w, half of its slope along the step, ‖x‖², the weight of `metric` in the row's damping."""

_MOST_TRIALS = 20
_LEVEL = 0.1
"""A line search ends where the slope is this share of the first one."""


@helper
def _along(theta: Tile, step: Tile, data: Tile, factor: Any, a: float, leak: float) -> tuple[float, float, float]:
    """F² at Θ + a·step, half of its derivative by a, and half of the second one; the penalty is not in them."""
    zero = theta.dtype.type(0)
    one = theta.dtype.type(1)
    by = theta.dtype.type(a)
    below = theta.dtype.type(leak)
    value = 0.0
    slope = 0.0
    curvature = 0.0
    for start in range(0, len(theta), 256):  # In the float type 256 at a time, as in `residual`.
        t = theta[start : start + 256]
        d = step[start : start + 256]
        x = data[start : start + 256]
        v = zero
        g = zero
        h = zero
        for j in range(len(t)):
            moved = t[j] + by * d[j]
            scaled = x[j] * factor
            s = one if moved > zero else (below if scaled > zero else zero)
            e = scaled - s * moved
            sd = s * d[j]
            v += e * e
            g -= e * sd
            h += sd * sd
        value += np.float64(v)
        slope += np.float64(g)
        curvature += np.float64(h)
    return value, slope, curvature


@kernel("wrsssaa")
def begin_rows(T: Tile, X: Tile, scale: float, leak: float, penalty: float, W: Tile, facts: Tile) -> None:
    """Write every row's objective and ‖x‖² to `facts`; T is WH."""
    factor = X.dtype.type(scale)
    for i in range(T.shape[0]):
        facts[i, OBJECTIVE] = _along(T[i], T[i], X[i], factor, 0.0, leak)[0]
        norm = 0.0
        for q in range(W.shape[1]):
            norm += W[i, q] * W[i, q]
        facts[i, OBJECTIVE] += penalty * norm
        squares = 0.0
        for j in range(X.shape[1]):
            x = np.float64(X[i, j] * factor)
            squares += x * x
        facts[i, SQUARES] = squares


@kernel("wrspsaassaaaaa")
def newton_directions(
    T: Tile,
    X: Tile,
    scale: float,
    live: Numbers,
    leak: float,
    Ht: Tile,
    metric: Tile,
    damping: float,
    penalty: float,
    W: Tile,
    facts: Tile,
    active: Tile,
    gram: Tile,
    steps: Tile,
) -> None:
    """steps[k] ← (Σ s²·h hᵀ + (penalty + damping)·I + weight·metric)⁻¹ (−½∇F²) for row live[k], and half of its slope.

    The sums are over the entries with a slope s, 1 or the leak, which are few: their columns of H are gathered in
    `active` (n×r) and multiplied by BLAS. As one product of the tile's slopes with all n×r² products of H it took
    twice as long at 784 columns and rank 32.
    """
    zero = X.dtype.type(0)
    factor = X.dtype.type(scale)
    rank = Ht.shape[1]
    # The root L of the sum overwrites the lower triangle of `gram`.
    for k in range(len(live)):
        i = live[k]
        y = steps[k]
        for q in range(rank):
            y[q] = -penalty * W[i, q]
        count = 0
        for j in range(T.shape[1]):
            t = T[i, j]
            x = X[i, j] * factor
            if t > zero or (x > zero and leak > 0):
                s = 1.0 if t > zero else leak
                residual = s * (np.float64(x) - s * np.float64(t))
                row = active[count]
                h = Ht[j]
                for q in range(rank):
                    row[q] = s * h[q]
                    y[q] += residual * h[q]
                count += 1
        if count:
            np.dot(active[:count].T, active[:count], gram)
        else:
            gram[:] = 0.0
        weight = facts[i, WEIGHT]
        floor = damping + penalty
        for a in range(rank):
            La = gram[a]
            for b in range(a + 1):
                Lb = gram[b]
                v = La[b] + weight * metric[a, b]
                for q in range(b):
                    v -= La[q] * Lb[q]
                if b < a:
                    La[b] = v / Lb[b]
                else:
                    La[a] = np.sqrt(max(v, 0.0) + floor)
        slope = 0.0
        for a in range(rank):
            La = gram[a]
            v = y[a]
            for q in range(a):
                v -= La[q] * y[q]
            y[a] = v / La[a]
            slope -= y[a] * y[a]
        for a in range(rank - 1, -1, -1):
            La = gram[a]
            v = y[a] / La[a]
            y[a] = v
            for q in range(a):
                y[q] -= La[q] * v
        facts[i, SLOPE] = slope


@kernel("wwrspsssssaaap")
def search_rows(
    T: Tile,
    D: Tile,
    X: Tile,
    scale: float,
    live: Numbers,
    leak: float,
    penalty: float,
    longest: float,
    tol: float,
    exact: float,
    W: Tile,
    steps: Tile,
    facts: Tile,
    going: Numbers,
) -> None:
    """Move each row of `live` along its step, Θ by D = steps·H, to about the least objective within `longest` steps.

    T, W and the objective are those of the new point. going[k] is 1 where the objective fell by more than `tol` of
    itself and is above `exact`·‖x‖², else 0: the row has converged.
    """
    factor = X.dtype.type(scale)
    for k in range(len(live)):
        i = live[k]
        w, s = W[i], steps[k]
        ww = 0.0
        ws = 0.0
        ss = 0.0
        for q in range(len(w)):
            ww += w[q] * w[q]
            ws += w[q] * s[q]
            ss += s[q] * s[q]
        start = facts[i, OBJECTIVE]
        least, best = start, 0.0
        low, high, a = 0.0, np.inf, 1.0
        for _ in range(_MOST_TRIALS):
            value, slope, curvature = _along(T[i], D[k], X[i], factor, a, leak)
            value += penalty * (ww + 2 * a * ws + a * a * ss)
            slope += penalty * (ws + a * ss)
            curvature += penalty * ss
            if value < least:
                least, best = value, a
            if best == a and (abs(slope) <= -_LEVEL * facts[i, SLOPE] or (slope < 0 and a == longest)):
                break
            if slope > 0 or best != a:
                high = a
            else:
                low = a
            following = a - slope / curvature if curvature > 0 else np.inf
            if not low < following < high:
                following = low + 0.25 * (high - low) if high < np.inf else 2 * a
            a = min(following, longest)
        going[k] = 0
        if best > 0:
            for q in range(len(w)):
                w[q] += best * s[q]
            by = T.dtype.type(best)
            for j in range(T.shape[1]):
                T[i, j] += by * D[k, j]
            going[k] = start - least > tol * start and least > exact * facts[i, SQUARES]
            facts[i, OBJECTIVE] = least
