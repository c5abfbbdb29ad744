"""The problem that algorithms and initializations receive: X, the rank, and passes over X."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from relunmd.engine import kernels
from relunmd.engine.executor import BlockFunction, Executor, Output, ReadRows, Rows, Sums, WrittenRows
from relunmd.engine.matrix import Array, Block, Matrix, Strip
from relunmd.io.archive import count


@dataclass(frozen=True)
class Facts:
    """Sums over the scaled entries, and the checksum of the entries as they are; computed when X is validated."""

    total: float
    squares: float
    positives: int
    checksum: str = ""
    missing: int = 0
    """The number of missing entries. They have no part in the sums; the weights of the others have."""
    column_means: Array | None = None
    """The means of the columns, with zeros and entries below a limit as 0; (2, n), the second row with every such
    entry lowered by the mean positive entry. None if nothing is missing."""


@dataclass(frozen=True)
class Fingerprint:
    """What identifies X.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
        The data type of X as given.
    nonzeros : int
        Number of nonzero entries.
    total : float
        Sum of the entries.
    norm : float
        Frobenius norm.
    checksum : str
        Of the places and values of all nonzero entries, 16 hexadecimal digits. It does not depend on how X is stored.
        Empty if the file that the fingerprint was read from has none.
    missing : int
        Number of missing entries.
    """

    shape: tuple[int, int]
    dtype: str
    nonzeros: int
    total: float
    norm: float
    checksum: str = ""
    missing: int = 0

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Fingerprint":
        """Parse a fingerprint from a file; raises an exception if it is damaged."""
        m, n = found["shape"]
        shape = count(m, "rows"), count(n, "columns")
        # Files of development versions have the square of the norm, which overflows, and no checksum.
        norm = float(found["norm"]) if "norm" in found else math.sqrt(float(found["squares"]))
        nonzeros, total = count(found["nonzeros"], "nonzeros"), float(found["total"])  # Infinite for a very large X.
        return cls(
            shape,
            str(found["dtype"]),
            nonzeros,
            total,
            norm,
            str(found.get("checksum", "")),
            count(found.get("missing", 0), "missing"),
        )

    def differences(self, other: "Fingerprint") -> list[str]:
        """The names of the attributes that differ beyond rounding, which depends on how a matrix is stored."""
        found = [
            name for name in ("shape", "dtype", "nonzeros", "missing") if getattr(self, name) != getattr(other, name)
        ]
        pairs = {"total": (self.total, other.total), "norm": (self.norm, other.norm)}
        found += [name for name, pair in pairs.items() if not math.isclose(*pair, rel_tol=1e-10)]
        known = self.checksum and other.checksum and self.checksum != other.checksum
        return [*found, "checksum"] if known else found


@dataclass(frozen=True)
class Anchor:
    """A point (W, Hᵀ) that the product WH is kept near, by adding weight·‖WH − W₀H₀‖² to the squared error."""

    W: Array
    Ht: Array
    weight: float


@dataclass(frozen=True)
class Problem:
    """X ≈ max(0, WH) with W m×rank and H rank×n; everything in the scaled units of `matrix`."""

    matrix: Matrix
    rank: int
    facts: Facts
    executor: Executor
    inner: Any = None
    """A `WorkingSet`, the entries to which steps of "qn" are limited; None for all of X."""
    anchor: Anchor | None = None
    """For "qn" alone, on a working set."""
    mixed: bool = False
    """Whether an algorithm may compute in float32 as long as that suffices."""
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What algorithms derived from X and can recompute."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.matrix.dtype

    @property
    def single(self) -> "Problem":
        """The problem in float32 if it is `mixed`, else as it is."""
        return replace(self, matrix=replace(self.matrix, dtype=np.dtype(np.float32))) if self.mixed else self

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of X in the user's units."""
        facts, scale = self.facts, np.float64(self.matrix.scale)
        with np.errstate(over="ignore"):  # The sum of very large entries may be infinite.
            total, norm = float(facts.total / scale), self.norm
        dtype = str(self.matrix.source.dtype)
        return Fingerprint(self.shape, dtype, facts.positives, total, norm, facts.checksum, facts.missing)

    @property
    def norm(self) -> float:
        """The Frobenius norm of X in the user's units; infinite if float64 cannot hold it."""
        with np.errstate(over="ignore"):
            return float(np.sqrt(self.facts.squares) / np.float64(self.matrix.scale))

    def run(self, function: BlockFunction, rows: ReadRows = None, out: WrittenRows = None, **shared: Any) -> Output:
        """One pass over X; see Executor.run."""
        return self.executor.run(self.matrix, function, rows, out, **shared)

    def over_rows(
        self, function: BlockFunction, rows: ReadRows = None, out: WrittenRows = None, **shared: Any
    ) -> Output:
        """The same for a function that reads arrays of m rows but not X: no pass."""
        return self.executor.over_rows(self.matrix, function, rows, out, **shared)

    def gram(self, W: Array) -> Array:
        """WᵀW in float64, for an array W of m rows."""
        found: Array = self.over_rows(_gram_block, {"W": W})[1]["WW"]
        return found

    def times(self, W: Array, T: Array) -> Array:
        """W·T, for an array W of m rows and a small T, in W's float type."""
        out, _ = self.over_rows(_times_block, {"W": W}, {"WT": (T.shape[1], W.dtype)}, T=T.astype(W.dtype))
        found: Array = out.WT
        return found

    @cached_property
    def dense(self) -> Array:
        """X·scale as a read-only array in the computation's float type, made once; one pass."""
        X = self.to_dense()
        X.flags.writeable = False
        return X

    def to_dense(self) -> Array:
        """Return X·scale as a new array in the computation's float type; one pass."""
        X: Array = self.run(_dense_block, out={"X": self.shape[1]})[0].X
        return X

    def relative(self, squares: float) -> float:
        """The relative error E of a sum of squared residuals."""
        return float(np.sqrt(squares / self.facts.squares))

    def error(self, W: Array, H: Array) -> float:
        """E(WH) = ‖X − max(0, WH)‖ / ‖X‖; one pass."""
        return self.relative(self.run(_squared_error, {"W": W}, H=H)[1]["squares"])


def _squared_error(x: Block, rows: Rows, out: Rows, *, H: Array) -> Sums:
    squares, known = 0.0, np.zeros((x.rows.stop - x.rows.start, 2))
    for at in x.strips:
        for tile in x.across(at):
            if x.matrix.observation is None:
                squares += kernels.squared_error(x.theta(tile, rows.W, H), *tile.scaled)
            else:
                Strip(x, tile.n_rows).add_residual(tile, rows.W[at], H, 0.0, known[at])
    return {"squares": squares + float(known[:, 0].sum())}


def _dense_block(x: Block, rows: Rows, out: Rows) -> Sums:
    for tile in x.tiles():
        kernels.raise_positive(tile.X, tile.scale, out.X[tile.rows], 0.0)
    return {}


def _gram_block(x: Block, rows: Rows, out: Rows) -> Sums:
    W = rows.W.astype(np.float64, copy=False)
    return {"WW": W.T @ W}


def _times_block(x: Block, rows: Rows, out: Rows, *, T: Array) -> Sums:
    np.matmul(rows.W, T, out=out.WT)
    return {}
