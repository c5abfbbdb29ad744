"""The history of a run, one entry for each iteration, and the reason why it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MAIN_COLUMNS = ("iteration", "time", "error", "passes")
"""Columns that every history has."""


class Status(Enum):
    """Give the reason why a run ended; the value is a sentence.

    Attributes
    ----------
    TARGET
        The error reached `target_error`.
    CONVERGED
        The error stopped improving, by the measure of `tol`.
    MAX_ITER
        The iteration limit `max_iter` was reached.
    MAX_TIME
        The time limit `max_time` was reached.
    CALLBACK
        The callback returned True.
    INTERRUPTED
        Ctrl-C was pressed.
    READ_FAILED
        X could no longer be read: its file was removed, damaged or changed during the run. The best factors so far are
        returned; the log has the reason.
    FAILED
        A value was not finite. The best factors so far are returned; another `init` or float64 may help.
    message

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> d = relunmd.decompose(np.eye(12), rank=4, tol=0, max_iter=5, random_state=0)
    >>> d.status is relunmd.Status.MAX_ITER
    True
    >>> d.status.message
    'The iteration limit max_iter was reached.'
    """

    TARGET = "The error reached target_error."
    CONVERGED = "The error stopped improving."
    MAX_ITER = "The iteration limit max_iter was reached."
    MAX_TIME = "The time limit max_time was reached."
    CALLBACK = "The callback stopped the run."
    INTERRUPTED = "The run was interrupted; the best factors so far are returned."
    READ_FAILED = "X could no longer be read; the best factors so far are returned."
    FAILED = "A value was not finite; the best factors so far are returned."

    @property
    def message(self) -> str:
        """The reason as a sentence."""
        return self.value


@dataclass(frozen=True, repr=False, eq=False)
class History:
    """Hold one entry for each iteration; entry 0 is the initialization.

    Attributes
    ----------
    iteration : ndarray of int
        0, 1, 2, …
    time : ndarray
        Seconds since the call.
    error : ndarray
        Relative error of the factors at that iteration. It may increase; the smallest is that of the result
        (with a ridge, the one with the smallest penalized error).
    passes : ndarray of int
        Passes over X (or over an array of its size) so far, including the initialization.
    extra : dict of str to ndarray
        Columns that only some algorithms have (``beta``, ``sigma2``, ``log_likelihood`` …); each is also an attribute.
    criterion
    columns

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> history = relunmd.decompose(np.eye(12), 4, "3b", tol=0, max_iter=5, random_state=0).history
    >>> history
    History(6 entries of iteration, time, error, passes)
    >>> bool(history.error[-1] < history.error[0])
    True
    """

    iteration: Array
    time: Array
    error: Array
    passes: Array
    extra: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, float]]) -> "History":
        """Build a history from one mapping for each iteration.

        Parameters
        ----------
        rows : sequence of mapping of str to float
            All with the same keys.

        Returns
        -------
        History
            Columns that are missing are empty.

        Examples
        --------
        >>> import relunmd
        >>> row = {"iteration": 0, "time": 0.1, "error": 0.9, "passes": 6}
        >>> relunmd.History.from_rows([row, row | {"iteration": 1, "error": 0.5}]).error
        array([0.9, 0.5])
        """
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}
        return cls.from_columns(columns)

    @classmethod
    def from_columns(cls, columns: Mapping[str, Array]) -> "History":
        """Build a history from its columns by name.

        Parameters
        ----------
        columns : mapping of str to ndarray
            All of the same length.

        Returns
        -------
        History
            Columns that are missing are empty.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> relunmd.History.from_columns({"iteration": np.arange(2), "error": np.array([0.9, 0.5])}).error
        array([0.9, 0.5])
        """
        main = {name: columns.get(name, np.array([])) for name in MAIN_COLUMNS}
        return cls(**main, extra={name: column for name, column in columns.items() if name not in MAIN_COLUMNS})

    @property
    def criterion(self) -> Array:
        """What the run minimizes: the column ``penalized`` of a run with a ridge, else the error."""
        return self.extra.get("penalized", self.error)

    @property
    def columns(self) -> dict[str, Array]:
        """All columns by name."""
        return {name: getattr(self, name) for name in self._columns()}

    def __len__(self) -> int:
        return len(self.iteration)

    def __repr__(self) -> str:
        return f"History({len(self)} entries of {', '.join(self._columns())})"

    def _columns(self) -> list[str]:
        return [*MAIN_COLUMNS, *self.__dict__.get("extra", {})]

    def __getattr__(self, name: str) -> Array:
        extra = self.__dict__.get("extra", {})
        if name in extra:
            return extra[name]  # type: ignore[no-any-return]
        raise AttributeError(f"This history has no column {name!r}; it has {', '.join(self._columns())}.")
