"""Rows that come a few at a time, put together: as a sparse matrix if they are mostly zeros, else as an array."""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["Collected", "least_bytes"]

Array = NDArray[Any]
_SPARSE_BELOW = 0.25
"""The share of nonzeros from which on an array takes less memory, nearly."""
_INDEX = 4


class Collected:
    """Blocks of rows, each kept in the form that takes less memory.

    Attributes
    ----------
    height, width : of the rows so far
    dtype : of all of them

    Examples
    --------
    >>> rows = Collected()
    >>> rows.add(np.eye(8))
    >>> rows.add(np.eye(8))
    >>> X = rows.whole()
    >>> X.shape, X.nnz
    ((16, 8), 16)
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._sparse = True
        self._sparse_bytes = 0
        self.height = self.width = 0
        self.dtype: np.dtype[Any] = np.dtype(np.uint8)

    def add(self, block: Array) -> None:
        nonzeros = int(np.count_nonzero(block))
        needed = (block.itemsize + _INDEX) * nonzeros + _INDEX * (len(block) + 1)
        few = nonzeros < _SPARSE_BELOW * block.size and needed < block.nbytes
        self.dtype = np.result_type(self.dtype, block.dtype) if self._parts else block.dtype
        self._parts.append(sparse.csr_array(block) if few else block)
        self._sparse = self._sparse and few
        self._sparse_bytes += needed
        self.height += len(block)
        self.width = block.shape[1]

    @property
    def nbytes(self) -> int:
        """What the rows so far take once they are put together: all of them as an array, unless all are sparse."""
        return self._sparse_bytes if self._sparse else self.height * self.width * self.dtype.itemsize

    def whole(self) -> Any:
        """All rows: a csr_array if every block was mostly zeros, else an array. They are no longer kept here."""
        parts, self._parts = self._parts, []
        if len(parts) == 1:
            return parts[0]
        return _stacked_csr(parts, self.dtype) if self._sparse else _stacked(parts, self.dtype)


def least_bytes(shape: tuple[int, int], dtype: np.dtype[Any]) -> int:
    """What a table takes at least, whatever it holds: as an array, or as a sparse matrix of zeros."""
    return min(prod(shape) * dtype.itemsize, _INDEX * (shape[0] + 1))


def _stacked(parts: list[Any], dtype: np.dtype[Any]) -> Array:
    """Blocks as one array; each is let go once it has been copied."""
    X, at = np.empty((sum(part.shape[0] for part in parts), parts[0].shape[1]), dtype), 0
    while parts:
        part = parts.pop(0)
        X[at : at + part.shape[0]] = part.toarray() if sparse.issparse(part) else part
        at += part.shape[0]
    return X


def _stacked_csr(parts: list[Any], dtype: np.dtype[Any]) -> Any:
    """The same for sparse blocks; scipy.sparse.vstack would have all of them twice."""
    stored, height = sum(part.nnz for part in parts), sum(part.shape[0] for part in parts)
    shape = height, parts[0].shape[1]
    index = np.int32 if max(stored, shape[1]) < 2**31 else np.int64
    data, indices, indptr = np.empty(stored, dtype), np.empty(stored, index), np.zeros(height + 1, index)
    at = row = 0
    while parts:
        part = parts.pop(0)
        data[at : at + part.nnz], indices[at : at + part.nnz] = part.data, part.indices
        indptr[row + 1 : row + part.shape[0] + 1] = part.indptr[1:]
        indptr[row + 1 : row + part.shape[0] + 1] += at
        at, row = at + part.nnz, row + part.shape[0]
    return sparse.csr_array((data, indices, indptr), shape=shape)
