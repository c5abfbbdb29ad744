"""Working sets of very sparse X: the positive entries, and the zeros where Θ = WH is positive or nearly so.

All other zeros have Θ below a bound, contribute nothing to the error and have no gradient. A working set is found by
one pass over X, which forms WH in float32 and nothing else; steps on it cost r for each of its entries and not mn·r.
It is held by rows, for Θ and ∇_W, and by columns, for ∇_H: adding to ∇_H row by row took four times as long.
"""

import logging
from dataclasses import dataclass, replace

import numpy as np

from relunmd.engine import kernels
from relunmd.engine.executor import Executor, Rows, Sums, ThreadExecutor
from relunmd.engine.kernels import Nonzeros, Picked, SetColumns, SetRows, SupportSums
from relunmd.engine.matrix import Array, Block
from relunmd.engine.problem import Problem

log = logging.getLogger("relunmd")

MOST_DENSITY = 0.02
"""The share of positive entries up to which working sets are used."""
_LEAST_ENTRIES = 2**22
_WANTED, _MARGIN, _MOST = 4, 2, 16
"""Entries of a working set for each positive one of X, and at least so many for each of Θ; the most that Θ may have."""
_SAMPLED, _SAMPLED_ROWS = 2**21, (16, 256)
_PANEL = 256
"""Columns of H that are multiplied together when X is screened; divides the columns of a tile of very wide X."""
_PARTS = 16
"""Parts of the columns of a set, with about the same number of entries, that threads share."""
_SINGLE, _INT16, _INT32 = np.dtype(np.float32), np.dtype(np.int16), np.dtype(np.int32)


@dataclass(frozen=True, eq=False)
class WorkingSet:
    """Entries of X by rows, and by columns the derivatives that `gradient` writes."""

    rows: SetRows
    columns: SetColumns

    @classmethod
    def of(cls, executor: Executor, values: Array, columns: Array, counts: Array, n_columns: int) -> "WorkingSet":
        """Return the set with `counts` entries in each row, from left to right at least by panels."""
        rows = SetRows(values, columns, np.empty_like(columns), np.concatenate([[0], np.cumsum(counts)]))
        cuts = [*range(0, n_columns, -(-n_columns // (_PARTS * _PANEL)) * _PANEL), n_columns]
        each = np.zeros(n_columns, np.int64)
        executor.each(
            lambda part: kernels.count_columns(rows, cuts[part], each[cuts[part] : cuts[part + 1]]), len(cuts) - 1
        )
        starts = np.concatenate([[0], np.cumsum(each)])
        by_column, following = SetColumns(np.empty_like(values), np.empty_like(columns), starts), starts[:-1].copy()
        executor.each(
            lambda part: kernels.place_columns(
                rows, cuts[part], following[cuts[part] : cuts[part + 1]], by_column.rows
            ),
            len(cuts) - 1,
        )
        return cls(rows, by_column)

    def gradient(
        self,
        first: int,
        W: Array,
        Ht: Array,
        leak: float,
        squares: Array,
        by_W: Array,
        wanted: SupportSums,
    ) -> None:
        """Write ∇_W of the rows from `first`, and the derivatives that `columns_times` needs; see `gradient_strip`."""
        rows = self.rows._replace(starts=self.rows.starts[first : first + len(W) + 1])
        kernels.set_gradient(rows, W, Ht, leak, squares, self.columns.values, by_W, wanted)
        np.negative(by_W, out=by_W)

    def columns_times(self, executor: Executor, W: Array, parts: Array) -> Sums:
        """Return −∇_Hᵀ as "WR", after `gradient` for all rows, and as "by_column" sums of parts of the rows (m×k)."""
        starts = self.columns.starts
        found, by_column = (np.empty((len(starts) - 1, A.shape[1]), W.dtype) for A in (W, parts))
        ends = np.searchsorted(starts, np.linspace(0, starts[-1], _PARTS + 1)[1:-1])
        cuts = np.concatenate([[0], ends, [len(found)]])

        def part(index: int) -> None:
            start, stop = cuts[index], cuts[index + 1]
            columns = self.columns._replace(starts=starts[start : stop + 1])
            wanted = SupportSums(parts, by_column[start:stop])
            kernels.set_columns_times(columns, W, found[start:stop], wanted)

        executor.each(part, _PARTS)
        return {"WR": found, "by_column": by_column}


def has_working_sets(problem: Problem) -> bool:
    """Return whether X is so sparse and so large that working sets pay, and is on this machine."""
    (m, n), matrix = problem.shape, problem.matrix
    sparse_enough = m * n >= _LEAST_ENTRIES and n >= _PANEL and problem.facts.positives <= MOST_DENSITY * m * n
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
    bound = bound_of(problem, W, H)
    if bound is None:
        return None
    parts = problem.run(_screen_block, {"W": W}, panels=panels_of(H), bound=bound)[1]["parts"]
    parts.sort(key=lambda part: part[0])
    counts, columns, values = (np.concatenate(arrays) for arrays in list(zip(*parts, strict=True))[1:])
    if len(values) > np.iinfo(np.int32).max:
        return None
    log.debug("Working set of %d entries, %d of them positive", len(values), problem.facts.positives)
    return replace(problem, inner=WorkingSet.of(problem.executor, values, columns, counts, problem.shape[1]))


def bound_of(problem: Problem, W: Array, H: Array) -> float | None:
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
    return min(-0.0, float(np.partition(Theta.ravel(), place)[place]))  # No negative number exceeds 0.0 by its bits.


def panels_of(H: Array) -> Array:
    """Return H in panels of columns, in C order and with zeros at the end."""
    r, n = H.shape
    count = -(-n // _PANEL)
    padded = np.zeros((r, count * _PANEL), _SINGLE)
    padded[:, :n] = H
    return np.ascontiguousarray(padded.reshape(r, count, _PANEL).transpose(1, 0, 2))


def _screen_block(x: Block, rows: Rows, out: Rows, *, panels: Array, bound: float) -> Sums:
    parts = []
    for at in x.strips:
        found = picked(x, at, rows.W[at], panels, bound)
        parts.append((x.rows.start + at.start, np.diff(found.starts), found.columns, found.values))
    return {"parts": parts}


def picked(x: Block, at: slice, W: Array, panels: Array, bound: float) -> Nonzeros:
    """Return the positive entries of some rows of a block, and their zeros where WH exceeds a bound of at most 0."""
    found, least, W = [], int(np.array(bound, _SINGLE).view(_INT32)), W.astype(_SINGLE)
    T = x.scratch.take("screened", (len(W), _PANEL), _SINGLE)
    for tile in x.across(at):
        size, take = tile.n_rows * tile.n_columns, x.scratch.take
        room = take("picked", (size,), x.matrix.dtype), take("rows", (size,), _INT16), take("at", (size,), _INT32)
        first, stop = tile.columns.start // _PANEL, -(-tile.columns.stop // _PANEL)
        count = kernels.screen(W, panels[first:stop], tile.positives(), least, T, Picked(*room))
        values, of_rows, columns = (array[:count].copy() for array in room)
        found.append((values, of_rows, columns + np.int32(tile.columns.start)))
    values, of_rows, columns = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    order = np.argsort(of_rows, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(of_rows, minlength=len(W)))])
    return Nonzeros(values[order], columns[order], starts)
