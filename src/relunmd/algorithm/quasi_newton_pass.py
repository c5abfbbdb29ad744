"""The pass of "qn": the point a step away, its gradient, and all inner products that the next step is made from.

Blocks form their own rows of the step, so no array of m rows is needed in one place. Arrays on the side of H are n×r
here, so that they are treated like those of W.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from relunmd.algorithm.row_metric import OWN, Metric, own_metrics, own_numbers, parts
from relunmd.algorithm.state import Array, State
from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg.gram import gram_solve
from relunmd.engine.linalg.two_loop import Direction, Products
from relunmd.engine.matrix import Block
from relunmd.engine.passes import Support, gradient_strip
from relunmd.engine.problem import Problem
from relunmd.engine.working_set import WorkingSet

PAIRS = np.dtype(np.float32)
"""Curvature need not be exact: with pairs in float32 a run in float64 takes the same path, and they take half the
memory and half the time to read."""
_EPSILON = 1e-6
_RENEWED = 2
"""Steps after which the metric is recomputed, for each pair."""
_FEWEST, _TOGETHER = 512, 4096
"""Columns of H that are treated together: enough to be worth a call, few enough for the cache."""


@dataclass(frozen=True)
class Trial:
    """What a pass found at the point it evaluated; `s`, `y` and `metric` are pairs for W and for H."""

    W: Array
    H: Array
    by_W: Array
    by_H: Array
    s: tuple[Array, Array]
    y: tuple[Array, Array]
    error: float
    penalized: float
    objective: float
    metric: tuple[Array, Array]
    own: tuple[tuple[Array, ...], tuple[Array, ...]]
    """What rows of W and columns of H have of their own, see `row_metric.py`."""
    age: int
    products: Products
    """With the trial's own pair as the newest."""


class Pairs(NamedTuple):
    """Steps and changes of the gradient, oldest first, in some rows."""

    s: Sequence[Array]
    y: Sequence[Array]


@dataclass(frozen=True)
class _Pull:
    """What blocks need of an anchor, for the H of a trial: HHᵀ and (H − H₀)Hᵀ."""

    weight: float
    HH: Array
    moved: Array


@dataclass(frozen=True)
class _Plan:
    """How to move and what to evaluate there; without a direction the point itself is evaluated."""

    direction: Direction | None
    step: float
    leak: float
    penalty: float
    renew: bool
    """Whether the metric is recomputed."""
    metric: Any = None
    next_metric: Any = None
    """For all rows of W: the metric of the step, and that of the point it leads to."""
    own: Any = None
    """How rows get new metrics of their own, an `_Own`."""
    pull: _Pull | None = None
    inner: WorkingSet | None = None


@dataclass(frozen=True)
class _Own:
    """How many numbers rows and columns newly get, if any, HHᵀ, and (WᵀW)⁻¹ for the `parts` of rows."""

    count: int
    HH: Array
    metric_H: Array
    numbers: Array | None
    """`parts` of the columns if that is a number each; blocks form matrices themselves, which take much memory."""

    def parts_of_columns(self, Ht: Array) -> Array:
        """Return the `parts` of the columns."""
        return parts(Ht, self.HH, self.count) if self.numbers is None else self.numbers


def products_of(state: State) -> Products:
    """The inner products in a state."""
    return Products(state.s_g, state.s_y, state.y_My, state.y_Mg, state.g_Mg)


def without_pairs(state: State) -> State:
    """The state without pairs, and a step size of 1."""
    none = products_of(state).part(slice(0, 0))
    return state.replace(**vars(none), **dict.fromkeys(("s_W", "y_W", "s_H", "y_H"), ()), step=1.0, trials=0)


