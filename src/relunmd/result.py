"""What a run hands back: the factors, how good they are, how they came about, and why it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunmd.errors import InputError

__all__ = ["Decomposition", "History", "Status"]

Array = NDArray[Any]


class Status(Enum):
    """Why a run ended; the value is the sentence for people."""

    TARGET = "The error reached target_error."
    CONVERGED = "The error stopped improving."
    MAX_ITER = "The iteration limit max_iter was reached; a larger one would go on."
    MAX_TIME = "The time limit max_time was reached; a larger one would go on."
    CALLBACK = "The callback asked to stop."
    INTERRUPTED = "The run was interrupted; the best factors found until then are kept."
    FAILED = "A value that is not finite came up; the best factors found before it are kept."

    @property
    def message(self) -> str:
        return self.value


@dataclass(frozen=True, repr=False, eq=False)
class History:
    """The course of a run: arrays with one entry an iteration, entry 0 being the start.

    Attributes
    ----------
    iteration : 0, 1, 2, …
    time : seconds since the call
    error : relative error of the factors that the algorithm held then; it may rise, and the
        smallest is that of the factors handed back
    passes : looks at all of X (or at an array of its size) in the start and the iterations
    extra : columns that only some algorithms have (``beta``, ``sigma2``, ``log_likelihood`` …) by
        name; each can be reached as an attribute of the history too
    """

    iteration: Array
    time: Array
    error: Array
    passes: Array
    extra: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, float]]) -> "History":
        """A history from one mapping an iteration."""
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}
        main = {name: columns.pop(name, np.array([])) for name in ("iteration", "time", "error", "passes")}
        return cls(**main, extra=columns)

    def __len__(self) -> int:
        return len(self.iteration)

    def __repr__(self) -> str:
        return f"History({len(self)} entries of {', '.join(self._columns())})"

    def _columns(self) -> list[str]:
        return ["iteration", "time", "error", "passes", *self.__dict__.get("extra", {})]

    def __getattr__(self, name: str) -> Array:
        extra = self.__dict__.get("extra", {})
        if name in extra:
            return extra[name]  # type: ignore[no-any-return]
        raise AttributeError(f"This history has no column {name!r}; it has {', '.join(self._columns())}.")


@dataclass(frozen=True, repr=False, eq=False)
class Decomposition:
    """X ≈ max(0, WH).

    Attributes
    ----------
    W : ndarray of shape (m, rank)
    H : ndarray of shape (rank, n)
        Together the balanced SVD of WH, strongest component first, each row of H with its
        largest entry positive.
    error : ‖X − max(0, WH)‖ / ‖X‖
    n_iter, best_iter : iterations made, and the one that W and H are of
    time, init_time : seconds of the whole run, and of the start within it
    status, message : why the run ended, as a `Status` and as a sentence
    algorithm, init : their names
    settings : what the algorithm was set to
    history : the course of the run

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> d = relunmd.decompose(np.eye(10), rank=5, random_state=0)
    >>> d.W.shape, d.H.shape, d.error < 0.5
    ((10, 5), (5, 10), True)
    >>> d.reconstruct(rows=slice(0, 2)).shape
    (2, 10)
    """

    W: Array
    H: Array
    error: float
    n_iter: int
    time: float
    init_time: float
    status: Status
    algorithm: str
    init: str
    settings: Mapping[str, Any]
    history: History

    @property
    def message(self) -> str:
        return self.status.message

    @property
    def rank(self) -> int:
        return len(self.H)

    @property
    def best_iter(self) -> int:
        return int(self.history.error.argmin())

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of X."""
        return self.W.shape[0], self.H.shape[1]

    def __repr__(self) -> str:
        return (
            f"Decomposition(shape={self.shape}, rank={self.rank}, error={self.error:.6g}, n_iter={self.n_iter}, "
            f"status={self.status.name}, algorithm={self.algorithm!r}, init={self.init!r}, time={self.time:.3g})"
        )

    def reconstruct(self, rows: slice | ArrayLike | None = None, relu: bool = True) -> Array:
        """max(0, WH), or WH itself, for some rows or all of them.

        Parameters
        ----------
        rows : a slice, or row numbers; None for all
        relu : False gives WH, whose negative entries say how surely an entry is zero

        Returns
        -------
        ndarray of shape (number of rows, n); that is also the memory it takes
        """
        part = self.W if rows is None else self.W[rows if isinstance(rows, slice) else np.asarray(rows)]
        Theta = np.atleast_2d(part) @ self.H
        if relu:
            np.maximum(Theta, 0, out=Theta)
        return np.asarray(Theta)

    def scores(self, rows: ArrayLike, columns: ArrayLike) -> Array:
        """Entries of WH at the places (rows[i], columns[i]), without forming the rest.

        >>> import numpy as np, relunmd
        >>> d = relunmd.decompose(np.eye(10), rank=5, random_state=0)
        >>> bool(np.allclose(d.scores([0, 3], [0, 4]), d.reconstruct(relu=False)[[0, 3], [0, 4]]))
        True
        """
        i, j = np.atleast_1d(rows), np.atleast_1d(columns)
        if i.shape != j.shape or i.ndim != 1:
            raise InputError(
                f"rows and columns must be two lists of the same length. Got shapes {i.shape} and {j.shape}."
            )
        return np.asarray(np.einsum("ij,ji->i", self.W[i], self.H[:, j]))
