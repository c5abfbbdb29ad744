"""Newton's method for the rows of a tile: each row is a separate problem, X ≈ max(0, wH) with H fixed.

With Θ = wH the objective of a row is F² = Σ (X − leak·Θ)² over Θ ≤ 0 < X and Σ (X − Θ)² over Θ > 0, plus penalty·‖w‖².
It is piecewise quadratic in w, so that Newton's method with a line search takes about ten steps. Sums and all arrays of
size r are in float64.

If entries are missing, limited or weighted, `Intervals` has what is known of them, and F² is that of
`interval_kernels`. Rows of which only a few entries are known have these alone, with their columns.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from relunmd.engine.kernels._compile import Array, DataTile, Indices, Places, Sums, Tile, helper, kernel, solve

OBJECTIVE, SLOPE, SQUARES, WEIGHT, N_FACTS = 0, 1, 2, 3, 4
"""Columns of `Rows.facts`: F² of the row, half of its slope along the step, ‖x‖², the weight of `Newton.metric`."""

_MOST_TRIALS = 20
_LEVEL = 0.1
"""A line search ends where the slope is this fraction of the first one."""


class Intervals(NamedTuple):
    """The lower and upper ends of the intervals, scaled, the weights (0: missing) and, where not all columns are there,
    the columns of the entries of a tile. All are without rows if X is plain.
    """

    lo: DataTile
    hi: DataTile
    weights: DataTile
    columns: Places


class Rows(NamedTuple):
    """The rows of a tile: T = WH, X and its scale, W, `facts` with a row for each, and what is known beside X."""

    T: Tile
    X: DataTile
    scale: float
    W: Sums
    facts: Sums
    known: Intervals


class Newton(NamedTuple):
    """The system of a Newton step: Hᵀ (n×r), the metric (r×r), and memory of shapes (n×r) and (r×r)."""

    Ht: Sums
    metric: Sums
    damping: float
    penalty: float
    active: Sums
    gram: Sums


class Search(NamedTuple):
    """The settings of a line search."""

    leak: float
    penalty: float
    longest: float
    tol: float
    exact: float


@helper
def _along(theta: Array, step: Array, data: Array, factor: Any, a: float, leak: float) -> tuple[float, float, float]:
    """Return F² at Θ + a·step and half of its first and second derivatives by a, without the penalty."""
    zero, one = theta.dtype.type(0), theta.dtype.type(1)
    by, below = theta.dtype.type(a), theta.dtype.type(leak)
    value = slope = curvature = 0.0
    for start in range(0, len(theta), 256):  # 256 at a time are summed in the float type, as in `residual`.
        t, d, x = theta[start : start + 256], step[start : start + 256], data[start : start + 256]
        v = g = h = zero
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


@helper
def _distance(value: Any, lo: Any, hi: Any, zero: Any) -> Any:
    """Return the projection onto [lo, hi] minus the value."""
    left, right = lo - value, hi - value
    return (left if left > zero else zero) + (right if right < zero else zero)


@helper
def _along_known(
    theta: Array, step: Array, known: Intervals, i: int, a: float, leak: float
) -> tuple[float, float, float]:
    """Return what `_along` returns, for row i of the general model."""
    zero, one = theta.dtype.type(0), theta.dtype.type(1)
    by, below = theta.dtype.type(a), theta.dtype.type(leak)
    value = slope = curvature = 0.0
    for start in range(0, len(theta), 256):
        t, d = theta[start : start + 256], step[start : start + 256]
        lo, hi = known.lo[i, start : start + 256], known.hi[i, start : start + 256]
        w = known.weights[i, start : start + 256]
        v = g = h = zero
        for j in range(len(t)):
            moved = t[j] + by * d[j]
            s = one if moved > zero else below
            e = _distance(s * moved, lo[j], hi[j], zero)
            sd = s * d[j] if (e != zero) | (lo[j] == hi[j]) else zero
            v += w[j] * e * e
            g -= w[j] * e * sd
            h += w[j] * sd * sd
        value += np.float64(v)
        slope += np.float64(g)
        curvature += np.float64(h)
    return value, slope, curvature


@helper
def _gradient_known(T: Array, known: Intervals, i: int, leak: float, Ht: Array, active: Array, y: Array) -> int:
    """Do what `_gradient` does, for row i of the general model."""
    rank, count = Ht.shape[1], 0
    for j in range(len(T)):
        t, w = np.float64(T[j]), np.float64(known.weights[i, j])
        lo, hi = np.float64(known.lo[i, j]), np.float64(known.hi[i, j])
        s = 1.0 if t > 0 else leak
        e = _distance(s * t, lo, hi, 0.0)
        if s > 0 and w > 0 and (e != 0 or lo == hi):
            row, h = active[count], Ht[known.columns[i, j] if len(known.columns) else j]
            root, residual = math.sqrt(w) * s, w * s * e
            for q in range(rank):
                row[q] = root * h[q]
                y[q] += residual * h[q]
            count += 1
    return count


@kernel
def known_product(W: Sums, Ht: Sums, columns: Places, out: Tile) -> None:
    """out ← the entries of WH in the columns of each row."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            h, t = Ht[columns[i, j]], 0.0
            for q in range(len(h)):
                t += W[i, q] * h[q]
            out[i, j] = t


