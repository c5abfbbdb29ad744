"""A matrix A that is made from X tile by tile, and what it is made for: the products A·V and Aᵀ·Y.

Where most of a tile of A is zero it is kept as its nonzeros, and only these are multiplied: what is
left of very sparse data (its residual, or X itself) is then a fraction of the work of dense products.
Whether it is so depends on the tile's numbers alone, not on how X is stored.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.engine import kernels
from relunmd.engine.matrix.block import Block, Tile
from relunmd.engine.matrix.source import Nonzeros

__all__ = ["Piece", "Strip"]

Array = NDArray[Any]

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
_BITS: dict[int, np.dtype[Any]] = {4: _INT32, 8: _INT64}
SPARSE_SHARE = {4: 0.05, 8: 0.1}
"""The share of nonzeros up to which only these are multiplied, by the bytes of a number.

Measured in passes over kos and planted matrices: at about twice these shares it no longer pays, since BLAS
multiplies whole tiles some 4 (float64) to 8 times (float32) faster for each entry.
"""


class Piece:
    """One tile of A: some rows, and the columns `columns`. As an array, or as its nonzeros."""

    __slots__ = ("_A", "_block", "_sparse", "columns")

    def __init__(self, block: Block, columns: slice, A: Array | None, sparse: Nonzeros | None) -> None:
        self.columns = columns
        self._block = block
        self._A = A
        self._sparse = sparse

    def times(self, V: Array, Y: Array) -> None:
        """Y ← A·V; V is n×p and Y has the tile's rows."""
        if self._A is not None:
            np.matmul(self._A, V[self.columns], out=Y)
        else:
            Y[:] = 0
            self.add_times(V, Y)

    def add_times(self, V: Array, Y: Array) -> None:
        """Y += A·V."""
        if self._A is not None:
            Y += np.matmul(self._A, V[self.columns], out=self._block.scratch_tile("AV", *Y.shape))
        elif self._sparse is not None:
            kernels.sparse_times(*self._sparse, V[self.columns], Y)

    def add_transposed_times(self, Y: Array, S: Array) -> None:
        """S += Aᵀ·Y; S is n×p in float64 and Y has the tile's rows."""
        S = S[self.columns]
        if self._A is not None:
            kernels.add_to(S, np.matmul(self._A.T, Y, out=self._block.scratch_tile("AY", *S.shape)))
        elif self._sparse is not None:
            kernels.sparse_transposed_times(*self._sparse, Y, S)


class Strip:
    """Tiles of A side by side, all with the same rows."""

    __slots__ = ("_block", "_kept", "_n_rows", "pieces")

    def __init__(self, block: Block, n_rows: int) -> None:
        self.pieces: list[Piece] = []
        self._block = block
        self._n_rows = n_rows
        self._kept = 0
        """Tiles kept as arrays: the scratch of one that is kept as its nonzeros is free for the next."""

    def scratch(self, n_columns: int) -> Array:
        """Where to make the next tile of A."""
        return self._block.scratch_tile(f"A{self._kept}", self._n_rows, n_columns)

    def add(self, A: Array, columns: slice, sampled: int = 0) -> Piece:
        """Take the tile that was made in `scratch`; `sampled` as the kernels count, if they did."""
        sparse = None if _too_many(sampled, len(A), A.shape[1], A.dtype) else self._compressed(A)
        self._kept += sparse is None
        return self._append(Piece(self._block, columns, A if sparse is None else None, sparse))

    def add_data(self, tile: Tile, lift: float = 0.0) -> Piece:
        """Take the tile of X + lift·[X > 0]."""
        sparse = tile.nonzeros(_most(self._n_rows, tile.n_columns, self._block.matrix.dtype), lift)
        if sparse is not None:
            return self._append(Piece(self._block, tile.columns, None, sparse))
        A = self.scratch(tile.n_columns)
        kernels.raise_positive(tile.X, tile.scale, A, lift)
        return self.add(A, tile.columns)

    def times(self, V: Array, Y: Array) -> Array:
        """Y ← A·V."""
        self.pieces[0].times(V, Y)
        for piece in self.pieces[1:]:
            piece.add_times(V, Y)
        return Y

    def add_transposed_times(self, Y: Array, S: Array) -> None:
        """S += Aᵀ·Y."""
        for piece in self.pieces:
            piece.add_transposed_times(Y, S)

    def _append(self, piece: Piece) -> Piece:
        self.pieces.append(piece)
        return piece

    def _compressed(self, A: Array) -> Nonzeros | None:
        most, slot, take = _most(len(A), A.shape[1], A.dtype), len(self.pieces), self._block.scratch.take
        values = take(f"values{slot}", (most + 8,), A.dtype)  # See `compress` for the 8.
        columns = take(f"columns{slot}", (most + 8,), _INT32)
        starts = take(f"starts{slot}", (len(A) + 1,), _INT64)
        count = kernels.compress(A, A.view(_BITS[A.dtype.itemsize]), values, columns, starts)
        return None if count < 0 else Nonzeros(values, columns, starts)


def _most(n_rows: int, n_columns: int, dtype: np.dtype[Any]) -> int:
    """The most nonzeros of a tile of which only these are multiplied."""
    return int(SPARSE_SHARE[dtype.itemsize] * n_rows * n_columns)


def _too_many(sampled: int, n_rows: int, n_columns: int, dtype: np.dtype[Any]) -> bool:
    """Whether `sampled` nonzeros in each eighth row of a tile are more than pay; the rule of `compress`."""
    return sampled * n_rows > _most(n_rows, n_columns, dtype) * -(-n_rows // kernels.SAMPLED)
