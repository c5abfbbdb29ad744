"""The flagship: limited-memory BFGS on W and H together, in a metric made of the factors, from L to E by degrees.

Written as a paper would have it in docs/flagship.md; in short:

- Objective: ½F², where an entry with Θ ≤ 0 < X counts (X − leak·Θ)². A leak of 1 is the latent residual L, which
  pulls such entries up whatever their size; 0 is the error E itself, which has no slope there. The leak goes
  1 → 0.3 → 0.09 → 0, a level ending when F² falls by less than `patience` in five steps. At 0 E falls monotonically.
- Metric: (∇_W, ∇_H) ↦ (∇_W(HHᵀ + εI)⁻¹, (WᵀW + εI)⁻¹∇_H), the initial inverse Hessian of the two-loop recursion;
  made anew after as many steps as there are pairs, ten as a rule (at every one it was no better).
- Step 1, else shorter by interpolation. Each trial is a pass and a state; the pass brings the value, the gradient and
  the inner products from which the driver makes the coefficients of the next step (`linalg/two_loop.py`). Blocks form
  their rows of it, so nothing of length m is needed at one place.
- The first five steps are those of "3b-factored": BFGS knows no curvature yet, and on term counts, where a run may make
  no more than a dozen passes, it fell behind.
- Baseline: on small or nearly dense X a run can end above the truncated SVD (16 of 599 matrices of up to 12×10, most of
  rank 1). The error of the truncated SVD is computed when the leak reaches 0; while E is above it `tol` is ignored, and
  if E stops falling there, or is above it after 200 steps (as on columns of very different size), the run continues
  from the truncated SVD, at leak 0. With a ridge there is no such baseline.
- Once E falls no more there is time left only if `tol` is 0: a new round then begins from the best point with a leak
  of 0.3 and less patience. On small sparse data (the basis of CBCL) the best error falls with nearly every round.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from relunmd.algorithm.interface import (
    Algorithm,
    Array,
    Shape,
    State,
    at_least_one,
    at_least_zero,
    balanced,
    many_field,
    scratch_field,
    state_field,
)
from relunmd.algorithm.three_block_factored import ThreeBlockFactored, ThreeBlockFactoredState
from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg import gram_solve, truncated_svd
from relunmd.engine.linalg.two_loop import Direction, Products, two_loop
from relunmd.engine.matrix import Block
from relunmd.engine.passes import ERROR, LATENT, gradient_strip, sweep_of_x
from relunmd.engine.problem import Problem

__all__ = ["QuasiNewton", "QuasiNewtonState"]

_SMALLER_LEAK, _LEAST_LEAK = 0.3, 0.05
_WINDOW, _PATIENCE, _LESS_PATIENCE = 5, 0.08, 0.3
_STANDSTILL = 1e-5
"""A round is over when E² falls by less than this in five steps. (A `tol` of 1e-4 stops the run before that.)"""
_ROUGH, _EXACT = 0.01, 1e-9
"""Tolerances of the truncated SVD: shares of ‖X‖² that it may miss."""
_LONG = 200
"""Steps after which E must not be above the error of the truncated SVD, whatever the leak."""
_EPSILON = 1e-6
_DECREASE = 1e-4
_CURVATURE = 1e-8
_MOST_TRIALS = 10
_PAIRS = np.dtype(np.float32)
"""Curvature need not be exact: with pairs in float32 a run in float64 takes the same course, and they take half the
memory and half the time to read."""


@dataclass(frozen=True, eq=False)
class QuasiNewtonState(State):
    """W and H are the last point that was accepted. Arrays of H's side are n×r, to be treated like those of W's."""

    by_W: Annotated[Array, Shape("mr")]
    """The gradient there, and half of F² with the ridge's term."""
    by_H: Annotated[Array, Shape("nr")]
    objective: float
    leak: float
    metric_W: Annotated[Array, Shape("rr", "float64")]
    """(HHᵀ + εI)⁻¹ of some steps ago, and its counterpart for H."""
    metric_H: Annotated[Array, Shape("rr", "float64")]
    age: int
    """Steps since the metric was made, or since the start while 3B goes first."""
    s_g: Annotated[Array, Shape("k", "float64")]
    """Inner products of the pairs and the gradient, as `Products` has them."""
    s_y: Annotated[Array, Shape("kk", "float64")]
    y_My: Annotated[Array, Shape("kk", "float64")]
    y_Mg: Annotated[Array, Shape("k", "float64")]
    g_Mg: float
    step: float
    """How far to go next; 0 is to look at the same point again, with another leak."""
    trials: int
    """Steps that were refused since a point was accepted last."""
    accepted: float
    """The step that led here in the last pass, 0 if it led nowhere."""
    recent: Annotated[Array, Shape("q", "float64")]
    """The objective at the last few points of this level."""
    patience: float
    best_W: Annotated[Array, Shape("mr")]
    """The best end of a round so far."""
    best_H: Annotated[Array, Shape("rn")]
    best_error: float
    baseline: float
    """The error of the truncated SVD, which is then the best end of a round; infinite if it has no part in this."""
    compared: bool
    """Whether the truncated SVD was computed."""
    steps: int
    """Steps so far, without those of 3B."""
    s_W: Annotated[tuple[Array, ...], Shape("mr", "float32", count="k")] = many_field()
    """The pairs in float32, oldest first: steps, and the changes of the gradient that came with them."""
    y_W: Annotated[tuple[Array, ...], Shape("mr", "float32", count="k")] = many_field()
    s_H: Annotated[tuple[Array, ...], Shape("nr", "float32", count="k")] = many_field()
    y_H: Annotated[tuple[Array, ...], Shape("nr", "float32", count="k")] = many_field()
    warm: ThreeBlockFactoredState | None = state_field(ThreeBlockFactoredState)
    """Where 3B is, as long as it goes first."""
    spare: tuple[Array, ...] | None = scratch_field()

    @property
    def settled(self) -> bool:
        return self.leak == ERROR and self.error <= self.baseline

    @property
    def done(self) -> bool:
        return self.error <= float(np.finfo(self.W.dtype).eps) or (self.settled and self.g_Mg <= 0)

    @property
    def products(self) -> Products:
        return Products(self.s_g, self.s_y, self.y_My, self.y_Mg, self.g_Mg)

    def columns(self) -> dict[str, float]:
        return {"leak": self.leak, "step": self.accepted, "pairs": float(len(self.s_W))}


