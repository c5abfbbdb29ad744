"""What an algorithm or a start is given: X, the rank, and the one way to look at X."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd import kernels
from relunmd.executor import BlockFunction, Rows, Sums, ThreadExecutor
from relunmd.matrix import Block, Matrix

__all__ = ["Facts", "Problem"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Facts:
    """Sums over the (scaled) data, made once at the door."""

    total: float
    squares: float
    positives: int


@dataclass(frozen=True)
class Problem:
    """X ≈ max(0, WH) with W m×rank and H rank×n; everything in the scaled units of `matrix`."""

    matrix: Matrix
    rank: int
    facts: Facts
    executor: ThreadExecutor

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.matrix.dtype

    @property
    def zero_share(self) -> float:
        """The share of the entries of X that are zero."""
        m, n = self.shape
        return 1.0 - self.facts.positives / (m * n)

    @property
    def mean_positive(self) -> float:
        """The mean of the positive entries of X."""
        return self.facts.total / self.facts.positives

    def run(
        self,
        function: BlockFunction,
        rows: Mapping[str, Array] | None = None,
        out: Mapping[str, Array | int] | None = None,
        **shared: Any,
    ) -> tuple[Rows, Sums]:
        """One pass over X; see ThreadExecutor.run."""
        return self.executor.run(self.matrix, function, rows, out, **shared)

    def relative(self, squares: float) -> float:
        """The relative error E of a sum of squared residuals."""
        return float(np.sqrt(squares / self.facts.squares))

    def error(self, W: Array, H: Array) -> float:
        """E(WH) = ‖X − max(0, WH)‖ / ‖X‖; one pass."""
        return self.relative(self.run(_squared_error, {"W": W}, H=H)[1]["squares"])


def _squared_error(x: Block, rows: Rows, out: Rows, *, H: Array) -> Sums:
    squares = 0.0
    for at in x.strips:
        for tile in x.across(at):
            squares += kernels.squared_error(x.theta(tile, rows["W"], H), tile.X, tile.scale)
    return {"squares": squares}
