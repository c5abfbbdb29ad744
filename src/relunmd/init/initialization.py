"""What a start is: a settings object that makes W and H from a problem."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums
from relunmd.engine.matrix import Block
from relunmd.engine.problem import Problem

__all__ = ["Array", "Init", "best_multiple"]

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
        norm = np.sqrt(np.sum(problem.gram(W) * (H @ H.T), dtype=np.float64))
        factor = float(np.sqrt(problem.facts.squares) / norm) if norm > 0 else 1.0
    else:
        factor = sums["cross"] / sums["squares"]
    return W, H * H.dtype.type(factor)


def _cross_block(x: Block, rows: Rows, out: Rows, *, H: Array) -> Sums:
    cross = squares = 0.0
    for at in x.strips:
        for tile in x.across(at):
            products = kernels.cross_products(x.theta(tile, rows.W, H), tile.X, tile.scale)
            cross, squares = cross + products[0], squares + products[1]
    return {"cross": cross, "squares": squares}
