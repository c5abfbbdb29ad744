"""A sparse matrix in memory, by rows.

The entries of a tile are scattered into scratch that is zero elsewhere, so kernels see the same tile
as of an array, and give the same bits. Nothing larger than a tile is ever made dense.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from relunmd.engine import kernels
from relunmd.engine.matrix.mapped import is_mapped
from relunmd.engine.matrix.read_check import FileStamp
from relunmd.engine.matrix.scratch import Scratch
from relunmd.engine.matrix.source import InMemory, Nonzeros, TileData, converted, read_only

__all__ = ["CsrSource", "for_scipy"]

Array = NDArray[Any]


class CsrSource(InMemory):
    """A SciPy sparse matrix or array of any format, taken as CSR.

    A CSR matrix without duplicates, explicit zeros and unsorted indices is used as it is; of any other
    a copy of its nonzeros is made. ValueError says that indices point outside the matrix.
    """

    sparse = True

    def __init__(self, X: Any) -> None:
        stamps = [FileStamp.of(getattr(X, name, None)) for name in ("data", "indices", "indptr")]  # Before the checks.
        A = _checked_csr(X)
        if not A.has_canonical_format or np.count_nonzero(A.data) < len(A.data):
            A = A.copy()
            A.sum_duplicates()
            A.eliminate_zeros()
        self.shape = A.shape[0], A.shape[1]
        self.dtype = A.dtype
        self.csr = A
        self._values = np.ascontiguousarray(A.data)
        self._indices = read_only(np.ascontiguousarray(A.indices))
        self.in_memory = not any(is_mapped(array) for array in (A.data, A.indices, A.indptr))
        self._stamps = [] if self.in_memory else [stamp for stamp in stamps if stamp is not None]

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple[InMemory, int]:
        self._verify()
        return super().part(rows, stop, scratch)

    def _verify(self) -> None:
        for stamp in self._stamps:
            stamp.verify()

    def read(self, rows: slice) -> Any:
        self._verify()
        return self.csr[rows]

    def _rows(
        self, rows: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch
    ) -> tuple[Array, Array, Array, float]:
        """Values, column numbers and starts of some rows, and the factor still to be applied.

        The last ones stay in scratch: the tiles of a strip are asked for one after the other.
        """
        key = (self, rows.start, rows.stop, dtype, scale)
        if scratch.rows is None or scratch.rows[0] != key:
            starts = self.csr.indptr[rows.start : rows.stop + 1].astype(np.int64)
            first, last = starts[0], starts[-1]
            starts -= first
            values = self._values[first:last]
            if values.dtype != dtype:
                out = np.empty(len(values), dtype)
                scale = converted(values, out, scale)
                values = out
            scratch.rows = key, (read_only(values), self._indices[first:last], starts, scale)
        found: tuple[Array, Array, Array, float] = scratch.rows[1]
        return found

    def tile(self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch) -> TileData:
        values, indices, starts, scale = self._rows(rows, dtype, scale, scratch)
        X = scratch.zeros("scattered", (rows.stop - rows.start, columns.stop - columns.start), dtype)
        places = scratch.take(f"places {dtype}", (len(values),), np.dtype(np.int64))
        count = kernels.scatter(values, indices, starts, columns.start, X, places)
        scratch.written("scattered", dtype, places[:count])
        return TileData(read_only(X), 0, scale)

    def nonzeros(
        self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, most: int, lift: float, scratch: Scratch
    ) -> Nonzeros | None:
        values, indices, starts, scale = self._rows(rows, dtype, scale, scratch)
        room = min(most, len(values))
        found = Nonzeros(np.empty(room, dtype), np.empty(room, np.int32), np.empty(len(starts), np.int64))
        width = columns.stop - columns.start
        count = kernels.gather(
            values, indices, starts, columns.start, width, most, scale, lift, found.values, found.columns, found.starts
        )
        return None if count < 0 else Nonzeros(found.values[:count], found.columns[:count], found.starts)


def for_scipy(X: Any) -> Any:
    """An array or a sparse matrix in numbers that SciPy's own code knows."""
    if X.dtype == np.float16 or not X.dtype.isnative:
        return X.astype(np.float32 if X.dtype == np.float16 else X.dtype.newbyteorder("="))
    return X


def _checked_csr(X: Any) -> Any:
    """X as a csr_array that SciPy's and our compiled code can trust; ValueError if it cannot be."""
    X = for_scipy(X)
    if X.format in ("csr", "csc", "bsr"):
        shallow = type(X)(X)  # Shares the arrays; the check may replace some of its own.
        shallow.check_format(full_check=True)
        if (shallow.indptr[1:] < shallow.indptr[:-1]).any():
            raise ValueError("index pointer values must form a non-decreasing sequence")
    return sparse.csr_array(X)
