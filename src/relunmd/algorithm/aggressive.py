"""A-NMD, the paper's Algorithm 1: the naive scheme with Nesterov momentum on Z and Θ, tuned as it runs.

The acceptance test (line 8) uses the extrapolated Θ; the factors that are reported are the rank-r matrix of line 6 of
the last accepted step. Taken literally the algorithm can stall: no step may improve on an accepted, extrapolated Θ of
high rank, even as β → 0. So after three rejections in a row a plain step (no momentum) is taken whatever its error: on
planted 300×200 data of rank 8 with 90 % zeros it reaches 5.7e-4 in 400 iterations, literal Algorithm 1 stays at 0.46.
"""

from dataclasses import dataclass

import numpy as np

from relunmd.algorithm.base import Algorithm
from relunmd.algorithm.state import Array, State
from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg.truncated_svd import Sweep, empty_share, polish, share_of_sweep, starting_basis
from relunmd.engine.matrix import Block
from relunmd.engine.problem import Problem
from relunmd.errors import InputError
from relunmd.settings import setting

_REJECTIONS_BEFORE_PLAIN_STEP = 3


@dataclass(frozen=True)
class ANMD(Algorithm):
    """Run aggressive momentum NMD (A-NMD), Algorithm 1 of Seraghiti et al. (MLSP 2023, arXiv:2305.08687).

    ``sweeps`` + 1 passes an iteration; four m×n arrays are kept. The history has the columns ``beta``,
    ``accepted_error`` (of the extrapolated Θ: it decreases but for plain steps), ``rejected`` and ``plain_step``.

    Parameters
    ----------
    beta0 : float, default=0.7
        Initial momentum β₀ in [0, 1) (the authors' program uses 0.9).
    gamma, gamma_bar, eta : float, default=1.1, 1.05, 2.5
        Factors by which β grows, its bound grows, and β is cut; 1 < γ̄ < γ < η.
    sweeps : int, default=2
        Passes for each TSVD, warm-started from the last.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> relunmd.decompose(np.eye(20), 8, relunmd.ANMD(beta0=0.9), random_state=0, max_iter=50).error < 0.1
    True
    """

    name = "a-nmd"
    summary = "A-NMD (Algorithm 1): adaptive momentum; of the paper's, the best on small real data"
    keeps = {"Theta": "mn", "Z": "mn", "V": "np float64", "accepted_error": float, "rejections": int, "rejected": bool,
             "plain_step": bool, "beta": float, "beta_before": float, "beta_bound": float}  # fmt: skip
    reports = ("beta", "accepted_error", "rejected", "plain_step")
    beta0: float = setting(0.7, ge=0, lt=1)
    gamma: float = setting(1.1, gt=1)
    gamma_bar: float = setting(1.05, gt=1)
    eta: float = setting(2.5, gt=1)
    sweeps: int = setting(2, ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.gamma_bar < self.gamma < self.eta:
            raise InputError(f"ANMD needs 1 < gamma_bar < gamma < eta; got {self!r}.")

    def start(self, problem: Problem, W: Array, H: Array) -> State:
        n = problem.shape[1]  # Without momentum Θ⁰ = W⁰H⁰, Z⁰ = P(Θ⁰).
        new, sums = problem.run(_start_block, {"W": W}, {"Theta": n, "Z": n}, H=H)
        error, V = problem.relative(sums["squares"]), starting_basis(H, problem.shape)
        accepted = {"accepted_error": error, "rejections": 0, "rejected": False, "plain_step": False}
        betas = {"beta": self.beta0, "beta_before": self.beta0, "beta_bound": 1.0}
        return State(W, H, error, Theta=new.Theta, Z=new.Z, V=V, **accepted, **betas)

    def step(self, problem: Problem, state: State) -> State:
        plain, n, beta = state.rejections >= _REJECTIONS_BEFORE_PLAIN_STEP, problem.shape[1], state.beta
        used = 0.0 if plain else beta
        rows, out = {"Theta": state.Theta, "Z": state.Z}, {"Z": n, "Y": state.V.shape[1]}
        latent, sums = problem.run(_latent_block, rows, out, V=state.V.astype(problem.dtype), beta=used)
        # line 5: Θ ← TSVD_r(Z) = WH
        found = polish(problem, latent.Z, Sweep(latent.Y, sums["S"], sums["YY"]), self.sweeps)
        rows, out = {"W": found.W, "Theta": state.Theta}, {"Theta": n}
        new, sums = problem.run(_extrapolate_block, rows, out, H=found.H, beta=used)
        trial_error = problem.relative(sums["extrapolated"])
        if not (plain or trial_error < state.accepted_error):  # lines 11, 12: β ← β/η, β̄ ← β_(k−1)
            betas = {"beta": beta / self.eta, "beta_before": beta, "beta_bound": state.beta_before}
            return state.replace(V=found.V, rejections=state.rejections + 1, rejected=True, plain_step=False, **betas)
        grown = min(state.beta_bound, self.gamma * beta), min(1.0, self.gamma_bar * state.beta_bound)  # line 9
        next_beta, bound = (beta, state.beta_bound) if plain else grown
        betas = {"beta": next_beta, "beta_before": beta, "beta_bound": bound}
        accepted = {"accepted_error": trial_error, "rejections": 0, "rejected": False, "plain_step": plain}
        error, kept = problem.relative(sums["plain"]), {"Theta": new.Theta, "Z": latent.Z, "V": found.V}
        return State(found.W, found.H, error, **kept, **accepted, **betas)


def _start_block(x: Block, rows: Rows, out: Rows, *, H: Array) -> Sums:
    squares = 0.0
    for tile in x.tiles():
        Theta = np.matmul(rows.W[tile.rows], H, out=out.Theta[tile.rows])
        squares += kernels.project(Theta, *tile.scaled, out.Z[tile.rows])
    return {"squares": squares}


def _latent_block(x: Block, rows: Rows, out: Rows, *, V: Array, beta: float) -> Sums:
    sums = empty_share(x, V)
    for tile in x.tiles():  # lines 3 and 4: Z ← P(Θ), Z ← Z + β(Z − Z_old), and the first sweep of line 5
        kernels.latent(rows.Theta[tile.rows], *tile.scaled, rows.Z[tile.rows], out.Z[tile.rows], beta)
        share_of_sweep(out.Z[tile.rows], out.Y[tile.rows], sums, V)
    return sums


def _extrapolate_block(x: Block, rows: Rows, out: Rows, *, H: Array, beta: float) -> Sums:
    squares = np.zeros(2)
    for tile in x.tiles():  # lines 6 and 7: Θ = WH, Θ ← Θ + β(Θ − Θ_old), and both sides of line 8
        T = x.theta(tile, rows.W, H)
        squares += kernels.extrapolate(T, *tile.scaled, rows.Theta[tile.rows], out.Theta[tile.rows], beta)
    return {"plain": float(squares[0]), "extrapolated": float(squares[1])}
