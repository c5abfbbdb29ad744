"""What an algorithm or a start is given: X, the rank, and the one way to look at X."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd import kernels
from relunmd.archive import count
from relunmd.executor import BlockFunction, Executor, Rows, Sums, Wanted
from relunmd.matrix import Block, Matrix

__all__ = ["Facts", "Fingerprint", "Problem"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Facts:
    """Sums over the (scaled) data, made once at the door."""

    total: float
    squares: float
    positives: int


@dataclass(frozen=True)
class Fingerprint:
    """What X was, as far as a few numbers can tell.

    Attributes
    ----------
    shape, dtype : as the user had it
    nonzeros : how many entries were not zero
    total, squares : the sum of the entries, and of their squares
    """

    shape: tuple[int, int]
    dtype: str
    nonzeros: int
    total: float
    squares: float

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Fingerprint":
        """One that was written down; an exception if it is none."""
        m, n = found["shape"]
        shape = count(m, "rows"), count(n, "columns")
        sums = float(found["total"]), float(found["squares"])  # Infinite for a very large X.
        return cls(shape, str(found["dtype"]), count(found["nonzeros"], "nonzeros"), *sums)

    def differences(self, other: "Fingerprint") -> list[str]:
        """In what the other one differs, beyond rounding (which depends on how the same matrix is stored)."""
        found = [name for name in ("shape", "dtype", "nonzeros") if getattr(self, name) != getattr(other, name)]
        sums = ("total", "squares")
        return found + [n for n in sums if not math.isclose(getattr(self, n), getattr(other, n), rel_tol=1e-10)]


@dataclass(frozen=True)
class Problem:
    """X ≈ max(0, WH) with W m×rank and H rank×n; everything in the scaled units of `matrix`."""

    matrix: Matrix
    rank: int
    facts: Facts
    executor: Executor

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

    @property
    def fingerprint(self) -> Fingerprint:
        """Of X in the user's units."""
        total, squares = self.facts.total, self.facts.squares
        with np.errstate(over="ignore", under="ignore"):  # The square of a very large X is none that a float can have.
            by_unit = np.float64(1) / self.matrix.scale
            in_units = float(total * by_unit), float(squares * by_unit * by_unit)
        return Fingerprint(self.shape, str(self.matrix.source.dtype), self.facts.positives, *in_units)

    def run(
        self,
        function: BlockFunction,
        rows: Mapping[str, Array] | None = None,
        out: Mapping[str, Wanted] | None = None,
        **shared: Any,
    ) -> tuple[Rows, Sums]:
        """One pass over X; see Executor.run."""
        return self.executor.run(self.matrix, function, rows, out, **shared)

    def over_rows(
        self,
        function: BlockFunction,
        rows: Mapping[str, Array] | None = None,
        out: Mapping[str, Wanted] | None = None,
        **shared: Any,
    ) -> tuple[Rows, Sums]:
        """The same for a function that looks at arrays of m rows alone and not at X: no pass."""
        return self.executor.over_rows(self.matrix, function, rows, out, **shared)

    def gram(self, W: Array) -> Array:
        """WᵀW in float64, for an array W of m rows."""
        found: Array = self.over_rows(_gram_block, {"W": W})[1]["WW"]
        return found

    def times(self, W: Array, T: Array) -> Array:
        """W·T, for an array W of m rows and a small T, in W's float type."""
        return self.over_rows(_times_block, {"W": W}, {"WT": (T.shape[1], W.dtype)}, T=T.astype(W.dtype))[0]["WT"]

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


def _gram_block(x: Block, rows: Rows, out: Rows) -> Sums:
    W = rows["W"].astype(np.float64, copy=False)
    return {"WW": W.T @ W}


def _times_block(x: Block, rows: Rows, out: Rows, *, T: Array) -> Sums:
    np.matmul(rows["W"], T, out=out["WT"])
    return {}
