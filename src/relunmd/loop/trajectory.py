"""The iterations from one initialization: state, history, best point."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from relunmd.algorithm import Algorithm, State
from relunmd.algorithm import state as states
from relunmd.engine.problem import Problem
from relunmd.errors import InputError
from relunmd.history import History, Status
from relunmd.io.archive import amount, count
from relunmd.loop.criteria import Limits
from relunmd.loop.snapshot import Snapshot

Array = NDArray[Any]
_LATER = {"pull": 0.0, "single": False, "made": 1, "cycle_gain": np.inf, "sweep_gain": np.inf, "swept": False}
"""What states of earlier versions lack."""


class Best(NamedTuple):
    """The best factors so far, their error, and what the run minimizes: the penalized error with a ridge."""

    W: Any
    H: Array
    error: float
    criterion: float

    @classmethod
    def of(cls, state: State) -> Self:
        return cls(state.W, state.H, state.error, state.criterion)


class Trajectory:
    """The run from one initialization: its state, its history and the best point it reached."""

    def __init__(self, algorithm: Algorithm, state: State, init_time: float, goal: float) -> None:
        self.state = state
        self.init_time = init_time
        self.goal = goal
        """The iteration up to which it may run for now."""
        self.best = Best.of(state)
        self.status: Status | None = None
        self._algorithm = algorithm
        self._rows: list[dict[str, float]] = []
        self._criteria: list[float] = []
        """The smallest criterion up to each iteration."""
        self._tol_iterations = -1
        """Iterations since `tol` applies."""

    @property
    def iteration(self) -> int:
        return len(self._rows) - 1

    @property
    def seconds(self) -> float:
        """The time of the last iteration."""
        return self._rows[-1]["time"]

    @property
    def passes(self) -> int:
        return int(self._rows[-1]["passes"])

    @property
    def history(self) -> History:
        return History.from_rows(self._rows)

    def record(self, limits: Limits, seconds: float, passes: int) -> None:
        """Add the state to the history, and check the limits."""
        state = self.state
        if state.criterion < self.best.criterion:
            self.best = Best.of(state)
        row = {"iteration": len(self._rows), "time": seconds, "error": state.error, "passes": passes}
        self._rows.append(row | self._algorithm.columns(state))
        self._criteria.append(self.best.criterion)
        self._tol_iterations = self._tol_iterations + 1 if self._algorithm.tol_applies(state) else -1
        self.check(limits, seconds)

    def rewind(self, state: State) -> int:
        """Continue from a state in place of the best one, whose rows are lost; return the number of iterations removed.

        Its error may be larger than the lost one. The history is cut where it first had an error as small, or at the
        best iteration, and the state is recorded next: the smallest error is that of the best factors again, and `tol`
        applies to the iterations from here on.
        """
        found = self.history.criterion.tolist()
        length = next((i for i, value in enumerate(found) if value <= state.criterion), int(np.argmin(found)))
        removed = len(self._rows) - length
        del self._rows[length:], self._criteria[length:]
        self.state, self.best, self._tol_iterations = state, Best.of(state), -1
        return removed

    def check(self, limits: Limits, seconds: float) -> None:
        """Set the status to the limit that is reached, if any."""
        if self.status is Status.FAILED:  # Retrying would fail again.
            return
        self.status = limits.reached(self.best.error, self._criteria, seconds, self._tol_iterations, self.state.n_steps)
        if self.status is None and self._algorithm.finished(self.state):
            self.status = Status.CONVERGED

    def flatten(self) -> Snapshot:
        """All of it; the arrays are its own."""
        W, H, error, criterion = self.best
        about = {
            "init_time": self.init_time,
            "goal": None if self.goal == np.inf else self.goal,
            "best_error": error,
            "best_criterion": criterion,
            "tol_iterations": self._tol_iterations,
            "failed": self.status is Status.FAILED,
        }
        arrays = {f"state.{name}": array for name, array in self._algorithm.to_arrays(self.state).items()}
        columns = {f"history.{name}": column for name, column in self.history.columns.items()}
        return Snapshot(about, arrays | columns | {"best.W": W, "best.H": H})

    @classmethod
    def restore(cls, snapshot: Snapshot, algorithm: Algorithm, problem: Problem) -> "Trajectory":
        """Rebuild what `flatten` returned; raise an exception if it cannot belong to this problem."""
        about = snapshot.about
        parts: dict[str, dict[str, Any]] = {"state": {}, "history": {}, "best": {}}
        for name, array in snapshot.arrays.items():
            kind, _, rest = name.partition(".")
            parts[kind][rest] = array
        if "best_criterion" not in about:  # A checkpoint of a development version.
            _add_penalized(algorithm, parts["state"])
        # Checkpoints from before working sets and passes in float32.
        parts["state"] |= {k: np.asarray(v) for k, v in _LATER.items() if k in algorithm.keeps.keys() - parts["state"]}
        try:
            state = algorithm.from_arrays(parts["state"])
        except InputError as reason:
            raise ValueError(f"it is of another version of the algorithm: {reason}") from reason
        goal = np.inf if about["goal"] is None else count(about["goal"], "goal")
        found = cls(algorithm, state, amount(about["init_time"], "init_time"), goal)
        W, H, error = parts["best"]["W"], parts["best"]["H"], amount(about["best_error"], "best_error")
        # The state may be in float32 when the best factors are not, or the other way around.
        best_type = problem.single.dtype if W.dtype == problem.single.dtype else problem.dtype
        misfit = algorithm.misfit(state, problem) or states.misfit({}, State(W, H, error), problem, best_type)
        if misfit:
            raise ValueError(misfit)
        criterion = amount(about.get("best_criterion", error), "best_criterion")
        found.best = Best(W, H, error, criterion)
        found._restore_history(parts["history"])
        found._tol_iterations = count(about["tol_iterations"] + 1, "tol_iterations") - 1
        if found._criteria[-1] != criterion or found._tol_iterations > found.iteration:
            raise ValueError("a history that does not lead to the best factors")
        found.status = Status.FAILED if about["failed"] else None
        return found

    def _restore_history(self, stored: dict[str, Any]) -> None:
        history, length = History.from_columns(stored), len(stored["error"])
        columns = history.columns
        if columns.keys() != stored.keys() or history.extra.keys() != self._algorithm.columns(self.state).keys():
            raise ValueError("a history with other columns")
        if {column.shape for column in columns.values()} != {(length,)}:
            raise ValueError("a history with columns of different lengths")
        if not (np.isfinite(history.time).all() and np.array_equal(history.iteration, np.arange(length))):
            raise ValueError("a history of other iterations")
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        self._rows = [dict(zip(columns, row, strict=True)) for row in values]
        self._criteria = np.minimum.accumulate(history.criterion).tolist()


def _add_penalized(algorithm: Algorithm, arrays: dict[str, Any]) -> None:
    """Add the penalized errors that a state of an earlier version lacks; without a ridge they are the errors."""
    names = [name for name in algorithm.keeps if name.endswith("penalized")]
    names += ["warm.penalized"] if "warm.error" in arrays else []
    arrays |= {name: arrays[name.replace("penalized", "error")] for name in names}