def evaluate(problem: Problem, state: State, direction: Direction | None, penalty: float) -> Trial:
    """Evaluate the point a step away from that of `state`; one pass."""
    dtype, anchor = problem.dtype, problem.anchor
    renew = direction is None or state.age + 1 >= _RENEWED * len(state.s_W)
    plan = _Plan(direction, state.step, state.leak, penalty, renew, state.metric_W.astype(dtype), inner=problem.inner)
    s_H, Ht, grams = _moved_columns(problem, state, plan)
    takes_Ht = problem.matrix.stored_only or problem.inner is not None
    H = Ht.T if takes_Ht else np.ascontiguousarray(Ht.T)
    metric_W = inverse_gram(grams.HH, penalty) if renew else state.metric_W
    count = own_numbers(problem) if renew else 0
    numbers = parts(Ht, metric_W, count) if count == 1 else None
    own = _Own(count, grams.HH, state.metric_H, numbers)
    plan = replace(plan, next_metric=metric_W.astype(dtype), own=own)
    rows = {"W": state.W, "by_W": state.by_W, "s": state.s_W, "y": state.y_W, "own": state.own_W}
    wanted: dict[str, Any] = {"s": (problem.rank, PAIRS), "y": (problem.rank, PAIRS), "by_W": problem.rank}
    wanted |= {"W": problem.rank} | ({"own": (count, OWN)} if count else {})
    if anchor is not None:
        rows["anchor"] = anchor.W
        plan = replace(plan, pull=_Pull(anchor.weight, grams.HH.astype(dtype), grams.moved_H.astype(dtype)))
    run = problem.run if problem.inner is None else problem.over_rows
    out, sums = run(_block, rows, wanted, H=H, Ht=Ht, plan=plan)
    if problem.inner is not None:
        of_rows = parts(out.W, state.metric_H, count)
        sums |= problem.inner.columns_times(problem.executor, out.W, of_rows)
    error_squares, objective_squares = sums["squares"].tolist()
    if anchor is not None:
        objective_squares += _distance(anchor.weight, grams, sums["near"])
    metric_H = inverse_gram(sums["WW"], penalty) if renew else state.metric_H
    own_W, own_H = state.own_W, state.own_H
    if count:
        own_W, own_H = (out.own,), (np.empty((len(Ht), count), OWN),)
    plan = replace(plan, metric=metric_H)
    y_H, by_H, products = _columns_evaluated(problem, state, (s_H, Ht), sums, own_H, plan)
    norms = float(sums["norm"]) + float(np.trace(grams.HH))
    return Trial(
        W=out.W,
        H=H,
        by_W=out.by_W,
        by_H=by_H,
        s=(out.s, s_H),
        y=(out.y, y_H),
        error=problem.relative(error_squares),
        penalized=problem.relative(error_squares + penalty * norms),
        objective=(objective_squares + penalty * norms) / 2,
        metric=(metric_W, metric_H),
        own=(own_W, own_H),
        age=0 if renew else state.age + 1,
        products=_joined(products_of(state), sums["products"] + products, renew),
    )


class _Grams(NamedTuple):
    """HHᵀ for the H of a trial; with an anchor (H − H₀)Hᵀ and (H − H₀)(H − H₀)ᵀ, else zeros."""

    HH: Array
    moved_H: Array
    moved_moved: Array


def _moved_columns(problem: Problem, state: State, plan: _Plan) -> tuple[Array, Array, _Grams]:
    """How far Hᵀ moves, as one half of a pair, where to, and products of the result."""
    s_H, Ht, metric = np.empty_like(state.by_H, PAIRS), np.empty_like(state.by_H), state.metric_H.astype(problem.dtype)
    anchor, r = problem.anchor, problem.rank

    def move(at: slice) -> Array:
        step = np.empty_like(Ht[at])
        own = Metric(metric, _own(state.own_H, at))
        _move(step, _some(state.s_H, state.y_H, at), state.by_H[at], plan, own, partial(_new, step))
        np.copyto(s_H[at], step, casting="same_kind")
        new = np.add(state.H.T[at], step, out=Ht[at])
        grams = np.zeros((3, r, r))
        grams[0] = new.T @ new
        if anchor is not None:
            moved = new - anchor.Ht[at]
            grams[1:] = moved.T @ new, moved.T @ moved
        return grams

    return s_H, Ht, _Grams(*np.sum(_over_columns(problem, move), axis=0))


