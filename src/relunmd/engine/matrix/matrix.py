"""X in a computation: a matrix of one float type, its blocks of rows, and tiles of them for the kernels."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relunmd.engine import kernels
from relunmd.engine.kernels import Held, Known, Nonzeros, StoredRows
from relunmd.engine.matrix.layout import RowLayout, cached
from relunmd.engine.matrix.observation import Observation
from relunmd.engine.matrix.scratch import Array, Scratch
from relunmd.engine.matrix.source import InMemory, Source, TileData, read_only
from relunmd.errors import InputError


def power_of_two_scale(largest: float, dtype: np.dtype[Any]) -> float:
    """Return the power of two that brings `largest` into [1, 2), within the range of `dtype`.

    >>> power_of_two_scale(255.0, np.dtype("float64"))
    0.0078125
    """
    bound = -int(np.finfo(dtype).minexp)
    exponent = math.frexp(largest)[1] - 1
    return math.ldexp(1.0, max(-bound, min(bound, -exponent)))


@dataclass(frozen=True)
class Matrix:
    """The rows of `source` times `scale`, in tiles of `dtype`.

    The scale is a power of two near 1 / max(X), so that squares neither overflow nor underflow and no constant depends
    on units. The kernels apply it.
    """

    source: Source
    dtype: np.dtype[Any]
    scale: float = 1.0
    observation: Observation | None = None
    """What is known of the entries beside their values; None if nothing is."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @cached
    def layout(self) -> RowLayout:
        return RowLayout(*self.shape, self.source.chunk_rows, self.source.starts)

    @cached
    def limits(self) -> tuple[Array, Array]:
        """The lower and the upper limits of the columns, scaled; 1×n."""
        given = self._known.lower, self._known.upper
        lower, upper = (read_only((limits * self.scale).astype(self.dtype)) for limits in given)
        return lower, upper

    @property
    def _known(self) -> Observation:
        if self.observation is None:
            raise RuntimeError("Nothing is known of the entries beside their values.")
        return self.observation

    def with_observation(self) -> "Matrix":
        """Return a matrix whose tiles have `known`, also if there is nothing beside the values."""
        return self if self.observation is not None else replace(self, observation=Observation.none(self.shape[1]))

    @property
    def stored_only(self) -> bool:
        """Whether entries that X does not store are missing."""
        return self.observation is not None and self.observation.stored_only

    def factor(self, name: str) -> float:
        """Return by what a matrix beside X is multiplied."""
        factors = {"mask": 1.0, "weights": 1 / self._known.largest_weight}
        return factors.get(name, self.scale)

    def block(self, index: int, scratch: Scratch) -> "Block":
        return Block(self, self.layout.blocks[index], scratch)