@dataclass(frozen=True)
class QuasiNewton(Algorithm[QuasiNewtonState]):
    """Preconditioned limited-memory BFGS on the error itself, reached by degrees from the latent residual.

    One pass and at most 6mnr flops an iteration, a trial step that is refused counting as one; 2·memory + 6 arrays
    like W and like H. As long as the leak (a column of the history) is above 0 the error may stand still or rise, and
    `tol` is not asked.

    Parameters
    ----------
    memory : how many pairs of steps and changes of the gradient are remembered
    ridge : λ/‖X‖ ≥ 0 of a term ½λ(‖W‖² + ‖H‖²) beside the objective, which keeps W and H from drifting far; 1e-4 is
        felt, 1e-2 is strong
    warm_up : how many steps of "3b-factored" come first: the first steps of BFGS know no curvature yet

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> X = np.maximum(0, np.random.default_rng(0).standard_normal((60, 40)) - 1)
    >>> d = relunmd.decompose(X, rank=5, algorithm=relunmd.QuasiNewton(memory=5), random_state=0)
    >>> d.error < relunmd.decompose(X, rank=5, algorithm="3b", random_state=0).error
    True
    """

    memory: int = 10
    ridge: float = 0.0
    warm_up: int = 5
    name: ClassVar[str] = "qn"
    summary: ClassVar[str] = "the flagship: quasi-Newton on the error itself; any kind of X, nothing of its size kept"
    state_type: ClassVar[type[State]] = QuasiNewtonState
    default_init: ClassVar[str] = "shifted"

    def __post_init__(self) -> None:
        at_least_one(self, "memory")
        at_least_zero(self, "ridge")
        if self.warm_up != 0:
            at_least_one(self, "warm_up")

    def bytes_per_entry(self, itemsize: int) -> int:
        return 12 * itemsize + 2 * (int(self.memory) + 1) * _PAIRS.itemsize

    def start(self, problem: Problem, W: Array, H: Array) -> QuasiNewtonState:
        if self.warm_up == 0:
            return self.step(problem, self._beginning(problem, W, H))
        warm = self._first.start(problem, *balanced(W, H))
        return replace(self._beginning(problem, warm.W, warm.H), error=warm.error, warm=warm)

    @property
    def _first(self) -> ThreeBlockFactored:
        return ThreeBlockFactored(ridge=self.ridge)

    def _warmed_up(self, problem: Problem, state: QuasiNewtonState, warm: ThreeBlockFactoredState) -> QuasiNewtonState:
        """A step of 3B; after the last, a look at the point it came to."""
        if state.age < int(self.warm_up):
            warm = self._first.step(problem, warm)
            return replace(state, W=warm.W, H=warm.H, error=warm.error, age=state.age + 1, warm=warm)
        return self.step(problem, self._beginning(problem, warm.W_plain, warm.H_plain))

    def _beginning(self, problem: Problem, W: Array, H: Array) -> QuasiNewtonState:
        """The state before anything is known of the point."""
        W, H = balanced(W, H)
        nothing = Products(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0), np.inf)
        return QuasiNewtonState(
            W=W,
            H=H,
            error=np.inf,
            by_W=np.zeros_like(W),
            by_H=np.zeros_like(H.T, order="C"),
            objective=np.inf,
            leak=LATENT,
            metric_W=np.eye(problem.rank),
            metric_H=np.eye(problem.rank),
            age=0,
            **vars(nothing),
            step=0.0,
            trials=0,
            accepted=0.0,
            recent=np.zeros(0),
            patience=_PATIENCE,
            best_W=W,
            best_H=H,
            best_error=np.inf,
            baseline=np.inf,
            compared=self.ridge > 0,
            steps=0,
        )

    def step(self, problem: Problem, state: QuasiNewtonState) -> QuasiNewtonState:
        """One trial step, or a look at the same point with another leak; one pass."""
        if state.warm is not None:
            return self._warmed_up(problem, state, state.warm)
        state = replace(state, steps=state.steps + 1)
        if state.steps >= _LONG:
            state = _not_behind(problem, state)
        state, direction = _planned(state)
        if state.leak == ERROR and not state.compared:
            state = _compared(problem, state)
        with np.errstate(over="ignore", invalid="ignore"):  # What is not finite is refused.
            trial = self._evaluated(problem, state, direction)
        if direction is None:
            return _looked_again(state, trial)
        bound = state.objective + _DECREASE * state.step * direction.slope
        if trial.objective <= bound and np.isfinite(trial.products.g_Mg):
            return self._accepted(state, trial)
        return _refused(state, trial, direction.slope)

    def _evaluated(self, problem: Problem, state: QuasiNewtonState, direction: Direction | None) -> "_Trial":
        """The pass: the point a step away, its gradient, and all that the next step is made from."""
        dtype = problem.dtype
        penalty = float(self.ridge) * float(np.sqrt(problem.facts.squares))
        step_H = np.empty_like(state.by_H)
        scratch = partial(_new, step_H)
        _move(step_H, state.s_H, state.y_H, state.by_H, direction, state.step, state.metric_H.astype(dtype), scratch)
        Ht = np.add(state.H.T, step_H, order="C")
        H = np.ascontiguousarray(Ht.T)
        renew = direction is None or state.age + 1 >= len(state.s_W)
        metric_W = _inverse_gram(H @ H.T, penalty) if renew else state.metric_W

        count = len(state.s_W)
        given = {"W": state.W, "by_W": state.by_W}
        given |= {f"s{i}": s for i, s in enumerate(state.s_W)} | {f"y{i}": y for i, y in enumerate(state.y_W)}
        out, sums = problem.run(
            _block,
            given,
            _to_write(state),
            count=count,
            H=H,
            Ht=Ht,
            leak=state.leak,
            direction=direction,
            step=state.step,
            metric=state.metric_W.astype(dtype),
            next_metric=metric_W.astype(dtype),
            renew=renew,
            penalty=penalty,
        )
        by_H = (penalty * Ht - sums["WR"]).astype(dtype)
        s_H, y_H = step_H.astype(_PAIRS), (by_H - state.by_H).astype(_PAIRS)
        metric_H = _inverse_gram(sums["WW"], penalty) if renew else state.metric_H
        products = np.zeros((count + 1, count + 5))
        _add_products(products, state.s_H, state.y_H, s_H, y_H, by_H, metric_H.astype(dtype), renew, scratch)
        products += sums["products"]
        norms = float(sums["norm"]) + kernels.dot(Ht, Ht)
        error_squares, objective_squares = sums["squares"].tolist()
        return _Trial(
            W=out["W"],
            H=H,
            by_W=out["by_W"],
            by_H=by_H,
            s=(out["s"], s_H),
            y=(out["y"], y_H),
            error=problem.relative(error_squares),
            objective=(objective_squares + penalty * norms) / 2,
            metric=(metric_W, metric_H),
            age=0 if renew else state.age + 1,
            products=_joined(state.products, products, renew),
        )

    def _accepted(self, state: QuasiNewtonState, trial: "_Trial") -> QuasiNewtonState:
        products = trial.products
        s_W, y_W = (*state.s_W, trial.s[0]), (*state.y_W, trial.y[0])
        s_H, y_H = (*state.s_H, trial.s[1]), (*state.y_H, trial.y[1])
        if products.s_y[-1, -1] > _CURVATURE * products.y_My[-1, -1] > 0:
            kept = slice(max(0, len(s_W) - int(self.memory)), len(s_W))
        else:  # Not convex along this step: nothing to be learnt for a metric.
            kept = slice(0, len(s_W) - 1)
        free = [*s_W[: kept.start], *y_W[: kept.start], *s_W[kept.stop :], *y_W[kept.stop :]]
        recent = np.append(state.recent, trial.objective)[-1 - _WINDOW :]
        following = replace(
            _known(state, trial, kept),
            W=trial.W,
            H=trial.H,
            age=trial.age,
            accepted=state.step,
            recent=recent,
            s_W=s_W[kept],
            y_W=y_W[kept],
            s_H=s_H[kept],
            y_H=y_H[kept],
            spare=(state.by_W, *free),
        )
        least_fall = state.patience if state.leak > ERROR else _STANDSTILL
        stalled = len(recent) > _WINDOW and recent[0] - recent[-1] < least_fall * recent[0]
        return _next_level(following) if stalled else following


