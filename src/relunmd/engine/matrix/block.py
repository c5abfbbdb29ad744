"""One block of rows of X, as a block function sees it: tiles ready for kernels, and scratch to work in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunmd.engine import kernels
from relunmd.engine.matrix.scratch import Scratch
from relunmd.engine.matrix.source import InMemory, Nonzeros, TileData, read_only

if TYPE_CHECKING:
    from relunmd.engine.matrix.matrix import Matrix

__all__ = ["Block", "Tile"]

Array = NDArray[Any]


class Tile:
    """Some rows and columns of X in the computation's float type; the data proper is ``X * scale``.

    Attributes
    ----------
    rows : the tile's rows, counted from the block's first
    columns : its columns of X
    """

    __slots__ = ("_X", "_data", "_matrix", "_part", "_place", "_scratch", "columns", "n_columns", "n_rows", "rows")

    def __init__(
        self, matrix: "Matrix", part: InMemory, place: slice, rows: slice, columns: slice, scratch: Scratch
    ) -> None:
        self.rows = rows
        self.columns = columns
        self.n_rows: int = rows.stop - rows.start
        self.n_columns: int = columns.stop - columns.start
        self._matrix = matrix
        self._part = part
        self._place = place
        self._scratch = scratch
        self._data: TileData | None = None
        self._X: Array | None = None

    @property
    def data(self) -> TileData:
        """X as the kernels of hot loops take it, made when it is first asked for (`nonzeros` does not need it)."""
        if self._data is None:
            matrix = self._matrix
            self._data = self._part.tile(self._place, self.columns, matrix.dtype, matrix.scale, self._scratch)
        return self._data

    @property
    def X(self) -> Array:
        """A read-only C-ordered array of the tile's shape, valid until the next tile's is asked for."""
        if self._X is None:
            X, first, _ = self.data
            dtype = self._matrix.dtype
            if X.shape[1] != self.n_columns or X.dtype != dtype:
                part = X[:, first : first + self.n_columns]
                out = self._scratch.take("X", part.shape, dtype)
                np.copyto(out, part)
                X = read_only(out)
            self._X = X
        return self._X

    @property
    def scale(self) -> float:
        """The power of two by which X is to be multiplied."""
        return self.data.scale

    def squared_error(self, Theta: Array) -> float:
        """‖X − max(0, Θ)‖² in this tile."""
        return float(kernels.squared_error(Theta, self.X, self.scale))

    def project(self, Theta: Array, Z: Array) -> float:
        """Write Z = P(Θ), which is X where X > 0 and min(0, Θ) elsewhere; return ‖X − max(0, Θ)‖²."""
        return float(kernels.project(Theta, self.X, self.scale, Z))

    def latent(self, Theta: Array, Z_old: Array, Z: Array, beta: float) -> None:
        """Write Z = P(Θ) + β(P(Θ) − Z_old)."""
        kernels.latent(Theta, self.X, self.scale, Z_old, Z, beta)

    def extrapolate(self, T: Array, Theta_old: Array, Theta: Array, beta: float) -> tuple[float, float]:
        """Write Θ = T + β(T − Θ_old); return ‖X − max(0, ·)‖² of T and of Θ."""
        found: tuple[float, float] = kernels.extrapolate(T, self.X, self.scale, Theta_old, Theta, beta)
        return found

    def expect(self, Theta: Array, Z: Array, sigma: float) -> Array:
        """Write the posterior means of Z given Θ and σ; return the sums `kernels.expect` documents."""
        return np.asarray(kernels.expect(Theta, self.X, self.scale, Z, sigma))

    def nonzeros(self, most: int, lift: float) -> Nonzeros | None:
        """The positive entries of X·scale + lift·[X > 0], if there are at most `most` and X is stored that way."""
        matrix = self._matrix
        return self._part.nonzeros(self._place, self.columns, matrix.dtype, matrix.scale, most, lift, self._scratch)


@dataclass(frozen=True)
class Block:
    """Rows `rows` of X, and the scratch of the worker that looks at them."""

    matrix: "Matrix"
    rows: slice
    scratch: Scratch

    @property
    def n_columns(self) -> int:
        return self.matrix.shape[1]

    @property
    def tile_rows(self) -> list[slice]:
        """The rows of the tiles of whole rows, counted from the block's first."""
        return self.matrix.layout.tiles(self.rows)

    @property
    def strips(self) -> list[slice]:
        """The rows of the strips, counted from the block's first: what `across` takes."""
        return self.matrix.layout.strips(self.rows)

    def tiles(self) -> Iterator[Tile]:
        """The block's tiles of whole rows, for algorithms that keep such rows themselves."""
        for rows in self.tile_rows:
            yield self.whole(rows)

    def whole(self, rows: slice) -> Tile:
        """Some of the block's rows as one tile."""
        return self._tile(rows, slice(0, self.n_columns))

    def across(self, rows: slice) -> Iterator[Tile]:
        """The tiles of one of `strips`, from left to right."""
        for columns in self.matrix.layout.columns:
            yield self._tile(rows, columns)

    def _tile(self, rows: slice, columns: slice) -> Tile:
        start, stop = self.rows.start + rows.start, self.rows.start + rows.stop
        part, first = self.matrix.source.part(slice(start, stop), self.rows.stop, self.scratch)
        return Tile(self.matrix, part, slice(start - first, stop - first), rows, columns, self.scratch)

    def theta(self, tile: Tile, W: Array, H: Array) -> Array:
        """The tile of Θ = WH in scratch; W has the block's rows."""
        out = self.scratch_tile("A0", tile.n_rows, tile.n_columns)  # As the first of a strip: one memory for both.
        return np.matmul(W[tile.rows], H[:, tile.columns], out=out)

    def sums(self, shape: tuple[int, ...]) -> Array:
        """Zeros in float64, to add up the block's share of some sums in."""
        return self.scratch.sums.take(shape)

    def scratch_tile(self, name: str, n_rows: int, n_columns: int | None = None) -> Array:
        """Scratch of `n_rows` rows (as wide as X unless said) in the computation's float type."""
        columns = self.n_columns if n_columns is None else n_columns
        return self.scratch.take(name, (n_rows, columns), self.matrix.dtype)
