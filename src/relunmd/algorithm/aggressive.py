"""A-NMD, the paper's Algorithm 1: the naive scheme with Nesterov momentum on Z and Θ, tuned as it goes.

The accept test (line 8) uses the extrapolated Θ; the factors that are reported and returned are the
rank-r matrix of line 6 of the last accepted step. Taken literally the algorithm can stall: no step
may improve on an accepted, extrapolated Θ of high rank, even as β → 0. So after three rejections in
a row the plain step (Z = P(Θ), its TSVD, no momentum) is taken whatever its error. This departs from
the paper where the literal algorithm stalls, and is better there: on a planted 300×200 matrix of
rank 8 with 90 % zeros, from the nuclear initialization, literal Algorithm 1 stays at an error of
0.46 and this one, after a single plain step, reaches 5.7e-4 in 400 iterations. In the paper's
experiments the iteration counts agree with its tables (`tests/algorithm/test_paper.py`).
"""

from dataclasses import dataclass
from numbers import Real
from typing import Annotated, ClassVar

import numpy as np

from relunmd.algorithm.interface import (
    Algorithm,
    Array,
    Shape,
    State,
    at_least_one,
    in_unit_interval,
    scratch_field,
    spare_or_new,
)
from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg import Sweep, polish, share_of_sweep, starting_basis
from relunmd.engine.linalg.truncated_svd import empty_share
from relunmd.engine.matrix import Block
from relunmd.engine.problem import Problem
from relunmd.errors import InputError

__all__ = ["ANMD", "ANMDState"]

_REJECTIONS_BEFORE_PLAIN_STEP = 3


@dataclass(frozen=True, eq=False)
class ANMDState(State):
    Theta: Annotated[Array, Shape("mn")]
    """The accepted, extrapolated Θ^k, and its Z^k."""
    Z: Annotated[Array, Shape("mn")]
    V: Annotated[Array, Shape("np", "float64")]
    """Right singular vectors of the last trial, from which the next TSVD starts."""
    accepted_error: float
    """E of the accepted Θ, what line 8 compares with; it never rises but by a plain step."""
    beta: float
    beta_before: float
    beta_bound: float
    rejections: int
    """In a row."""
    plain: bool
    """Whether the last step was a plain one."""
    spare_Theta: Array | None = scratch_field()
    spare_Z: Array | None = scratch_field()

    def columns(self) -> dict[str, float]:
        return {
            "beta": self.beta,
            "accepted_error": self.accepted_error,
            "rejected": float(self.rejections > 0),
            "plain_step": float(self.plain),
        }


