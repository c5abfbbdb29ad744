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
    """Why a run ended; the value is a sentence."""

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
        return self.value


@dataclass(frozen=True, repr=False, eq=False)
class History:
    """Arrays with one entry for each iteration; entry 0 is the initialization.

    Attributes
    ----------
    iteration : ndarray of int
    time : ndarray
        Seconds since the call.
    error : ndarray
        Relative error of the factors at that iteration. It may increase; the smallest is that of the result.
    passes : ndarray of int
        Passes over X (or over an array of its size) so far, including the initialization.
    extra : dict of str to ndarray
        Columns that only some algorithms have (``beta``, ``sigma2``, ``log_likelihood`` …); each is also an attribute.
    """

    iteration: Array
    time: Array
    error: Array
    passes: Array
    extra: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, float]]) -> "History":
        """Build a history from one mapping for each iteration."""
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}
        return cls.from_columns(columns)

    @classmethod
    def from_columns(cls, columns: Mapping[str, Array]) -> "History":
        """Build a history from its columns by name."""
        main = {name: columns.get(name, np.array([])) for name in MAIN_COLUMNS}
        return cls(**main, extra={name: column for name, column in columns.items() if name not in MAIN_COLUMNS})

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
