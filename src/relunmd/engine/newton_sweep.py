"""Newton steps for all rows of W, then for all columns of H, on the error of very sparse X.

For a fixed H rows are independent of each other, and so are columns for a fixed W: each has a step size of its own, and
the error never increases. Each half costs two products WH in float32: one finds the entries that matter, as for a
working set, the other the zeros that the steps make positive. Columns are the rows of a transposed copy of the positive
entries.
"""

from dataclasses import replace

import numpy as np
from scipy import sparse

from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums
from relunmd.engine.matrix import Array, Block, CsrSource, Matrix
from relunmd.engine.problem import Problem
from relunmd.engine.working_set import bound_of, panels_of, picked


def sweep(problem: Problem, W: Array, H: Array, penalty: float) -> tuple[Array, Array] | None:
    """Return W and Hᵀ with an error that is no larger; two passes. None if WH is positive in too many places.

    `penalty` is the weight of ‖W‖² + ‖H‖² beside the squared error.
    """
    moved = _improved(problem, W, H, penalty)
    if moved is None:
        return None
    Ht = _improved(_transposed(problem), np.ascontiguousarray(H.T), np.ascontiguousarray(moved.T), penalty)
    return None if Ht is None else (moved, Ht)


def _improved(problem: Problem, W: Array, H: Array, penalty: float) -> Array | None:
    """Improve the rows of W; one pass."""
    bound = bound_of(problem, W, H)
    if bound is None:
        return None
    shared = {"panels": panels_of(H), "Ht": np.ascontiguousarray(H.T), "bound": bound, "penalty": penalty}
    found: Array = problem.run(_improve_block, {"W": W}, {"W": problem.rank}, **shared)[0].W
    return found


def _improve_block(x: Block, rows: Rows, out: Rows, *, panels: Array, Ht: Array, bound: float, penalty: float) -> Sums:
    for at in x.strips:
        old, W = np.ascontiguousarray(rows.W[at]), out.W[at]
        W[:] = old
        entries = picked(x, at, old, panels, bound)
        kernels.set_newton(entries, Ht, penalty, W)
        more = picked(x, at, W, panels, -0.0)
        kernels.search_back(entries, more, Ht, old, penalty, np.zeros(len(Ht), np.int32), W)
    return {}


def _transposed(problem: Problem) -> Problem:
    """Return the problem for Xᵀ, whose positive entries are copied once; one pass."""
    name = f"transposed {problem.dtype}"
    if name not in problem.memo:
        parts = problem.run(_entries_block)[1]["parts"]
        parts.sort(key=lambda part: part[0])
        counts, columns, values = (np.concatenate(arrays) for arrays in list(zip(*parts, strict=True))[1:])
        X = sparse.csr_array((values, columns, np.concatenate([[0], np.cumsum(counts)])), problem.shape)
        problem.memo[name] = Matrix(CsrSource(X.T.tocsr()), problem.dtype)
    return replace(problem, matrix=problem.memo[name], memo={})


def _entries_block(x: Block, rows: Rows, out: Rows) -> Sums:
    parts = []
    for at in x.strips:
        tiles = [sparse.csr_array(_csr(tile.positives()), (tile.n_rows, tile.n_columns)) for tile in x.across(at)]
        found = sparse.hstack(tiles, format="csr")
        parts.append((x.rows.start + at.start, np.diff(found.indptr), found.indices, found.data))
    return {"parts": parts}


def _csr(found: kernels.Nonzeros) -> tuple[Array, Array, Array]:
    count = int(found.starts[-1])
    return found.values[:count].copy(), found.columns[:count].copy(), found.starts.copy()
