"""An array in memory, of any real dtype and any order, as blocks of rows.

The array itself is never converted: a tile that is not yet in the computation's float type, or
not C-ordered, is converted into scratch when it is looked at. X is scaled by a power of two
near its largest entry, so that squares neither overflow nor vanish and no constant depends on
units; the factor travels with each tile and is applied by the kernels.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.matrix.block import Block, Scratch
from relunmd.matrix.layout import RowLayout

__all__ = ["DenseMatrix", "power_of_two_scale"]


def power_of_two_scale(largest: float, dtype: np.dtype[Any]) -> float:
    """The power of two that brings `largest` into [1, 2), as far as `dtype` has it.

    >>> power_of_two_scale(255.0, np.dtype("float64"))
    0.0078125
    """
    bound = -int(np.finfo(dtype).minexp)
    exponent = math.frexp(largest)[1] - 1
    return math.ldexp(1.0, max(-bound, min(bound, -exponent)))


class DenseMatrix:
    """Rows of a two-dimensional array.

    Parameters
    ----------
    X : ndarray of shape (m, n), any real dtype
    dtype : float32 or float64, what tiles are handed out in
    scale : power of two by which the data is multiplied
    """

    def __init__(self, X: NDArray[Any], dtype: np.dtype[Any], scale: float = 1.0) -> None:
        self.X = X
        self.dtype = dtype
        self.scale = scale
        self.layout = RowLayout(*X.shape)
        self._as_is = X.dtype == dtype and X.flags.c_contiguous and X.flags.aligned and X.dtype.isnative

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.X.shape[1]

    def scaled(self, scale: float) -> "DenseMatrix":
        """The same rows, multiplied by `scale`."""
        return DenseMatrix(self.X, self.dtype, scale)

    def block(self, index: int, scratch: Scratch) -> Block:
        rows = self.layout.blocks[index]
        return Block(self, rows, tuple(self.layout.tiles(rows)), scratch)

    def tile(self, rows: slice, scratch: Scratch) -> tuple[NDArray[Any], float]:
        """Rows as a read-only array for kernels, and the factor still to be applied."""
        part = self.X[rows]
        factor = self.scale
        if not self._as_is:
            # Scaled before it is narrowed: 1e150 fits into float32 only afterwards.
            out = scratch.take("X", part.shape, self.dtype)
            with np.errstate(over="ignore"):  # A long double beyond float64 becomes infinite, and is refused as such.
                np.multiply(part, np.float64(self.scale), out=out, casting="unsafe")
            part, factor = out, 1.0
        view = part.view()
        view.flags.writeable = False
        return view, factor
