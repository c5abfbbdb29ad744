"""EM and A-EM (Saul; section 2 of the paper): X = max(0, Z̃) with Z̃ ~ N(Θ, σ²) entry by entry.

With missing entries, limits or weights Z̃ ~ N(Θ, σ²/weight) lies in the interval that is known of the entry, and the two
steps are: σ² given Θ, then Θ = TSVD_r(Θ + weight·(E[Z̃] − Θ)), which majorizes. The log-likelihood never decreases there
either. Only then σ may differ between columns: the TSVD is that of the columns divided by σ.

The E-step puts the posterior means of Z̃ into Z, the M-step takes Θ = TSVD_r(Z) and
σ² = (Σ posterior variances + ‖Z − Θ‖²)/(mn). The log-likelihood of plain EM never decreases (the TSVD need not be
exact for that: it is never worse than the last Θ). A-EM adds momentum to Z.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from relunmd.algorithm.naive import Naive
from relunmd.algorithm.state import Array, State
from relunmd.engine import kernels
from relunmd.engine.executor import BlockFunction, Rows, Sums
from relunmd.engine.linalg.gram import orthonormal
from relunmd.engine.linalg.truncated_svd import (
    Factors,
    Sweep,
    empty_share,
    factors_of,
    share_of_sweep,
    starting_basis,
    sweep_rows,
)
from relunmd.engine.matrix import Block
from relunmd.engine.problem import Problem
from relunmd.settings import setting

_PRIOR = 10.0
"""With how many entries of the overall σ² that of a column is shrunk."""


def _expect_block(x: Block, rows: Rows, out: Rows, *, H: Array, V: Array, alpha: float, sigma: float) -> Sums:
    totals = np.zeros(4)
    sums = empty_share(x, V)
    for tile in x.tiles():
        Z = out.Z[tile.rows]
        totals += kernels.expect(x.theta(tile, rows.W, H), *tile.scaled, Z, sigma)
        if alpha:
            kernels.add_difference(Z, rows.Z[tile.rows], rows.Z_before[tile.rows], alpha)
        share_of_sweep(Z, out.Y[tile.rows], sums, V)
    return sums | dict(zip(("squares", "fit", "tail", "variance"), totals.tolist(), strict=True))


def _known_block(x: Block, rows: Rows, out: Rows, *, H: Array, sigma: Array, floor: float, alpha: float) -> Sums:
    totals, spread = np.zeros(3), x.sums((2, x.n_columns))
    for tile in x.tiles():
        Z = out.Z[tile.rows]
        totals += kernels.interval_expect(x.theta(tile, rows.W, H), *tile.scaled, tile.general, floor, Z, sigma, spread)
        if alpha:
            kernels.add_difference(Z, rows.Z[tile.rows], rows.Z_before[tile.rows], alpha)
    return dict(zip(("squares", "likelihood", "measured"), totals.tolist(), strict=True)) | {"spread": spread}


@dataclass(frozen=True)
class EM(Naive):
    """Maximize the likelihood of a Gaussian latent model by expectation-maximization.

    The method of Saul [1]_: X = max(0, Z̃) with Z̃ ~ N(Θ, σ²). An iteration makes ``sweeps`` + 1 passes, with an exp and
    an erfc for every zero; one m×n array is kept. The history has the columns ``sigma2`` (σ² of the noise) and
    ``log_likelihood``, in the units of X.

    Parameters
    ----------
    sweeps : int, default=2
        Passes for each TSVD, warm-started from the last.
    column_noise : bool, default=False
        Whether σ differs between the columns of X.
    nonnegative : bool, default=False
        Whether the latent value of an entry below a positive limit `lower` is known to be at least 0, as that of a
        concentration is: the entry then lies in [0, lower].

    See Also
    --------
    AEM : The same with momentum, usually much faster.

    References
    ----------
    .. [1] L. K. Saul, "A nonlinear matrix decomposition for mining the zeros of sparse data", SIAM J. Math. Data Sci.
       4 (2022), doi:10.1137/21M1405769.

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
    >>> d = relunmd.decompose(X, rank=4, algorithm=relunmd.EM(), random_state=0, max_iter=20)
    >>> bool(d.history.log_likelihood[-1] > d.history.log_likelihood[0])
    True
    """

    name = "em"
    summary = "Saul's expectation-maximization: a likelihood and a noise level, slow"
    handles_missing = True
    keeps = {**Naive.keeps, "sigma2": float, "log_likelihood": float, "sigma2_next": float, "sigmas": "n float64"}
    reports = ("sigma2", "log_likelihood")
    # EM increases the likelihood and may end above the error of the TSVD, unless it begins there.
    default_init = "tsvd"
    _block: ClassVar[BlockFunction] = staticmethod(_expect_block)
    column_noise: bool = setting(False)
    nonnegative: bool = setting(False)

    def start(self, problem: Problem, W: Array, H: Array) -> State:
        (m, n), facts = problem.shape, problem.facts
        if self._general(problem):
            return self._estimated(problem, W, H, None, _off_zero(problem, facts.squares / (m * n - facts.missing)))
        _, sums = problem.run(_deviation_block, mean=facts.total / (m * n))
        return self._estimated(problem, W, H, None, _off_zero(problem, sums["squares"] / (m * n)))

    def step(self, problem: Problem, state: State) -> State:
        return self._estimated(problem, state.W_next, state.H_next, state, state.sigma2_next)

    def _general(self, problem: Problem) -> bool:
        return self.column_noise or problem.matrix.observation is not None

    def _estimated(self, problem: Problem, W: Array, H: Array, before: State | None, sigma2: float) -> State:
        if self._general(problem):
            return self._known(problem, W, H, before, sigma2)
        (m, n), scale = problem.shape, problem.matrix.scale
        state, Z, sums = self._advance(problem, W, H, before, sigma=math.sqrt(sigma2))
        distance = problem.run(_distance_block, {"W": state.W_next, "Z": Z}, H=state.H_next)[1]["squares"]
        # The density of a positive entry of X is that of the scaled entry, times the scale.
        normal = problem.facts.positives * (math.log(2 * math.pi * sigma2) / 2 - math.log(scale))
        return state.replace(
            sigma2=sigma2 / scale / scale,
            log_likelihood=sums["tail"] - sums["fit"] / (2 * sigma2) - normal,
            sigma2_next=_off_zero(problem, (sigma2 * sums["variance"] + distance) / (m * n)),
            sigmas=np.ones(n),
        )

    def _known(self, problem: Problem, W: Array, H: Array, before: State | None, sigma2: float) -> State:
        """The same for the general model."""
        n, scale = problem.shape[1], problem.matrix.scale
        problem = replace(problem, matrix=problem.matrix.with_observation())
        sigmas = np.ones(n) if before is None else before.sigmas  # σ of a column is √σ² times this.
        rows, alpha = {"W": W}, 0.0
        if before is not None and self.momentum:
            rows, alpha = {"W": W, "Z": before.Z, "Z_before": before.Z_before}, self.momentum
        floor = 0.0 if self.nonnegative else -math.inf
        shared = {"H": H, "sigma": math.sqrt(sigma2) * sigmas[None], "floor": floor, "alpha": alpha}
        new, sums = problem.run(_known_block, rows, {"Z": n}, **shared)
        spread, entries = sums["spread"]
        overall = _off_zero(problem, float(spread.sum() / entries.sum()))
        if self.column_noise:  # Shrunk to the overall value as if by `_PRIOR` further entries.
            shrunk = (spread + _PRIOR * overall) / (entries + _PRIOR)
            sigmas = np.sqrt(np.maximum(shrunk, _off_zero(problem, 0.0)) / overall)
        V = starting_basis(H / sigmas.astype(H.dtype), problem.shape) if before is None else before.V
        found = self._weighted_tsvd(problem, new.Z, V, 1 / sigmas)
        kept: dict[str, Any] = {"W_next": found.W, "H_next": found.H, "V": found.V}
        if "Z" in self.keeps:
            kept |= {"Z": new.Z, "Z_before": new.Z if before is None else before.Z}
        likelihood = sums["likelihood"] + sums["measured"] * math.log(scale)
        kept |= {"sigma2": sigma2 / scale / scale, "log_likelihood": likelihood, "sigma2_next": overall}
        return State(W, H, problem.relative(sums["squares"]), sigmas=sigmas, **kept)

    def _weighted_tsvd(self, problem: Problem, Z: Array, V: Array, weights: Array) -> Factors:
        """The rank-r TSVD of Z with its columns weighted, divided by the weights again; `sweeps` passes."""
        for _ in range(self.sweeps):
            sweep = sweep_rows(problem, Z, V * weights[:, None])
            sweep = Sweep(sweep.Y, sweep.S * weights[:, None], sweep.YY)
            V = orthonormal(sweep.S)
        W, H, V = factors_of(problem, sweep, problem.rank)
        return Factors(W, np.ascontiguousarray(H / weights.astype(H.dtype)), V)

    def misfit(self, state: State, problem: Problem) -> str | None:
        found = super().misfit(state, problem)
        return "sigma2_next is not positive" if found is None and not state.sigma2_next > 0 else found


@dataclass(frozen=True)
class AEM(EM):
    """Run `EM` with momentum on Z.

    A-EM of Saul, as given by Seraghiti et al. [1]_: Z^(k+1) ← Z^(k+1) + α (Z^k − Z^(k−1)) after the E-step. Three m×n
    arrays are kept.

    Parameters
    ----------
    sweeps : int, default=2
        Passes for each TSVD, warm-started from the last.
    column_noise : bool, default=False
        Whether σ differs between the columns of X.
    nonnegative : bool, default=False
        Whether the latent value of an entry below a positive limit `lower` is known to be at least 0, as that of a
        concentration is: the entry then lies in [0, lower].
    alpha : float, default=0.6
        Momentum in [0, 1), with the default of the authors' driver.

    References
    ----------
    .. [1] G. Seraghiti et al., "Accelerated algorithms for nonlinear matrix decomposition with the ReLU function",
       MLSP 2023, arXiv:2305.08687.

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
    >>> d = relunmd.decompose(X, rank=4, algorithm=relunmd.AEM(alpha=0.5), random_state=0, max_iter=30)
    >>> bool(d.history.sigma2[-1] < 0.01 * d.history.sigma2[0])
    True
    """

    name = "a-em"
    summary = "EM with Polyak's momentum on Z"
    keeps = {**EM.keeps, "Z": "mn", "Z_before": "mn"}
    alpha: float = setting(0.6, ge=0, lt=1)

    @property
    def momentum(self) -> float:
        return self.alpha

    def _first_Z(self, problem: Problem, Z: Array) -> Array:
        # Z⁰ = X gives the paper's count (43 at 500², r = 32); Z⁰ = Z¹ would need 33.
        return problem.to_dense()


def _deviation_block(x: Block, rows: Rows, out: Rows, *, mean: float) -> Sums:
    """Σ (X − mean)²."""
    squares = 0.0
    for tile in x.tiles():
        squares += float(np.square(tile.X.astype(np.float64) * tile.scale - mean).sum())
    return {"squares": squares}


def _distance_block(x: Block, rows: Rows, out: Rows, *, H: Array) -> Sums:
    """‖Z − WH‖²."""
    squares = 0.0
    for at in x.tile_rows:
        Z = rows.Z[at]
        T = np.matmul(rows.W[at], H, out=x.scratch_tile("T", len(Z)))
        squares += kernels.squared_difference(Z, T)
    return {"squares": squares}


def _off_zero(problem: Problem, sigma2: float) -> float:
    """σ², but σ well above the rounding error of an entry of WH (the largest of X is in [1, 2)).

    Below that the fit term of the likelihood, rounding/σ², would be noise that grows as σ decreases.
    """
    eps = float(np.finfo(problem.dtype).eps)
    return max(sigma2, max(128 * problem.rank * eps, math.pow(eps, 0.75)) ** 2)
