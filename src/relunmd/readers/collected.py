"""Rows that come a few at a time, put together: as a sparse matrix if they are mostly zeros, else as an array."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["Collected"]

Array = NDArray[Any]
_SPARSE_BELOW = 0.25
"""The share of nonzeros from which on an array takes less memory, nearly."""


class Collected:
    """Blocks of rows, each kept in the form that takes less memory.

    >>> rows = Collected()
    >>> rows.add(np.eye(8))
    >>> rows.add(np.eye(8))
    >>> rows.whole().shape, rows.whole().nnz
    ((16, 8), 16)
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self.height = self.nbytes = 0
        self.dtype: np.dtype[Any] = np.dtype(np.uint8)

    def add(self, block: Array) -> None:
        few = np.count_nonzero(block) < _SPARSE_BELOW * block.size
        self.dtype = np.result_type(self.dtype, block.dtype) if self._parts else block.dtype
        part: Any = sparse.csr_array(block) if few else block
        self._parts.append(part)
        self.height += len(block)
        self.nbytes += part.data.nbytes + part.indices.nbytes if few else block.nbytes

    def whole(self) -> Any:
        """All rows: a csr_array if every block was mostly zeros, else an array."""
        if all(sparse.issparse(part) for part in self._parts):
            return sparse.vstack(self._parts, format="csr")
        if len(self._parts) == 1:
            return self._parts[0]
        X = np.empty((self.height, self._parts[0].shape[1]), self.dtype)
        at = 0
        for part in self._parts:
            X[at : at + part.shape[0]] = part.toarray() if sparse.issparse(part) else part
            at += part.shape[0]
        return X
