"""A matrix A that is formed from X tile by tile, for the products A·V and Aᵀ·Y.

A tile of A that is mostly zero is stored as its nonzeros, and only these are multiplied: for very sparse data, the
residual or X itself then takes a fraction of the work of dense products. The decision depends on the numbers of the
tile alone, not on how X is stored.
"""

from typing import Any

import numpy as np

from relunmd.engine import kernels
from relunmd.engine.kernels import Nonzeros
from relunmd.engine.matrix.matrix import Block, Tile
from relunmd.engine.matrix.scratch import Array

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
SPARSE_SHARE = {4: 0.05, 8: 0.1}
"""The fraction of nonzeros up to which only these are multiplied, by the bytes of a number.

Measured in passes over kos and planted matrices: at about twice these fractions it no longer pays, since BLAS
multiplies whole tiles about 4 (float64) to 8 times (float32) faster for each entry.
"""


class Piece:
    """One tile of A, as an array or as its nonzeros."""

    def __init__(self, block: Block, columns: slice, A: Array | Nonzeros) -> None:
        self.columns, self._block, self._A = columns, block, A

    def times(self, V: Array, Y: Array) -> None:
        """Y ← A·V, where V is n×p and Y has the rows of the tile."""
        if isinstance(self._A, Nonzeros):
            Y[:] = 0
            kernels.sparse_times(self._A, V[self.columns], Y)
        else:
            np.matmul(self._A, V[self.columns], out=Y)

    def add_times(self, V: Array, Y: Array) -> None:
        """Y += A·V."""
        if isinstance(self._A, Nonzeros):
            kernels.sparse_times(self._A, V[self.columns], Y)
        else:
            Y += np.matmul(self._A, V[self.columns], out=self._block.scratch_tile("AV", *Y.shape))

    def add_transposed_times(self, Y: Array, S: Array) -> None:
        """S += Aᵀ·Y, where S is n×p in float64 and Y has the rows of the tile."""
        S = S[self.columns]
        if isinstance(self._A, Nonzeros):
            kernels.sparse_transposed_times(self._A, Y, S)
        else:
            kernels.add_to(S, np.matmul(self._A.T, Y, out=self._block.scratch_tile("AY", *S.shape)))

    def support(self) -> "Piece":
        """Return the tile with 1 where A is not zero; valid until the next call."""
        if isinstance(self._A, Nonzeros):
            return Piece(self._block, self.columns, self._A._replace(values=np.ones_like(self._A.values)))
        ones = self._block.scratch_tile("support", *self._A.shape)
        return Piece(self._block, self.columns, np.not_equal(self._A, 0, out=ones))


class Strip:
    """Tiles of A with the same rows, from left to right."""

    def __init__(self, block: Block, n_rows: int) -> None:
        self.pieces: list[Piece] = []
        self._block, self._n_rows = block, n_rows
        self._n_dense = 0  # Tiles stored as arrays; the scratch memory of the others is free for the next tile.

    def scratch(self, n_columns: int) -> Array:
        """Return memory for the next tile of A."""
        return self._block.strip_tile(self._n_dense, self._n_rows, n_columns)

    def add(self, A: Array, columns: slice, sampled: int = 0) -> Piece:
        """Append the tile that was formed in `scratch`, with `sampled` nonzeros in every eighth row if counted."""
        most = _most(A.shape, A.dtype)
        too_many = sampled * len(A) > most * -(-len(A) // kernels.SAMPLED)  # The rule of `compress`.
        sparse = None if too_many else self._compressed(A, most)
        self._n_dense += sparse is None
        return self._append(columns, A if sparse is None else sparse)

    def add_residual(self, tile: Tile, W: Array, H: Array, leak: float, squares: Array) -> Piece:
        """Append the tile of minus the derivative of an objective by Θ = WH, see `kernels.residual`."""
        if tile.matrix.stored_only:
            return self._append(tile.columns, self._stored_residual(tile, W, H, leak, squares))
        T = np.matmul(W, H[:, tile.columns], out=self.scratch(tile.n_columns))
        known = tile.known
        if known is None:
            sampled = kernels.residual(T, *tile.data, leak, squares)
        else:
            sampled = kernels.interval_residual(T, *tile.data, leak, squares, known)
        return self.add(T, tile.columns, sampled)

    def _stored_residual(self, tile: Tile, W: Array, H: Array, leak: float, squares: Array) -> Nonzeros:
        stored, take = tile.stored(), self._block.scratch.take
        count = len(stored.rows.values)
        out = Nonzeros(
            take("values", (count,), W.dtype), take("columns", (count,), _INT32), take("starts", (len(W) + 1,), _INT64)
        )
        kernels.stored_residual(stored, np.ascontiguousarray(W), tile.scratch.transposed(H), leak, squares, out)
        return out

    def add_data(self, tile: Tile, lift: float = 0.0) -> Piece:
        """Append the tile of X + lift·[X > 0]."""
        sparse = tile.nonzeros(_most((tile.n_rows, tile.n_columns), self._block.matrix.dtype), lift)
        if sparse is not None:
            return self._append(tile.columns, sparse)
        A = self.scratch(tile.n_columns)
        kernels.raise_positive(*tile.scaled, A, lift)
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

    def _append(self, columns: slice, A: Array | Nonzeros) -> Piece:
        self.pieces.append(Piece(self._block, columns, A))
        return self.pieces[-1]

    def _compressed(self, A: Array, most: int) -> Nonzeros | None:
        index, take = len(self.pieces), self._block.scratch.take
        values = take(f"values {index}", (most + 8,), A.dtype)  # See `compress` for the 8.
        columns = take(f"columns {index}", (most + 8,), _INT32)
        out = Nonzeros(values, columns, take(f"starts {index}", (len(A) + 1,), _INT64))
        bits = A.view(_INT32 if A.itemsize == 4 else _INT64)
        return None if kernels.compress(A, bits, out) < 0 else out


def _most(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the largest number of nonzeros of a tile of which only these are multiplied."""
    return int(SPARSE_SHARE[dtype.itemsize] * shape[0] * shape[1])
