"""How "qn" moves on very sparse X: cycles of its own steps on working sets, and sweeps of Newton steps.

A cycle is ten steps on a working set, with weight·‖WH − W₀H₀‖² added to keep Θ near that of the last pass, and the pass
that finds the next set, on which value and gradient are those of X. Where cycles are slow, as at small ranks, sweeps
(`engine/newton_sweep.py`) take over as long as they are better: on tf-idf of classic at rank 8 the error after 10 s was
.722 in place of .747, means of four seeds, and on kos .733 in place of .744. Sweeps wherever they decrease F² at all
were worse at rank 32: kos had .4956 after 12 s in place of .4868.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relunmd.algorithm.quasi_newton_pass import without_pairs
from relunmd.algorithm.state import State
from relunmd.engine.newton_sweep import sweep
from relunmd.engine.passes import ERROR
from relunmd.engine.problem import Anchor, Problem
from relunmd.engine.working_set import keep_working_set, working_set

_CYCLE = 10
"""Steps on a working set before X is seen again."""
_SHARES = (1.0, 0.5, 0.25)
"""Shares of the way of a cycle that are tried until F² decreases. Undoing it at once left tf-idf of classic at .769
after 10 s, where this reached .744."""
_LITTLE, _BETTER = 0.02, 4.0
"""A sweep follows a cycle that decreased F² by less, if the last sweep decreased it so many times as much: it takes
twice the time and more. With 2 in place of 4 tf-idf was level, and classic at rank 32 0.5 % worse after 16 s."""
STANDSTILL = 1e-5
"""A relative decrease of F² below which there is no progress."""
PULL, _MOST_PULL = 0.02, 1.0
"""The weight of the distance from the point where the working set was found: the first, and the largest."""


def sweep_follows(state: State) -> bool:
    """Return whether the next iteration on a working set is a sweep."""
    least = min(state.sweep_gain, _BETTER * _LITTLE)
    return bool(state.leak == ERROR and state.step > 0 and _BETTER * state.cycle_gain < least)


@dataclass(frozen=True)
class SetSteps:
    """Iterations on working sets, given one step of "qn" and the weight of ‖W‖² + ‖H‖²."""

    trial: Callable[[Problem, State], State]
    penalty: float

    def iterate(self, problem: Problem, state: State, inner: Problem) -> State:
        """A cycle, one pass as a rule, or a sweep, three passes; `inner` is the problem on the working set."""
        return (self._sweep if sweep_follows(state) else self._cycle)(problem, state, inner)

    def _cycle(self, problem: Problem, state: State, inner: Problem) -> State:
        """Steps on the working set, then the next working set, whose squared error is that of X; one pass.

        If the objective did not decrease, the way is shortened, a pass for each share; then the steps are rejected.
        """
        near = replace(inner, anchor=Anchor(state.W, np.ascontiguousarray(state.H.T), state.pull))
        if state.step == 0:
            initial = np.isinf(state.objective)
            state = self._on_set(near, state)
            if initial:
                return state
        last = self._steps_on_set(near, state)
        for share in _SHARES:
            found = self._moved(problem, state, last, share)
            decrease, expected = state.objective - found.objective, state.objective - last.objective
            if decrease > 0:
                break
        else:
            return _rejected_cycle(problem, state, inner)
        pull = state.pull * (0.5 if decrease > 0.7 * expected else 1.0 if decrease > 0.3 * expected else 2.0)
        if state.leak == ERROR and decrease < STANDSTILL * state.objective:
            pull = 0.0  # The rest is up to steps on all of X.
        found = found.replace(pull=pull, accepted=1.0, cycle_gain=decrease / state.objective, swept=False)
        return found if last.leak == state.leak else found.replace(leak=last.leak, step=0.0)

    def _moved(self, problem: Problem, state: State, last: State, share: float) -> State:
        """The point that is a share of the way from `state` to `last`, on its working set; one pass."""
        W, H = last.W, last.H
        if share < 1:
            W, H = (A + A.dtype.type(share) * (B - A) for A, B in ((state.W, W), (state.H, H)))
        moved = last.replace(W=W, H=np.ascontiguousarray(H), leak=state.leak, step=0.0)
        following = working_set(problem, moved.W, moved.H)
        return moved.replace(objective=np.inf) if following is None else self._on_set(following, moved)

    def _sweep(self, problem: Problem, state: State, inner: Problem) -> State:
        """Newton steps for all rows and all columns, and the next working set; three passes. A cycle if they fail."""
        moved = sweep(problem, state.W, state.H, self.penalty)
        last = state if moved is None else state.replace(W=moved[0], H=np.ascontiguousarray(moved[1].T), step=0.0)
        following = None if moved is None else working_set(problem, last.W, last.H)
        found = last if following is None else self._on_set(following, last)
        gain = 1 - found.objective / state.objective
        if not gain > STANDSTILL:
            keep_working_set(problem, state.W, state.H, inner)
            return self._cycle(problem, state.replace(sweep_gain=0.0), inner)
        return found.replace(accepted=1.0, sweep_gain=gain, swept=True, steps=state.steps + _CYCLE)

    def _steps_on_set(self, near: Problem, state: State) -> State:
        """Some steps, fewer if the level ends; `step` is 0 then."""
        for _ in range(_CYCLE):
            following = self._on_set(near, state)
            if following.leak > state.leak:  # A new round, for which all of X is needed.
                break
            state = following
            if state.step == 0:
                break
        return state

    def _on_set(self, inner: Problem, state: State) -> State:
        """One trial on a working set, where the truncated SVD plays no part."""
        found = self.trial(inner, state.replace(compared=True, baseline=np.inf))
        return found.replace(compared=state.compared, baseline=state.baseline)


def _rejected_cycle(problem: Problem, state: State, inner: Problem) -> State:
    """The state and its working set, to be left by shorter steps; on all of X if those do not help either."""
    keep_working_set(problem, state.W, state.H, inner)
    pull = 8 * state.pull
    return without_pairs(state).replace(pull=pull if pull <= _MOST_PULL else 0.0, accepted=0.0)
