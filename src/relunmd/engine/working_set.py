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
from relunmd.engine.kernels import Nonzeros, Picked
from relunmd.engine.matrix import Array, Block, CsrSource, Matrix, Observation, Tile
from relunmd.engine.problem import Problem

log = logging.getLogger("relunmd")

MOST_DENSITY = 0.01
"""The share of positive entries up to which working sets are used."""
_LEAST_ENTRIES = 2**22
_WANTED, _MOST = 4, 16
"""Entries of a working set for each positive one: as many as wanted, and the most that Θ > 0 may need."""
_SAMPLED, _SAMPLED_ROWS = 2**22, (16, 256)
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
    known = replace(Observation.none(problem.shape[1]), stored_only=True)
    log.debug("Working set of %d entries, %d of them positive", len(values), problem.facts.positives)
    return replace(problem, matrix=Matrix(source, problem.dtype, 1.0, known), memo={})


def _bound(problem: Problem, W: Array, H: Array) -> float | None:
    """Return the number that about `_WANTED` entries of WH for each positive entry of X exceed, at most 0.

    None if too many exceed 0. It is estimated from some rows.
    """
    (m, n), positives = problem.shape, problem.facts.positives
    count = min(m, max(_SAMPLED_ROWS[0], min(_SAMPLED_ROWS[1], _SAMPLED // n)))
    Theta = W[np.linspace(0, m - 1, count).astype(np.intp)].astype(_SINGLE) @ H
    if np.count_nonzero(Theta > 0) / Theta.size > _MOST * positives / (m * n):
        return None
    place = max(0, Theta.size - 1 - int(_WANTED * positives / (m * n) * Theta.size))
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
            count = kernels.pick(T, _positives(x, tile), bound, picked)
            found.append(
                (picked.values[:count].copy(), picked.rows[:count].copy(), picked.columns[:count] + tile.columns.start)
            )
        values, of_rows, columns = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        order = np.argsort(of_rows, kind="stable")
        counts = np.bincount(of_rows, minlength=len(W))
        parts.append((x.rows.start + at.start, counts, columns[order], values[order]))
    return {"parts": parts}


def _positives(x: Block, tile: Tile) -> Nonzeros:
    """Return the positive entries of a tile, scaled."""
    size = tile.n_rows * tile.n_columns
    found = tile.nonzeros(size, 0.0)
    if found is None:
        A = x.strip_tile(0, tile.n_rows, tile.n_columns)
        kernels.raise_positive(*tile.scaled, A, 0.0)
        take = x.scratch.take
        found = Nonzeros(
            take("positives", (size + 8,), A.dtype),
            take("positive columns", (size + 8,), _INT32),
            take("positive starts", (tile.n_rows + 1,), np.dtype(np.int64)),
        )
        kernels.compress(A, A.view(_INT32 if A.itemsize == 4 else np.dtype(np.int64)), found)
    return found