@dataclass(frozen=True)
class _Trial:
    """What a pass found at the point it looked at."""

    W: Array
    H: Array
    by_W: Array
    by_H: Array
    s: tuple[Array, Array]
    y: tuple[Array, Array]
    error: float
    objective: float
    metric: tuple[Array, Array]
    age: int
    products: Products
    """With the trial's own pair as the newest."""

    @property
    def rows(self) -> tuple[Array, ...]:
        """Its arrays of m rows."""
        return self.by_W, self.W, self.s[0], self.y[0]


def _to_write(state: QuasiNewtonState) -> dict[str, Array | int]:
    """The arrays that a pass writes: those to spare, else new ones."""
    spare = list(state.spare or ())

    def take(dtype: np.dtype[Any]) -> Array:
        fitting = [i for i, array in enumerate(spare) if array.dtype == dtype]
        return spare.pop(fitting[0]) if fitting else np.empty_like(state.W, dtype)

    full = state.W.dtype
    return {"s": take(_PAIRS), "y": take(_PAIRS), "by_W": take(full), "W": take(full)}


def _new(like: Array, name: str) -> Array:
    """Scratch where there is none to be had."""
    return np.empty_like(like)


def _planned(state: QuasiNewtonState) -> tuple[QuasiNewtonState, Direction | None]:
    """Where to go from here: a direction downhill, or none if this point is to be looked at with another leak."""
    if state.step == 0:
        return state, None
    direction = two_loop(state.products)
    if direction.slope < 0:
        return state, direction
    if state.s_W:  # Rounding has the upper hand among the pairs.
        return _planned(_forgetful(state))
    return _next_level(state), None


