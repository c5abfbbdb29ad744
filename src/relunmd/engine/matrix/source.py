"""Sources: the user's matrix as it is, in memory or in a file.

A source is never converted or copied as a whole. A source in memory provides tiles; a source in a file first reads some
rows into memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relunmd.engine.kernels import CsrRows, Nonzeros
from relunmd.engine.matrix.mapped import FileStamp
from relunmd.engine.matrix.scratch import Array, Scratch
from relunmd.errors import InputError

if TYPE_CHECKING:
    from relunmd.engine.matrix.observation import Observation


class TileData(NamedTuple):
    """A tile of X: the columns of `X` from `first` (C-ordered, read-only, floats or bytes), times `scale`."""

    X: Array
    first: int
    scale: float


class Source(ABC):
    """A two-dimensional matrix of real numbers.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
        The dtype of the user's data.
    chunk_rows : int
        The number of rows that are stored together; blocks are whole chunks if possible.
    starts : tuple of int
        The first row of each part of X that lies in a separate place; no block spans two parts.
    in_memory : bool
        Whether no file is read.
    sparse : bool
        Whether only nonzeros are stored.
    stored_only : bool
        Whether entries that a sparse source does not store are missing. Then zeros that it stores are kept.
    observation : Observation or None
        What the user says about entries beside their values; None if nothing.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunk_rows: int = 1
    starts: tuple[int, ...] = (0,)
    in_memory: bool = True
    sparse: bool = False
    stored_only: bool = False
    observation: "Observation | None" = None

    @abstractmethod
    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple["InMemory", int]:
        """Return a source in memory that has `rows` and perhaps more up to `stop`, and its first row."""

    @abstractmethod
    def read(self, rows: slice) -> Any:
        """Return rows in the user's dtype, as an array, or as a csr_array if the source is sparse."""

    def reduced(self, beside: Sequence[str]) -> "Source":
        """Return X with only these of the matrices beside it."""
        return self

    def validated(self) -> None:  # noqa: B027
        """Raise FileError if X may have changed while its entries were validated."""

    def close(self) -> None:  # noqa: B027
        """Release resources."""


class InMemory(Source):
    """A source that provides tiles; its arrays may be memory maps."""

    _stamps: Sequence[FileStamp] = ()

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple["InMemory", int]:
        self._verify()
        return self, 0

    def _verify(self) -> None:
        """Raise FileError if a mapped file has changed."""
        for stamp in self._stamps:
            stamp.verify()

    @abstractmethod
    def tile(self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch) -> TileData:
        """Return a tile, which is valid until the next call."""

    def tile_beside(
        self, name: str, rows: slice, columns: slice, dtype: np.dtype[Any], factor: float, scratch: Scratch
    ) -> Array:
        """Return a tile of a matrix beside X times `factor`: bytes for a mask, else `dtype`."""
        raise NotImplementedError

    def stored(self, rows: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch) -> tuple[CsrRows, float]:
        """Return rows of a sparse matrix, and the factor by which they must still be multiplied."""
        raise NotImplementedError

    def stored_beside(
        self, name: str, rows: slice, dtype: np.dtype[Any], factor: float, scratch: Scratch
    ) -> tuple[CsrRows, float]:
        """Return rows of a sparse matrix beside X times `factor`, and what they must still be multiplied by."""
        raise NotImplementedError

    def nonzeros(
        self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, most: int, lift: float, scratch: Scratch
    ) -> Nonzeros | None:
        """Return the positive entries times `scale` plus `lift`, if the source is sparse and has at most `most`."""
        return None


class Slab(NamedTuple):
    """Rows of a matrix that were read from its file, kept in the scratch memory of a worker."""

    owner: Source
    start: int
    stop: int
    part: InMemory

    @staticmethod
    def find(scratch: Scratch, owner: Source, rows: slice) -> "Slab | None":
        """Return the slab in `scratch` if it has these rows."""
        slab = scratch.kept
        if isinstance(slab, Slab) and slab.owner is owner and slab.start <= rows.start and rows.stop <= slab.stop:
            return slab
        return None


def converted(part: Array, out: Array, scale: float) -> float:
    """Copy numbers of any real dtype into `out`. Return the factor by which they must still be multiplied."""
    if part.dtype.kind in "iub" or part.dtype.itemsize <= out.dtype.itemsize:
        np.copyto(out, part, casting="unsafe")
        return scale
    # Scale before narrowing: 1e150 fits into float32 only afterwards.
    with np.errstate(over="ignore"):  # A long double beyond float64 becomes infinite and is rejected.
        np.multiply(part, np.float64(scale), out=out, casting="unsafe")
    return 1.0


def read_only(A: Array) -> Array:
    """Return a read-only view."""
    view = A.view()
    view.flags.writeable = False
    return view


def refuse_masked(X: object, name: str = "X") -> None:
    """Raise InputError for a masked array or a list of them, whose masked values would be used as data."""
    arrays = X if isinstance(X, list | tuple) else [X]
    masked = [array for array in arrays if isinstance(array, np.ma.MaskedArray)]
    if masked:
        hidden = sum(int(np.count_nonzero(np.ma.getmaskarray(array))) for array in masked)
        raise InputError(
            f"{name} must not be a masked array here; got one with {hidden} masked entries. Use {name}.filled(np.nan), "
            "with missing_values=np.nan if it is X."
        )
