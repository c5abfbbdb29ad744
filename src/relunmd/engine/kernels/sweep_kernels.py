"""Newton steps for rows of W on their entries in a working set, and how far along them the objective of all decreases.

The objective of a row is Σ (x − max(0, wH))² + penalty·‖w‖².
"""

import numpy as np

from relunmd.engine.kernels._compile import Array, Columns, Nonzeros, Tile, helper, kernel, longest, solve

_STEPS, _HALVINGS = 2, 6
"""Newton steps of a row, and how often a step is halved. With one step tf-idf needed a third more sweeps."""
_DAMPING = 1e-3
"""Relative to the mean eigenvalue of the Gauss–Newton matrix. 1e-7 let W of rows with few entries go to infinity."""


@helper
def _along(x: Array, t: Array, u: Array, count: int, a: float) -> float:
    """Return Σ (x − max(0, t + a·u))²."""
    zero, factor, found = t.dtype.type(0), t.dtype.type(a), 0.0
    for k in range(count):
        gap = x[k] - max(zero, t[k] + factor * u[k])
        found += np.float64(gap * gap)
    return found


@helper
def _products(w: Array, columns: Array, Ht: Array, out: Array) -> None:
    """out ← wH in some columns."""
    for k in range(len(columns)):
        h, t = Ht[columns[k]], w.dtype.type(0)
        for q in range(len(w)):
            t += w[q] * h[q]
        out[k] = t


@kernel
def set_newton(x: Nonzeros, Ht: Tile, penalty: float, W: Tile) -> None:
    """Take damped Newton steps for each row of W, on the entries of `x` alone."""
    values, columns, starts = x
    m, r = W.shape
    room, zero = longest(starts), W.dtype.type(0)
    t, u, active = np.empty(room, W.dtype), np.empty(room, W.dtype), np.empty((room, r), W.dtype)
    gram, y = np.empty((r, r)), np.empty(r)
    for i in range(m):
        at, data, w = columns[starts[i] : starts[i + 1]], values[starts[i] : starts[i + 1]], W[i]
        _products(w, at, Ht, t)
        for _ in range(_STEPS):
            count, ww = 0, 0.0
            for q in range(r):
                y[q] = -penalty * w[q]
                ww += np.float64(w[q]) * w[q]
            for k in range(len(at)):
                if t[k] > zero:
                    gap, h = data[k] - t[k], Ht[at[k]]
                    for q in range(r):
                        active[count, q] = h[q]
                        y[q] += np.float64(gap * h[q])
                    count += 1
            if count == 0:
                break
            gram[:] = np.dot(active[:count].T, active[:count])
            trace = 0.0
            for q in range(r):
                trace += gram[q, q]
            solve(gram, gram, 0.0, _DAMPING * trace / r + penalty, y)
            wy = yy = 0.0
            for q in range(r):
                wy += w[q] * y[q]
                yy += y[q] * y[q]
            _products(y.astype(W.dtype), at, Ht, u)
            before, a = _along(data, t, u, len(at), 0.0), 1.0
            for _ in range(_HALVINGS):
                if _along(data, t, u, len(at), a) + penalty * (2 * a * wy + a * a * yy) < before:
                    break
                a *= 0.5
            else:
                break
            for q in range(r):
                w[q] += W.dtype.type(a * y[q])
            for k in range(len(at)):
                t[k] += W.dtype.type(a) * u[k]


@kernel
def search_back(x: Nonzeros, more: Nonzeros, Ht: Tile, old: Tile, penalty: float, seen: Columns, W: Tile) -> None:
    """Move each row of W back towards `old` until its objective is less than there.

    Entries in neither `x` nor `more` are zeros of X where Θ is not positive, neither for W nor for `old`. So it is
    nowhere in between, and the objective is that of all entries. `seen` has a number for each column, less than 1 at
    first.
    """
    values, columns, starts = x
    m, r = W.shape
    room = longest(starts) + longest(more.starts)
    t, u, data = (np.empty(room, W.dtype), np.empty(room, W.dtype), np.empty(room, W.dtype))
    at = np.empty(room, np.int32)
    for i in range(m):
        count = 0
        for k in range(starts[i], starts[i + 1]):
            at[count], data[count] = columns[k], values[k]
            seen[columns[k]] = i + 1
            count += 1
        for k in range(more.starts[i], more.starts[i + 1]):
            if seen[more.columns[k]] != i + 1:
                at[count], data[count] = more.columns[k], more.values[k]
                count += 1
        _products(old[i], at[:count], Ht, t)
        _products(W[i], at[:count], Ht, u)
        wd = dd = 0.0
        for q in range(r):
            d = np.float64(W[i, q]) - old[i, q]
            wd += old[i, q] * d
            dd += d * d
        for k in range(count):
            u[k] -= t[k]
        before, a = _along(data, t, u, count, 0.0), 1.0
        for _ in range(_HALVINGS):
            if _along(data, t, u, count, a) + penalty * (2 * a * wd + a * a * dd) < before:
                break
            a *= 0.5
        else:
            a = 0.0
        if a < 1:
            for q in range(r):
                W[i, q] = old[i, q] + W.dtype.type(a) * (W[i, q] - old[i, q])
