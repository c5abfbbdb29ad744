"""What is known of the entries of X beside their values: which are missing, limits, and weights.

`Observation` has what applies to all rows. What has the shape of X (a mask, weights, a limit for each entry) is a
second matrix, which `Bundle` reads beside X, tile by tile; it may be stored in any way that X may be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunmd.engine.kernels import CsrRows, Held
from relunmd.engine.matrix.layout import cached
from relunmd.engine.matrix.scratch import Array, Scratch
from relunmd.engine.matrix.source import InMemory, Source, TileData, read_only

_BYTE = np.dtype(np.uint8)


@dataclass(frozen=True, eq=False)
class Observation:
    """What applies to all rows.

    Attributes
    ----------
    lower, upper : array of shape (1, n)
        Limits in the units of X; 0 and ∞ where there are none.
    nan : bool
        Whether NaN is a missing value.
    stored_only : bool
        Whether entries that a sparse X does not store are missing.
    beside : tuple of str
        Which matrices X comes with.
    largest_weight : float
        Weights are divided by it, so that none is above 1.
    held : Held or None
        Entries that are missing because they are held out.
    """

    lower: Array
    upper: Array
    nan: bool = False
    stored_only: bool = False
    beside: tuple[str, ...] = ()
    largest_weight: float = 1.0
    held: Held | None = None

    @classmethod
    def none(cls, n_columns: int) -> "Observation":
        """Return what is known if there is nothing beside the values."""
        return cls(np.zeros((1, n_columns)), np.full((1, n_columns), np.inf))

    @cached
    def limited(self) -> tuple[slice, slice]:
        """The rows of `lower` and `upper` that the kernels get: none if they have no limit."""
        upper = bool(np.isfinite(self.upper).any()) or "upper" in self.beside
        return slice(int(upper or bool(self.lower.any()))), slice(int(upper))

    @property
    def plain(self) -> bool:
        """Whether nothing but the values of X matters."""
        rest = self.nan, self.stored_only, self.beside, self.held, *(rows.stop for rows in self.limited)
        return not any(rest)


class Bundle(Source):
    """X and the matrices beside it, as one source."""

    def __init__(self, X: Source, beside: Mapping[str, Source]) -> None:
        self.X, self.beside = X, dict(beside)
        self.shape, self.dtype, self.sparse = X.shape, X.dtype, X.sparse
        self.chunk_rows, self.starts, self.stored_only = X.chunk_rows, X.starts, X.stored_only
        self.in_memory = all(source.in_memory for source in (X, *beside.values()))

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple[InMemory, int]:
        found = {name: each.part(rows, stop, scratch.beside(name)) for name, each in self.beside.items()}
        return BundledRows(*self.X.part(rows, stop, scratch), found), 0

    def read(self, rows: slice) -> Any:
        return self.X.read(rows)

    def reduced(self, beside: Sequence[str]) -> Source:
        kept = {name: self.beside[name] for name in beside}
        return Bundle(self.X, kept) if kept else self.X

    def validated(self) -> None:
        for source in (self.X, *self.beside.values()):
            source.validated()

    def close(self) -> None:
        for source in (self.X, *self.beside.values()):
            source.close()


class BundledRows(InMemory):
    """Rows of X in memory, and those of the matrices beside it; each with the number of its first row."""

    def __init__(self, X: InMemory, first: int, beside: Mapping[str, tuple[InMemory, int]]) -> None:
        self.X, self._first, self.beside = X, first, beside
        self.shape, self.dtype, self.sparse = X.shape, X.dtype, X.sparse

    def read(self, rows: slice) -> Any:
        return self.X.read(_moved(rows, self._first))

    def tile(self, rows: slice, columns: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch) -> TileData:
        return self.X.tile(_moved(rows, self._first), columns, dtype, scale, scratch)

    def stored(self, rows: slice, dtype: np.dtype[Any], scale: float, scratch: Scratch) -> tuple[CsrRows, float]:
        return self.X.stored(_moved(rows, self._first), dtype, scale, scratch)

    def tile_beside(
        self, name: str, rows: slice, columns: slice, dtype: np.dtype[Any], factor: float, scratch: Scratch
    ) -> Array:
        (part, first), scratch = self.beside[name], scratch.beside(name)
        mask = name == "mask"
        wanted = _BYTE if mask and part.dtype.itemsize == 1 and not part.sparse else dtype
        found, start, factor = part.tile(_moved(rows, first), columns, wanted, factor, scratch)
        found = found[:, start : start + columns.stop - columns.start]
        if factor != 1:
            found = np.multiply(found, factor, out=scratch.take("scaled", found.shape, dtype), casting="unsafe")
        if mask and found.dtype != _BYTE:
            found = np.not_equal(found, 0, out=scratch.take("mask", found.shape, np.dtype(bool))).view(_BYTE)
        return read_only(np.ascontiguousarray(found, found.dtype if mask else dtype))

    def stored_beside(
        self, name: str, rows: slice, dtype: np.dtype[Any], factor: float, scratch: Scratch
    ) -> tuple[CsrRows, float]:
        part, first = self.beside[name]
        return part.stored(_moved(rows, first), dtype, factor, scratch.beside(name))


def _moved(rows: slice, first: int) -> slice:
    return slice(rows.start - first, rows.stop - first)
