"""The flagship: limited-memory BFGS on W and H together, in a metric made of the factors, from L to E in levels.

docs/background/flagship.md describes the method; in short:

- Objective: ½F², where an entry with Θ ≤ 0 < X counts (X − leak·Θ)². A leak of 1 is the latent residual L, which
  has a slope at such entries whatever their size; 0 is the error E itself, which has none there. The leak is
  1 → 0.3 → 0.09 → 0; a level ends when F² decreases by less than `patience` in five steps. At 0 E never increases.
- Metric: (∇_W, ∇_H) ↦ (∇_W(HHᵀ + εI)⁻¹, (WᵀW + εI)⁻¹∇_H), the initial inverse Hessian of the two-loop recursion,
  with a correction for each row and column (`row_metric.py`). It is recomputed after twice as many steps as there are
  pairs, usually twenty (more often was no better).
- Step size 1, else shorter by interpolation. Each trial is a pass and a state; the pass returns the value, the gradient
  and the inner products from which the driver computes the next step (`linalg/two_loop.py`). Blocks form their own
  rows of it, so no array of length m is needed in one place.
- The first five steps are those of "3b-factored": BFGS knows no curvature yet, and on term counts, where a run may make
  no more than a dozen passes, it was slower.
- Very sparse X: ten steps at a time on a working set, which cost what it stores and not mn·r, or sweeps of Newton
  steps (`set_steps.py`). There are no steps of 3B.
- Baseline: on small or nearly dense X a run can end above the truncated SVD (16 of 599 matrices of up to 12×10, most of
  rank 1). The error of the truncated SVD is computed when the leak reaches 0; while E is above it `tol` is ignored, and
  if E stops decreasing there, or is above it after 200 steps (as on columns of very different size), the run continues
  from the truncated SVD, at leak 0. With a ridge there is no such baseline.
- If `tol` is 0, a new round starts from the best point when E no longer decreases, with a leak of 0.3 and less
  patience. On small sparse data (the basis of CBCL) the best error decreases with nearly every round.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from relunmd.algorithm.base import Algorithm
from relunmd.algorithm.quasi_newton_pass import PAIRS, Trial, evaluate, inverse_gram, products_of, without_pairs
from relunmd.algorithm.set_steps import PULL, STANDSTILL, SetSteps, sweep_follows
from relunmd.algorithm.state import Array, State
from relunmd.algorithm.three_block_factored import ThreeBlockFactored
from relunmd.engine.linalg.canonical import balanced
from relunmd.engine.linalg.two_loop import Direction, Products, two_loop
from relunmd.engine.passes import ERROR, LATENT
from relunmd.engine.problem import Problem
from relunmd.engine.working_set import has_working_sets, working_set
from relunmd.init.spectral import tsvd_of_x
from relunmd.settings import setting

_SMALLER_LEAK, _LEAST_LEAK = 0.3, 0.05
_WINDOW, _PATIENCE, _LESS_PATIENCE = 5, 0.08, 0.3
_LEAST_STEPS = 11
"""A round ends when E² stands still in five steps, after so many at leak 0: `tol` needs 10 of them."""
_ROUGH, _EXACT = 0.1, 1e-9
"""Tolerances of the truncated SVD: a share of the squared error, and one of ‖X‖²."""
_LONG = 200
"""Steps after which E must not be above the error of the truncated SVD, whatever the leak."""
_DECREASE = 1e-4
_CURVATURE = 1e-8
_MOST_TRIALS = 10
_SLOW = 0.05
"""A decrease of F² in a cycle, below which the truncated SVD is compared: by then a rough one tells, as a rule."""
_SINGLE_ERROR, _SINGLE_DECREASE = 3e-4, 2e-5
"""float32 suffices above this E, and while F² decreases by more in five steps; rounding changes it by about 1e-7."""


@dataclass(frozen=True)
class QuasiNewton(Algorithm):
    """Run preconditioned limited-memory BFGS on the error, reached in levels from the latent residual.

    The default, ``algorithm="auto"``. One pass and at most 6mnr flops an iteration, also for a rejected trial step;
    2·memory + 6 arrays like W and H and nothing of the size of X are kept. If at most 2 % of a large X is positive,
    an iteration is one pass of 2mnr flops and ten steps on a working set, which has 4 to 32 entries for each positive
    one, or three passes that take Newton steps for all rows of W and all columns of H. While the leak (a column of the
    history) is above 0 the error may plateau or increase, so `tol` is ignored.

    Parameters
    ----------
    memory : int, default=10
        Number of pairs of steps and changes of the gradient.
    ridge : float, default=0
        Adds ridge·‖X‖·(‖W‖² + ‖H‖²) to the squared error, which keeps W and H from growing for little gain; 1e-4 has an
        effect, 1e-2 is strong.
    warm_up : int, default=5
        Number of steps of "3b-factored" that come first: the first steps of BFGS know no curvature yet.

    See Also
    --------
    ThreeBlockFactored : A simpler method with less memory, which also serves any kind of X.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> X = np.maximum(0, np.random.default_rng(0).standard_normal((60, 40)) - 1)
    >>> d = relunmd.decompose(X, rank=5, algorithm=relunmd.QuasiNewton(memory=5), random_state=0)
    >>> d.error < relunmd.decompose(X, rank=5, algorithm="3b", random_state=0).error
    True
    """

    name = "qn"
    summary = "the flagship: quasi-Newton on the error itself; any kind of X, nothing of its size kept"
    handles_missing = True
    default_init = "shifted"
    # W and H are the last accepted point. Arrays on the side of H are n×r, to be treated like those of W.
    keeps = {
        # The gradient there, half of F² with the ridge's term, and the leak.
        "by_W": "mr", "by_H": "nr", "objective": float, "leak": float,
        # The error with the ridge's term.
        "penalized": float,
        # (HHᵀ + εI)⁻¹ of some steps ago, its counterpart for H, and the number of steps since.
        "metric_W": "rr float64", "metric_H": "rr float64", "age": int,
        # What rows of W and columns of H have of their own, see `row_metric.py`; r² numbers, 1, or nothing.
        "own_W": "j * md float32", "own_H": "j * nd float32",
        # Inner products of the pairs and the gradient, see `Products`.
        "s_g": "k float64", "s_y": "kk float64", "y_My": "kk float64", "y_Mg": "k float64", "g_Mg": float,
        # The next step size (0: evaluate the same point again, with another leak), the number of rejected trials
        # since a point was accepted, and the step size that led here in the last pass (0 if it was rejected).
        "step": float, "trials": int, "accepted": float,
        # The objective at the last few points of this level, and the relative decrease that ends it.
        "recent": "q float64", "patience": float,
        # The best end of a round so far; the error of the truncated SVD, infinite if it plays no part; whether it was
        # computed; the number of steps without those of 3B.
        "best_W": "mr", "best_H": "rn", "best_error": float, "best_penalized": float,
        "baseline": float, "compared": bool, "steps": int,
        # The pairs, oldest first: steps and changes of the gradient.
        "s_W": "k * mr float32", "y_W": "k * mr float32", "s_H": "k * nr float32", "y_H": "k * nr float32",
        # The weight of the distance from here, while steps are on working sets; 0 if they are not. By how much the last
        # cycle of them and the last sweep decreased F², relatively, and whether the last iteration was a sweep.
        "pull": float, "cycle_gain": float, "sweep_gain": float, "swept": bool,
        # Whether the arrays are in float32, and so is the next pass; the number of steps in the last iteration.
        "single": bool, "made": int,
        # The state of 3B during the warm-up.
        "warm": ThreeBlockFactored.keeps,
    }  # fmt: skip
    memory: int = setting(10, ge=1)
    ridge: float = setting(0.0, ge=0)
    warm_up: int = setting(5, ge=0)

    def bytes_per_entry(self, itemsize: int) -> int:
        return 12 * itemsize + 2 * (self.memory + 1) * PAIRS.itemsize

    def tol_applies(self, state: State) -> bool:
        if state.leak > ERROR or state.error > state.baseline:
            return False
        # Steps on a working set that were undone say nothing about convergence, nor does a cycle that a sweep follows.
        on_sets = state.accepted > 0 and state.compared and (state.swept or not sweep_follows(state))
        return bool(state.pull == 0 or on_sets)

    def finished(self, state: State) -> bool:
        exact = state.error <= float(np.finfo(state.W.dtype).eps)
        return exact or (self.tol_applies(state) and state.g_Mg <= 0)

    def columns(self, state: State) -> dict[str, float]:
        found = {"leak": state.leak, "step": state.accepted, "pairs": float(len(state.s_W))}
        return found | ({"penalized": state.penalized} if self.ridge else {})

    def start(self, problem: Problem, W: Array, H: Array) -> State:
        problem = problem.single
        state = self._unevaluated(problem, W.astype(problem.dtype), H.astype(problem.dtype))
        if self.warm_up == 0 or (state.pull and working_set(problem, state.W, state.H) is not None):
            return self.step(problem, state)
        warm = self._first.first_state(problem, state.W, state.H)
        return state.replace(W=warm.W, H=warm.H, error=warm.error, penalized=warm.penalized, warm=warm)

    @property
    def _first(self) -> ThreeBlockFactored:
        return ThreeBlockFactored(ridge=self.ridge)

    def _warmed_up(self, problem: Problem, state: State, warm: State) -> State:
        """A step of 3B; after the last, evaluate its result."""
        if state.age < self.warm_up:
            warm = self._first.next_state(problem, warm)
            found = {"error": warm.error, "penalized": warm.penalized}
            return state.replace(W=warm.W, H=warm.H, age=state.age + 1, warm=warm, **found)
        return self.step(problem, self._unevaluated(problem, warm.W_plain, warm.H_plain))

    def _unevaluated(self, problem: Problem, W: Array, H: Array) -> State:
        """The state before the point is evaluated."""
        W, H = balanced(W, H)
        none = Products(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0), np.inf)
        return State(
            W,
            H,
            np.inf,
            penalized=np.inf,
            by_W=np.zeros_like(W),
            by_H=np.zeros_like(H.T, order="C"),
            objective=np.inf,
            leak=LATENT,
            metric_W=inverse_gram(H @ H.T, 0.0),
            metric_H=inverse_gram(problem.gram(W), 0.0),
            age=0,
            own_W=(),
            own_H=(),
            **vars(none),
            step=0.0,
            trials=0,
            accepted=0.0,
            recent=np.zeros(0),
            patience=_PATIENCE,
            best_W=W,
            best_H=H,
            best_error=np.inf,
            best_penalized=np.inf,
            baseline=np.inf,
            compared=self.ridge > 0,
            steps=0,
            pull=PULL if has_working_sets(problem) else 0.0,
            cycle_gain=np.inf,
            sweep_gain=np.inf,
            swept=False,
            single=problem.mixed and problem.dtype == np.float32,
            made=1,
            **dict.fromkeys(("s_W", "y_W", "s_H", "y_H"), ()),
            warm=None,
        )

    def step(self, problem: Problem, state: State) -> State:
        # One trial step, or the same point with another leak; one pass.
        used = problem.single if state.single else problem
        inner = working_set(used, state.W, state.H) if state.pull and state.warm is None else None
        if state.warm is not None:
            found = self._warmed_up(used, state, state.warm)
        elif inner is not None:
            found = SetSteps(self._trial, self._penalty(used)).iterate(used, state, inner)
            if state.leak == ERROR and not found.compared and found.cycle_gain < _SLOW:
                found = _compared(used, found)
        else:
            found = self._trial(used, state)
        return _in_precision(state, found, problem.mixed).replace(made=found.steps - state.steps)

    def _penalty(self, problem: Problem) -> float:
        return self.ridge * float(np.sqrt(problem.facts.squares))

    def _trial(self, problem: Problem, state: State) -> State:
        """One trial step, or the same point with another leak; one pass."""
        state = state.replace(steps=state.steps + 1)
        if state.steps >= _LONG:
            state = _not_behind(problem, state)
        state, direction = _planned(state)
        if state.leak == ERROR and not state.compared:
            state = _compared(problem, state)
        with np.errstate(over="ignore", invalid="ignore"):  # What is not finite is rejected.
            trial = evaluate(problem, state, direction, self._penalty(problem))
        if direction is None:
            return _evaluated_again(state, trial)
        bound = state.objective + _DECREASE * state.step * direction.slope
        if trial.objective <= bound and np.isfinite(trial.products.g_Mg):
            return self._accepted(state, trial)
        return _rejected(state, trial, direction.slope)

    def _accepted(self, state: State, trial: Trial) -> State:
        products = trial.products
        s_W, y_W = (*state.s_W, trial.s[0]), (*state.y_W, trial.y[0])
        s_H, y_H = (*state.s_H, trial.s[1]), (*state.y_H, trial.y[1])
        if products.s_y[-1, -1] > _CURVATURE * products.y_My[-1, -1] > 0:
            kept = slice(max(0, len(s_W) - self.memory), len(s_W))
        else:  # Not convex along this step: it says nothing about the metric.
            kept = slice(0, len(s_W) - 1)
        recent = np.append(state.recent, trial.objective)[-1 - _LEAST_STEPS :]
        pairs = {"s_W": s_W[kept], "y_W": y_W[kept], "s_H": s_H[kept], "y_H": y_H[kept]}
        following = _known(state, trial, kept)
        following = following.replace(W=trial.W, H=trial.H, age=trial.age, accepted=state.step, recent=recent, **pairs)
        steps, least_decrease = (_WINDOW, state.patience) if state.leak > ERROR else (_LEAST_STEPS, STANDSTILL)
        stalled = len(recent) > steps and recent[-1 - _WINDOW] - recent[-1] < least_decrease * recent[-1 - _WINDOW]
        return _next_level(following) if stalled else following


def _in_precision(before: State, state: State, mixed: bool) -> State:
    """The state in float32 as long as progress is far above rounding, and again when a round begins."""
    recent, begins = state.recent, state.leak > before.leak
    on_sets = state.pull > 0 and state.accepted > 0 and state.cycle_gain < 2 * _SINGLE_DECREASE
    slow = len(recent) > _WINDOW and recent[-1 - _WINDOW] - recent[-1] < _SINGLE_DECREASE * recent[-1 - _WINDOW]
    single = mixed and state.error > _SINGLE_ERROR and (begins or (state.single and not slow and not on_sets))
    return state if single == before.single else state.replace(single=single, step=0.0)


def _planned(state: State) -> tuple[State, Direction | None]:
    """A descent direction, or none if this point is to be evaluated with another leak."""
    if state.step == 0:
        return state, None
    direction = two_loop(products_of(state))
    if direction.slope < 0:
        return state, direction
    if state.s_W:  # Rounding dominates the pairs.
        return _planned(without_pairs(state))
    return _next_level(state), None


def _known(state: State, trial: Trial, pairs: slice) -> State:
    """The state with what the pass found; the next step size is 1."""
    metric: dict[str, Any] = {"metric_W": trial.metric[0], "metric_H": trial.metric[1]}
    metric |= {"own_W": trial.own[0], "own_H": trial.own[1]}
    found: dict[str, Any] = {"error": trial.error, "penalized": trial.penalized, "objective": trial.objective}
    found |= {"by_W": trial.by_W, "by_H": trial.by_H}
    return state.replace(**found, **metric, **vars(trial.products.part(pairs)), step=1.0, trials=0)


def _evaluated_again(state: State, trial: Trial) -> State:
    """The same point with the gradient of another objective. The pairs stay: their curvature is nearly the same."""
    known = _known(state, trial, slice(0, len(state.s_W)))
    return known.replace(age=0, accepted=0.0, recent=np.array([trial.objective]))


def _rejected(state: State, trial: Trial, slope: float) -> State:
    """A shorter step, at the minimum of the parabola through what is known; when none helps, without the pairs."""
    step, trials = state.step, state.trials + 1
    rise = trial.objective - state.objective - slope * step
    lowest = -slope * step**2 / (2 * rise) if np.isfinite(rise) and rise > 0 else 0.0
    state = state.replace(step=min(max(lowest, 0.1 * step), 0.5 * step), trials=trials, accepted=0.0)
    if trials < _MOST_TRIALS:
        return state
    return without_pairs(state) if state.s_W else _next_level(state)


def _compared(problem: Problem, state: State) -> State:
    """With the truncated SVD as the best end of a round, if it is better than those so far; 5 passes as a rule.

    A rough one shows that it is far behind, which is the usual case; else 4 to 20 passes make it exact.
    """
    rough = max(_ROUGH * state.error**2, _EXACT)
    W, H, error = _truncated(problem, rough)
    if error**2 - rough < state.error**2:
        W, H, error = _truncated(problem, _EXACT)
    if not error < min(state.error, state.best_error):
        return state.replace(compared=True)
    best = {"best_W": W, "best_H": H, "best_error": error, "best_penalized": error}
    return state.replace(compared=True, baseline=error, **best)


def _not_behind(problem: Problem, state: State) -> State:
    """The state, or the truncated SVD at leak 0 if that is better."""
    state = state if state.compared else _compared(problem, state)
    return _next_level(state.replace(leak=ERROR)) if state.error > state.baseline else state


def _truncated(problem: Problem, tol: float) -> tuple[Array, Array, float]:
    """The truncated SVD of X, up to a share of its energy, and its error."""
    W, H = balanced(*tsvd_of_x(problem, np.random.default_rng(0), tol))
    return W, H, problem.error(W, H)


def _next_level(state: State) -> State:
    """The next smaller leak; after the last a new round from the best point so far, with less patience."""
    if state.leak > ERROR:
        leak = _SMALLER_LEAK * state.leak
        return state.replace(leak=leak if leak >= _LEAST_LEAK else ERROR, step=0.0)
    beaten = state.error > state.baseline
    if state.penalized < state.best_penalized:
        best = {"best_error": state.error, "best_penalized": state.penalized}
        state = state.replace(best_W=state.W, best_H=state.H, **best)
    again = state.replace(W=state.best_W, H=state.best_H, error=state.best_error, penalized=state.best_penalized)
    again = without_pairs(again).replace(step=0.0, baseline=np.inf)
    return again if beaten else again.replace(leak=_SMALLER_LEAK, patience=_LESS_PATIENCE * state.patience)
