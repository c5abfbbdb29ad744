"""W for a fixed H, row by row, for transform and partial_fit.

Each row is an independent problem in r unknowns, min ‖x − max(0, wH)‖², with local minima. It is solved by Newton's
method with a line search (`kernels/row_kernels.py`) from several initial values, and the best result is kept:

- zero, through the latent residual (a convex problem that finds an exact fit if there is one) and two smaller leaks,
- the least-squares fit of x by wH and half of it,
- the best multiple of a single component,
- of the known rows (usually W of the training rows) the one that fits x best.

If W of the fit itself is given, only it and the known rows are used: on tf-idf of classic that took a fifth of the
time, and the error was 0.3 % larger than from all of them, but still smaller than without W.

On sparse binary data the row problem has deep local minima: without known rows the result was up to 1.34 times the
error of the fit that H came from (`python -m benchmarks.estimator grid`). Two leaks between the latent residual and
the error lowered the worst case from 2e5 (an exact fit missed) to 1.2; eight random initial values instead of known
rows still left 1.07. Rows are scaled by powers of two, so that nothing depends on their magnitude.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums, Wanted
from relunmd.engine.linalg.gram import right_inverse
from relunmd.engine.matrix import Array, Block, power_of_two_scale
from relunmd.engine.matrix.source import read_only
from relunmd.engine.passes import ERROR, LATENT
from relunmd.engine.problem import Problem
from relunmd.engine.row_entries import RowEntries, exponent, row_entries

_LEAKS = (LATENT, 0.3, 0.09, ERROR)
_ROUGH, _FINE = 1e-4, 1e-5
"""Relative decrease of F² below which a row has converged: at leaks above 0, and at 0.

