"""The user's matrix as it is, wherever it is: what can hand out a tile of it.

A source is never converted or copied as a whole. What is in memory hands out tiles itself; what is in
a file first hands out a part of its rows that is.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunmd.engine.matrix.scratch import Scratch
from relunmd.errors import InputError

__all__ = [
    "InMemory",
    "Nonzeros",
    "Slab",
    "Source",
    "TileData",
    "converted",
    "read_only",
    "refuse_masked",
]

Array = NDArray[Any]


class Nonzeros(NamedTuple):
    """The nonzero entries of a tile, row by row and in the order of their columns.

    Row i has ``values[starts[i]:starts[i + 1]]`` in ``columns[starts[i]:starts[i + 1]]``, counted from
    the tile's first column (int32; starts int64).
    """

    values: Array
    columns: Array
    starts: Array


class TileData(NamedTuple):
    """A tile of X: the columns of `X` from `first` on (C-ordered, only read, floats or bytes), times `scale`."""

    X: Array
    first: int
    scale: float


class Source(ABC):
    """A two-dimensional matrix of real numbers.

    Attributes
    ----------
    shape, dtype : as the user has it
    chunk_rows : rows that are stored together, where blocks are cut if they can be
    starts : the first row of each part of X that lies in a place of its own; no block is in two of them
    in_memory : whether looking at it reads no file
    sparse : whether zeros are not stored
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunk_rows: int = 1
    starts: tuple[int, ...] = (0,)
    in_memory: bool = True
    sparse: bool = False

    @abstractmethod
    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple["InMemory", int]:
        """Something in memory that has `rows`, and the row that it begins with; it need not go beyond `stop`."""

    @abstractmethod
    def read(self, rows: slice) -> Any:
        """Rows as the user has them: an array, or a csr_array if it is sparse."""

    def validated(self) -> None:  # noqa: B027
        """Called after every entry was validated: raise FileError if what was read may not be what is stored."""

    def close(self) -> None:  # noqa: B027
        """Let go of what was taken elsewhere to look at it."""


class InMemory(Source):
    """A source that hands out tiles."""

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple["InMemory", int]:
        return self, 0

    @abstractmethod
    def tile(self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch) -> TileData:
        """The tile; valid until the next one is asked for."""

    def nonzeros(
        self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, most: int, lift: float, scratch: Scratch
    ) -> Nonzeros | None:
        """The positive entries times `scale`, raised by `lift`, if there are at most `most` and they are at hand."""
        return None


class Slab(NamedTuple):
    """Rows of a matrix in a file that have been read."""

    owner: Source
    start: int
    stop: int
    part: InMemory

    def has(self, owner: Source, rows: slice) -> bool:
        return self.owner is owner and self.start <= rows.start and rows.stop <= self.stop


def converted(part: Array, out: Array, scale: float) -> float:
    """Copy numbers of any real dtype into `out`; returns the factor by which they are still to be multiplied."""
    if part.dtype.kind in "iub" or part.dtype.itemsize <= out.dtype.itemsize:
        np.copyto(out, part, casting="unsafe")
        return scale
    # Scaled before it is narrowed: 1e150 fits into float32 only afterwards.
    with np.errstate(over="ignore"):  # A long double beyond float64 becomes infinite, and is refused as such.
        np.multiply(part, np.float64(scale), out=out, casting="unsafe")
    return 1.0


def read_only(A: Array) -> Array:
    """A view that cannot be written to."""
    view = A.view()
    view.flags.writeable = False
    return view


def refuse_masked(X: object, name: str = "X") -> None:
    """Raise InputError for a masked array or a list of some, whose hidden values would be used as data."""
    arrays = X if isinstance(X, list | tuple) else [X]
    masked = [array for array in arrays if isinstance(array, np.ma.MaskedArray)]
    if masked:
        hidden = sum(int(np.count_nonzero(np.ma.getmaskarray(array))) for array in masked)
        raise InputError(
            f"{name} must not be a masked array: missing values are not supported yet. Got one with {hidden} masked "
            f"entries; filled(value) replaces them by a value of your choice, which is then used as data."
        )