def _columns_evaluated(
    problem: Problem,
    state: State,
    moved: tuple[Array, Array],
    sums: Sums,
    own: tuple[Array, ...],
    plan: _Plan,
) -> tuple[Array, Array, Array]:
    """The change of the gradient by Hᵀ, the gradient, and the share of H in the inner products.

    `sums` are those of the pass: −∇_Hᵀ without penalty and anchor, and the products of W₀ and D = W − W₀. `plan` has
    the metric of H. What columns newly have of their own is written to `own`.
    """
    (s_H, Ht), WR, near = moved, sums["WR"], sums["near"]
    by_H, y_H, count = np.empty_like(Ht), np.empty_like(s_H), len(state.s_H)
    metric, anchor, r = plan.metric.astype(Ht.dtype), problem.anchor, problem.rank
    if anchor is not None:
        zz, zd, dd = near[:r, :r], near[:r, r:], near[r:, r:]
        to_H, to_moved = (anchor.weight * A for A in (zd.T + dd, zz + zd))

    def products(at: slice) -> Array:
        found = plan.penalty * Ht[at] - WR[at]
        if anchor is not None:
            found += Ht[at] @ to_H.astype(Ht.dtype) + (Ht[at] - anchor.Ht[at]) @ to_moved.astype(Ht.dtype)
        by_H[at] = found
        np.subtract(by_H[at], state.by_H[at], out=y_H[at], casting="same_kind")
        pairs, shares = _some((*state.s_H, s_H), (*state.y_H, y_H), at), np.zeros((count + 1, count + 5))
        if plan.own.count:
            own[0][at] = own_metrics(sums["by_column"][at], sums["WW"], plan.penalty)
        _add_products(shares, pairs, by_H[at], Metric(metric, _own(own, at)), plan.renew, partial(_new, by_H[at]))
        return shares

    return y_H, by_H, np.sum(_over_columns(problem, products), axis=0)


@np.errstate(over="ignore", invalid="ignore")  # Also in the threads of the workers.
def _block(x: Block, rows: Rows, out: Rows, *, H: Array, Ht: Array, plan: _Plan) -> Sums:
    old = getattr(rows, "s", ()), getattr(rows, "y", ())
    r, count, old_own = len(H), plan.own.count, getattr(rows, "own", ())
    of_columns = plan.own.parts_of_columns(Ht)
    by_columns = {} if plan.inner else {"WR": x.sums(Ht.shape), "by_column": x.sums(of_columns.shape)}
    WW = x.sums((r, r))
    squares, norm = np.zeros((len(rows.W), 2)), 0.0
    near = x.sums((2 * r, 2 * r))
    products = np.zeros((len(old[0]) + 1, len(old[0]) + 5))
    for at in x.strips:
        pairs = _some(*old, at)
        by_W, s_new, y_new = out.by_W[at], out.s[at], out.y[at]
        scratch = partial(x.scratch_tile, n_rows=len(by_W), n_columns=by_W.shape[1])
        moved = scratch("moved")
        _move(moved, pairs, rows.by_W[at], plan, Metric(plan.metric, _own(old_own, at)), scratch)
        np.copyto(s_new, moved, casting="same_kind")
        W = np.add(rows.W[at], moved, out=out.W[at])
        by_row = np.zeros((len(W), count), W.dtype)
        if plan.inner:
            wanted = kernels.SupportSums(of_columns, by_row)
            plan.inner.gradient(x.rows.start + at.start, W, Ht, plan.leak, squares[at], by_W, wanted)
        else:
            support = Support(of_columns, parts(W, plan.own.metric_H, count), by_row, by_columns["by_column"])
            gradient_strip(x, at, W, (H, Ht), plan.leak, squares[at], (by_W, by_columns["WR"]), support)
        if count:
            out.own[at] = own_metrics(by_row, plan.own.HH, plan.penalty)
        if plan.penalty:
            by_W += W.dtype.type(plan.penalty) * W
            norm += kernels.dot(W, W)
        pull = plan.pull
        if pull is not None:
            both = np.concatenate([rows.anchor[at], W - rows.anchor[at]], axis=1)
            near += both.T @ both
            by_W += both @ (W.dtype.type(pull.weight) * np.concatenate([pull.moved, pull.HH]))
        np.subtract(by_W, rows.by_W[at], out=y_new, casting="same_kind")
        WW += W.T @ W
        new = Pairs([*pairs.s, s_new], [*pairs.y, y_new])
        own = _own((out.own,) if count else old_own, at)
        _add_products(products, new, by_W, Metric(plan.next_metric, own), plan.renew, scratch)
    return by_columns | {"WW": WW, "squares": squares.sum(axis=0), "products": products, "norm": norm, "near": near}


