"""Working sets of very sparse X: the positive entries, and the zeros where Θ = WH is positive or nearly so.

All other zeros have Θ below a bound, contribute nothing to the error and have no gradient. A working set is a CSR
matrix of which only stored entries are known, so that a pass over it costs what it stores and not mn·r. It is found by
one pass over X, which forms WH in float32 and nothing else.
"""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums, ThreadExecutor
from relunmd.engine.kernels import Picked
from relunmd.engine.matrix import Array, Block, CsrSource, Matrix, Observation, RowLayout
from relunmd.engine.problem import Problem

log = logging.getLogger("relunmd")

MOST_DENSITY = 0.001
"""The share of positive entries up to which working sets are used; at 0.3 % passes over all of X were faster."""
_LEAST_ENTRIES = 2**22
_WANTED, _MARGIN, _MOST = 4, 2, 16
"""Entries of a working set for each positive one of X, and at least so many for each of Θ; the most that Θ may have."""
_SAMPLED, _SAMPLED_ROWS = 2**22, (16, 256)
_MOST_BLOCKS = 8
_SINGLE, _INT16, _INT32 = np.dtype(np.float32), np.dtype(np.int16), np.dtype(np.int32)


def has_working_sets(problem: Problem) -> bool:
    """Return whether X is so sparse and so large that working sets pay, and is on this machine."""
    (m, n), matrix = problem.shape, problem.matrix
    sparse_enough = m * n >= _LEAST_ENTRIES and problem.facts.positives <= MOST_DENSITY * m * n
    return sparse_enough and matrix.observation is None and isinstance(problem.executor, ThreadExecutor)


def working_set(problem: Problem, W: Array, H: Array) -> Problem | None:
    """Return the problem on the working set of WH; None if WH is positive in too many places.

    One pass, unless it is the one that was kept, which is the last one unless `keep_working_set` was called.
    """
    kept = problem.memo.get("working set")
    if kept is None or kept[0] is not W or kept[1] is not H:
        kept = W, H, screened(problem, W, H)
        problem.memo["working set"] = kept
    found: Problem | None = kept[2]
    return found


def keep_working_set(problem: Problem, W: Array, H: Array, found: Problem) -> None:
    """Keep a working set that is known already."""
    problem.memo["working set"] = W, H, found


def screened(problem: Problem, W: Array, H: Array) -> Problem | None:
    """Find the working set of WH; one pass."""
    H = H.astype(_SINGLE)
    bound = _bound(problem, W, H)
    if bound is None:
        return None
    parts = problem.run(_screen_block, {"W": W}, H=H, bound=bound)[1]["parts"]
    parts.sort(key=lambda part: part[0])
    counts, columns, values = (np.concatenate(arrays) for arrays in list(zip(*parts, strict=True))[1:])
    starts = np.concatenate([[0], np.cumsum(counts)])
    source = CsrSource(sparse.csr_array((values, columns, starts), problem.shape), stored_only=True)
    source.chunk_rows = _rows_together(problem)
    known = replace(Observation.none(problem.shape[1]), stored_only=True)
    log.debug("Working set of %d entries, %d of them positive", len(values), problem.facts.positives)
    return replace(problem, matrix=Matrix(source, problem.dtype, 1.0, known), memo={})


def _rows_together(problem: Problem) -> int:
    """Whole strips, so many that there are at most `_MOST_BLOCKS` blocks, whose sums are as wide as X."""
    strip = RowLayout(*problem.shape).strip_rows
    return strip * -(-problem.shape[0] // (strip * _MOST_BLOCKS))


def _bound(problem: Problem, W: Array, H: Array) -> float | None:
    """Return the number that as many entries of WH exceed as a working set should have, at most 0.

    None if too many exceed 0. It is estimated from some rows.
    """
    (m, n), positives = problem.shape, problem.facts.positives
    count = min(m, max(_SAMPLED_ROWS[0], min(_SAMPLED_ROWS[1], _SAMPLED // n)))
    Theta = W[np.linspace(0, m - 1, count).astype(np.intp)].astype(_SINGLE) @ H
    expected, above = positives / (m * n) * Theta.size, int(np.count_nonzero(Theta > 0))
    if above > _MOST * expected:
        return None
    place = max(0, Theta.size - 1 - int(max(_WANTED * expected, _MARGIN * above)))
    return min(0.0, float(np.partition(Theta.ravel(), place)[place]))


def _screen_block(x: Block, rows: Rows, out: Rows, *, H: Array, bound: float) -> Sums:
    parts = []
    for at in x.strips:
        W, found = rows.W[at].astype(_SINGLE), []
        for tile in x.across(at):
            size = tile.n_rows * tile.n_columns
            T = x.scratch.take("single", (tile.n_rows, tile.n_columns), _SINGLE)
            np.matmul(W, H[:, tile.columns], out=T)
            take: Any = x.scratch.take
            picked = Picked(
                take("picked", (size,), x.matrix.dtype), take("rows", (size,), _INT16), take("columns", (size,), _INT32)
            )
            count = kernels.pick(T, tile.positives(), bound, picked)
            found.append(
                (picked.values[:count].copy(), picked.rows[:count].copy(), picked.columns[:count] + tile.columns.start)
            )
        values, of_rows, columns = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        order = np.argsort(of_rows, kind="stable")
        counts = np.bincount(of_rows, minlength=len(W))
        parts.append((x.rows.start + at.start, counts, columns[order], values[order]))
    return {"parts": parts}
