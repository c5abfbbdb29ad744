"""Sparse matrices in memory, in CSR format.

The entries of a tile are scattered into scratch memory that is zero elsewhere, so that kernels see the same tile as for
an array and return the same bits. Nothing larger than a tile is converted to dense.
"""

from typing import Any

import numpy as np
from scipy import sparse

from relunmd.engine import kernels
from relunmd.engine.kernels import CsrRows, Nonzeros
from relunmd.engine.matrix.mapped import FileStamp, is_mapped
from relunmd.engine.matrix.scratch import Scratch
from relunmd.engine.matrix.source import InMemory, TileData, converted, read_only


class CsrSource(InMemory):
    """A SciPy sparse matrix or array of any format, converted to CSR.

    A CSR matrix without duplicates, explicit zeros and unsorted indices is used as it is; otherwise the nonzeros are
    copied. Raises ValueError if indices point outside the matrix. With `stored_only`, entries that are not stored are
    missing: they are NaN in tiles, and explicit zeros are kept.
    """

    sparse = True

    def __init__(self, X: Any, stored_only: bool = False) -> None:
        self.stored_only = stored_only
        # The files are stamped before their content is checked.
        stamps = FileStamp.of(*(getattr(X, name, None) for name in ("data", "indices", "indptr")))
        A = _checked_csr(X)
        zeros = not stored_only and np.count_nonzero(A.data) < len(A.data)
        if not A.has_canonical_format or zeros:
            A = A.copy()
            A.sum_duplicates()
        if zeros:
            A.eliminate_zeros()
        self.shape = A.shape[0], A.shape[1]
        self.dtype = A.dtype
        self.csr = A
        self._values = np.ascontiguousarray(A.data)
        self._indices = read_only(np.ascontiguousarray(A.indices))
        self.in_memory = not any(is_mapped(array) for array in (A.data, A.indices, A.indptr))
        self._stamps = [] if self.in_memory else stamps

    def read(self, rows: slice) -> Any:
        self._verify()
        return self.csr[rows]

    def stored(self, rows: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch) -> tuple[CsrRows, float]:
        """Return some rows, and the factor by which they must still be multiplied.

        The last rows are kept in `scratch`, since the tiles of a strip are requested one after the other.
        """
        key = (self, rows.start, rows.stop, dtype, scale)
        if scratch.rows is None or scratch.rows[0] != key:
            starts = self.csr.indptr[rows.start : rows.stop + 1].astype(np.int64)
            stored = slice(starts[0], starts[-1])
            values = self._values[stored]
            if values.dtype != dtype:
                values = np.empty(len(values), dtype)
                scale = converted(self._values[stored], values, scale)
            scratch.rows = key, (CsrRows(read_only(values), self._indices[stored], starts - starts[0]), scale)
        found: tuple[CsrRows, float] = scratch.rows[1]
        return found

    def tile(self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch) -> TileData:
        csr, scale = self.stored(rows, dtype, scale, scratch)
        name, value = ("observed", np.nan) if self.stored_only else ("scattered", 0.0)
        X = scratch.filled(name, (rows.stop - rows.start, columns.stop - columns.start), dtype, value)
        places = scratch.take(f"places {dtype}", (len(csr.values),), np.dtype(np.int64))
        count = kernels.scatter(csr, columns.start, X, places)
        scratch.written(name, dtype, places[:count])
        return TileData(read_only(X), 0, scale)

    def nonzeros(
        self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, most: int, lift: float, scratch: Scratch
    ) -> Nonzeros | None:
        csr, scale = self.stored(rows, dtype, scale, scratch)
        room = min(most, len(csr.values))
        out = Nonzeros(np.empty(room, dtype), np.empty(room, np.int32), np.empty(len(csr.starts), np.int64))
        count = kernels.gather(csr, columns.start, columns.stop - columns.start, most, scale, lift, out)
        return None if count < 0 else Nonzeros(out.values[:count], out.columns[:count], out.starts)


def for_scipy(X: Any) -> Any:
    """Return an array or a sparse matrix in a dtype that SciPy supports."""
    if X.dtype == np.float16 or not X.dtype.isnative:
        return X.astype(np.float32 if X.dtype == np.float16 else X.dtype.newbyteorder("="))
    return X


def _checked_csr(X: Any) -> Any:
    """Return X as a csr_array with valid indices; raise ValueError if they are invalid."""
    X = for_scipy(X)
    if X.format in ("csr", "csc", "bsr"):
        shallow = type(X)(X)  # Shares the arrays, which the check may replace.
        shallow.check_format(full_check=True)
        if (shallow.indptr[1:] < shallow.indptr[:-1]).any():
            raise ValueError("index pointer values must form a non-decreasing sequence")
    return sparse.csr_array(X)
