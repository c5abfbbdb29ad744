"""THE loop: steps, history, stops, callbacks, the best so far, checkpoints.

It knows nothing of what a step does. Every algorithm stops by the same rules, and what comes
back is always the best point that was evaluated, whatever ended the run.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.algorithm import Algorithm, State
from relunmd.engine.executor import RowsLostError
from relunmd.engine.linalg import canonical
from relunmd.engine.problem import Problem
from relunmd.engine.row_newton import fit_rows
from relunmd.errors import ClusterError, InputError, RelunmdError
from relunmd.init import Init
from relunmd.io.archive import amount, count, plain
from relunmd.loop.checkpoint import Checkpoint, Snapshot
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
    """Seconds since it was made, or those of an earlier run and since then."""

    def __init__(self) -> None:
        self.set(0.0)

    def set(self, seconds: float) -> None:
        """Go on from so many seconds."""
        self._start = time.perf_counter() - seconds

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
    best_error : the smallest error so far, of all iterations, starts and sittings
    workers, bytes_moved : of a run on a cluster, how many workers it has, and how many bytes of arrays have left the
        driver and come to it since X was opened; None on one machine
    W, H : the factors of this iteration, made when they are asked for
    """

    def __init__(
        self,
        iteration: int,
        time: float,
        error: float,
        passes: int,
        best_error: float,
        factors: Callable[[], tuple[Array, Array]],
        workers: int | None = None,
        bytes_moved: int | None = None,
    ) -> None:
        self.workers = workers
        self.bytes_moved = bytes_moved
        self.iteration = iteration
        self.time = time
        self.error = error
        self.passes = passes
        self.best_error = best_error
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
    """The best factors, in canonical form and the units of X, and how the run went."""

    W: Any
    H: Array
    error: float
    status: Status
    history: History
    init_time: float
    failure: Exception | None = None
    """What a pass over X raised, if the status is READ_FAILED."""


class _Course:
    """The run from one start: its state, its history and the best point it came to."""

    def __init__(self, state: State, init_time: float, goal: float) -> None:
        self.state = state
        self.init_time = init_time
        self.goal = goal
        """The iteration up to which it may go for now."""
        self.best = state.W, state.H, state.error
        self.status: Status | None = None
        self._rows: list[dict[str, float]] = []
        self._best_errors: list[float] = []
        self._settled = -1  # Iterations since the error has been what the algorithm lowers.

    @property
    def iteration(self) -> int:
        return len(self._rows) - 1

    @property
    def seconds(self) -> float:
        """When the state was noted."""
        return self._rows[-1]["time"]

    @property
    def passes(self) -> int:
        return int(self._rows[-1]["passes"])

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
        self.look_at(limits, seconds)

    def rewind(self, state: State) -> int:
        """Continue from a state that stands for the best one, whose rows are lost; returns how many iterations back.

        Its error may be larger than the one that is lost. The history is cut where it first had an error as small, or
        at the best iteration, and the state is noted next: the smallest error is that of the best factors again, and
        `tol` applies to the iterations from here on.
        """
        errors = [row["error"] for row in self._rows]
        length = next((i for i, error in enumerate(errors) if error <= state.error), int(np.argmin(errors)))
        removed = len(self._rows) - length
        del self._rows[length:], self._best_errors[length:]
        self.state, self.best, self._settled = state, (state.W, state.H, state.error), -1
        return removed

    def look_at(self, limits: Limits, seconds: float) -> None:
        """Say whether it is to go on."""
        if self.status is Status.FAILED:  # It would again.
            return
        self.status = limits.reached(self._best_errors, seconds, self._settled)
        if self.status is None and self.state.done:
            self.status = Status.CONVERGED

    def flattened(self) -> Snapshot:
        """All of it; the arrays are its own."""
        W, H, error = self.best
        about = {
            "init_time": self.init_time,
            "goal": None if self.goal == np.inf else self.goal,
            "best_error": error,
            "settled": self._settled,
            "failed": self.status is Status.FAILED,
        }
        arrays = {f"state.{name}": array for name, array in self.state.to_arrays().items()}
        columns = {f"history.{name}": column for name, column in self.history.columns.items()}
        return Snapshot(about, arrays | columns | {"best.W": W, "best.H": H})

    @classmethod
    def restored(cls, snapshot: Snapshot, state_type: type[State], problem: Problem) -> "_Course":
        """What was flattened; an exception if it cannot be one of this problem."""
        about, parts = snapshot.about, {"state": {}, "history": {}, "best": {}}  # type: ignore[var-annotated]
        for name, array in snapshot.arrays.items():
            kind, _, rest = name.partition(".")
            parts[kind][rest] = array
        try:
            state = state_type.from_arrays(parts["state"])
        except InputError as reason:
            raise ValueError(f"it is of another version of the algorithm: {reason}") from reason
        goal = np.inf if about["goal"] is None else count(about["goal"], "goal")
        course = cls(state, amount(about["init_time"], "init_time"), goal)
        course.best = parts["best"]["W"], parts["best"]["H"], amount(about["best_error"], "best_error")
        misfit = state.misfit(problem) or State(*course.best).misfit(problem)
        if misfit:
            raise ValueError(misfit)
        history, length = History.from_columns(parts["history"]), len(parts["history"]["error"])
        columns = history.columns
        if columns.keys() != parts["history"].keys() or history.extra.keys() != state.columns().keys():
            raise ValueError("a history of other columns")
        if {column.shape for column in columns.values()} != {(length,)}:
            raise ValueError("a history of columns of different lengths")
        if not (np.isfinite(history.time).all() and np.array_equal(history.iteration, np.arange(length))):
            raise ValueError("a history of other iterations")
        course._rows = [
            dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)
        ]
        course._best_errors = np.minimum.accumulate(history.error).tolist()
        course._settled = count(about["settled"] + 1, "settled") - 1
        if course._best_errors[-1] != course.best[2] or course._settled >= length:
            raise ValueError("a history that does not lead to the best factors")
        course.status = Status.FAILED if about["failed"] else None
        return course