Newton's last steps fall by far more than what is left: with 1e-8 E is the same in five digits, 3 % more steps later.
"""
_KNOWN_ROWS, _KNOWN_ROWS_A_COMPONENT, _WIDE = 2048, 256, 8192
"""How many known rows there may be: at least, and for each component; see `spread`."""
_DAMPING = 1e-8
_FARTHEST = 1e4
"""Largest ‖wH‖/‖x‖. On very sparse data the error of a row can fall without end as w goes to infinity: W had entries of
1e9, for a gain of some percent of the error."""
_MOST_ENTRIES = 2**20
_LEVEL, _LEAST = 1e-9, 1e-12
_EXACT = 100.0
"""A row is exact if its relative error is below this number of machine epsilons."""


@dataclass(frozen=True)
class RowFit:
    """W (m×r) for a fixed H, ‖X − max(0, WH)‖², and how many rows the limit kept from converging.

    W is in the units of X, the squares are of the scaled X. `row_errors` (m×1) has ‖x − max(0, wH)‖/‖x‖ of each row,
    `shares` the share of positive entries of each column of WH.
    """

    W: Array
    squares: float
    row_errors: Array
    shares: Array
    limited: int


def fit_rows(
    problem: Problem,
    H: Array,
    penalty: float = 0.0,
    max_steps: int = 100,
    known: Array | None = None,
    W0: Array | None = None,
    center: Array | None = None,
) -> RowFit:
    """For every row of X the w with the least ‖x − max(0, wH)‖² + penalty·‖w‖² that is found; one pass.

    About ten Newton steps of 2nr + 2ar² flops for each row and initial value, a being the number of positive entries of
    wH, and 2nk flops for k known rows. Memory: W, and for each thread n×r numbers and four tiles of whole rows.

    Parameters
    ----------
    H : ndarray of shape (r, n)
    penalty : weight of ‖w‖² beside the squared error, w being scaled as X is
    max_steps : maximum number of Newton steps of a row from each initial value and for each leak
    known : what `known_rows` returns for this H
    W0 : array of m rows and r columns, an initial value for each row, in the units of X; few others are used then
    center : array of length r in the units of X; the penalty is then that of ‖w − center‖², and a row without a known
        entry gets the center
    """
    solver = replace(_Solver.of(problem, H, penalty), center=center)
    shared = {"solver": solver, "max_steps": max_steps, "initial": _InitialValues.of(solver, known)}
    wanted: dict[str, Wanted] = {"W": len(H), "row_errors": (1, np.dtype(np.float64))}
    out, sums = problem.run(_fit_block, None if W0 is None else {"W0": W0}, wanted, **shared)
    shares = sums["positive"] / np.maximum(sums["counted"], 1)
    return RowFit(out.W, sums["squares"], out.row_errors, shares, int(sums["limited"]))


def spread(count: int, rank: int, n_columns: int) -> Array:
    """Return the indices of the rows, of `count`, that serve as known rows: all of them, or some at equal distances.

    Their number is chosen so that the search takes about a third of the time of the Newton steps. For each tile of b
    rows max(0, wH) is recomputed, which takes r/b of the time of the search itself, much for very wide X.

    >>> spread(5, 2, 100), len(spread(10**6, 32, 784)), len(spread(10**6, 8, 100_000))
    (array([0, 1, 2, 3, 4]), 6874, 1137)
    """
    tile = min(max(64, 2**17 // n_columns), max(8, _MOST_ENTRIES // n_columns))
    least = _KNOWN_ROWS if n_columns <= _WIDE else _KNOWN_ROWS // 8
    most = max(least, _MOST_ENTRIES // n_columns, _KNOWN_ROWS_A_COMPONENT * rank * tile // (tile + rank))
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(np.int64)


def known_rows(W: Array, H: Array) -> Array:
    """Return rows of W for `fit_rows`, scaled so that ‖max(0, wH)‖ = 1 where max|H| is in [1, 2).

    It takes the memory and flops of WH. Each row is an initial value for the rows of X that a multiple of max(0, wH)
    fits best. Rows without a positive entry are left out.
    """
    unit = _unit(H, W.dtype)
    H = np.ascontiguousarray(H.astype(np.float64) * unit)
    largest = np.abs(W).max(axis=1, keepdims=True, initial=0).astype(np.float64)
    W = W.astype(np.float64) / np.where(largest > 0, largest, 1)
    height = max(1, _MOST_ENTRIES // H.shape[1])
    norms = np.zeros(len(W))
    for start in range(0, len(W), height):
        Theta = W[start : start + height] @ H
        norms[start : start + height] = np.linalg.norm(np.maximum(Theta, 0, out=Theta), axis=1)
    return np.asarray(W[norms > 0] / norms[norms > 0, None])


def improve_rows(problem: Problem, W: Array, H: Array, penalty: float, metric: Array, weights: Array) -> Array:
    """One Newton step on the error of each row from W, damped by weights[i]·metric (r×r); one pass.

    A row with max(0, wH) = 0 has no gradient; it takes a step on its latent residual instead. Returns the new W. The
    cost is that of one step of `fit_rows`.
    """
    solver = _Solver.of(problem, H, penalty, metric)
    unit = W.dtype.type(solver.unit)
    rows = {"W": W / unit, "weights": weights.reshape(-1, 1)}
    found: Array = problem.run(_improve_block, rows, {"W": W.shape[1]}, solver=solver)[0].W * unit
    return found


@dataclass(frozen=True)
class _Solver:
    """What all rows have in common, H being brought near 1 by a power of two so that nothing depends on its size."""

    unit: float
    H: Array
    Ht: Array
    gram: Array
    metric: Array
    damping: float
    penalty: float
    exact: float
    center: Array | None = None

    @classmethod
    def of(cls, problem: Problem, H: Array, penalty: float, metric: Array | None = None) -> "_Solver":
        rank, unit = len(H), _unit(H, problem.dtype)
        Ht = np.ascontiguousarray(H.T, dtype=np.float64) * unit
        metric = np.zeros((rank, rank)) if metric is None else metric * unit * unit
        damping = max(_DAMPING * float(np.sum(Ht * Ht)) / rank, float(np.finfo(np.float64).tiny))
        exact = float((_EXACT * np.finfo(problem.dtype).eps) ** 2)
        H = np.ascontiguousarray(Ht.T, dtype=problem.dtype)
        return cls(unit, H, Ht, Ht.T @ Ht, metric, damping, penalty * unit * unit, exact)


def _unit(H: Array, dtype: np.dtype[Any]) -> float:
    """The power of two that brings the largest entry of H into [1, 2)."""
    largest = float(np.abs(H).max())
    return power_of_two_scale(largest, dtype) if largest > 0 else 1.0


class _Rows:
    """Some rows of X, and the W that Newton's method has reached; minus the center if there is one."""

    def __init__(self, x: Block, entries: RowEntries, solver: _Solver, W: Array) -> None:
        self.W, self._entries, self._solver = W, entries, solver
        self._center = _center_of(entries, solver)
        X, scale = entries.X, entries.scale
        self.facts = np.zeros((len(X), kernels.N_FACTS))
        self._T, self._D = (x.scratch_tile(name, *X.shape) for name in ("rows_T", "rows_D"))
        active = x.scratch.take("rows_active", solver.Ht.shape, np.dtype(np.float64))
        gram = np.empty_like(solver.metric)
        self._rows = kernels.Rows(self._T, X, scale, W, self.facts, entries.known)
        self._newton = kernels.Newton(solver.Ht, solver.metric, solver.damping, solver.penalty, active, gram)

    def objective(self, leak: float) -> Array:
        """Evaluate all rows with this leak; returns their F² with the penalty."""
        W = self.W if self._center is None else self.W + self._center
        self._entries.product(W, self._solver.H, self._solver.Ht, self._T)
        kernels.begin_rows(self._rows, leak, self._solver.penalty)
        return self.facts[:, kernels.OBJECTIVE]

    def positive(self) -> tuple[Array, Array | int]:
        """Return the number of positive entries of each column of WH, and of how many; of those that are there."""
        columns, n = self._entries.known.columns, len(self._solver.Ht)
        if len(columns):
            seen = self._entries.known.weights > 0
            positive, counted = (np.bincount(columns[where], minlength=n) for where in (seen & (self._T > 0), seen))
            return positive, counted
        return np.asarray(np.count_nonzero(self._T > 0, axis=0)), len(self.W)

    def blind(self) -> Array:
        """Return which rows have no positive entry of WH."""
        return np.asarray(~np.any(self._T > 0, axis=1))

    def descend(
        self, leak: float, tol: float, max_steps: int, longest: float = np.inf, live: Array | None = None
    ) -> Array:
        """Newton steps after a call of `objective` with this leak; returns the rows that have not converged."""
        search = kernels.Search(leak, self._solver.penalty, longest, tol, self._solver.exact)
        live = np.arange(len(self.W)) if live is None else live
        for _ in range(max_steps):
            before = self.W[live]
            steps, going = np.empty((len(live), self.W.shape[1])), np.empty(len(live), np.int64)
            kernels.newton_directions(self._rows, live, leak, self._newton, steps)
            D = self._product_of(steps, live)
            kernels.search_rows(self._rows, live, steps, D, search, going)
            if longest == np.inf:  # A single step of limited length needs no bound.
                self._keep_near(live, before, going)
            live = live[going > 0]
            if len(live) == 0:
                break
        return live

    def _product_of(self, steps: Array, live: Array) -> Array:
        """Return steps·H for some rows."""
        entries, solver, D = self._entries, self._solver, self._D[: len(live)]
        if len(entries.known.columns):
            kernels.known_product(steps, solver.Ht, read_only(entries.known.columns[live]), D)
            return D
        return np.matmul(steps.astype(D.dtype), solver.H, out=D)

    def _keep_near(self, live: Array, before: Array, going: Array) -> None:
        """Undo the last step of rows that exceed `_FARTHEST`, and stop them."""
        if self._center is not None:
            return
        W = self.W[live]
        far = np.sum(W @ self._solver.gram * W, axis=1) > _FARTHEST**2 * self.facts[live, kernels.SQUARES]
        self.W[live[far]], going[far] = before[far], 0