@dataclass(frozen=True)
class ANMD(Algorithm[ANMDState]):
    """Aggressive momentum NMD (A-NMD); `sweeps` + 1 passes an iteration, four m×n arrays.

    The history has the columns ``beta``, ``accepted_error`` (of the extrapolated Θ: monotone but
    for plain steps), ``rejected`` and ``plain_step``.

    Parameters
    ----------
    beta0 : the first momentum β₀ in [0, 1); 0.7 (the authors' released program uses 0.9)
    gamma, gamma_bar, eta : 1 < γ̄ < γ < η, by which β grows, its bound grows, and β is cut
    sweeps : passes spent on a TSVD, warm-started from the last; see `Alternating`
    """

    beta0: float = 0.7
    gamma: float = 1.1
    gamma_bar: float = 1.05
    eta: float = 2.5
    sweeps: int = 2
    name: ClassVar[str] = "a-nmd"
    summary: ClassVar[str] = "A-NMD (Algorithm 1): adaptive momentum; of the paper's, the best on small real data"
    state_type: ClassVar[type[State]] = ANMDState
    dense_arrays: ClassVar[int] = 4

    def __post_init__(self) -> None:
        in_unit_interval(self, "beta0")
        at_least_one(self, "sweeps")
        factors = (self.gamma_bar, self.gamma, self.eta)
        if not (all(isinstance(f, Real) for f in factors) and 1 < self.gamma_bar < self.gamma < self.eta):
            raise InputError(
                "ANMD needs 1 < gamma_bar < gamma < eta. "
                f"Got gamma_bar={self.gamma_bar!r}, gamma={self.gamma!r}, eta={self.eta!r}."
            )

    def start(self, problem: Problem, W: Array, H: Array) -> ANMDState:
        Theta, Z = (np.zeros(problem.shape, problem.dtype) for _ in range(2))
        # Without momentum Θ⁰ = W⁰H⁰, Z⁰ = P(Θ⁰).
        new, sums = problem.run(_start_block, {"W": W}, {"Theta": Theta, "Z": Z}, H=H)
        error = problem.relative(sums["squares"])
        return ANMDState(
            W=W,
            H=H,
            error=error,
            Theta=new["Theta"],
            Z=new["Z"],
            V=starting_basis(H, problem.shape),
            accepted_error=error,
            beta=float(self.beta0),
            beta_before=float(self.beta0),
            beta_bound=1.0,
            rejections=0,
            plain=False,
        )

    def step(self, problem: Problem, state: ANMDState) -> ANMDState:
        plain = state.rejections >= _REJECTIONS_BEFORE_PLAIN_STEP
        beta = 0.0 if plain else state.beta
        new, sums = problem.run(
            _latent_block,
            {"Theta": state.Theta, "Z": state.Z},
            {"Z": spare_or_new(state.spare_Z, state.Z), "Y": state.V.shape[1]},
            V=state.V.astype(problem.dtype),
            beta=beta,
        )
        Z = new["Z"]
        found = polish(problem, Z, Sweep(new["Y"], sums["S"], sums["YY"]), self.sweeps)
        new, sums = problem.run(
            _extrapolate_block,
            {"W": found.W, "Theta": state.Theta},
            {"Theta": spare_or_new(state.spare_Theta, state.Theta)},
            H=found.H,
            beta=beta,
        )
        Theta = new["Theta"]
        trial_error = problem.relative(sums["extrapolated"])
        if plain or trial_error < state.accepted_error:
            return ANMDState(
                W=found.W,
                H=found.H,
                error=problem.relative(sums["plain"]),
                Theta=Theta,
                Z=Z,
                V=found.V,
                accepted_error=trial_error,
                beta=state.beta if plain else min(state.beta_bound, self.gamma * state.beta),
                beta_before=state.beta,
                beta_bound=state.beta_bound if plain else min(1.0, self.gamma_bar * state.beta_bound),
                rejections=0,
                plain=plain,
                spare_Theta=state.Theta,
                spare_Z=state.Z,
            )
        return ANMDState(
            W=state.W,
            H=state.H,
            error=state.error,
            Theta=state.Theta,
            Z=state.Z,
            V=found.V,
            accepted_error=state.accepted_error,
            beta=state.beta / self.eta,
            beta_before=state.beta,
            beta_bound=state.beta_before,
            rejections=state.rejections + 1,
            plain=False,
            spare_Theta=Theta,
            spare_Z=Z,
        )


def _start_block(x: Block, rows: Rows, out: Rows, *, H: Array) -> Sums:
    squares = 0.0
    for tile in x.tiles():
        Theta = np.matmul(rows["W"][tile.rows], H, out=out["Theta"][tile.rows])
        squares += kernels.project(Theta, tile.X, tile.scale, out["Z"][tile.rows])
    return {"squares": squares}


def _latent_block(x: Block, rows: Rows, out: Rows, *, V: Array, beta: float) -> Sums:
    """Lines 3 and 4, and the first sweep of line 5."""
    sums = empty_share(x, V)
    for tile in x.tiles():
        at = tile.rows
        kernels.latent(rows["Theta"][at], tile.X, tile.scale, rows["Z"][at], out["Z"][at], beta)
        share_of_sweep(out["Z"][at], out["Y"][at], sums, V)
    return sums


def _extrapolate_block(x: Block, rows: Rows, out: Rows, *, H: Array, beta: float) -> Sums:
    """Lines 6 and 7, and both sides of line 8."""
    plain = extrapolated = 0.0
    for tile in x.tiles():
        at = tile.rows
        T = x.theta(tile, rows["W"], H)
        squares = kernels.extrapolate(T, tile.X, tile.scale, rows["Theta"][at], out["Theta"][at], beta)
        plain, extrapolated = plain + squares[0], extrapolated + squares[1]
    return {"plain": plain, "extrapolated": extrapolated}
