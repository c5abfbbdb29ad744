"""EM and A-EM (Saul; section 2 of the paper): X = max(0, Z̃) with Z̃ ~ N(Θ, σ²) entry by entry.

The E-step puts the posterior means of Z̃ into Z, the M-step takes Θ = TSVD_r(Z) and
σ² = (Σ posterior variances + ‖Z − Θ‖²)/(mn). The log-likelihood of plain EM never falls (the
TSVD need not be exact for that: it is never worse than the last Θ). A-EM adds momentum to Z.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from relunmd.algorithm.alternating import Alternating, AlternatingState
from relunmd.algorithm.interface import Array, State, in_unit_interval
from relunmd.engine import kernels
from relunmd.engine.executor import BlockFunction, Rows, Sums
from relunmd.engine.linalg import share_of_sweep
from relunmd.engine.linalg.truncated_svd import empty_share
from relunmd.engine.matrix import Block
from relunmd.engine.problem import Problem

__all__ = ["AEM", "EM", "EMState"]


@dataclass(frozen=True, eq=False, kw_only=True)
class EMState(AlternatingState):
    sigma2: float
    """σ² of the factors that are reported, and the log-likelihood of X, in the units of X."""
    log_likelihood: float
    sigma2_next: float
    """σ² of the next factors, in scaled units."""

    def columns(self) -> dict[str, float]:
        return {"sigma2": self.sigma2, "log_likelihood": self.log_likelihood}

    def misfit(self, problem: Problem) -> str | None:
        found = super().misfit(problem)
        return "sigma2_next is not positive" if found is None and not self.sigma2_next > 0 else found


def _expect_block(x: Block, rows: Rows, out: Rows, *, H: Array, V: Array, alpha: float, sigma: float) -> Sums:
    totals = np.zeros(4)
    sums = empty_share(x, V)
    for tile in x.tiles():
        at = tile.rows
        Z = out["Z"][at]
        T = x.theta(tile, rows["W"], H)
        totals += kernels.expect(T, tile.X, tile.scale, Z, sigma)
        if alpha:
            kernels.add_difference(Z, rows["Z"][at], rows["Z_before"][at], alpha)
        share_of_sweep(Z, out["Y"][at], sums, V)
    names = ("squares", "fit", "tail", "variance")
    return sums | dict(zip(names, totals.tolist(), strict=True))


def _deviation_block(x: Block, rows: Rows, out: Rows, *, mean: float) -> Sums:
    """Σ (X − mean)²."""
    squares = 0.0
    for tile in x.tiles():
        squares += float(np.square(tile.X.astype(np.float64) * tile.scale - mean).sum())
    return {"squares": squares}


def _distance_block(x: Block, rows: Rows, out: Rows, *, H: Array) -> Sums:
    squares = 0.0
    for at in x.tile_rows:
        Z = rows["Z"][at]
        T = np.matmul(rows["W"][at], H, out=x.scratch_tile("T", len(Z)))
        squares += kernels.squared_difference(Z, T)
    return {"squares": squares}


@dataclass(frozen=True)
class EM(Alternating[EMState]):
    """Expectation-maximisation; `sweeps` + 1 passes an iteration, an exp and an erfc for every zero.

    The history has the columns ``sigma2`` (σ² of the noise) and ``log_likelihood``.

    Parameters
    ----------
    sweeps : passes spent on a TSVD, warm-started from the last; see `Alternating`
    """

    name: ClassVar[str] = "em"
    summary: ClassVar[str] = "Saul's expectation-maximisation: a likelihood and a noise level, slow"
    state_type: ClassVar[type[State]] = EMState
    dense_arrays: ClassVar[int] = 1
    # EM climbs the likelihood, not E, and may end above the TSVD's error; from there it cannot.
    default_init: ClassVar[str] = "tsvd"
    block: ClassVar[BlockFunction] = _expect_block

    def start(self, problem: Problem, W: Array, H: Array) -> EMState:
        entries = problem.shape[0] * problem.shape[1]
        _, sums = problem.run(_deviation_block, mean=problem.facts.total / entries)
        return self._advance(problem, W, H, sigma2=_off_zero(problem, sums["squares"] / entries))

    def step(self, problem: Problem, state: EMState) -> EMState:
        return self._advance(problem, state.W_next, state.H_next, state, state.sigma2_next)

    def _state(self, problem: Problem, common: dict[str, Any], sums: Sums, sigma2: float) -> EMState:
        m, n = problem.shape
        rows = {"W": common["W_next"], "Z": sums["Z"]}
        distance = problem.run(_distance_block, rows, H=common["H_next"])[1]["squares"]
        scale = problem.matrix.scale
        # The density of a positive entry of X is that of the scaled entry, times the scale.
        normal = problem.facts.positives * (math.log(2 * math.pi * sigma2) / 2 - math.log(scale))
        return EMState(
            **common,
            sigma2=sigma2 / scale / scale,
            log_likelihood=sums["tail"] - sums["fit"] / (2 * sigma2) - normal,
            sigma2_next=_off_zero(problem, (sigma2 * sums["variance"] + distance) / (m * n)),
        )


def _off_zero(problem: Problem, sigma2: float) -> float:
    """σ², but σ well above the rounding error of an entry of WH (the largest of X is in [1, 2)).

    Below that the fit term of the likelihood, rounding/σ², would be noise that grows as σ falls.
    """
    eps = float(np.finfo(problem.dtype).eps)
    return max(sigma2, max(128 * problem.rank * eps, math.pow(eps, 0.75)) ** 2)


@dataclass(frozen=True)
class AEM(EM):
    """EM with Z^(k+1) ← Z^(k+1) + α (Z^k − Z^(k−1)) after the E-step; three m×n arrays.

    Parameters
    ----------
    sweeps : passes spent on a TSVD
    alpha : the momentum in [0, 1), 0.6 as in the authors' driver
    """

    alpha: float = 0.6
    name: ClassVar[str] = "a-em"
    summary: ClassVar[str] = "EM with Polyak's momentum on Z"
    dense_arrays: ClassVar[int] = 3

    @property
    def momentum(self) -> float:
        return float(self.alpha)

    def __post_init__(self) -> None:
        super().__post_init__()
        in_unit_interval(self, "alpha")

    def _first_memory(self, problem: Problem, Z: Array) -> Array:
        # Z⁰ = X gives the paper's count (43 at 500², r = 32); Z⁰ = Z¹ would need 33.
        return problem.run(_data_block, out={"Z": problem.shape[1]})[0]["Z"]


def _data_block(x: Block, rows: Rows, out: Rows) -> Sums:
    for tile in x.tiles():
        kernels.raise_positive(tile.X, tile.scale, out["Z"][tile.rows], 0.0)
    return {}
