"""W for a fixed H: the block engine's row-wise operation, on which transform and partial_fit rest.

Each row is a problem of r unknowns of its own, min ‖x − max(0, wH)‖², with local minima. It is solved by Newton's
method with a line search (`kernels/rows.py`) from four starts, and the best end is taken:

- from 0 through the least latent residual, a convex problem, which finds an exact fit where there is one,
- from the least squares fit of x by wH, which is positive where x is, and from half of it: straight to the error,
- from the best multiple of a single component: at small ranks and on binary data the others end up to 20 % higher.

The rows of a tile go together, and each leaves when it has converged. Measured on rows of digits, MNIST and kos with
the H of a fit, the first alone ends 0.7, 0.3 and 0.7 % above the best of the first three, the second 0.3, 0.1 and
0.7 %; on sparse rows that have an exact fit the first finds it and the second ends at an error of .005. Intermediate
leaks, as "qn" has them, new rounds from the best point and more cautious steps gained nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd import kernels
from relunmd.executor import Rows, Sums
from relunmd.linalg import right_inverse
from relunmd.matrix import Block, Tile, power_of_two_scale
from relunmd.passes import ERROR, LATENT
from relunmd.problem import Problem

__all__ = ["RowFit", "fit_rows", "improve_rows"]

Array = NDArray[Any]

_ROUGH, _FINE = 1e-3, 1e-5
"""By how much of itself F² must fall in a step for the row to go on: on the way, and at the end.

