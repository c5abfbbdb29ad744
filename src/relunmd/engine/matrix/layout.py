"""Where X is cut: into blocks of rows, the unit of work and of summation, and into tiles, the unit of cache.

The cuts depend on the shape alone (and on the rows that a file stores together), never on the number
of threads or on how X is stored in memory, so sums are always added in the same order and a result is
the same, bit for bit, everywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["RowLayout", "cached"]

T = TypeVar("T")

_TILE_ENTRIES = 2**17
_TILE_ROWS = (64, 2048)
_STRIP_ENTRIES = 2**19
_STRIP_ROWS = 256
_LEAST_BLOCKS, _MOST_BLOCKS = 8, 64
_WIDE = 8192
_MOST_ENTRIES = 2**24
"""What a worker holds of rows at most, unless eight of them are more."""
_TILE_COLUMNS = 2048


class cached(Generic[T]):  # noqa: N801
    """functools.cached_property without its lock, which until Python 3.11 a fork can leave locked in the child."""

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
    """The cuts of `n_rows` rows of `n_columns` entries, `chunk_rows` of which are stored together.

    Where parts of X lie in different places `starts` has the first row of each, and no block is in two of them.

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
        """Rows of a tile, for algorithms that keep arrays of the size of X and look at whole rows of them.

        Tiles of up to 2¹⁷ entries, a power of two between 64 and 2048 rows high, were the fastest for
        iterations of 3B and A-NMD at 1797 × 64, 20 000 × 64, 500², 1000², 2000² and 5000 × 784: half as
        high they are up to 1.5 times slower (the interpreter's share), twice as high 10 % (the cache).
        """
        least, most = _TILE_ROWS
        least = min(least, max(8, _power_of_two(_MOST_ENTRIES // self.n_columns)))
        return min(most, max(least, _power_of_two(_TILE_ENTRIES // self.n_columns)))

    @cached
    def strip_rows(self) -> int:
        """Rows of a strip, for algorithms that keep nothing of the size of X.

        Up to 2¹⁹ entries, and 256 rows at least, where that leaves 8 blocks: half as high a pass takes 3 to 10 % longer
        at 50 000 × 784, 2000² and 5000², more in float32. No more for very wide X, whose strips are large; and no less,
        since H is read from memory for each of them: with 128, two processes at 18 846 × 30 295, each with an H of its
        own, took 1.5 times as long as two threads, which share one and the cache it is in.
        """
        wanted = max(_STRIP_ROWS, _power_of_two(_STRIP_ENTRIES // self.n_columns))
        if self.n_columns > _WIDE:
            wanted = min(_STRIP_ROWS, _power_of_two(_MOST_ENTRIES // self.n_columns))
        return max(self.tile_rows, min(wanted, 2 * _power_of_two(self.n_rows // _LEAST_BLOCKS)))

    @cached
    def blocks(self) -> list[slice]:
        """The rows of each block: whole strips or whole chunks, at most 64 blocks where X lies in one place.

        Two strips of very wide X: a block's share of the sums is as wide as X, and adding up 56 of them took a third of
        a sweep's time at 7094 × 41 681.
        """
        together = min(2, self.n_rows // (_LEAST_BLOCKS * self.strip_rows)) if self.n_columns > _WIDE else 1
        least = self.strip_rows * max(1, together)
        unit = -(-least // self.chunk_rows) * self.chunk_rows
        units = -(-self.n_rows // unit)
        height = -(-units // _MOST_BLOCKS) * unit
        ends = (*self.starts[1:], self.n_rows)
        return [
            slice(start + cut.start, start + cut.stop)
            for start, end in zip(self.starts, ends, strict=True)
            for cut in _cut(end - start, height)
        ]

    def tiles(self, block: slice) -> list[slice]:
        """The rows of a block's tiles, counted from the block's first row."""
        return _cut(block.stop - block.start, self.tile_rows)

    def strips(self, block: slice) -> list[slice]:
        """The rows of a block's strips, counted from the block's first row."""
        return _cut(block.stop - block.start, self.strip_rows)

    @cached
    def columns(self) -> list[slice]:
        """The columns of the tiles of a strip: all of them, unless X is so wide that they would leave the cache.

        2048 at a time took as long as all up to about 7000 columns, and 0.9 of the time at 30 000.
        """
        return _cut(self.n_columns, self.n_columns if self.n_columns <= _WIDE else _TILE_COLUMNS)


def _power_of_two(limit: int) -> int:
    """The largest power of two up to `limit`, at least 1."""
    return 1 << max(0, limit.bit_length() - 1)


def _cut(length: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]
