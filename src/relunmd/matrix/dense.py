"""An array in memory or a memory map, of any real dtype and any order.

It is never converted as a whole: a tile that is not yet in the computation's float type, or not
C-ordered, is converted into scratch when it is looked at.
"""

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.matrix.read_check import FileStamp
from relunmd.matrix.scratch import Scratch
from relunmd.matrix.source import InMemory, TileData, converted, read_only

__all__ = ["DenseSource"]


class DenseSource(InMemory):
    """A two-dimensional array.

    >>> DenseSource(np.eye(3, dtype=np.uint8)).dtype
    dtype('uint8')
    """

    def __init__(self, X: NDArray[Any]) -> None:
        self.X = X.view(np.uint8) if X.dtype == np.bool_ else X
        self.shape = X.shape[0], X.shape[1]
        self.dtype = X.dtype
        self._plain = X.flags.aligned and X.dtype.isnative
        self.in_memory = not _is_memory_map(X)
        self._stamp = None if self.in_memory else FileStamp.of(X)

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple[InMemory, int]:
        if self._stamp is not None:
            self._stamp.verify()
        return super().part(rows, stop, scratch)

    def read(self, rows: slice) -> NDArray[Any]:
        return np.asarray(self.X[rows]).view(self.dtype)

    def tile(self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch) -> TileData:
        whole = self.X[rows]
        if self._plain and whole.flags.c_contiguous and whole.dtype in (dtype, np.uint8):
            return TileData(read_only(whole), columns.start, scale)
        part = whole[:, columns]
        out = scratch.take("X", part.shape, dtype)
        scale = converted(part, out, scale)
        return TileData(read_only(out), 0, scale)


def _is_memory_map(X: object) -> bool:
    while isinstance(X, np.ndarray):
        X = X.base
    return isinstance(X, mmap.mmap)
