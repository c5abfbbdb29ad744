"""Naive and A-Naive (Saul; section 2 of the paper): Z = P(Θ), Θ = TSVD_r(Z), and momentum on Z."""

from dataclasses import dataclass
from typing import Any, ClassVar

from relunmd.algorithm.alternating import Alternating, AlternatingState
from relunmd.algorithm.interface import Array, State, in_unit_interval
from relunmd.engine import kernels
from relunmd.engine.executor import BlockFunction, Rows, Sums
from relunmd.engine.linalg import share_of_sweep
from relunmd.engine.linalg.truncated_svd import empty_share
from relunmd.engine.matrix import Block
from relunmd.engine.problem import Problem

__all__ = ["ANaive", "Naive"]


def _project_block(x: Block, rows: Rows, out: Rows, *, H: Array, V: Array, alpha: float, sigma: float) -> Sums:
    squares = 0.0
    sums = empty_share(x, V)
    for tile in x.tiles():
        at = tile.rows
        Z = out["Z"][at]
        T = x.theta(tile, rows["W"], H)
        squares += kernels.project(T, tile.X, tile.scale, Z)
        if alpha:
            kernels.add_difference(Z, rows["Z"][at], rows["Z_before"][at], alpha)
        share_of_sweep(Z, out["Y"][at], sums, V)
    return sums | {"squares": squares}


@dataclass(frozen=True)
class Naive(Alternating[AlternatingState]):
    """Alternate between Z = P(Θ) and Θ = TSVD_r(Z); `sweeps` passes of 4mn(r+8) flops an iteration.

    Parameters
    ----------
    sweeps : passes spent on a TSVD, warm-started from the last; see `Alternating`
    """

    name: ClassVar[str] = "naive"
    summary: ClassVar[str] = "Saul's projection and TSVD in turn: slow, the latent residual never rises"
    state_type: ClassVar[type[State]] = AlternatingState
    dense_arrays: ClassVar[int] = 1
    block: ClassVar[BlockFunction] = _project_block

    def start(self, problem: Problem, W: Array, H: Array) -> AlternatingState:
        return self._advance(problem, W, H)

    def step(self, problem: Problem, state: AlternatingState) -> AlternatingState:
        return self._advance(problem, state.W_next, state.H_next, state)

    def _state(self, problem: Problem, common: dict[str, Any], sums: Sums, sigma2: float) -> AlternatingState:
        return AlternatingState(**common)


@dataclass(frozen=True)
class ANaive(Naive):
    """Naive with Z^(k+1) ← Z^(k+1) + α (Z^k − Z^(k−1)) before the TSVD; three m×n arrays.

    Parameters
    ----------
    sweeps : passes spent on a TSVD
    alpha : the momentum in [0, 1), the paper's 0.7 (its authors' driver for Table 2 used 0.5)
    """

    alpha: float = 0.7
    name: ClassVar[str] = "a-naive"
    summary: ClassVar[str] = "Naive with Polyak's momentum on Z"
    dense_arrays: ClassVar[int] = 3

    @property
    def momentum(self) -> float:
        return float(self.alpha)

    def __post_init__(self) -> None:
        super().__post_init__()
        in_unit_interval(self, "alpha")
