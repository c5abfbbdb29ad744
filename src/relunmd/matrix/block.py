"""One block of rows of X, as a block function sees it: a sequence of tiles ready for kernels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Block", "Scratch", "Tile"]

Array = NDArray[Any]


class Scratch:
    """A worker's scratch tiles, allocated once and handed out again by name."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def take(self, name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
        """An uninitialised C-ordered array; the next call with this name may return the same memory."""
        size = shape[0] * shape[1]
        held = self._arrays.get(name)
        if held is None or held.size < size or held.dtype != dtype:
            held = self._arrays[name] = np.empty(size, dtype)
        return held[:size].reshape(shape)


@dataclass(frozen=True)
class Tile:
    """Some rows of X in the computation's float type; the data proper is `X * scale`."""

    rows: slice
    """The tile's rows, counted from the block's first."""
    X: Array
    """A read-only, C-ordered array."""
    scale: float

    @property
    def n_rows(self) -> int:
        return int(self.rows.stop - self.rows.start)


class TileSource(Protocol):
    """What a block asks of the matrix it belongs to."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def tile(self, rows: slice, scratch: Scratch) -> tuple[Array, float]: ...


@dataclass(frozen=True)
class Block:
    """Rows `rows` of X, and the scratch of the worker that looks at them."""

    source: TileSource
    rows: slice
    tile_rows: tuple[slice, ...]
    scratch: Scratch

    @property
    def n_columns(self) -> int:
        return self.source.shape[1]

    def tiles(self) -> Iterator[Tile]:
        """The block's tiles in order. A tile's X is valid until the next one is asked for."""
        for rows in self.tile_rows:
            place = slice(self.rows.start + rows.start, self.rows.start + rows.stop)
            X, scale = self.source.tile(place, self.scratch)
            yield Tile(rows, X, scale)

    def scratch_tile(self, name: str, n_rows: int, n_columns: int | None = None) -> Array:
        """Scratch of `n_rows` rows (as wide as X unless said) in the computation's float type."""
        columns = self.n_columns if n_columns is None else n_columns
        return self.scratch.take(name, (n_rows, columns), self.source.dtype)
