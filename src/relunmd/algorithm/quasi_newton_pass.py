"""The pass of "qn": the point a step away, its gradient, and all inner products that the next step is made from.

Blocks form their own rows of the step, so no array of m rows is needed in one place. Arrays on the side of H are n×r
here, so that they are treated like those of W.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from relunmd.algorithm.state import Array, State
from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg.gram import gram_solve
from relunmd.engine.linalg.two_loop import Direction, Products
from relunmd.engine.matrix import Block
from relunmd.engine.passes import gradient_strip
from relunmd.engine.problem import Problem

PAIRS = np.dtype(np.float32)
"""Curvature need not be exact: with pairs in float32 a run in float64 takes the same path, and they take half the
memory and half the time to read."""
_EPSILON = 1e-6


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
    age: int
    products: Products
    """With the trial's own pair as the newest."""


class Pairs(NamedTuple):
    """Steps and changes of the gradient, oldest first, in some rows."""

    s: Sequence[Array]
    y: Sequence[Array]


@dataclass(frozen=True)
class _Plan:
    """How to move and what to evaluate there; without a direction the point itself is evaluated."""

    direction: Direction | None
    step: float
    leak: float
    penalty: float
    renew: bool
    """Whether the metric is recomputed."""


def products_of(state: State) -> Products:
    """The inner products in a state."""
    return Products(state.s_g, state.s_y, state.y_My, state.y_Mg, state.g_Mg)


def evaluate(problem: Problem, state: State, direction: Direction | None, penalty: float) -> Trial:
    """Evaluate the point a step away from that of `state`; one pass."""
    dtype, count = problem.dtype, len(state.s_W)
    renew = direction is None or state.age + 1 >= count
    plan = _Plan(direction, state.step, state.leak, penalty, renew)
    step_H, pairs_H = np.empty_like(state.by_H), Pairs(state.s_H, state.y_H)
    scratch = partial(_new, step_H)
    _move(step_H, pairs_H, state.by_H, plan, state.metric_H.astype(dtype), scratch)
    Ht = np.add(state.H.T, step_H, order="C")
    H = np.ascontiguousarray(Ht.T)
    metric_W = _inverse_gram(H @ H.T, penalty) if renew else state.metric_W
    out, sums = problem.run(
        _block,
        {"W": state.W, "by_W": state.by_W, "s": state.s_W, "y": state.y_W},
        {"s": (problem.rank, PAIRS), "y": (problem.rank, PAIRS), "by_W": problem.rank, "W": problem.rank},
        H=H,
        Ht=Ht,
        metric=state.metric_W.astype(dtype),
        next_metric=metric_W.astype(dtype),
        plan=plan,
    )
    by_H = (penalty * Ht - sums["WR"]).astype(dtype)
    s_H, y_H = step_H.astype(PAIRS), (by_H - state.by_H).astype(PAIRS)
    metric_H = _inverse_gram(sums["WW"], penalty) if renew else state.metric_H
    products = np.zeros((count + 1, count + 5))
    _add_products(products, Pairs((*pairs_H.s, s_H), (*pairs_H.y, y_H)), by_H, metric_H.astype(dtype), renew, scratch)
    products += sums["products"]
    norms = float(sums["norm"]) + kernels.dot(Ht, Ht)
    error_squares, objective_squares = sums["squares"].tolist()
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
        age=0 if renew else state.age + 1,
        products=_joined(products_of(state), products, renew),
    )


@np.errstate(over="ignore", invalid="ignore")  # Also in the threads of the workers.
def _block(
    x: Block, rows: Rows, out: Rows, *, H: Array, Ht: Array, metric: Array, next_metric: Array, plan: _Plan
) -> Sums:
    old = getattr(rows, "s", ()), getattr(rows, "y", ())
    WR, WW = x.sums(Ht.shape), x.sums((len(H), len(H)))
    squares, norm = np.zeros((len(rows.W), 2)), 0.0
    products = np.zeros((len(old[0]) + 1, len(old[0]) + 5))
    for at in x.strips:
        pairs = Pairs(*([array[at] for array in arrays] for arrays in old))
        by_W, s_new, y_new = out.by_W[at], out.s[at], out.y[at]
        scratch = partial(x.scratch_tile, n_rows=len(by_W), n_columns=by_W.shape[1])
        moved = scratch("moved")
        _move(moved, pairs, rows.by_W[at], plan, metric, scratch)
        np.copyto(s_new, moved, casting="same_kind")
        W = np.add(rows.W[at], moved, out=out.W[at])
        gradient_strip(x, at, W, (H, Ht), plan.leak, squares[at], by_W, WR)
        if plan.penalty:
            by_W += W.dtype.type(plan.penalty) * W
            norm += kernels.dot(W, W)
        np.subtract(by_W, rows.by_W[at], out=y_new, casting="same_kind")
        WW += W.T @ W
        new = Pairs([*pairs.s, s_new], [*pairs.y, y_new])
        _add_products(products, new, by_W, next_metric, plan.renew, scratch)
    return {"WR": WR, "WW": WW, "squares": squares.sum(axis=0), "products": products, "norm": norm}


def _move(
    out: Array, pairs: Pairs, gradient: Array, plan: _Plan, metric: Array, scratch: Callable[[str], Array]
) -> None:
    """Write how far some rows of W, or of Hᵀ, move: their part of step·d."""
    if plan.direction is None:
        out[:] = 0
        return
    factor = gradient.dtype.type(plan.step * plan.direction.gradient)
    inner = np.multiply(gradient, factor, out=scratch("inner"))
    _add_combination(inner, pairs.y, plan.step * plan.direction.changes)
    np.matmul(inner, metric, out=out)
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
    products: Array, pairs: Pairs, g: Array, metric: Array, renew: bool, scratch: Callable[[str], Array]
) -> None:
    """Add the share of some rows to the inner products: row i for pair i, the last one for the new pair.

    Columns: s·g, s·y_new, y·Mg, g·Mg (in the last row), then y·My with every pair: for all rows if `renew`, else for
    the last one, since the others are known.
    """
    exact, My, Mg = scratch("exact"), scratch("My"), np.matmul(g, metric, out=scratch("Mg"))
    np.copyto(exact, pairs.y[-1])
    np.matmul(exact, metric, out=My)
    products[:, :2] += _dots(pairs.s, g, exact)
    by_pair = _dots(pairs.y, Mg, My)
    products[:, 2] += by_pair[:, 0]
    products[-1, 4:] += by_pair[:, 1]
    products[-1, 3] += kernels.dot(g, Mg)
    for i in range(len(pairs.s) - 1 if renew else 0):
        np.copyto(exact, pairs.y[i])
        np.matmul(exact, metric, out=My)
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


def _inverse_gram(gram: Array, penalty: float) -> Array:
    """(gram + εI)⁻¹ in float64, with the ridge in it."""
    rank = len(gram)
    epsilon = _EPSILON * float(np.trace(gram)) / rank
    return gram_solve(gram.astype(np.float64), np.eye(rank), epsilon + penalty)


def _new(like: Array, name: str) -> Array:
    """Scratch memory for arrays of the driver."""
    return np.empty_like(like)