def _known(state: QuasiNewtonState, trial: _Trial, pairs: slice) -> QuasiNewtonState:
    """With what the pass found in place of what was known; the next step begins with 1."""
    return replace(
        state,
        error=trial.error,
        by_W=trial.by_W,
        by_H=trial.by_H,
        objective=trial.objective,
        metric_W=trial.metric[0],
        metric_H=trial.metric[1],
        **vars(trial.products.part(pairs)),
        step=1.0,
        trials=0,
    )


def _looked_again(state: QuasiNewtonState, trial: _Trial) -> QuasiNewtonState:
    """The same point with the gradient of another objective. The pairs stay: their curvature is nearly the same."""
    return replace(
        _known(state, trial, slice(0, len(state.s_W))),
        age=0,
        accepted=0.0,
        recent=np.array([trial.objective]),
        spare=(state.by_W, *trial.rows[1:]),
    )


def _refused(state: QuasiNewtonState, trial: _Trial, slope: float) -> QuasiNewtonState:
    """A shorter step, where the parabola through what is known has its minimum; when none helps, without the pairs."""
    step, trials = state.step, state.trials + 1
    rise = trial.objective - state.objective - slope * step
    lowest = -slope * step**2 / (2 * rise) if np.isfinite(rise) and rise > 0 else 0.0
    shorter = min(max(lowest, 0.1 * step), 0.5 * step)
    state = replace(state, step=shorter, trials=trials, accepted=0.0, spare=trial.rows)
    if trials < _MOST_TRIALS:
        return state
    return _forgetful(state) if state.s_W else _next_level(state)


