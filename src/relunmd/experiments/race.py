"""One run: a contender on a matrix from a given start, timed, and scored outside the timed part."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd import kernels
from relunmd.executor import ThreadExecutor, usable_cores
from relunmd.experiments.contenders import Contender, Method
from relunmd.init import INITS
from relunmd.linalg import canonical_factors
from relunmd.solve import Limits
from relunmd.validation import check_random_state, make_problem

__all__ = ["Arena", "Course", "Start"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Start:
    """Factors to begin with, their error, and the seconds it took to make them."""

    W: Array
    H: Array
    error: float
    seconds: float


@dataclass
class Course:
    """How a run went: seconds and error after every iteration, 0 being the start."""

    times: list[float]
    errors: list[float]
    status: str = ""
    best: tuple[Array, Array] | None = field(default=None, repr=False)


class Arena:
    """A matrix in float64 on which contenders run and are scored alike."""

    def __init__(self, X: Array) -> None:
        self.X = np.array(X, dtype=np.float64)
        self.X.flags.writeable = False
        kernels.warm_up(self.X.dtype)
        # The executor is opened for each use and not kept open: meanwhile BLAS has its threads, for contenders' sake.
        self._executor = ThreadExecutor(usable_cores())
        with self._executor:
            self._problem = make_problem(self.X, self.X.dtype, 1, self._executor)

    def start(self, rank: int, init: str, seed: int) -> Start:
        """A start as `decompose` would make it from this seed, in the units of X."""
        begin = time.perf_counter()
        with ThreadExecutor(usable_cores()) as executor:
            problem = make_problem(self.X, self.X.dtype, rank, executor)
            W, H = INITS[init]().make(problem, check_random_state(seed))
            W, H = canonical_factors(W, H, problem.matrix.scale)
        seconds = time.perf_counter() - begin
        return Start(W, H, self.error(W, H), seconds)

    def error(self, W: Array, H: Array) -> float:
        """E = ‖X − max(0, WH)‖ / ‖X‖ in float64, whatever W and H are in."""
        scale = self._problem.matrix.scale
        with self._executor:
            return self._problem.error(np.asarray(W, dtype=np.float64), np.asarray(H, dtype=np.float64) * scale)

    def run(
        self,
        contender: Contender,
        start: Start,
        limits: Limits,
        keep_best: bool = False,
        tell: Callable[[int, float], object] | None = None,
    ) -> Course:
        """Let a contender run until a limit is reached; only what it does itself is timed.

        `keep_best` keeps the best factors; `tell` is called after every iteration.
        """
        course = Course([0.0], [start.error], best=(start.W, start.H) if keep_best else None)
        best_errors = [start.error]
        status = "" if limits.max_iter != 0 else "No iteration was asked for."
        with _running(contender.method, self.X, start.W.copy(), start.H.copy()) as iterates:
            while not status:
                begin = time.perf_counter()
                factors = next(iterates, None)
                seconds = course.times[-1] + time.perf_counter() - begin
                if factors is None:
                    status = "It ended by itself."
                    break
                error = self.error(*factors)
                if not np.isfinite(error):
                    status = "A value that is not finite came up."
                    break
                if keep_best and error < best_errors[-1]:
                    course.best = np.array(factors[0]), np.array(factors[1])
                course.times.append(seconds)
                course.errors.append(error)
                best_errors.append(min(error, best_errors[-1]))
                reached = limits.reached(best_errors, seconds)
                status = reached.message if reached else ""
                if tell is not None:
                    tell(len(course.errors) - 1, error)
        course.status = status
        return course


@contextmanager
def _running(method: Method, X: Array, W: Array, H: Array) -> Iterator[Iterator[tuple[Array, Array]]]:
    """The method's iterates, ended with it: a generator gets to close what it has open."""
    iterates = iter(method(X, W, H))
    try:
        yield iterates
    finally:
        close = getattr(iterates, "close", None)
        if close is not None:
            close()
