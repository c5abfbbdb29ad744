"""X in a computation: a source, a float type, a scale, and a partition into blocks."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunmd.engine.matrix.block import Block
from relunmd.engine.matrix.layout import RowLayout, cached
from relunmd.engine.matrix.scratch import Scratch
from relunmd.engine.matrix.source import Source

__all__ = ["Matrix", "power_of_two_scale"]


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

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @cached
    def layout(self) -> RowLayout:
        return RowLayout(*self.shape, self.source.chunk_rows, self.source.starts)

    def block(self, index: int, scratch: Scratch) -> Block:
        return Block(self, self.layout.blocks[index], scratch)