_InitialValue = tuple[Array, tuple[float, ...]]
"""W of some rows, and the leaks for which Newton's method runs in turn."""


@dataclass(frozen=True)
class _InitialValues:
    """What initial values are computed from: the right inverse of H (n×r), and directions w with ‖max(0, wH)‖ = 1."""

    inverse: Array
    single: Array
    known: Array | None

    @classmethod
    def of(cls, solver: _Solver, known: Array | None) -> "_InitialValues":
        axes = np.eye(len(solver.H))
        single = known_rows(np.vstack([axes, -axes]).astype(solver.H.dtype), solver.H)
        return cls(right_inverse(solver.H, solver.penalty), single, known)

    def make(self, entries: RowEntries, solver: _Solver) -> Iterator[_InitialValue]:
        """Yield the initial values where no W0 is given."""
        yield np.zeros((len(entries), len(solver.H))), _LEAKS
        if entries.plain:
            least_squares = np.matmul(entries.X, self.inverse).astype(np.float64)
            for W in (least_squares / 2, least_squares):
                yield W, (ERROR,)
        yield from self.from_directions(entries, solver, (self.single, self.known))

    def from_directions(
        self, entries: RowEntries, solver: _Solver, several: tuple[Array | None, ...]
    ) -> Iterator[_InitialValue]:
        """Yield for each array of directions the best multiples of them."""
        for directions in several:
            if directions is not None and len(directions):
                best = _best_multiples if entries.plain else _known_multiples
                yield best(entries, directions, solver), (ERROR,)


