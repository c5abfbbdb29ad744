"""THE loop: steps, history, stops, callbacks, the best so far.

It knows nothing of what a step does. Every algorithm stops by the same rules, and what comes
back is always the best point that was evaluated, whatever ended the run.
"""

import logging
import time
from collections.abc import Callable, Sequence
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
FIRST_LEG = 100
"""How many iterations each of several starts is given before the worse half is dropped.

On the identity, rank 3, the best start was dropped after 25 of them: it lay behind others as yet.
"""


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

    def reached(self, best_errors: list[float], seconds: float, settled: int | None = None) -> Status | None:
        """The reason to stop after an iteration, given the best error up to each.

        `tol` is asked of the last `settled` iterations only, of all if that is None.
        """
        error, iteration = best_errors[-1], len(best_errors) - 1
        if self.target_error is not None and error <= self.target_error:
            return Status.TARGET
        if self.tol > 0 and (iteration if settled is None else settled) >= PATIENCE:
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


class _Course:
    """The run from one start: its state, its history and the best point it came to."""

    def __init__(self, state: State, init_time: float) -> None:
        self.state = state
        self.init_time = init_time
        self.best = state.W, state.H, state.error
        self.status: Status | None = None
        self._rows: list[dict[str, float]] = []
        self._best_errors: list[float] = []
        self._settled = -1  # Iterations since the error has been what the algorithm lowers.

    @property
    def iteration(self) -> int:
        return len(self._rows) - 1

    @property
    def history(self) -> History:
        return History.from_rows(self._rows)

    def note(self, limits: Limits, seconds: float, passes: int) -> None:
        """Write down where the state is, and whether it is to go on."""
        state = self.state
        if state.error < self.best[2]:
            self.best = state.W, state.H, state.error
        row = {"iteration": len(self._rows), "time": seconds, "error": state.error, "passes": passes}
        self._rows.append(row | state.columns())
        self._best_errors.append(self.best[2])
        self._settled = self._settled + 1 if state.settled else -1
        self.status = limits.reached(self._best_errors, seconds, self._settled)
        if self.status is None and state.done:
            self.status = Status.CONVERGED


class _Run:
    """What all courses of a run have in common."""

    def __init__(
        self, problem: Problem, algorithm: Algorithm[Any], limits: Limits, clock: Clock, callbacks: list[Callback]
    ) -> None:
        self.courses: list[_Course] = []
        self.stopped: Status | None = None
        """Why the whole run is to end, and not one course alone."""
        self._problem = problem
        self._algorithm = algorithm
        self._limits = limits
        self._clock = clock
        self._callbacks = callbacks

    @property
    def leader(self) -> _Course:
        return min(self.courses, key=lambda course: course.best[2])

    def begin(self, init: Init, random: np.random.Generator) -> _Course:
        """Make a start and the first state from it."""
        W, H = init.make(self._problem, random)
        init_time = self._clock.seconds()
        state = _finite(partial(self._algorithm.start, self._problem, W, H))
        if state is None:
            raise InputError(
                f"The start must be finite and of moderate size in {self._problem.dtype}. Its error is not."
            )
        del W, H  # The state has them; to hold on to them would take their memory for the whole run.
        course = _Course(state, init_time)
        self.courses.append(course)
        self._note(course)
        return course

    def advance(self, course: _Course, most: float) -> None:
        """Up to `most` iterations; fewer if a limit is reached."""
        last = course.iteration + most
        while course.status is None and self.stopped is None and course.iteration < last:
            following = _finite(partial(self._algorithm.step, self._problem, course.state))
            if following is None:
                log.warning("Iteration %d of %s was not finite", course.iteration + 1, self._algorithm.name)
                course.status = Status.FAILED
                return
            course.state = following
            self._note(course)

    def _note(self, course: _Course) -> None:
        seconds, passes = self._clock.seconds(), self._problem.executor.passes
        course.note(self._limits, seconds, passes)
        wishes = []
        if self._callbacks:
            progress = _progress(self._problem, course.state, course.iteration, seconds, passes)
            with self._problem.executor.users_code():
                wishes = [callback(progress) for callback in self._callbacks]  # All are told, any may end the run.
        if course.status in (Status.TARGET, Status.MAX_TIME):
            self.stopped = course.status
        elif any(wishes) and course.status is None:
            self.stopped = Status.CALLBACK


def solve(
    problem: Problem,
    algorithm: Algorithm[Any],
    inits: Sequence[Init],
    random: np.random.Generator,
    limits: Limits,
    clock: Clock,
    callbacks: list[Callback],
) -> Outcome:
    """Make the starts and run `algorithm` from them until a limit is reached.

    Several starts are raced: after a leg of some iterations the worse half is dropped, and the next leg is twice as
    long, until one is left, which runs on. The history is that of the start that the result comes from.
    """
    run = _Run(problem, algorithm, limits, clock, callbacks)
    try:
        for init in inits:
            course = run.begin(init, random)
            if len(inits) > 1:
                run.advance(course, FIRST_LEG)
            if run.stopped:
                break
        leg = FIRST_LEG
        while len(run.courses) > 1 and not run.stopped:
            run.courses.sort(key=lambda course: course.best[2])
            del run.courses[(len(run.courses) + 1) // 2 :]
            leg *= 2
            if len(run.courses) > 1:
                for course in run.courses:
                    run.advance(course, leg)
        run.advance(run.leader, np.inf)
        status = run.stopped or run.leader.status or Status.MAX_ITER
    except KeyboardInterrupt:
        if not run.courses:
            raise
        log.warning("Interrupted after iteration %d; keeping the best so far", run.leader.iteration)
        status = Status.INTERRUPTED
    winner = run.leader
    return Outcome(*winner.best, status, winner.history, winner.init_time)


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
