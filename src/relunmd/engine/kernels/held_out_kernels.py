"""Which entries are held out, for cross-validation: decided by a hash of their row and column, never stored."""

from typing import Any, NamedTuple

import numpy as np

from relunmd.engine.kernels._compile import CsrRows, DataOrBytes, Values, WrittenBytes, helper, kernel

RESOLUTION = 2**32
"""A hash is a number below this one."""


class Held(NamedTuple):
    """The entries whose hash lies in an interval, which wraps around at `RESOLUTION`.

    `width` and `zero_width`, below `RESOLUTION`, are the lengths of the interval for nonzeros and for zeros. With
    `symmetric`, (i, j) and (j, i) have the same hash. `kept` is 0 if the entries in the interval are missing, and 1 if
    all others are.
    """

    seed: int
    start: int
    width: int
    zero_width: int
    symmetric: int
    kept: int


@helper
def _mixed(z: Any) -> Any:
    """Return the finalizer of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@helper
def _row_key(held: Held, row: int) -> Any:
    return _mixed(np.uint64(held.seed) + np.uint64(row) * np.uint64(0x9E3779B97F4A7C15))


@helper
def _pair(key: Any, pair: int) -> Any:
    """Return the hashes of columns 2·pair (the lower 32 bits) and 2·pair + 1; `key` is that of the row."""
    return _mixed(key + np.uint64(pair) * np.uint64(0xD1342543DE82EF95))


@helper
def _hash(held: Held, row: int, column: int) -> Any:
    """Return the hash of one entry."""
    if held.symmetric and column < row:
        row, column = column, row
    both = _pair(_row_key(held, row), column >> 1)
    return np.uint32(both >> np.uint64(32) if column & 1 else both & np.uint64(0xFFFFFFFF))


@helper
def _is_missing(held: Held, own: Any, positive: bool) -> bool:
    """Return whether an entry with this hash is missing."""
    width = np.uint32(held.width) if positive else np.uint32(held.zero_width)
    return bool((np.uint32(own - np.uint32(held.start)) < width) != (held.kept != 0))


@kernel
def mask_held_out(X: DataOrBytes, first: int, held: Held, row: int, column: int, mask: WrittenBytes) -> None:
    """mask ← 1 where an entry is missing because of `held`; the tile begins at `row` and `column`.

    The hashes of a row come first, two at a time, in a loop that compiles to vector instructions: 1.4 to 2 times as
    fast as one hash for each entry.
    """
    first_pair, count = column >> 1, mask.shape[1]
    pairs = np.empty(((column + count + 1) >> 1) - first_pair, np.uint64)
    hashes = pairs.view(np.uint32)[column & 1 :]
    for i in range(mask.shape[0]):
        key, x, out = _row_key(held, row + i), X[i, first : first + count], mask[i]
        for k in range(len(pairs)):
            pairs[k] = _pair(key, first_pair + k)
        for j in range(min(count, row + i - column) if held.symmetric else 0):
            hashes[j] = _hash(held, row + i, column + j)
        for j in range(count):
            out[j] |= _is_missing(held, hashes[j], x[j] != 0)


@kernel
def weigh_held_out(rows: CsrRows, held: Held, row: int, weights: Values) -> None:
    """weights ← 0 where a stored entry is missing because of `held`."""
    for i in range(len(rows.starts) - 1):
        for k in range(rows.starts[i], rows.starts[i + 1]):
            if _is_missing(held, _hash(held, row + i, rows.columns[k]), rows.values[k] != 0):
                weights[k] = 0
