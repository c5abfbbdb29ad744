"""THE loop: steps, history, stops, callbacks, the best so far.

It knows nothing of what a step does. Every algorithm stops by the same rules, and what comes
back is always the best point that was evaluated, whatever ended the run.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.algorithms import Algorithm, State
from relunmd.errors import InputError
from relunmd.init import Init
from relunmd.linalg import canonical_factors
from relunmd.problem import Problem
from relunmd.result import History, Status

__all__ = ["Callback", "Clock", "Limits", "Outcome", "Progress", "solve"]

Array = NDArray[Any]
log = logging.getLogger("relunmd")

PATIENCE = 10
"""Over how many iterations `tol` is measured."""


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start


@dataclass(frozen=True)
class Limits:
    """When to stop; each means the same for every algorithm, and None or 0 turns it off."""

    target_error: float | None = None
    tol: float = 1e-4
    max_iter: int | None = 1000
    max_time: float | None = None

    def reached(self, best_errors: list[float], seconds: float) -> Status | None:
        """The reason to stop after an iteration, given the best error up to each."""
        error, iteration = best_errors[-1], len(best_errors) - 1
        if self.target_error is not None and error <= self.target_error:
            return Status.TARGET
        if self.tol > 0 and iteration >= PATIENCE:
            earlier = best_errors[-1 - PATIENCE]
            if earlier - error <= self.tol * earlier:
                return Status.CONVERGED
        if self.max_iter is not None and iteration >= self.max_iter:
            return Status.MAX_ITER
        if self.max_time is not None and seconds >= self.max_time:
            return Status.MAX_TIME
        return None


class Progress:
    """What a callback is told after the start and after every iteration.

    Attributes
    ----------
    iteration : 0 for the start
    time : seconds since the call
    error : relative error of the factors of this iteration
    passes : looks at all of X so far
    W, H : the factors of this iteration, made when they are asked for
    """

    def __init__(
        self, iteration: int, time: float, error: float, passes: int, factors: Callable[[], tuple[Array, Array]]
    ) -> None:
        self.iteration = iteration
        self.time = time
        self.error = error
        self.passes = passes
        self._factors = factors
        self._made: tuple[Array, Array] | None = None

    def _make(self) -> tuple[Array, Array]:
        if self._made is None:
            self._made = self._factors()
        return self._made

    @property
    def W(self) -> Array:
        """The factor W of this iteration, m×rank, in canonical form and the units of X."""
        return self._make()[0]

    @property
    def H(self) -> Array:
        """The factor H of this iteration, rank×n."""
        return self._make()[1]

    def __repr__(self) -> str:
        return (
            f"Progress(iteration={self.iteration}, time={self.time:.3f}, error={self.error:.6g}, passes={self.passes})"
        )


Callback = Callable[[Progress], bool | None]


@dataclass(frozen=True)
class Outcome:
    """The best factors, in scaled units, and how the run went."""

    W: Array
    H: Array
    error: float
    status: Status
    history: History
    init_time: float


def solve(
    problem: Problem,
    algorithm: Algorithm[Any],
    init: Init,
    random: np.random.Generator,
    limits: Limits,
    clock: Clock,
    callbacks: list[Callback],
) -> Outcome:
    """Make a start and run `algorithm` from it until a limit is reached."""
    W, H = init.make(problem, random)
    init_time = clock.seconds()
    state = _finite(partial(algorithm.start, problem, W, H))
    if state is None:
        raise InputError(f"The start must be finite and of moderate size in {problem.dtype}. Its error is not.")
    del W, H  # The state has them; to hold on to them would take their memory for the whole run.
    best = state.W, state.H, state.error
    rows: list[dict[str, float]] = []
    best_errors: list[float] = []
    status: Status | None = None
    try:
        while True:
            seconds, passes = clock.seconds(), problem.executor.passes
            if state.error < best[2]:
                best = state.W, state.H, state.error
            rows.append(
                {"iteration": len(rows), "time": seconds, "error": state.error, "passes": passes} | state.columns()
            )
            best_errors.append(best[2])
            status = limits.reached(best_errors, seconds)
            if status is None and state.done:
                status = Status.CONVERGED
            if callbacks:
                progress = _progress(problem, state, len(rows) - 1, seconds, passes)
                with problem.executor.users_code():
                    wishes = [callback(progress) for callback in callbacks]  # All are told, any may end the run.
                if any(wishes) and status is None:
                    status = Status.CALLBACK
            if status is not None:
                break
            following = _finite(partial(algorithm.step, problem, state))
            if following is None:
                log.warning("Iteration %d of %s was not finite", len(rows), algorithm.name)
                status = Status.FAILED
                break
            state = following
    except KeyboardInterrupt:
        log.warning("Interrupted after iteration %d; keeping the best so far", len(rows) - 1)
        status = Status.INTERRUPTED
    return Outcome(*best, status, History.from_rows(rows), init_time)


def _finite(advance: Callable[[], State]) -> State | None:
    """The state that `advance` gives; None if it is not finite."""
    try:
        state = advance()
    except np.linalg.LinAlgError as reason:  # LAPACK's way to say that it was given NaN.
        log.warning("A factorisation failed: %s", reason)
        return None
    return state if np.isfinite(state.error) and np.isfinite(state.H).all() else None


def _progress(problem: Problem, state: State, iteration: int, seconds: float, passes: int) -> Progress:
    W, H, scale = state.W, state.H, problem.matrix.scale
    return Progress(iteration, seconds, state.error, passes, lambda: canonical_factors(W, H, scale))