def _forgetful(state: QuasiNewtonState) -> QuasiNewtonState:
    """The same without its pairs."""
    nothing = state.products.part(slice(0, 0))
    return replace(state, **vars(nothing), s_W=(), y_W=(), s_H=(), y_H=(), step=1.0, trials=0)


def _compared(problem: Problem, state: QuasiNewtonState) -> QuasiNewtonState:
    """With the truncated SVD as the best end of a round, if it is better than those so far; 5 passes as a rule.

    A rough one is enough to see that it is far behind, which is the usual case; else 4 to 20 passes make it exact.
    """
    W, H, error = _truncated(problem, _ROUGH)
    if error**2 - _ROUGH < state.error**2:
        W, H, error = _truncated(problem, _EXACT)
    state = replace(state, compared=True)
    if not error < min(state.error, state.best_error):
        return state
    return replace(state, baseline=error, best_W=W, best_H=H, best_error=error)


def _not_behind(problem: Problem, state: QuasiNewtonState) -> QuasiNewtonState:
    """The state, or the truncated SVD at leak 0 if that is better."""
    state = state if state.compared else _compared(problem, state)
    return _next_level(replace(state, leak=ERROR)) if state.error > state.baseline else state


def _truncated(problem: Problem, tol: float) -> tuple[Array, Array, float]:
    """The truncated SVD of X, missing so much of its energy, and its error."""
    found = truncated_svd(problem, lambda V: sweep_of_x(problem, V), problem.rank, np.random.default_rng(0), tol)
    W, H = balanced(found.W, found.H)
    return W, H, problem.error(W, H)


def _next_level(state: QuasiNewtonState) -> QuasiNewtonState:
    """The next smaller leak; after the last a new round from the best point so far, with less patience."""
    if state.leak > ERROR:
        leak = _SMALLER_LEAK * state.leak
        return replace(state, leak=leak if leak >= _LEAST_LEAK else ERROR, step=0.0)
    beaten = state.error > state.baseline
    if state.error < state.best_error:
        state = replace(state, best_W=state.W, best_H=state.H, best_error=state.error)
    again = replace(state, W=state.best_W, H=state.best_H, error=state.best_error, baseline=np.inf)
    if beaten:
        return replace(_forgetful(again), step=0.0)
    return replace(_forgetful(again), leak=_SMALLER_LEAK, patience=_LESS_PATIENCE * state.patience, step=0.0)


def _inverse_gram(gram: Array, penalty: float) -> Array:
    """(gram + εI)⁻¹ in float64, with the ridge in it."""
    rank = len(gram)
    epsilon = _EPSILON * float(np.trace(gram)) / rank
    return gram_solve(gram.astype(np.float64), np.eye(rank), epsilon + penalty)


