"""Which entries are held out, for cross-validation: decided by a hash of their row and column, never stored."""

from typing import Any, NamedTuple

import numpy as np

from relunmd.engine.kernels._compile import CsrRows, DataOrBytes, Values, WrittenBytes, helper, kernel

RESOLUTION = 2**32
"""A hash is a number below this one."""


class Held(NamedTuple):
    """The entries whose hash lies in an interval, which wraps around at `RESOLUTION`.

    `width` and `zero_width` are the lengths of the interval for nonzeros and for zeros. With `symmetric`, (i, j) and
    (j, i) have the same hash. `kept` is 0 if the entries in the interval are missing, and 1 if all others are.
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
def _place(held: Held, row: int, column: int, key: Any) -> Any:
    """Return where the hash of an entry lies after the start of the interval; `key` is that of the row.

    One number of 64 bits serves two columns.
    """
    if held.symmetric and column < row:
        row, column, key = column, row, _row_key(held, column)
    both = _mixed(key + np.uint64(column >> 1) * np.uint64(0xD1342543DE82EF95))
    own = both >> np.uint64(32) if column & 1 else both & np.uint64(0xFFFFFFFF)
    return (own - np.uint64(held.start)) & np.uint64(0xFFFFFFFF)


@kernel
def mask_held_out(X: DataOrBytes, first: int, held: Held, row: int, column: int, mask: WrittenBytes) -> None:
    """mask ← 1 where an entry is missing because of `held`; the tile begins at `row` and `column`."""
    width, zero_width, kept = np.uint64(held.width), np.uint64(held.zero_width), held.kept != 0
    for i in range(mask.shape[0]):
        key, x = _row_key(held, row + i), X[i, first : first + mask.shape[1]]
        for j in range(mask.shape[1]):
            inside = _place(held, row + i, column + j, key) < (width if x[j] != 0 else zero_width)
            if inside != kept:
                mask[i, j] = 1


@kernel
def weigh_held_out(rows: CsrRows, held: Held, row: int, weights: Values) -> None:
    """weights ← 0 where a stored entry is missing because of `held`."""
    width, zero_width, kept = np.uint64(held.width), np.uint64(held.zero_width), held.kept != 0
    for i in range(len(rows.starts) - 1):
        key = _row_key(held, row + i)
        for k in range(rows.starts[i], rows.starts[i + 1]):
            inside = _place(held, row + i, rows.columns[k], key) < (width if rows.values[k] != 0 else zero_width)
            if inside != kept:
                weights[k] = 0
