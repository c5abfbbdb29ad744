"""The one loop: iterations, history, stopping criteria, callbacks, the best point so far.

It does not know what a step does, nor where the rows of X are. Every algorithm stops by the same rules, and what is
returned is the best point that was evaluated, whatever ended the run.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.algorithm import Algorithm, State
from relunmd.engine.executor import RowsLostError
from relunmd.engine.linalg.canonical import canonical
from relunmd.engine.problem import Problem
from relunmd.errors import ClusterError, InputError
from relunmd.history import History, Status
from relunmd.init import Init
from relunmd.io.archive import plain
from relunmd.loop.callback import Callback, Progress
from relunmd.loop.checkpoint import Checkpoint
from relunmd.loop.criteria import Clock, Limits
from relunmd.loop.race import Race
from relunmd.loop.recovery import Recovery
from relunmd.loop.trajectory import Trajectory

Array = NDArray[Any]
log = logging.getLogger("relunmd")


@dataclass(frozen=True)
class Outcome:
    """The best factors, in canonical form and the units of X, and how the run ended."""

    W: Any
    H: Array
    error: float
    status: Status
    history: History
    init_time: float
    factors: tuple[Any, Array] = (None, np.empty((0, 0)))
    """W and H as the iterations left them, in the units of the problem, where its rows are."""
    failure: Exception | None = None
    """What a pass over X raised, if the status is READ_FAILED."""


class Run:
    """A run: the race of its initializations, and why it ends."""

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        race: Race,
        limits: Limits,
        clock: Clock,
        callbacks: list[Callback],
    ) -> None:
        self.problem = problem
        self.algorithm = algorithm
        self.race = race
        self.clock = clock
        self.steps = 0
        """States recorded so far, of all trajectories; those repeated after a loss count once."""
        self.recorded = plain(race.random.bit_generator.state), 0
        """The random state and the passes when a state was recorded last; what began since then is repeated."""
        self._limits = limits
        self._callbacks = callbacks
        self._stopped: Status | None = None
        """Why the whole run ends, not only one trajectory."""
        self._failure: OSError | None = None
        """Why X could no longer be read."""
        self._last_step: float = np.inf
        """Number of steps when the run ended."""

    def finish(self, recovery: Recovery) -> Outcome:
        """Run to the end, save it and return the best factors, whatever is lost or fails on the way."""
        lost: RowsLostError | None = None
        while True:
            try:
                if lost is not None:
                    recovery.recover(lost)
                    lost = None
                self._iterate(recovery)
                if not recovery.finish():
                    self._stopped = Status.INTERRUPTED
                return self._outcome()
            except RowsLostError as reason:
                lost = reason
            except KeyboardInterrupt:
                insisted = self._stopped is Status.INTERRUPTED or self.problem.executor.insisted
                if insisted or not self.race.trajectories:
                    raise
                log.warning("Interrupted after iteration %d; keeping the best so far", self.race.leader.iteration)
                self._end(Status.INTERRUPTED)
            except ClusterError:  # No worker is left to write rows; the last checkpoint stays as it is.
                raise
            except BaseException as reason:
                if reason is not self._failure or lost is not None or not self.race.trajectories:
                    recovery.finish_if_possible()
                    raise
                log.error("X could not be read after iteration %d: %s", self.race.leader.iteration, reason)
                self._end(Status.READ_FAILED)

    def _iterate(self, recovery: Recovery) -> None:
        """Iterate until a limit is reached or, after rows were lost, up to where the run had ended."""
        while self.steps < self._last_step:
            trajectory, init = self.race.waiting, self.race.next_init
            if trajectory is not None:
                new_state = self._advance(trajectory)
            elif init is not None:
                trajectory, new_state = self._begin(init), True
            else:
                if not self.race.halve():
                    self._end(self._stopped or self.race.leader.status or Status.MAX_ITER)
                continue
            if new_state:
                self.record(trajectory)
                self.report(trajectory)
                recovery.save()

    def _begin(self, init: Init) -> Trajectory:
        """Initialize, and evaluate the initial factors."""
        with self.reading():
            W, H = init.make(self.problem.single, self.race.random)
        init_time = self.clock.seconds()
        state = self.first_state(W, H)
        if state is None:
            raise InputError(
                f"The initial factors must be finite and of moderate size in {self.problem.dtype}; their error is not "
                "finite. Try another init."
            )
        trajectory = Trajectory(self.algorithm, state, init_time, np.inf)
        self.race.add(trajectory)
        return trajectory

    def _advance(self, trajectory: Trajectory) -> bool:
        """One iteration; return whether it succeeded."""
        state = self._finite(partial(self.algorithm.next_state, self.problem, trajectory.state))
        if state is None:
            log.warning("Iteration %d of %s was not finite", trajectory.iteration + 1, self.algorithm.name)
            trajectory.status = Status.FAILED
            return False
        trajectory.state = state
        return True

    def first_state(self, W: Any, H: Array) -> State | None:
        """The state at some factors; None if it is not finite."""
        return self._finite(partial(self.algorithm.first_state, self.problem, W, H))

    def _finite(self, make: Callable[[], State]) -> State | None:
        """The state that `make` returns; None if it is not finite."""
        try:
            with self.reading():
                state = make()
        except np.linalg.LinAlgError as reason:  # LAPACK was given NaN.
            log.warning("A factorization failed: %s", reason)
            return None
        return state if np.isfinite(state.error) and np.isfinite(state.H).all() else None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Remember what a pass over X raises: a callback may raise the same."""
        try:
            yield
        except OSError as reason:  # A FileError is one.
            self._failure = reason
            raise

    def record(self, trajectory: Trajectory) -> None:
        """Record the state of a trajectory, which is a new one."""
        passes = self.problem.executor.passes
        trajectory.record(self._current_limits, self.clock.seconds(), passes)
        self.steps += 1
        self.recorded = plain(self.race.random.bit_generator.state), passes

    def report(self, trajectory: Trajectory) -> None:
        """Call the callbacks with the state of a trajectory, and end the run if they or a limit ask for it."""
        wishes = []
        if self._callbacks:
            progress = Progress(self.problem, trajectory, self.race.leader.best.error)
            with self.problem.executor.users_code():
                wishes = [callback(progress) for callback in self._callbacks]  # All are called, any may end the run.
        self._end_by_limit(trajectory)
        if any(wishes) and trajectory.status is None:
            self._end(self._stopped or Status.CALLBACK)

    def check_limits(self) -> None:
        """Check the limits for every trajectory, after returning to an earlier point."""
        for trajectory in self.race.trajectories:
            trajectory.check(self._current_limits, self.clock.seconds())
            self._end_by_limit(trajectory)

    def _end_by_limit(self, trajectory: Trajectory) -> None:
        """End the run if a trajectory reached a limit that ends all of them."""
        if trajectory.status in (Status.TARGET, Status.MAX_TIME):
            self._end(self._stopped or trajectory.status)

    def _end(self, status: Status) -> None:
        """End the run here. If rows are lost later, iterations are repeated up to here and never beyond."""
        self._stopped = status
        self._last_step = min(self._last_step, self.steps)

    @property
    def _current_limits(self) -> Limits:
        """The limits; iterations repeated after the end of the run are not cut short by max_time."""
        return self._limits if self._stopped is None else replace(self._limits, max_time=None)

    def _outcome(self) -> Outcome:
        winner = self.race.leader
        W, H = (factor.astype(self.problem.dtype) for factor in winner.best[:2])
        factors, error = (W, H), winner.best.error
        if winner.best.W.dtype != W.dtype and self._failure is None:  # An error in float32 has seven digits.
            with self.reading():
                error = self.problem.error(W, H)
        W, H = canonical(self.problem, W, H)
        interrupted = self.problem.executor.interrupted()  # After the last pass.
        status = Status.INTERRUPTED if interrupted else self._stopped or Status.MAX_ITER
        return Outcome(W, H, error, status, winner.history, winner.init_time, factors, self._failure)


def solve(
    problem: Problem,
    algorithm: Algorithm,
    inits: Sequence[Init],
    random: np.random.Generator,
    limits: Limits,
    clock: Clock,
    callbacks: list[Callback],
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Initialize and run `algorithm` until a limit is reached, resuming from the checkpoint if it exists.

    With several initializations the history is that of the one that the result comes from.
    """
    run = Run(problem, algorithm, Race(inits, random), limits, clock, callbacks)
    recovery = Recovery(run, checkpoint)
    if checkpoint is None:
        return run.finish(recovery)
    with checkpoint.locked():
        recovery.resume()
        return run.finish(recovery)
