"""The entries of some rows of X for the row solver: all of them, or those that a sparse X stores.

Rows of which only stored entries are known are sorted by their number of entries and padded to that of the longest with
entries of weight 0, so that Newton's method costs what is stored and not what X would have.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from relunmd.engine import kernels
from relunmd.engine.kernels import Intervals
from relunmd.engine.matrix import Array, Block, Tile
from relunmd.engine.matrix.source import read_only

_MOST_ENTRIES = 2**20


@dataclass(frozen=True)
class RowEntries:
    """Rows of a block, each times the power of two that brings its largest entry into [1, 2).

    Attributes
    ----------
    place : slice or index array
        The rows, counted from the first row of the block.
    X, scale : array and float
        The values; the ends of intervals nearest to −∞ if entries are missing, limited or weighted.
    known : Intervals
        What is known beside the values, without rows if nothing is.
    of_x, of_scaled : array of int
        By which powers of two, of the rows in the user's units and of the scaled rows: W of a row scales with it.
    """

    place: Any
    X: Array
    scale: float
    known: Intervals
    of_x: Array
    of_scaled: Array

    def __len__(self) -> int:
        return len(self.X)

    @property
    def plain(self) -> bool:
        """Whether nothing but the values matters."""
        return len(self.known.lo) == 0

    def product(self, W: Array, H: Array, Ht: Array, out: Array) -> Array:
        """out ← the entries of WH; Ht in float64."""
        if len(self.known.columns) == 0:
            return np.matmul(W.astype(out.dtype), H, out=out)
        kernels.known_product(W, Ht, self.known.columns, out)
        return out

    def scores(self, P: Array) -> tuple[Array, Array]:
        """For each row x and each row p of P, ⟨x, p⟩ and ‖p‖² over the entries that are known, with their weights.

        An entry that is only limited has no part in it.
        """
        known = self.known
        exact = (known.lo == known.hi) | (known.hi == 0)
        values, weights = np.where(exact, known.weights * np.maximum(known.lo, 0), 0), known.weights * exact
        if len(known.columns) == 0:
            return (values @ P.T).astype(np.float64), (weights @ np.square(P).T).astype(np.float64)
        shape, starts = (len(self), P.shape[1]), np.arange(0, known.columns.size + 1, known.columns.shape[1])
        data = (sparse.csr_array((A.ravel(), known.columns.ravel(), starts), shape) for A in (values, weights))
        (x, w), Pt = data, np.ascontiguousarray(P.T)
        return (x @ Pt).astype(np.float64), (w @ np.square(Pt)).astype(np.float64)


def row_entries(x: Block, normalized: bool = True) -> Iterator[RowEntries]:
    """Yield the rows of a block in parts; memory of four such parts is needed. Without `normalized` as they are."""
    if x.matrix.stored_only:
        yield from _stored(x, normalized)
        return
    for rows in x.tile_rows:
        height = max(8, _MOST_ENTRIES // x.n_columns)
        for start in range(rows.start, rows.stop, height):
            tile = x.whole(slice(start, min(start + height, rows.stop)))
            yield _plain(x, tile, normalized) if x.matrix.observation is None else _known(x, tile, normalized)


def no_intervals(dtype: np.dtype[Any]) -> Intervals:
    """Return what is known beside the values of a plain X."""
    empty, places = read_only(np.empty((0, 0), dtype)), read_only(np.empty((0, 0), np.int64))
    return Intervals(empty, empty, empty, places)


def _plain(x: Block, tile: Tile, normalized: bool) -> RowEntries:
    X = tile.X
    if not normalized:
        zeros = np.zeros(len(X), np.int32)
        return RowEntries(tile.rows, X, tile.scale, no_intervals(X.dtype), zeros, zeros)
    exponents = _exponents(X.max(axis=1))
    beyond = exponents - exponent(tile.scale)
    X = read_only(np.ascontiguousarray(np.ldexp(X, exponents[:, None])))
    return RowEntries(tile.rows, X, 1.0, no_intervals(X.dtype), beyond + exponent(x.matrix.scale), beyond)


def _known(x: Block, tile: Tile, normalized: bool) -> RowEntries:
    lo, hi, w = tile.bounds()
    return _intervals(x, tile.rows, (lo, hi), w, np.empty((0, 0), np.int64), normalized)


def _intervals(
    x: Block, place: Any, ends: tuple[Array, Array], w: Array, columns: Array, normalized: bool
) -> RowEntries:
    """Return rows of the general model; the ends of the intervals are scaled as the matrix is."""
    lo, hi = ends
    exponents = _exponents(lo.max(axis=1)) if normalized else np.zeros(len(lo), np.int32)
    lo, hi = (read_only(np.ldexp(A, exponents[:, None])) for A in (lo, hi))
    known = Intervals(lo, hi, read_only(np.array(w)), read_only(columns))
    return RowEntries(place, lo, 1.0, known, exponents + exponent(x.matrix.scale), exponents)


def _stored(x: Block, normalized: bool) -> Iterator[RowEntries]:
    for at in x.strips:
        stored = x.whole(at).stored()
        _, columns, starts = stored.rows
        dtype, counts = x.matrix.dtype, np.diff(starts)
        lo, hi = np.empty(len(columns), dtype), np.empty(len(columns), dtype)
        kernels.stored_bounds(stored, lo, hi)
        w = stored.weights if len(stored.weights) else np.ones(len(columns), dtype)
        # One more entry, of weight 0, with which short rows are padded.
        lo, hi, w = np.append(lo, -np.inf), np.append(hi, np.inf), np.append(w, 0)
        columns = np.append(columns, 0).astype(np.int64)
        for rows in _of_similar_length(counts):
            width = np.arange(max(1, int(counts[rows].max())))
            places = np.where(width < counts[rows, None], starts[rows, None] + width, len(columns) - 1)
            ends = lo[places].astype(dtype), hi[places].astype(dtype)
            yield _intervals(x, at.start + rows, ends, w[places].astype(dtype), columns[places], normalized)


def _of_similar_length(counts: Array) -> Iterator[Array]:
    """Yield the indices of rows whose longest has at most twice as many entries as the shortest, or 8 more."""
    order = np.argsort(counts, kind="stable")
    lengths, first = counts[order], 0
    while first < len(order):
        longest = lengths[first] + max(8, lengths[first])
        stop = int(np.searchsorted(lengths, longest, side="right"))
        yield order[first:stop]
        first = stop


def _exponents(largest: Array) -> Array:
    return np.where(largest > 0, 1 - np.frexp(np.maximum(largest, 0))[1], 0).astype(np.int32)


def exponent(scale: float) -> np.int32:
    """Return the exponent of a power of two."""
    return np.int32(np.frexp(scale)[1] - 1)
