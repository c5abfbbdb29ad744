"""What a start is: a settings object that makes W and H from a problem."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from relunmd import kernels
from relunmd.executor import Rows, Sums
from relunmd.linalg import Sweep
from relunmd.linalg.tsvd import empty_share
from relunmd.matrix import Block
from relunmd.problem import Problem

__all__ = ["Array", "Init", "best_multiple", "sweep_of_x"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Init(ABC):
    """A start. `make` returns W (m×r) and H (r×n) in the problem's scaled units and float type."""

    name: ClassVar[str]
    summary: ClassVar[str]
    dense_arrays: ClassVar[int] = 0
    """How many m×n arrays it holds besides X."""

    @abstractmethod
    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]: ...


def best_multiple(problem: Problem, W: Array, H: Array) -> tuple[Array, Array]:
    """α·WH with α = ⟨X, max(0, WH)⟩ / ‖max(0, WH)‖², the multiple nearest to X; one pass."""
    _, sums = problem.run(_cross_block, {"W": W}, H=H)
    if sums["cross"] <= 0:  # WH is positive nowhere that X is: no multiple helps, so keep X's size.
        norm = np.sqrt(np.sum((W.T @ W) * (H @ H.T), dtype=np.float64))
        factor = float(np.sqrt(problem.facts.squares) / norm) if norm > 0 else 1.0
    else:
        factor = sums["cross"] / sums["squares"]
    return W, H * H.dtype.type(factor)


def _cross_block(x: Block, rows: Rows, out: Rows, *, H: Array) -> Sums:
    cross = squares = 0.0
    for tile in x.tiles():
        T = np.matmul(rows["W"][tile.rows], H, out=x.scratch_tile("T", tile.n_rows))
        products = kernels.cross_products(T, tile.X, tile.scale)
        cross, squares = cross + products[0], squares + products[1]
    return {"cross": cross, "squares": squares}


def sweep_of_x(
    problem: Problem, V: Array, lift: float = 0.0, left: Array | None = None, right: Array | None = None
) -> Sweep:
    """A sweep over X + lift·[X > 0] − left·rightᵀ, which is never formed; one pass.

    `left` is m×1 and `right` n×1. Every truncated SVD of the data goes through here.
    """
    m, n = problem.shape
    left = np.zeros((m, 1), problem.dtype) if left is None else left.astype(problem.dtype)
    right = np.zeros((n, 1), problem.dtype) if right is None else right.astype(problem.dtype)
    V = V.astype(problem.dtype)
    out, sums = problem.run(
        _corrected_block, {"left": left}, {"Y": V.shape[1]}, V=V, lift=lift, right=right, seen=right.T @ V
    )
    return Sweep(out["Y"], sums["S"] - right @ sums["u"], sums["YY"])


def _corrected_block(x: Block, rows: Rows, out: Rows, *, V: Array, lift: float, right: Array, seen: Array) -> Sums:
    sums = empty_share(*V.shape) | {"u": np.zeros((1, V.shape[1]))}
    for tile in x.tiles():
        A = x.scratch_tile("T", tile.n_rows)
        kernels.raise_positive(tile.X, tile.scale, A, lift)
        left, Y = rows["left"][tile.rows], out["Y"][tile.rows]
        np.matmul(A, V, out=Y)
        Y -= left @ seen
        sums["S"] += A.T @ Y
        sums["YY"] += Y.T @ Y
        sums["u"] += left.T @ Y
    return sums