@kernel
def begin_rows(rows: Rows, leak: float, penalty: float) -> None:
    """Write the objective and ‖x‖² of every row to `facts`."""
    T, X, scale, W, facts, known = rows
    factor = X.dtype.type(scale)
    for i in range(T.shape[0]):
        if len(known.lo):
            facts[i, OBJECTIVE] = _along_known(T[i], T[i], known, i, 0.0, leak)[0]
        else:
            facts[i, OBJECTIVE] = _along(T[i], T[i], X[i], factor, 0.0, leak)[0]
        norm = 0.0
        for q in range(W.shape[1]):
            norm += W[i, q] * W[i, q]
        facts[i, OBJECTIVE] += penalty * norm
        squares = 0.0
        if len(known.lo):
            for j in range(T.shape[1]):
                x = max(np.float64(known.lo[i, j]), 0.0)
                squares += np.float64(known.weights[i, j]) * x * x
        else:
            for j in range(X.shape[1]):
                x = np.float64(X[i, j] * factor)
                squares += x * x
        facts[i, SQUARES] = squares


@helper
def _gradient(T: Array, X: Array, factor: Any, leak: float, Ht: Array, active: Array, y: Array) -> int:
    """Add −½∇F² of a row to y, and write s·h to `active` for each entry with a slope s. Return their number."""
    zero, rank, count = X.dtype.type(0), Ht.shape[1], 0
    for j in range(len(T)):
        t, x = T[j], X[j] * factor
        if t > zero or (x > zero and leak > 0):
            s = 1.0 if t > zero else leak
            residual = s * (np.float64(x) - s * np.float64(t))
            row, h = active[count], Ht[j]
            for q in range(rank):
                row[q] = s * h[q]
                y[q] += residual * h[q]
            count += 1
    return count


@kernel
def newton_directions(rows: Rows, live: Indices, leak: float, newton: Newton, steps: Sums) -> None:
    """steps[k] ← (Σ s²·h hᵀ + (penalty + damping)·I + weight·metric)⁻¹ (−½∇F²) for row live[k], and half of its slope.

    The sums are over the entries with a slope s, 1 or the leak, which are few: their columns of H are gathered in
    `active` and multiplied by BLAS. One product of the tile's slopes with all n×r² products of H took twice as long
    with 784 columns and rank 32.
    """
    T, X, scale, W, facts, known = rows
    Ht, metric, damping, penalty, active, gram = newton
    factor = X.dtype.type(scale)
    for k in range(len(live)):
        i, y = live[k], steps[k]
        for q in range(len(y)):
            y[q] = -penalty * W[i, q]
        if len(known.lo):
            count = _gradient_known(T[i], known, i, leak, Ht, active, y)
        else:
            count = _gradient(T[i], X[i], factor, leak, Ht, active, y)
        if count:
            np.dot(active[:count].T, active[:count], gram)
        else:
            gram[:] = 0.0
        facts[i, SLOPE] = solve(gram, metric, facts[i, WEIGHT], damping + penalty, y)


@kernel
def search_rows(rows: Rows, live: Indices, steps: Sums, D: Tile, search: Search, going: Indices) -> None:
    """Move each row of `live` along its step, at most `longest` times, to about its minimum; D = steps·H.

    T, W and the objectives are updated. going[k] is 1 if the objective decreased by more than the fraction `tol` and is
    above `exact`·‖x‖², and 0 if the row has converged.
    """
    T, X, scale, W, facts, known = rows
    leak, penalty, longest, tol, exact = search
    factor = X.dtype.type(scale)
    for k in range(len(live)):
        i = live[k]
        w, s = W[i], steps[k]
        ww = ws = ss = 0.0
        for q in range(len(w)):
            ww += w[q] * w[q]
            ws += w[q] * s[q]
            ss += s[q] * s[q]
        start = facts[i, OBJECTIVE]
        least, best = start, 0.0
        low, high, a = 0.0, np.inf, 1.0
        for _ in range(_MOST_TRIALS):
            if len(known.lo):
                value, slope, curvature = _along_known(T[i], D[k], known, i, a, leak)
            else:
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
