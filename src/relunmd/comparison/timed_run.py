"""One run: a contender on a matrix from a given start, timed, and scored outside the timed part."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from relunmd import memory
from relunmd.algorithm.tsvd import TSVD
from relunmd.arguments import check_random_state
from relunmd.comparison.contenders import Contender
from relunmd.engine import kernels
from relunmd.engine.blas_threads import one_blas_thread, usable_cores
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.linalg import canonical_factors
from relunmd.engine.matrix import DenseSource
from relunmd.engine.problem_setup import check_matrix, make_problem
from relunmd.errors import InputError
from relunmd.init import INITS
from relunmd.inspection import row_parts
from relunmd.loop.criteria import Limits
from relunmd.memory_check import check_memory
from relunmd.result import Status

__all__ = ["Arena", "Course", "Start"]

Array = NDArray[Any]
_FLOAT = np.dtype(np.float64)


@dataclass(frozen=True)
class Start:
    """Factors to begin with, their error, and the seconds it took to make them."""

    W: Array
    H: Array
    error: float
    seconds: float


@dataclass
class Course:
    """How a run went: seconds and error after every iteration, 0 being the start; the best factors of an iteration."""

    times: list[float]
    errors: list[float]
    status: str = ""
    best: tuple[Array, Array] | None = field(default=None, repr=False)

    @property
    def error(self) -> float:
        """The smallest error of an iteration, or the start's if there was none."""
        return min(self.errors[1:], default=self.errors[0])


class Arena:
    """A matrix on which contenders run and are scored alike, in float64.

    An array is copied to float64; what is sparse or in a file stays what it is, and is made dense only for those who
    cannot do with less.
    """

    def __init__(self, X: Any) -> None:
        source = check_matrix(X)
        if isinstance(source, DenseSource) and not isinstance(X, np.memmap):
            memory.require(
                8 * source.shape[0] * source.shape[1], "X in float64", "Keep it in a file (.npy, .h5, .zarr)."
            )
            X = np.array(X, dtype=np.float64)
            X.flags.writeable = False
            source = DenseSource(X)
        elif sparse.issparse(X):
            X = X.tocsr()  # Once, and not by each contender.
            source = check_matrix(X)
        self.X = X
        self._source = source
        kernels.warm_up(_FLOAT)
        self._executor = ThreadExecutor(usable_cores())
        with self._executor:
            self._problem = make_problem(self._source, _FLOAT, 1, self._executor)

    @property
    def shape(self) -> tuple[int, int]:
        return self._source.shape

    def dense(self) -> Array:
        """X as a float64 array."""
        if isinstance(self.X, np.ndarray) and not isinstance(self.X, np.memmap):
            return self.X
        m, n = self.shape
        memory.require(8 * m * n, "A dense X, which this method needs,", "Leave it out.", warn=True)
        X = np.empty((m, n))
        for rows, part in row_parts(self._source):
            X[rows] = part.toarray() if sparse.issparse(part) else part
        X.flags.writeable = False
        return X

    def _csr(self) -> Any:
        """X as a CSR matrix of float64 in memory."""
        needed = 24 * self._problem.facts.positives  # Values and indices, twice while they are put together.
        memory.require(needed, "X in memory, as this method needs it,", "Leave it out.", warn=True)
        return sparse.vstack(
            [sparse.csr_matrix(part, dtype=np.float64) for _, part in row_parts(self._source)], format="csr"
        )

    def _given(self, contender: Contender) -> Any:
        """X as this contender takes it."""
        if contender.takes == "anything":
            return self.X
        return self._csr() if contender.takes == "memory" and self._source.sparse else self.dense()

    def start(self, rank: int, init: str, seed: int) -> Start:
        """A start as `decompose` would make it from this seed, in the units of X."""
        check_memory(self._source, _FLOAT, rank, TSVD(), INITS[init]())
        begin = time.perf_counter()
        with ThreadExecutor(usable_cores()) as executor:
            problem = make_problem(self._source, _FLOAT, rank, executor)
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

        An iteration that ends after `max_time` does not count. `keep_best` keeps the best factors;
        `tell` is called after every iteration. BLAS has one thread, for every contender.
        """
        course = Course([0.0], [start.error], best=(start.W, start.H) if keep_best else None)
        if limits.max_iter == 0:
            course.status = "No iteration was asked for."
            return course
        given = self._given(contender)
        with one_blas_thread:
            self._race(course, contender, given, start, limits, tell)
        return course

    def _race(
        self,
        course: Course,
        contender: Contender,
        given: Any,
        start: Start,
        limits: Limits,
        tell: Callable[[int, float], object] | None,
    ) -> None:
        best_errors, best = [start.error], np.inf
        begin = time.perf_counter()
        with _ended(iter(contender.method(given, start.W.copy(), start.H.copy()))) as iterates:
            while not course.status:
                factors = next(iterates, None)
                seconds = course.times[-1] + time.perf_counter() - begin
                if factors is None:
                    course.status = "It ended by itself."
                    break
                if limits.max_time is not None and seconds > limits.max_time:
                    course.status = Status.MAX_TIME.message
                    break
                W, H = self._checked(contender, factors, start)
                error = self.error(W, H)
                if not np.isfinite(error):
                    course.status = "A value that is not finite came up."
                    break
                if course.best is not None and error < best:
                    course.best, best = (np.array(W), np.array(H)), error
                course.times.append(seconds)
                course.errors.append(error)
                best_errors.append(min(error, best_errors[-1]))
                reached = limits.reached(best_errors, seconds)
                course.status = reached.message if reached else ""
                if tell is not None:
                    tell(len(course.errors) - 1, error)
                begin = time.perf_counter()

    def _checked(self, contender: Contender, factors: object, start: Start) -> tuple[Array, Array]:
        """What a contender yielded, if it is W and H of the right shapes."""
        wanted = start.W.shape, start.H.shape
        pair = factors if isinstance(factors, tuple | list) else ()
        shapes = tuple(np.shape(factor) for factor in pair)
        if shapes != wanted:
            got = shapes if pair else type(factors).__name__
            raise InputError(f"{contender.label} must yield W and H of shapes {wanted[0]} and {wanted[1]}. Got {got}.")
        return np.asarray(pair[0]), np.asarray(pair[1])


@contextmanager
def _ended(iterates: Iterator[Any]) -> Iterator[Iterator[Any]]:
    """Iterates that are ended with the block: a generator gets to close what it has open."""
    try:
        yield iterates
    finally:
        close = getattr(iterates, "close", None)
        if close is not None:
            close()