@dataclass(slots=True, eq=False)
class Tile:
    """Some rows and columns of X in the float type of the computation; the data is ``X * scale``.

    Attributes
    ----------
    rows : slice
        The rows of the tile, counted from the first row of the block.
    columns : slice
        The columns of X.
    part : InMemory
        What holds these rows.
    place : slice
        The rows of the tile in `part`.
    """

    rows: slice
    columns: slice
    part: InMemory
    place: slice
    matrix: Matrix
    scratch: Scratch
    first_row: int
    """The first row of the tile in X."""
    _data: TileData | None = field(default=None, init=False)
    _X: Array | None = field(default=None, init=False)

    @property
    def n_rows(self) -> int:
        return int(self.rows.stop - self.rows.start)

    @property
    def n_columns(self) -> int:
        return int(self.columns.stop - self.columns.start)

    @property
    def data(self) -> TileData:
        """X as the kernels of hot loops take it."""
        if self._data is None:
            matrix = self.matrix
            self._data = self.part.tile(self.place, self.columns, matrix.dtype, matrix.scale, self.scratch)
        return self._data

    @property
    def X(self) -> Array:
        """A read-only C-ordered array of the tile's shape, valid until the next tile is used."""
        if self._X is None:
            X, first, _ = self.data
            if X.shape[1] != self.n_columns or X.dtype != self.matrix.dtype:
                out = self.scratch.take("X", (self.n_rows, self.n_columns), self.matrix.dtype)
                np.copyto(out, X[:, first : first + self.n_columns])
                X = read_only(out)
            self._X = X
        return self._X

    @property
    def scale(self) -> float:
        """The power of two by which X must be multiplied."""
        return self.data.scale

    @property
    def scaled(self) -> tuple[Array, float]:
        """X and its scale, as most kernels take them: ``kernels.project(T, *tile.scaled, Z)``."""
        return self.X, self.scale

    @property
    def known(self) -> Known | None:
        """What is known of the entries beside their values; None if nothing is."""
        observation = self.matrix.observation
        if observation is None:
            return None
        lower, upper = (
            limits[rows, self.columns] for limits, rows in zip(self.matrix.limits, observation.limited, strict=True)
        )
        none = np.empty((0, 0), self.matrix.dtype)
        found = {"lower": lower, "upper": upper, "mask": none.astype(np.uint8), "weights": none}
        found |= {name: self._beside(name) for name in observation.beside}
        if observation.held is not None:
            found["mask"] = self._held_out(found["mask"], observation.held)
        return Known(**{name: read_only(array) for name, array in found.items()})

    @property
    def general(self) -> Known:
        """The same where there is something."""
        known = self.known
        if known is None:
            raise RuntimeError("Nothing is known of the entries beside their values.")
        return known

    def _beside(self, name: str) -> Array:
        matrix = self.matrix
        return self.part.tile_beside(name, self.place, self.columns, matrix.dtype, matrix.factor(name), self.scratch)

    def _held_out(self, given: Array, held: Held) -> Array:
        """Return the mask of the tile, with the entries that are held out."""
        mask = self.scratch.take("held out", (self.n_rows, self.n_columns), np.dtype(np.uint8))
        mask[:] = given if len(given) else 0
        X, first, _ = self.data
        kernels.mask_held_out(X, first, held, self.first_row, self.columns.start, mask)
        return mask

    def bounds(self) -> tuple[Array, Array, Array]:
        """Return the ends of the interval of each entry, and its weight, 0 if it is missing; in scratch memory."""
        known = self.general
        lo, hi, w = (self.scratch.take(name, self.X.shape, self.matrix.dtype) for name in ("lo", "hi", "weight"))
        kernels.tile_bounds(*self.scaled, known, lo, hi, w)
        return lo, hi, w

    def stored(self) -> StoredRows:
        """Return the rows of the tile in an X of which only stored entries are known."""
        matrix = self.matrix
        csr, scale = self.part.stored(self.place, matrix.dtype, matrix.scale, self.scratch)
        weights = csr.values[:0]
        if "weights" in matrix._known.beside:
            arguments = self.place, matrix.dtype, matrix.factor("weights"), self.scratch
            beside, factor = self.part.stored_beside("weights", *arguments)
            if not (np.array_equal(beside.starts, csr.starts) and np.array_equal(beside.columns, csr.columns)):
                raise InputError('weights must store the entries that X stores if missing_values="unstored".')
            weights = read_only(beside.values * matrix.dtype.type(factor))
        held = matrix._known.held
        if held is not None:
            weights = np.array(weights) if len(weights) else np.ones(len(csr.values), matrix.dtype)
            kernels.weigh_held_out(csr, held, self.first_row, weights)
            weights = read_only(weights)
        lower, upper = (limits[rows] for limits, rows in zip(matrix.limits, matrix._known.limited, strict=True))
        return StoredRows(csr, weights, lower, upper, scale)

    def positives(self) -> Nonzeros:
        """Return the positive entries, scaled."""
        size = self.n_rows * self.n_columns
        found = self.nonzeros(size, 0.0)
        if found is None:
            take, dtype = self.scratch.take, self.matrix.dtype
            A = take("positives", (self.n_rows, self.n_columns), dtype)
            kernels.raise_positive(*self.scaled, A, 0.0)
            found = Nonzeros(
                take("positive values", (size + 8,), dtype),
                take("positive columns", (size + 8,), np.dtype(np.int32)),
                take("positive starts", (self.n_rows + 1,), np.dtype(np.int64)),
            )
            kernels.compress(A, A.view(np.int32 if A.itemsize == 4 else np.int64), found)
        return found

    def nonzeros(self, most: int, lift: float) -> Nonzeros | None:
        """Return the positive entries of X·scale + lift·[X > 0] if X is sparse and has at most `most` of them."""
        matrix = self.matrix
        return self.part.nonzeros(self.place, self.columns, matrix.dtype, matrix.scale, most, lift, self.scratch)


@dataclass(frozen=True)
class Block:
    """The rows `rows` of X, and the scratch memory of the worker that processes them."""

    matrix: Matrix
    rows: slice
    scratch: Scratch

    @property
    def n_columns(self) -> int:
        return self.matrix.shape[1]

    @property
    def tile_rows(self) -> list[slice]:
        """The rows of the tiles of whole rows, counted from the first row of the block."""
        return self.matrix.layout.tiles(self.rows)

    @property
    def strips(self) -> list[slice]:
        """The rows of the strips, counted from the first row of the block, for `across`."""
        return self.matrix.layout.strips(self.rows)

    def tiles(self) -> Iterator[Tile]:
        """Return tiles of whole rows, for algorithms that keep arrays of the size of X."""
        return map(self.whole, self.tile_rows)

    def whole(self, rows: slice) -> Tile:
        """Return some rows of the block as one tile."""
        return self._tile(rows, slice(0, self.n_columns))

    def across(self, rows: slice) -> Iterator[Tile]:
        """Yield the tiles of one of `strips`, from left to right."""
        whole = [slice(0, self.n_columns)]
        for columns in whole if self.matrix.stored_only else self.matrix.layout.columns:
            yield self._tile(rows, columns)

    def _tile(self, rows: slice, columns: slice) -> Tile:
        start, stop = self.rows.start + rows.start, self.rows.start + rows.stop
        part, first = self.matrix.source.part(slice(start, stop), self.rows.stop, self.scratch)
        return Tile(rows, columns, part, slice(start - first, stop - first), self.matrix, self.scratch, start)

    def theta(self, tile: Tile, W: Array, H: Array) -> Array:
        """Return the tile of Θ = WH in scratch memory; W has the rows of the block."""
        return np.matmul(W[tile.rows], H[:, tile.columns], out=self.strip_tile(0, tile.n_rows, tile.n_columns))

    def strip_tile(self, index: int, n_rows: int, n_columns: int) -> Array:
        """Return scratch memory for a tile of a strip. `theta` uses that of the first tile."""
        return self.scratch_tile(f"strip {index}", n_rows, n_columns)

    def sums(self, shape: tuple[int, ...]) -> Array:
        """Return zeros in float64 for the sums of the block."""
        return self.scratch.sums.take(shape)

    def scratch_tile(self, name: str, n_rows: int, n_columns: int | None = None) -> Array:
        """Return scratch memory of `n_rows` rows, by default as wide as X, in the float type of the computation."""
        columns = self.n_columns if n_columns is None else n_columns
        return self.scratch.take(name, (n_rows, columns), self.matrix.dtype)
