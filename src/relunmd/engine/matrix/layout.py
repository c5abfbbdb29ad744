"""The partition of X into blocks of rows, the unit of work and of summation, and into tiles, which fit in the cache.

It depends on the shape alone (and on the chunks of a file), not on the number of threads or on the storage in memory:
sums are always added in the same order, and results have the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_TILE_ENTRIES = 2**17
_TILE_ROWS = (64, 2048)
_STRIP_ENTRIES = 2**19
_STRIP_ROWS = 256
_LEAST_BLOCKS, _MOST_BLOCKS = 8, 64
_WIDE = 8192
_MOST_ENTRIES = 2**24
"""The most entries of the rows that a worker holds, unless eight rows have more."""
_TILE_COLUMNS = 2048


class cached(Generic[T]):  # noqa: N801
    """functools.cached_property without its lock, which in Python 3.11 can remain locked in the child of a fork."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        value: T = instance.__dict__.setdefault(self._compute.__name__, self._compute(instance))
        return value


@dataclass(frozen=True)
class RowLayout:
    """The partition of a matrix of shape (n_rows, n_columns) whose file stores `chunk_rows` rows together.

    If parts of X lie in different places, `starts` has the first row of each, and no block spans two of them.

    >>> layout = RowLayout(5000, 1000)
    >>> layout.tile_rows, layout.strip_rows, len(layout.blocks), layout.blocks[-1]
    (128, 512, 10, slice(4608, 5000, None))
    """

    n_rows: int
    n_columns: int
    chunk_rows: int = 1
    starts: tuple[int, ...] = (0,)

    @cached
    def tile_rows(self) -> int:
        """Rows of a tile, for algorithms that keep arrays of the size of X.

        Tiles of up to 2¹⁷ entries, with a power of two between 64 and 2048 rows, were the fastest for iterations of 3B
        and A-NMD at 1797 × 64, 20 000 × 64, 500², 1000², 2000² and 5000 × 784: with half as many rows they are up to
        1.5 times slower (interpreter overhead), with twice as many 10 % (cache).
        """
        least, most = _TILE_ROWS
        least = min(least, max(8, _power_of_two(_MOST_ENTRIES // self.n_columns)))
        return min(most, max(least, _power_of_two(_TILE_ENTRIES // self.n_columns)))

    @cached
    def strip_rows(self) -> int:
        """Rows of a strip, for algorithms that keep no array of the size of X.

        Up to 2¹⁹ entries, and at least 256 rows if that leaves 8 blocks: with half as many rows a pass takes 3 to 10 %
        longer at 50 000 × 784, 2000² and 5000², more in float32. For very wide X 256 rows: more would make large
        strips, and with 128, for each of which H is read from memory, two processes at 18 846 × 30 295 took 1.5 times
        as long as two threads, which share H and the cache.
        """
        wanted = max(_STRIP_ROWS, _power_of_two(_STRIP_ENTRIES // self.n_columns))
        if self.n_columns > _WIDE:
            wanted = min(_STRIP_ROWS, _power_of_two(_MOST_ENTRIES // self.n_columns))
        return max(self.tile_rows, min(wanted, 2 * _power_of_two(self.n_rows // _LEAST_BLOCKS)))

    @cached
    def blocks(self) -> list[slice]:
        """The rows of each block: whole strips or whole chunks, at most 64 blocks if X lies in one place.

        For very wide X two strips: the sums of a block are as wide as X, and adding 56 of them took a third of the time
        of a pass at 7094 × 41 681.
        """
        together = min(2, self.n_rows // (_LEAST_BLOCKS * self.strip_rows)) if self.n_columns > _WIDE else 1
        least = self.strip_rows * max(1, together)
        unit = -(-least // self.chunk_rows) * self.chunk_rows
        units = -(-self.n_rows // unit)
        height = -(-units // _MOST_BLOCKS) * unit
        ends = (*self.starts[1:], self.n_rows)
        return [cut for start, end in zip(self.starts, ends, strict=True) for cut in _cut(start, end, height)]

    def tiles(self, block: slice) -> list[slice]:
        """Return the rows of the tiles of a block, counted from its first row."""
        return _cut(0, block.stop - block.start, self.tile_rows)

    def strips(self, block: slice) -> list[slice]:
        """Return the rows of the strips of a block, counted from its first row."""
        return _cut(0, block.stop - block.start, self.strip_rows)

    @cached
    def columns(self) -> list[slice]:
        """The columns of the tiles of a strip: all, unless X is so wide that they would exceed the cache.

        2048 at a time took as long as all up to about 7000 columns, and 0.9 of the time at 30 000.
        """
        return _cut(0, self.n_columns, self.n_columns if self.n_columns <= _WIDE else _TILE_COLUMNS)


def _power_of_two(limit: int) -> int:
    """Return the largest power of two up to `limit`, at least 1."""
    return 1 << max(0, limit.bit_length() - 1)


def _cut(first: int, end: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, end)) for start in range(first, end, step)]
