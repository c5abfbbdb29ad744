"""What a callback receives after every iteration."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from relunmd.engine.linalg.canonical import canonical
from relunmd.engine.problem import Problem
from relunmd.loop.trajectory import Trajectory

Array = NDArray[Any]


class Progress:
    """Hold the state of a run after the initialization or after an iteration.

    A callback receives it; see the argument `callback` of `decompose`.

    Attributes
    ----------
    iteration : int
        Number of the iteration; 0 for the initialization.
    time : float
        Seconds since the call.
    error : float
        Relative error of the factors of this iteration.
    passes : int
        Passes over X so far.
    best_error : float
        The smallest error so far, of all iterations, initializations and sessions.
    workers : int or None
        Number of workers on a cluster; None on one machine.
    bytes_moved : int or None
        On a cluster, the bytes of arrays that left the driver and came to it since X was opened; None on one machine.
    W
    H

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> def enough(progress):
    ...     return progress.iteration >= 3 and progress.H.shape == (4, 12)
    >>> relunmd.decompose(np.eye(12), rank=4, callback=enough, random_state=0).status.name
    'CALLBACK'
    """

    def __init__(self, problem: Problem, trajectory: Trajectory, best_error: float) -> None:
        state = trajectory.state
        self.iteration = trajectory.iteration
        self.time = trajectory.seconds
        self.error: float = state.error
        self.passes = trajectory.passes
        self.best_error = best_error
        about = problem.executor.facts()
        self.workers: int | None = about.get("workers")
        self.bytes_moved: int | None = about.get("bytes_moved")
        self._problem = problem
        self._state = state.W, state.H
        self._factors: tuple[Array, Array] | None = None

    def _canonical(self) -> tuple[Array, Array]:
        if self._factors is None:
            self._factors = canonical(self._problem, *self._state)
        return self._factors

    @property
    def W(self) -> Array:
        """Factor W of this iteration, of shape (m, rank), in canonical form and the units of X."""
        return self._canonical()[0]

    @property
    def H(self) -> Array:
        """Factor H of this iteration, of shape (rank, n), in canonical form and the units of X."""
        return self._canonical()[1]

    def __repr__(self) -> str:
        return (
            f"Progress(iteration={self.iteration}, time={self.time:.3f}, error={self.error:.6g}, passes={self.passes})"
        )


Callback = Callable[[Progress], bool | None]