def _known_multiples(entries: RowEntries, directions: Array, solver: _Solver) -> Array:
    """Do what `_best_multiples` does, over the entries that are known."""
    best, W = np.full(len(entries), -1.0), np.zeros((len(entries), len(solver.H)))
    height = max(16, _MOST_ENTRIES // solver.H.shape[1])
    for start in range(0, len(directions), height):
        some = directions[start : start + height]
        P = np.maximum(some.astype(solver.H.dtype) @ solver.H, 0)
        products, squares = entries.scores(P)
        squares += solver.penalty * np.sum(some * some, axis=1)
        factors = np.divide(products, squares, out=np.zeros_like(products), where=squares > _LEAST * products)
        found = np.argmax(products * factors, axis=1)
        rows = np.arange(len(entries))
        gain = (products * factors)[rows, found]
        better = gain > best
        best[better], W[better] = gain[better], (some[found] * factors[rows, found][:, None])[better]
    return W


def _best_multiples(entries: RowEntries, directions: Array, solver: _Solver) -> Array:
    """For each row of X the multiple of a direction that has the least objective: a search by matrix products."""
    X, H = entries.X, solver.H
    columns = np.flatnonzero(X.any(axis=0))
    if 2 * len(columns) < H.shape[1]:  # Where X is zero nothing is added to x·max(0, wH).
        X, H = np.ascontiguousarray(X[:, columns]), np.ascontiguousarray(H[:, columns])
    weights = 1 + solver.penalty * np.sum(directions * directions, axis=1)
    best, at, onto = np.full(len(X), -1.0), np.zeros(len(X), np.int64), np.zeros(len(X))
    height, rows = max(16, _MOST_ENTRIES // max(1, H.shape[1])), np.arange(len(X))
    for start in range(0, len(directions), height):
        Theta = directions[start : start + height].astype(H.dtype) @ H
        products = (X @ np.maximum(Theta, 0, out=Theta).T).astype(np.float64)
        scores = products * products / weights[start : start + height]
        found = np.argmax(scores, axis=1)
        better = scores[rows, found] > best
        best[better], at[better] = scores[rows, found][better], start + found[better]
        onto[better] = products[rows, found][better]
    return np.asarray(directions[at] * (onto / weights[at])[:, None])


@np.errstate(over="ignore", under="ignore", invalid="ignore")  # Also in the threads of the workers.
def _fit_block(x: Block, rows: Rows, out: Rows, *, solver: _Solver, initial: _InitialValues, max_steps: int) -> Sums:
    limited, positive, counted, total = 0, x.sums((x.n_columns,)), x.sums((x.n_columns,)), 0.0
    has_W0 = hasattr(rows, "W0")
    for entries in row_entries(x):
        at, of_x = entries.place, entries.of_x
        W = np.zeros((len(entries), len(solver.H)))
        best = _Rows(x, entries, solver, W).objective(ERROR)
        # Where fewer entries than components are known, many W fit them: keep the first, from the initial value 0.
        level = 0.0 if entries.plain else _LEVEL * np.maximum(best, 0)
        unfinished = np.zeros(len(entries), bool)
        values: list[_InitialValue]
        if has_W0:
            given = rows.W0[at].astype(np.float64)
            values = [(np.ldexp(given, (of_x - exponent(solver.unit))[:, None]), (ERROR,))]
            values += [*initial.from_directions(entries, solver, (initial.known,))]
        else:
            values = [*initial.make(entries, solver)]
        center = _center_of(entries, solver)
        for index, (W0, leaks) in enumerate(values):
            if center is not None and (index > 0 or has_W0):  # 0 is the center itself.
                W0 -= center
            objective, left = _descended(_Rows(x, entries, solver, W0), leaks, max_steps)
            better = objective < best - level
            best[better], W[better], unfinished[better] = objective[better], W0[better], left[better]
        result = _Rows(x, entries, solver, W)
        result.objective(ERROR)
        squares = np.maximum(result.facts[:, kernels.OBJECTIVE] - solver.penalty * np.sum(W * W, axis=1), 0)
        norms = result.facts[:, kernels.SQUARES]
        W = W if center is None else W + center
        out.W[at] = np.ldexp(W, (exponent(solver.unit) - of_x)[:, None])
        out.row_errors[at, 0] = np.sqrt(squares / np.where(norms > 0, norms, 1.0))
        total += float(np.ldexp(squares, -2 * entries.of_scaled).sum())
        found = result.positive()
        positive, counted = positive + found[0], counted + found[1]
        limited += int(unfinished.sum())
    return {"limited": limited, "positive": positive, "counted": counted, "squares": total}


def _center_of(entries: RowEntries, solver: _Solver) -> Array | None:
    """The center of the rows, scaled as these are."""
    if solver.center is None:
        return None
    return np.ldexp(solver.center[None], (entries.of_x - exponent(solver.unit))[:, None])


def _descended(rows: _Rows, leaks: tuple[float, ...], max_steps: int) -> tuple[Array, Array]:
    """The objective of each row after Newton's method for each leak in turn, and which rows have not converged."""
    for leak in leaks:
        rows.objective(leak)
        left = rows.descend(leak, _FINE if leak == ERROR else _ROUGH, max_steps)
    return rows.objective(ERROR).copy(), np.isin(np.arange(len(rows.W)), left)


@np.errstate(over="ignore", invalid="ignore")
def _improve_block(x: Block, rows: Rows, out: Rows, *, solver: _Solver) -> Sums:
    for entries in row_entries(x, normalized=False):
        at = entries.place
        moving = _Rows(x, entries, solver, rows.W[at].astype(np.float64))
        moving.facts[:, kernels.WEIGHT] = rows.weights[at, 0]
        moving.objective(ERROR)
        blind = moving.blind()
        moving.descend(ERROR, tol=1.0, max_steps=1, longest=1.0, live=np.flatnonzero(~blind))
        if blind.any():
            moving.objective(LATENT)
            moving.descend(LATENT, tol=1.0, max_steps=1, longest=1.0, live=np.flatnonzero(blind))
        out.W[at] = moving.W
    return {}
