"""Stopping criteria, which mean the same for every algorithm, and the clock of a run."""

import time
from dataclasses import dataclass

from relunmd.history import Status

WINDOW = 10
"""Number of iterations over which `tol` is measured, if each makes one step."""
_LEAST_WINDOW = 3


class Clock:
    """Seconds since it was made, plus those of earlier sessions of the run."""

    def __init__(self) -> None:
        self.set(0.0)

    def set(self, seconds: float) -> None:
        """Continue from this number of seconds."""
        self._start = time.perf_counter() - seconds

    def seconds(self) -> float:
        return time.perf_counter() - self._start


@dataclass(frozen=True)
class Limits:
    """When to stop; None or 0 disables a limit."""

    target_error: float | None = None
    tol: float = 1e-3
    max_iter: int | None = 1000
    max_time: float | None = None

    def reached(
        self, error: float, criteria: list[float], seconds: float, tol_iterations: int | None = None, n_steps: int = 1
    ) -> Status | None:
        """Return the reason to stop after an iteration, given the error and the smallest criterion up to each.

        `tol` applies to the last `tol_iterations` only, to all if that is None. It is the decrease in ten steps, of
        which an iteration makes `n_steps`.
        """
        iteration = len(criteria) - 1
        if self.target_error is not None and error <= self.target_error:
            return Status.TARGET
        window = max(_LEAST_WINDOW, WINDOW // n_steps)
        if self.tol > 0 and (iteration if tol_iterations is None else tol_iterations) >= window:
            earlier = criteria[-1 - window]
            if earlier - criteria[-1] <= self.tol * earlier * (window * n_steps / WINDOW):
                return Status.CONVERGED
        if self.max_iter is not None and iteration >= self.max_iter:
            return Status.MAX_ITER
        if self.max_time is not None and seconds >= self.max_time:
            return Status.MAX_TIME
        return None
