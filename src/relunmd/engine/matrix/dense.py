"""Arrays in memory and memory maps, of any real dtype and memory order.

They are never converted as a whole: a tile that is not in the float type of the computation, or not C-ordered, is
converted in scratch memory when it is used. Rows of a C-ordered memory map are read from its file.
"""

from typing import Any

import numpy as np

from relunmd.engine.matrix.mapped import FileStamp, MappedRows, is_mapped
from relunmd.engine.matrix.scratch import Array, Scratch
from relunmd.engine.matrix.source import InMemory, Slab, TileData, converted, read_only
from relunmd.errors import FileError


class DenseSource(InMemory):
    """A two-dimensional array.

    >>> DenseSource(np.eye(3, dtype=np.uint8)).dtype
    dtype('uint8')
    """

    def __init__(self, X: Array) -> None:
        self.X = X.view(np.uint8) if X.dtype == np.bool_ else X
        self.shape = X.shape[0], X.shape[1]
        self.dtype = X.dtype
        self._plain = X.flags.aligned and X.dtype.isnative
        self.in_memory = not is_mapped(X)
        self._stamps = [] if self.in_memory else FileStamp.of(X)
        self._rows = None if self.in_memory else MappedRows.of(X)

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple[InMemory, int]:
        if self._rows is None:
            return super().part(rows, stop, scratch)
        slab = Slab.find(scratch, self, rows)
        if slab is None:
            scratch.kept = None
            # Reuse memory: page faults would take longer than reading.
            out = scratch.take("rows of X", (rows.stop - rows.start, self.shape[1]), self.dtype)
            self._fill(self._rows, rows, out)
            slab = scratch.kept = Slab(self, rows.start, rows.stop, DenseSource(out))
        return slab.part, slab.start

    def _fill(self, mapped: MappedRows, rows: slice, out: Array) -> None:
        whole = mapped.read(rows.start, out)
        self._verify()
        if not whole:
            raise FileError(f"The file of X ends before row {rows.stop - 1}. Was it truncated while X was in use?")

    def read(self, rows: slice) -> Array:
        if self._rows is None:
            self._verify()
            return np.asarray(self.X[rows]).view(self.dtype)
        rows = slice(*rows.indices(self.shape[0]))
        out = np.empty((max(0, rows.stop - rows.start), self.shape[1]), self.dtype)
        self._fill(self._rows, rows, out)
        return out

    def tile(self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch) -> TileData:
        whole = self.X[rows]
        if self._plain and whole.flags.c_contiguous and whole.dtype in (dtype, np.uint8):
            return TileData(read_only(whole), columns.start, scale)
        part = whole[:, columns]
        out = scratch.take("X", part.shape, dtype)
        return TileData(read_only(out), 0, converted(part, out, scale))