Newton's last steps fall by far more than what is left: with 1e-8 E is the same in five digits, 3 % more steps later.
"""
_DAMPING = 1e-8
_MOST_ENTRIES = 2**20
_EXACT = 100.0
"""A row whose error is below so many machine epsilons is exact."""


@dataclass(frozen=True)
class RowFit:
    """W (m×r) for a fixed H, ‖X − max(0, WH)‖², and how many rows the limit kept from converging.

    W and the squares are of the scaled X. `row_errors` (m×1) has ‖x − max(0, wH)‖/‖x‖ of each row, `shares` the share
    of positive entries of each column of WH.
    """

    W: Array
    squares: float
    row_errors: Array
    shares: Array
    limited: int


def fit_rows(problem: Problem, H: Array, penalty: float = 0.0, max_steps: int = 100) -> RowFit:
    """For every row of X the w with the least ‖x − max(0, wH)‖² + penalty·‖w‖², as far as it can be found; one pass.

    About ten Newton steps of 2nr + 2ar² flops for each row and start, a being the number of positive entries of wH.
    Memory: W, and for each thread n×r numbers and three tiles of whole rows.

    Parameters
    ----------
    H : r×n
    penalty : how much ‖w‖² counts beside the squared error, w being scaled as X is
    max_steps : most Newton steps of a row from each start for each of the two objectives
    """
    solver = _Solver.of(problem, H, penalty)
    out, sums = problem.run(
        _fit_block,
        out={"W": len(H), "row_errors": (1, np.dtype(np.float64))},
        solver=solver,
        max_steps=max_steps,
        starts=_Starts.of(solver),
    )
    shares = sums["positive"] / problem.shape[0]
    return RowFit(solver.in_units(out["W"]), sums["squares"], out["row_errors"], shares, int(sums["limited"]))


def improve_rows(problem: Problem, W: Array, H: Array, penalty: float, metric: Array, weights: Array) -> Array:
    """One Newton step on the error of each row from W, damped by weights[i]·metric (r×r); one pass.

    A row of which nothing is represented, max(0, wH) being zero, has no slope to follow; it takes a step on its latent
    residual instead.

    Returns the new W. It takes what `fit_rows` takes for one step.
    """
    solver = _Solver.of(problem, H, penalty, metric)
    out, _ = problem.run(
        _improve_block,
        {"W": W / W.dtype.type(solver.unit), "weights": weights.reshape(-1, 1)},
        {"W": W.shape[1]},
        solver=solver,
    )
    return solver.in_units(out["W"])


@dataclass(frozen=True)
class _Solver:
    """What all rows have in common, H being brought near 1 by a power of two so that nothing depends on its size."""

    unit: float
    H: Array
    Ht: Array
    metric: Array
    damping: float
    penalty: float
    exact: float

    @classmethod
    def of(cls, problem: Problem, H: Array, penalty: float, metric: Array | None = None) -> "_Solver":
        rank, largest = len(H), float(np.abs(H).max())
        unit = power_of_two_scale(largest, problem.dtype) if largest > 0 else 1.0
        Ht = np.ascontiguousarray(H.T, dtype=np.float64) * unit
        return cls(
            unit=unit,
            H=np.ascontiguousarray(Ht.T, dtype=problem.dtype),
            Ht=Ht,
            metric=np.zeros((rank, rank)) if metric is None else metric * unit * unit,
            damping=max(_DAMPING * float(np.sum(Ht * Ht)) / rank, float(np.finfo(np.float64).tiny)),
            penalty=penalty * unit * unit,
            exact=float((_EXACT * np.finfo(problem.dtype).eps) ** 2),
        )

    def in_units(self, W: Array) -> Array:
        """W for the H that was given."""
        found: Array = W * W.dtype.type(self.unit)
        return found


def _tiles(x: Block) -> Iterator[Tile]:
    """The block's tiles of whole rows, cut further where X is so wide that three of them would take much memory."""
    for rows in x.tile_rows:
        height = max(8, _MOST_ENTRIES // x.n_columns)
        for start in range(rows.start, rows.stop, height):
            yield x.whole(slice(start, min(start + height, rows.stop)))


class _Rows:
    """The rows of one tile on their way."""

    def __init__(self, x: Block, tile: Tile, solver: _Solver, W: Array) -> None:
        self.W = W
        self.facts = np.zeros((tile.n_rows, kernels.N_FACTS))
        self._tile = tile
        self._solver = solver
        self._T = x.scratch_tile("rows_T", tile.n_rows)
        self._D = x.scratch_tile("rows_D", tile.n_rows)
        rank = len(solver.H)
        self._active = x.scratch.take("rows_active", (x.n_columns, rank), np.dtype(np.float64))
        self._gram = np.empty((rank, rank))

    def objective(self, leak: float) -> Array:
        """Look at all rows with this leak; returns their F² with the penalty."""
        tile, solver = self._tile, self._solver
        np.matmul(self.W.astype(self._T.dtype), solver.H, out=self._T)
        kernels.begin_rows(self._T, tile.X, tile.scale, leak, solver.penalty, self.W, self.facts)
        return self.facts[:, kernels.OBJECTIVE]

    def positive(self) -> Array:
        """How many rows are positive in each column."""
        return np.asarray(np.count_nonzero(self._T > 0, axis=0))

    def blind(self) -> Array:
        """Which rows are positive nowhere."""
        return np.asarray(~np.any(self._T > 0, axis=1))

    def descend(
        self, leak: float, tol: float, max_steps: int, longest: float = np.inf, live: Array | None = None
    ) -> Array:
        """Newton steps from where `objective` was asked with this leak; returns the rows that would go on."""
        tile, solver, facts = self._tile, self._solver, self.facts
        live = np.arange(tile.n_rows) if live is None else live
        for _ in range(max_steps):
            steps, going = np.empty((len(live), self.W.shape[1])), np.empty(len(live), np.int64)
            kernels.newton_directions(
                self._T,
                tile.X,
                tile.scale,
                live,
                leak,
                solver.Ht,
                solver.metric,
                solver.damping,
                solver.penalty,
                self.W,
                facts,
                self._active,
                self._gram,
                steps,
            )
            D = np.matmul(steps.astype(self._D.dtype), solver.H, out=self._D[: len(live)])
            kernels.search_rows(
                self._T,
                D,
                tile.X,
                tile.scale,
                live,
                leak,
                solver.penalty,
                longest,
                tol,
                solver.exact,
                self.W,
                steps,
                facts,
                going,
            )
            live = live[going > 0]
            if len(live) == 0:
                break
        return live


@dataclass(frozen=True)
class _Starts:
    """What starts are made with: the right inverse of H (n×r), and max(0, ±H)ᵀ (n×2r) with its squared norms."""

    inverse: Array
    rays: Array
    squares: Array

    @classmethod
    def of(cls, solver: _Solver) -> "_Starts":
        rays = np.maximum(np.hstack([solver.Ht, -solver.Ht]), 0)
        squares = np.maximum(np.sum(rays * rays, axis=0), np.finfo(np.float64).tiny)
        return cls(right_inverse(solver.H, solver.penalty), rays.astype(solver.H.dtype), squares)

    def least_squares(self, tile: Tile) -> Array:
        """The w with the least ‖x − wH‖."""
        return np.asarray(np.matmul(tile.X, self.inverse).astype(np.float64) * tile.scale)

    def single(self, tile: Tile) -> Array:
        """The w with one entry that has the least ‖x − max(0, wH)‖."""
        onto = np.matmul(tile.X, self.rays).astype(np.float64) * tile.scale
        best = np.argmax(onto * onto / self.squares, axis=1)
        rank, rows = len(self.squares) // 2, np.arange(tile.n_rows)
        W = np.zeros((tile.n_rows, rank))
        W[rows, best % rank] = onto[rows, best] / self.squares[best] * np.where(best < rank, 1.0, -1.0)
        return W


def _ends(
    x: Block, tile: Tile, solver: _Solver, starts: _Starts, max_steps: int
) -> Iterator[tuple[Array, Array, Array]]:
    """Zero, and where each start leads: W, the objective, and the rows that have not converged."""
    from_zero = np.zeros((tile.n_rows, len(solver.H)))
    yield from_zero, _Rows(x, tile, solver, from_zero).objective(ERROR).copy(), np.arange(0)
    least_squares = starts.least_squares(tile)
    straight = (ERROR,)
    for W, leaks in (
        (from_zero, (LATENT, ERROR)),
        (least_squares / 2, straight),
        (least_squares, straight),
        (starts.single(tile), straight),
    ):
        rows = _Rows(x, tile, solver, W)
        for leak in leaks:
            rows.objective(leak)
            left = rows.descend(leak, _FINE if leak == ERROR else _ROUGH, max_steps)
        yield W, rows.objective(ERROR).copy(), left


@np.errstate(over="ignore", invalid="ignore")  # Also in the threads of the workers.
def _fit_block(x: Block, rows: Rows, out: Rows, *, solver: _Solver, starts: _Starts, max_steps: int) -> Sums:
    limited, positive, total = 0, x.sums((x.n_columns,)), 0.0
    for tile in _tiles(x):
        best = np.full(tile.n_rows, np.inf)
        W, open_rows = np.zeros((tile.n_rows, len(solver.H))), np.zeros(tile.n_rows, bool)
        for found, objective, left in _ends(x, tile, solver, starts, max_steps):
            better = objective < best
            best[better], W[better] = objective[better], found[better]
            converged = np.ones(tile.n_rows, bool)
            converged[left] = False
            open_rows[better] = ~converged[better]
        out["W"][tile.rows] = W
        result = _Rows(x, tile, solver, W)
        result.objective(ERROR)
        squares = np.maximum(result.facts[:, kernels.OBJECTIVE] - solver.penalty * np.sum(W * W, axis=1), 0)
        norms = result.facts[:, kernels.SQUARES]
        out["row_errors"][tile.rows, 0] = np.sqrt(squares / np.where(norms > 0, norms, 1.0))
        total += float(squares.sum())
        positive += result.positive()
        limited += int(open_rows.sum())
    return {"limited": limited, "positive": positive, "squares": total}


@np.errstate(over="ignore", invalid="ignore")
def _improve_block(x: Block, rows: Rows, out: Rows, *, solver: _Solver) -> Sums:
    for tile in _tiles(x):
        moving = _Rows(x, tile, solver, rows["W"][tile.rows].astype(np.float64))
        moving.facts[:, kernels.WEIGHT] = rows["weights"][tile.rows, 0]
        moving.objective(ERROR)
        blind = moving.blind()
        moving.descend(ERROR, tol=1.0, max_steps=1, longest=1.0, live=np.flatnonzero(~blind))
        if blind.any():
            moving.objective(LATENT)
            moving.descend(LATENT, tol=1.0, max_steps=1, longest=1.0, live=np.flatnonzero(blind))
        out["W"][tile.rows] = moving.W
    return {}