def _move(
    out: Array,
    s: Sequence[Array],
    y: Sequence[Array],
    gradient: Array,
    direction: Direction | None,
    step: float,
    metric: Array,
    scratch: Callable[[str], Array],
) -> None:
    """How far some rows of W, or of Hᵀ, move: their part of step·d."""
    if direction is None:
        out[:] = 0
        return
    inner = np.multiply(gradient, gradient.dtype.type(step * direction.gradient), out=scratch("inner"))
    _add_combination(inner, y, step * direction.changes)
    np.matmul(inner, metric, out=out)
    _add_combination(out, s, step * direction.steps)


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
    products: Array,
    s: Sequence[Array],
    y: Sequence[Array],
    s_new: Array,
    y_new: Array,
    g: Array,
    metric: Array,
    renew: bool,
    scratch: Callable[[str], Array],
) -> None:
    """Add some rows' share of the inner products: row i for pair i, the last one for the new pair.

    Columns: s·g, s·y_new, y·Mg, g·Mg (in the last row), then y·My with every pair: for all rows if `renew`, else for
    the last one, the others being known.
    """
    exact, My, Mg = scratch("exact"), scratch("My"), np.matmul(g, metric, out=scratch("Mg"))
    np.copyto(exact, y_new)
    np.matmul(exact, metric, out=My)
    products[:, :2] += _dots([*s, s_new], g, exact)
    by_pair = _dots([*y, y_new], Mg, My)
    products[:, 2] += by_pair[:, 0]
    products[-1, 4:] += by_pair[:, 1]
    products[-1, 3] += kernels.dot(g, Mg)
    for i in range(len(s) if renew else 0):
        np.copyto(exact, y[i])
        np.matmul(exact, metric, out=My)
        products[i, 4 : 4 + i + 1] += _dots(y[: i + 1], My, My)[:, 0]


def _joined(old: Products, sums: Array, renew: bool) -> Products:
    """The inner products with the new pair among the others."""
    k = old.count
    s_y, y_My = np.zeros((k + 1, k + 1)), sums[:, 4:].copy()
    s_y[:k, :k] = old.s_y
    s_y[:, k] = sums[:, 1]
    if not renew:
        y_My[:k, :k] = old.y_My
    lower = np.tril(y_My)
    return Products(sums[:, 0].copy(), s_y, lower + np.tril(lower, -1).T, sums[:, 2].copy(), float(sums[-1, 3]))


@np.errstate(over="ignore", invalid="ignore")  # Also in the threads of the workers.
def _block(
    x: Block,
    rows: Rows,
    out: Rows,
    *,
    count: int,
    H: Array,
    Ht: Array,
    leak: float,
    direction: Direction | None,
    step: float,
    metric: Array,
    next_metric: Array,
    renew: bool,
    penalty: float,
) -> Sums:
    WR, WW = x.sums(Ht.shape), x.sums((len(H), len(H)))
    squares, products, norm = np.zeros((len(rows["W"]), 2)), np.zeros((count + 1, count + 5)), 0.0
    for at in x.strips:
        s, y = ([rows[f"{kind}{i}"][at] for i in range(count)] for kind in "sy")
        by_W, s_new, y_new = out["by_W"][at], out["s"][at], out["y"][at]
        scratch = partial(x.scratch_tile, n_rows=len(by_W), n_columns=by_W.shape[1])
        moved = scratch("moved")
        _move(moved, s, y, rows["by_W"][at], direction, step, metric, scratch)
        np.copyto(s_new, moved, casting="same_kind")
        W = np.add(rows["W"][at], moved, out=out["W"][at])
        gradient_strip(x, at, W, H, Ht, leak, squares[at], by_W, WR)
        if penalty:
            by_W += W.dtype.type(penalty) * W
            norm += kernels.dot(W, W)
        np.subtract(by_W, rows["by_W"][at], out=y_new, casting="same_kind")
        WW += W.T @ W
        _add_products(products, s, y, s_new, y_new, by_W, next_metric, renew, scratch)
    return {"WR": WR, "WW": WW, "squares": squares.sum(axis=0), "products": products, "norm": norm}
