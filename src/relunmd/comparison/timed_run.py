"""One timed run: a contender on a matrix from given initial factors, scored outside the timed part."""

import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from relunmd import memory
from relunmd.algorithm.tsvd import TSVD
from relunmd.arguments import check_random_state
from relunmd.comparison.contenders import Array, Contender
from relunmd.engine import kernels
from relunmd.engine.blas_threads import one_blas_thread, usable_cores
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.linalg.canonical import canonical_factors
from relunmd.engine.matrix import DenseSource
from relunmd.engine.problem_setup import check_matrix, make_problem
from relunmd.errors import InputError
from relunmd.history import Status
from relunmd.init import INITS
from relunmd.inspection import row_parts
from relunmd.loop.criteria import Limits
from relunmd.memory_check import check_memory

_FLOAT = np.dtype(np.float64)


@dataclass(frozen=True)
class InitialFactors:
    """Initial W and H, their error, and the seconds it took to compute them."""

    W: Array
    H: Array
    error: float
    seconds: float


@dataclass
class Trajectory:
    """Seconds and error after every iteration, from iteration 0, and the best factors of an iteration."""

    times: list[float]
    errors: list[float]
    status: str = ""
    best: tuple[Array, Array] | None = field(default=None, repr=False)

    @property
    def error(self) -> float:
        """The smallest error of an iteration, or the initial error if no iteration was finished."""
        return min(self.errors[1:], default=self.errors[0])


class Evaluator:
    """Runs contenders on one matrix and scores all of them alike, in float64.

    Parameters
    ----------
    X : matrix
        Whatever `relunmd.decompose` accepts. An array is copied to float64; sparse X and X in a file stay as they are,
        and are converted only for contenders that need it.
    """

    def __init__(self, X: Any) -> None:
        source = check_matrix(X)
        if isinstance(source, DenseSource) and not isinstance(X, np.memmap):
            size = 8 * source.shape[0] * source.shape[1]
            memory.require(size, "X in float64", "Keep it in a file (.npy, .h5, .zarr).")
            X = np.array(X, dtype=np.float64)
            X.flags.writeable = False
        elif sparse.issparse(X):
            X = X.tocsr()  # Once, and not by each contender.
        self.X, self._source = X, check_matrix(X)
        kernels.warm_up(_FLOAT)
        self._executor = ThreadExecutor(usable_cores())
        with self._executor:
            self._problem = make_problem(self._source, _FLOAT, 1, self._executor)

    def dense(self) -> Array:
        """Return X as a float64 array."""
        if isinstance(self.X, np.ndarray) and not isinstance(self.X, np.memmap):
            return self.X
        m, n = self._source.shape
        memory.require(8 * m * n, "A dense X, which this method needs,", "Leave it out.", warn=True)
        X = np.empty((m, n))
        for rows, part in row_parts(self._source):
            X[rows] = part.toarray() if sparse.issparse(part) else part
        X.flags.writeable = False
        return X

    def _input(self, contender: Contender) -> Any:
        """Return X as this contender takes it."""
        if contender.takes == "anything":
            return self.X
        if contender.takes == "dense" or not self._source.sparse:
            return self.dense()
        needed = 24 * self._problem.facts.positives  # Values and indices, twice while they are stacked.
        memory.require(needed, "X in memory, as this method needs it,", "Leave it out.", warn=True)
        parts = [sparse.csr_matrix(part, dtype=np.float64) for _, part in row_parts(self._source)]
        return sparse.vstack(parts, format="csr")

    def initialize(self, rank: int, init: str, seed: int) -> InitialFactors:
        """Return the initial factors that `decompose` would compute from this seed, in the units of X."""
        check_memory(self._source, _FLOAT, rank, TSVD(), INITS[init]())
        begin = time.perf_counter()
        with ThreadExecutor(usable_cores()) as executor:
            problem = make_problem(self._source, _FLOAT, rank, executor)
            W, H = INITS[init]().make(problem, check_random_state(seed))
            W, H = canonical_factors(W, H, problem.matrix.scale)
        seconds = time.perf_counter() - begin
        return InitialFactors(W, H, self.error(W, H), seconds)

    def error(self, W: Array, H: Array) -> float:
        """Return E = ‖X − max(0, WH)‖ / ‖X‖ in float64, whatever the dtype of W and H."""
        scale = self._problem.matrix.scale
        with self._executor:
            return self._problem.error(np.asarray(W, dtype=np.float64), np.asarray(H, dtype=np.float64) * scale)

    def run(
        self,
        contender: Contender,
        initial: InitialFactors,
        limits: Limits,
        keep_best: bool = False,
        callback: Callable[[int, float], object] | None = None,
    ) -> Trajectory:
        """Run a contender until a limit is reached, and time only its own work.

        An iteration that ends after `max_time` does not count. BLAS has one thread, for every contender.

        Parameters
        ----------
        contender : Contender
            The method.
        initial : InitialFactors
            Where it begins.
        limits : Limits
            When it ends.
        keep_best : bool, default=False
            Whether to keep the best factors.
        callback : callable, default=None
            Called with iteration and error after every iteration.

        Returns
        -------
        Trajectory
        """
        run = Trajectory([0.0], [initial.error], best=(initial.W, initial.H) if keep_best else None)
        run.status = "No iteration was requested." if limits.max_iter == 0 else ""
        best, best_errors = np.inf, [initial.error]
        with one_blas_thread, closing(_iterates(contender, self._input(contender), initial)) as iterates:
            while not run.status:
                begin = time.perf_counter()
                factors = next(iterates, None)
                seconds = run.times[-1] + time.perf_counter() - begin
                if factors is None:
                    run.status = "The method ended by itself."
                elif limits.max_time is not None and seconds > limits.max_time:
                    run.status = Status.MAX_TIME.message
                elif not np.isfinite(error := self.error(*_check_factors(factors, contender, initial))):
                    run.status = "A value that is not finite occurred."
                else:
                    if keep_best and error < best:
                        run.best, best = (np.array(factors[0]), np.array(factors[1])), error
                    run.times.append(seconds)
                    run.errors.append(error)
                    best_errors.append(min(error, best_errors[-1]))
                    reached = limits.reached(best_errors[-1], best_errors, seconds)
                    run.status = reached.message if reached else ""
                    if callback is not None:
                        callback(len(run.errors) - 1, error)
        return run


def _iterates(contender: Contender, X: Any, initial: InitialFactors) -> Generator[Any]:
    """Yield what the method yields; closing this closes the method."""
    yield from contender.method(X, initial.W.copy(), initial.H.copy())


def _check_factors(factors: Any, contender: Contender, initial: InitialFactors) -> tuple[Array, Array]:
    """Return W and H as a contender yielded them; raise if they do not have the right shapes."""
    shapes = tuple(map(np.shape, factors)) if isinstance(factors, tuple | list) else type(factors).__name__
    W, H = initial.W.shape, initial.H.shape
    if shapes != (W, H):
        raise InputError(f"{contender.label} must yield W and H of shapes {W} and {H}; got {shapes}.")
    return factors[0], factors[1]
