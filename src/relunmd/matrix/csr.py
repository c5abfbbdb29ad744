"""A sparse matrix in memory, by rows.

The entries of a tile are scattered into scratch that is zero elsewhere, so kernels see the same tile
as of an array, and give the same bits. Nothing larger than a tile is ever made dense.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from relunmd import kernels
from relunmd.matrix.scratch import Scratch
from relunmd.matrix.source import InMemory, Nonzeros, TileData, converted, read_only

__all__ = ["CsrSource"]

Array = NDArray[Any]


class CsrSource(InMemory):
    """A SciPy sparse matrix or array of any format, taken as CSR.

    A CSR matrix without duplicates, explicit zeros and unsorted indices is used as it is; of any other
    a copy of its nonzeros is made. ValueError says that indices point outside the matrix.
    """

    sparse = True

    def __init__(self, X: Any) -> None:
        A = sparse.csr_array(X)
        A.check_format(full_check=True)
        if not A.has_canonical_format or np.count_nonzero(A.data) < len(A.data):
            A = A.copy()
            A.sum_duplicates()
            A.eliminate_zeros()
        self.shape = A.shape[0], A.shape[1]
        self.dtype = A.dtype
        self.csr = A
        self._indices = read_only(A.indices)

    def _rows(self, rows: slice, dtype: np.dtype[Any], scale: float) -> tuple[Array, Array, Array, float]:
        """Values, column numbers and starts of some rows, and the factor still to be applied."""
        starts = self.csr.indptr[rows.start : rows.stop + 1].astype(np.int64)
        first, last = starts[0], starts[-1]
        starts -= first
        values = self.csr.data[first:last]
        if values.dtype != dtype or not values.dtype.isnative:
            out = np.empty(len(values), dtype)
            scale = converted(values, out, scale)
            values = out
        return read_only(values), self._indices[first:last], starts, scale

    def tile(self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch) -> TileData:
        values, indices, starts, scale = self._rows(rows, dtype, scale)
        X = scratch.zeros("scattered", (rows.stop - rows.start, columns.stop - columns.start), dtype)
        places = scratch.take("places", (len(values),), np.dtype(np.int64))
        count = kernels.scatter(values, indices, starts, columns.start, X, places)
        scratch.written("scattered", dtype, places[:count])
        return TileData(read_only(X), 0, scale)

    def nonzeros(
        self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, most: int, lift: float, scratch: Scratch
    ) -> Nonzeros | None:
        values, indices, starts, scale = self._rows(rows, dtype, scale)
        room = min(most, len(values))
        found = Nonzeros(np.empty(room, dtype), np.empty(room, np.int32), np.empty(len(starts), np.int64))
        width = columns.stop - columns.start
        count = kernels.gather(
            values, indices, starts, columns.start, width, most, scale, lift, found.values, found.columns, found.starts
        )
        return None if count < 0 else Nonzeros(found.values[:count], found.columns[:count], found.starts)