def _over_columns(problem: Problem, function: Callable[[slice], Any]) -> list[Any]:
    """Call a function for rows of arrays like Hᵀ, some at a time, in threads; return what it returned, in order."""
    n = problem.shape[1]
    size = min(max(_FEWEST, n // 8), _TOGETHER)
    parts = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    found: list[Any] = [None] * len(parts)

    def one(index: int) -> None:
        found[index] = function(parts[index])

    problem.executor.each(one, len(parts))
    return found


def _some(s: Sequence[Array], y: Sequence[Array], at: slice) -> Pairs:
    """Pairs in some rows."""
    return Pairs([array[at] for array in s], [array[at] for array in y])


def _own(arrays: Sequence[Array], at: slice) -> Array | None:
    """What some rows have of their own, if anything."""
    return arrays[0][at] if arrays else None


def _distance(weight: float, grams: _Grams, near: Array) -> float:
    """Return weight·‖WH − W₀H₀‖².

    With the differences D = W − W₀ and G = H − H₀ the matrix is DH + W₀G, so that nothing cancels. `near` has the
    products of W₀ and D.
    """
    r = len(grams.HH)
    zz, zd, dd = near[:r, :r], near[:r, r:], near[r:, r:]
    squares = (dd * grams.HH).sum() + 2 * (zd * grams.moved_H).sum() + (zz * grams.moved_moved).sum()
    return weight * max(0.0, float(squares))


def _move(
    out: Array, pairs: Pairs, gradient: Array, plan: _Plan, metric: Metric, scratch: Callable[[str], Array]
) -> None:
    """Write how far some rows of W, or of Hᵀ, move: their part of step·d."""
    if plan.direction is None:
        out[:] = 0
        return
    factor = gradient.dtype.type(plan.step * plan.direction.gradient)
    inner = np.multiply(gradient, factor, out=scratch("inner"))
    _add_combination(inner, pairs.y, plan.step * plan.direction.changes)
    metric.times(inner, out)
    _add_combination(out, pairs.s, plan.step * plan.direction.steps)


def _add_combination(out: Array, arrays: Sequence[Array], factors: Array) -> None:
    for first, four in _fours(arrays):
        a, b, c, d = (*factors[first : first + 4].tolist(), 0.0, 0.0, 0.0)[:4]
        kernels.add_four(out, four, (a, b, c, d))


def _dots(arrays: Sequence[Array], left: Array, right: Array) -> Array:
    """The inner products of each with both, a row for each."""
    found = np.zeros((len(arrays) + 3, 2))
    for first, four in _fours(arrays):
        kernels.four_dots(four, left, right, found[first : first + 4])
    return found[: len(arrays)]


def _fours(arrays: Sequence[Array]) -> Iterator[tuple[int, tuple[Array, Array, Array, Array]]]:
    """Four at a time, the last one repeated if there are fewer."""
    for first in range(0, len(arrays), 4):
        a, b, c, d = [*arrays[first : first + 4], *[arrays[-1]] * 3][:4]
        yield first, (a, b, c, d)


def _add_products(
    products: Array, pairs: Pairs, g: Array, metric: Metric, renew: bool, scratch: Callable[[str], Array]
) -> None:
    """Add the share of some rows to the inner products: row i for pair i, the last one for the new pair.

    Columns: s·g, s·y_new, y·Mg, g·Mg (in the last row), then y·My with every pair: for all rows if `renew`, else for
    the last one, since the others are known.
    """
    exact, My, Mg = scratch("exact"), scratch("My"), scratch("Mg")
    metric.times(g, Mg)
    np.copyto(exact, pairs.y[-1])
    metric.times(exact, My)
    products[:, :2] += _dots(pairs.s, g, exact)
    by_pair = _dots(pairs.y, Mg, My)
    products[:, 2] += by_pair[:, 0]
    products[-1, 4:] += by_pair[:, 1]
    products[-1, 3] += kernels.dot(g, Mg)
    for i in range(len(pairs.s) - 1 if renew else 0):
        np.copyto(exact, pairs.y[i])
        metric.times(exact, My)
        products[i, 4 : 4 + i + 1] += _dots(pairs.y[: i + 1], My, My)[:, 0]


def _joined(old: Products, sums: Array, renew: bool) -> Products:
    """The inner products of the old pairs and the new one."""
    k = len(old.s_g)
    s_y, y_My = np.zeros((k + 1, k + 1)), sums[:, 4:].copy()
    s_y[:k, :k] = old.s_y
    s_y[:, k] = sums[:, 1]
    if not renew:
        y_My[:k, :k] = old.y_My
    lower = np.tril(y_My)
    return Products(sums[:, 0].copy(), s_y, lower + np.tril(lower, -1).T, sums[:, 2].copy(), float(sums[-1, 3]))


def inverse_gram(gram: Array, penalty: float) -> Array:
    """(gram + εI)⁻¹ in float64, with the ridge in it."""
    rank = len(gram)
    epsilon = _EPSILON * float(np.trace(gram)) / rank
    return gram_solve(gram.astype(np.float64), np.eye(rank), epsilon + penalty)


def _new(like: Array, name: str) -> Array:
    """Scratch memory for arrays of the driver."""
    return np.empty_like(like)