class _Run:
    """What all courses of a run have in common, and which of them goes on.

    Several starts are raced: after a leg of some iterations the worse half is dropped, and the next leg is twice as
    long, until one is left, which runs on.
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm[Any],
        inits: Sequence[Init],
        random: np.random.Generator,
        limits: Limits,
        clock: Clock,
        callbacks: list[Callback],
        checkpoint: Checkpoint | None,
    ) -> None:
        self.courses: list[_Course] = []
        self._stopped: Status | None = None
        """Why the whole run ends, and not one course alone."""
        self._failure: OSError | None = None
        """Why X could not be read any more."""
        self._steps = 0
        """States noted so far, of all courses; those that are repeated after a loss count once."""
        self._last_step: float = np.inf
        """How many there may be: as many as there were when the run ended."""
        self._problem = problem
        self._algorithm = algorithm
        self._inits = inits
        self._random = random
        self._limits = limits
        self._clock = clock
        self._callbacks = callbacks
        self._checkpoint = checkpoint
        self._begun = 0
        self._leg = FIRST_LEG
        self._kept: Snapshot | None = None
        """Where the run goes back to when rows are lost with a worker."""
        self._saved = False
        """Whether there has been a snapshot or a checkpoint: to start again would lose more than seconds."""
        self._first_random = plain(random.bit_generator.state)
        self._noted = plain(random.bit_generator.state), 0
        """The random state and the passes when a state was noted last; what was begun since then is begun again."""

    @property
    def leader(self) -> _Course:
        return min(self.courses, key=lambda course: course.best[2])

    def outcome(self) -> Outcome:
        """Run to the end, save the end and return the best factors, whatever is lost or fails on the way."""
        lost: RowsLostError | None = None
        while True:
            try:
                if lost is not None:
                    self._recover(lost)
                    lost = None
                self._go()
                if not self._finish():
                    self._stopped = Status.INTERRUPTED
                return self._handed_over()
            except RowsLostError as reason:
                lost = reason
            except KeyboardInterrupt:
                insisted = self._stopped is Status.INTERRUPTED or self._problem.executor.insisted
                if insisted or not self.courses:
                    raise
                log.warning("Interrupted after iteration %d; keeping the best so far", self.leader.iteration)
                self._end(Status.INTERRUPTED)
            except ClusterError:  # No worker is left to write rows; the last checkpoint stays as it is.
                raise
            except BaseException as reason:
                if reason is not self._failure or lost is not None or not self.courses:
                    with suppress(RowsLostError):
                        self._finish()
                    raise
                log.error("X could not be read after iteration %d: %s", self.leader.iteration, reason)
                self._end(Status.READ_FAILED)

    def _handed_over(self) -> Outcome:
        winner = self.leader
        W, H = self.factors()
        interrupted = self._problem.executor.interrupted()  # After the last pass.
        status = Status.INTERRUPTED if interrupted else self._stopped or Status.MAX_ITER
        return Outcome(W, H, winner.best[2], status, winner.history, winner.init_time, self._failure)

    def factors(self) -> tuple[Any, Array]:
        """The best factors in canonical form and the units of X; X is not read."""
        return canonical(self._problem, *self.leader.best[:2])

    def _end(self, status: Status) -> None:
        """End the run here with this status.

        If rows are lost later, iterations are repeated up to here and never beyond.
        """
        self._stopped = status
        self._last_step = min(self._last_step, self._steps)

    def _go(self) -> None:
        """Iterate until a limit is reached or, after rows were lost, until where the run had ended."""
        while self._steps < self._last_step:
            if not self._go_on():
                self._end(self._stopped or self.leader.status or Status.MAX_ITER)

    def _go_on(self) -> bool:
        """The next iteration, start or selection; returns whether there was one."""
        waiting = [course for course in self.courses if course.status is None and course.iteration < course.goal]
        if waiting:
            self._advance(waiting[0])
        elif self._begun < len(self._inits):
            self._begin()
        elif len(self.courses) > 1 and not any(course.status is Status.MAX_ITER for course in self.courses):
            self._halve()
        else:  # With more iterations the ones that lie behind might win yet.
            return False
        return True

    def _recover(self, reason: RowsLostError) -> None:
        """Go back to the last snapshot, else to the checkpoint, else to the start, else rebuild the rows of W from H.

        Raises RowsLostError if rows are lost meanwhile; it can be called again then.
        """
        if self._kept is not None and self._problem.executor.restore():
            self._restore(self._kept)
            log.warning("%s. Resuming from iteration %d", reason, self.leader.iteration)
        elif self._reread():
            log.warning("%s. Resuming from the checkpoint, iteration %d", reason, self.leader.iteration)
        elif not self.courses or not self._saved:
            log.warning("%s. Starting again", reason)
            self.courses, self._begun, self._leg, self._steps = [], 0, FIRST_LEG, 0
            self._random.bit_generator.state = self._first_random
        else:
            log.warning("%s, and its copies too. Recomputing the rows of W from X and H", reason)
            self._rebuild()
        self._look_at_courses()

    def _reread(self) -> bool:
        """Go back to the checkpoint; returns whether it could be used."""
        self._kept = None
        snapshot = None if self._checkpoint is None else self._checkpoint.reread()
        if self._checkpoint is None or snapshot is None:
            return False
        try:
            with self._checkpoint.making_sense():
                self._restore(self._with_rows(snapshot))
        except ClusterError:
            raise
        except RelunmdError as reason:
            log.warning("The checkpoint %s cannot be used: %s", self._checkpoint.place, reason)
            return False
        return True

    def _rebuild(self) -> None:
        """Continue each course from its best H, with the best rows for it."""
        states = []
        for course in self.courses:
            H = course.best[1]
            with self._reading():
                W = fit_rows(self._problem, H).W * self._problem.dtype.type(self._problem.matrix.scale)
                state = _finite(partial(self._algorithm.start, self._problem, W, H))
            if state is None:
                raise ClusterError(
                    "Rows of W were lost with a worker and could not be recomputed: a value was not finite. Call "
                    "again; with a checkpoint on a file system that all workers see the run resumes from it."
                )
            states.append(state)
        self._random.bit_generator.state = self._noted[0]
        for course, state in zip(self.courses, states, strict=True):
            self._steps -= course.rewind(state)
        for course in self.courses:
            self._record(course)
        for course in self.courses:
            self._tell(course)
        self._save()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Remembers what a pass over X raises, which a callback may raise as well."""
        try:
            yield
        except OSError as reason:  # A FileError is one.
            self._failure = reason
            raise

    def _begin(self) -> None:
        """Make a start and the first state from it."""
        with self._reading():
            W, H = self._inits[self._begun].make(self._problem, self._random)
            init_time = self._clock.seconds()
            state = _finite(partial(self._algorithm.start, self._problem, W, H))
        if state is None:
            raise InputError(
                f"The start must be finite and of moderate size in {self._problem.dtype}. Its error is not."
            )
        del W, H  # The state has them; to hold on to them would take their memory for the whole run.
        course = _Course(state, init_time, np.inf if len(self._inits) == 1 else FIRST_LEG)
        self.courses.append(course)
        self._begun += 1
        self._note(course)

    def _advance(self, course: _Course) -> None:
        """One iteration."""
        with self._reading():
            following = _finite(partial(self._algorithm.step, self._problem, course.state))
        if following is None:
            log.warning("Iteration %d of %s was not finite", course.iteration + 1, self._algorithm.name)
            course.status = Status.FAILED
            return
        writing = self._checkpoint is not None and self._checkpoint.busy
        course.state = following.without_scratch() if writing else following
        self._note(course)

    def _halve(self) -> None:
        self.courses.sort(key=lambda course: course.best[2])
        del self.courses[(len(self.courses) + 1) // 2 :]
        self._leg *= 2
        for course in self.courses:
            course.goal = course.iteration + self._leg if len(self.courses) > 1 else np.inf

    def _note(self, course: _Course) -> None:
        self._record(course)
        self._tell(course)
        self._save()

    def _record(self, course: _Course) -> None:
        """Write down the state of a course, which is a new one."""
        passes = self._problem.executor.passes
        course.note(self._current_limits, self._clock.seconds(), passes)
        self._steps += 1
        self._noted = plain(self._random.bit_generator.state), passes

    def _tell(self, course: _Course) -> None:
        """Call the callbacks with the state of a course, and end the run if they or a limit ask for it."""
        wishes = []
        if self._callbacks:
            progress = _progress(self._problem, course, self.leader.best[2])
            with self._problem.executor.users_code():
                wishes = [callback(progress) for callback in self._callbacks]  # All are told, any may end the run.
        self._end_by_limit(course)
        if any(wishes) and course.status is None:
            self._end(self._stopped or Status.CALLBACK)

    def _end_by_limit(self, course: _Course) -> None:
        """End the run if a course reached a limit that ends all of them."""
        if course.status in (Status.TARGET, Status.MAX_TIME):
            self._end(self._stopped or course.status)

    def _look_at_courses(self) -> None:
        """Ask the limits about every course, after going back."""
        for course in self.courses:
            course.look_at(self._current_limits, self._clock.seconds())
            self._end_by_limit(course)

    @property
    def _current_limits(self) -> Limits:
        """The limits; iterations that are repeated after the end of the run are not cut short by max_time."""
        return self._limits if self._stopped is None else replace(self._limits, max_time=None)

    def _save(self) -> None:
        """Write a checkpoint and keep copies of the rows, if either is due."""
        if self._checkpoint is not None and self._checkpoint.due and (snapshot := self._stored(self._checkpoint)):
            self._checkpoint.begin(snapshot)
        if self._problem.executor.keep_due:
            kept = self.snapshot()
            self._problem.executor.keep(kept.arrays)
            self._kept, self._saved = kept, True

    @property
    def _mark(self) -> list[float]:
        """Which moment of the run it is: no two have the same times."""
        return [self._begun, *(x for course in self.courses for x in (course.iteration, course.seconds))]

    def snapshot(self) -> Snapshot:
        """The run as it is now; the arrays are its own."""
        courses = [course.flattened() for course in self.courses]
        random, passes = self._noted
        about = {
            "mark": self._mark,
            "courses": [course.about for course in courses],
            "begun": self._begun,
            "leg": self._leg,
            "steps": self._steps,
            "random": random,
            "seconds": self._clock.seconds(),
            "passes": passes,
        }
        arrays = {f"{i}.{name}": array for i, course in enumerate(courses) for name, array in course.arrays.items()}
        return Snapshot(about, arrays)

    def _stored(self, checkpoint: Checkpoint) -> Snapshot | None:
        """A snapshot of what is in memory, rows that are elsewhere having been written there; None if that fails."""
        snapshot = self.snapshot()
        try:
            about = self._problem.executor.write_rows(snapshot.arrays, checkpoint.place)
        except OSError as reason:
            checkpoint.failed(reason)
            return None
        here = {name: array for name, array in snapshot.arrays.items() if isinstance(array, np.ndarray)}
        return Snapshot(snapshot.about | {"rows": about}, here) if about else snapshot

    def _with_rows(self, snapshot: Snapshot) -> Snapshot:
        """With the rows that were written elsewhere."""
        place = Path() if self._checkpoint is None else self._checkpoint.place
        rows = self._problem.executor.read_rows(self._problem.matrix, snapshot.about.get("rows"), place)
        return Snapshot(snapshot.about, snapshot.arrays | rows)

    def _finish(self) -> bool:
        """Write the last checkpoint unless the file has it; returns False if Ctrl-C ended the waiting."""
        checkpoint, pressed = self._checkpoint, self._problem.executor.interrupted
        if checkpoint is None or not self.courses:
            return True
        if not checkpoint.wait(pressed):
            return False
        if checkpoint.holds(self._mark) or (snapshot := self._stored(checkpoint)) is None:
            return True
        checkpoint.begin(snapshot)
        return checkpoint.wait(pressed)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go back to where the checkpoint is, if there is one."""
        snapshot = checkpoint.open()
        if snapshot is None:
            return
        while True:
            try:
                with checkpoint.making_sense():
                    self._restore(self._with_rows(snapshot))
                    self._clock.set(amount(snapshot.about["seconds"], "seconds"))
                self._check_best()
                break
            except RowsLostError as reason:  # Nothing is wrong with the file.
                log.warning("%s. Reading the checkpoint %s again", reason, checkpoint.place)
        self._saved = True
        self._look_at_courses()
        leader, seconds = self.leader, self._clock.seconds()
        log.info(
            "Going on from %s: iteration %d, error %.6g, after %.1f s",
            checkpoint.place,
            leader.iteration,
            leader.best[2],
            seconds,
        )

    def _restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of the same run; an exception if it is none."""
        about = snapshot.about
        courses = [
            _Course.restored(Snapshot(course, _of(snapshot.arrays, f"{i}.")), self._algorithm.state_type, self._problem)
            for i, course in enumerate(about["courses"])
        ]
        begun, leg, passes = (count(about[name], name) for name in ("begun", "leg", "passes"))
        if not 1 <= len(courses) <= begun <= len(self._inits):
            raise ValueError(f"{len(courses)} courses of {begun} starts")
        # Checkpoints of relunmd 0.1.0 have no number of steps.
        steps = count(about.get("steps", sum(course.iteration + 1 for course in courses)), "steps")
        _check_positions(about["random"])
        self._random.bit_generator.state = about["random"]
        self._noted = about["random"], passes
        self.courses, self._begun, self._leg, self._steps = courses, begun, leg, steps

    def _check_best(self) -> None:
        """Whether the best factors fit this X as they are said to: a fingerprint does not see rows change places."""
        W, H, error = self.leader.best
        found = self._problem.error(W, H)
        self._problem.executor.passes = self._noted[1]
        if not abs(found - error) <= 1e-3 * error + 1e-5:
            raise InputError(
                f"checkpoint must be of the same X. On this one its factors have the error {found:.6g}, and they had "
                f"{error:.6g}: are the rows or columns in another order?"
            )


def _check_positions(random: Mapping[str, Any]) -> None:
    """NumPy takes any place in the buffers of MT19937 and Philox for a good one."""
    inner = random.get("state")
    for place, last in ((random.get("buffer_pos", 0), 4), (inner.get("pos", 0) if isinstance(inner, dict) else 0, 624)):
        if not 0 <= place <= last:
            raise ValueError("a random state that cannot be")


def _of(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def solve(
    problem: Problem,
    algorithm: Algorithm[Any],
    inits: Sequence[Init],
    random: np.random.Generator,
    limits: Limits,
    clock: Clock,
    callbacks: list[Callback],
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Initialize and run `algorithm` until a limit is reached, resuming from the checkpoint if there is one.

    With several initializations the history is that of the one that the result comes from.
    """
    run = _Run(problem, algorithm, inits, random, limits, clock, callbacks, checkpoint)
    if checkpoint is None:
        return run.outcome()
    with checkpoint.locked():
        run.resume(checkpoint)
        return run.outcome()


def _finite(advance: Callable[[], State]) -> State | None:
    """The state that `advance` gives; None if it is not finite."""
    try:
        state = advance()
    except np.linalg.LinAlgError as reason:  # LAPACK's way to say that it was given NaN.
        log.warning("A factorisation failed: %s", reason)
        return None
    return state if np.isfinite(state.error) and np.isfinite(state.H).all() else None


def _progress(problem: Problem, course: _Course, best_error: float) -> Progress:
    W, H, error = course.state.W, course.state.H, course.state.error
    facts = problem.executor.facts()
    return Progress(
        course.iteration,
        course.seconds,
        error,
        course.passes,
        best_error,
        lambda: canonical(problem, W, H),
        **facts,
    )
