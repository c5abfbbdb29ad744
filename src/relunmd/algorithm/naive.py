"""Naive and A-Naive (Saul; section 2 of the paper): Z = P(Θ), Θ = TSVD_r(Z), and momentum on Z.

The loop is cut after the TSVD: one pass forms Θ = WH and its error, makes Z from it, adds the momentum of equation (4),
Z^(k+1) ← Z^(k+1) + α (Z^k − Z^(k−1)), and makes the first sweep of the TSVD of Z; the further sweeps follow. The state
is thus ahead of the factors it reports.

From the nuclear initialization two sweeps give the iteration counts of exact TSVDs on the paper's matrices. From a
random one the first TSVDs are less exact, and on sparse X a run may take another path: on a planted 200×150 matrix of
rank 8 with 95 % zeros A-NMD reaches 0.0095 to 0.039 in 120 iterations with two sweeps, 0.014 to 0.016 with twelve
(three seeds).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from relunmd.algorithm.base import Algorithm
from relunmd.algorithm.state import Array, State
from relunmd.engine import kernels
from relunmd.engine.executor import BlockFunction, Rows, Sums
from relunmd.engine.linalg.truncated_svd import Sweep, empty_share, polish, share_of_sweep, starting_basis
from relunmd.engine.matrix import Block
from relunmd.engine.problem import Problem
from relunmd.settings import setting


def _project_block(x: Block, rows: Rows, out: Rows, *, H: Array, V: Array, alpha: float) -> Sums:
    sums = empty_share(x, V) | {"squares": 0.0}
    for tile in x.tiles():
        Z = out.Z[tile.rows]
        sums["squares"] += kernels.project(x.theta(tile, rows.W, H), *tile.scaled, Z)
        if alpha:
            kernels.add_difference(Z, rows.Z[tile.rows], rows.Z_before[tile.rows], alpha)
        share_of_sweep(Z, out.Y[tile.rows], sums, V)
    return sums


@dataclass(frozen=True)
class Naive(Algorithm):
    """Alternate between Z = P(Θ) and Θ = TSVD_r(Z).

    The method of Saul [1]_; P(Θ) is X where X > 0 and min(0, Θ) elsewhere. An iteration makes ``sweeps`` passes of
    4mn(r+8) flops; one m×n array is kept.

    Parameters
    ----------
    sweeps : int, default=2
        Passes for each TSVD, warm-started from the last.

    See Also
    --------
    ANaive : The same with momentum, usually much faster.

    References
    ----------
    .. [1] L. K. Saul, "A nonlinear matrix decomposition for mining the zeros of sparse data", SIAM J. Math. Data Sci.
       4 (2022), doi:10.1137/21M1405769.

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
    >>> d = relunmd.decompose(X, rank=4, algorithm=relunmd.Naive(sweeps=3), random_state=0, max_iter=20)
    >>> d.algorithm, d.settings, d.error < 0.1
    ('naive', {'sweeps': 3}, True)
    """

    name = "naive"
    summary = "Saul's projection and TSVD in turn: slow, the latent residual never rises"
    keeps = {"W_next": "mr", "H_next": "rn", "V": "np float64"}
    writes = ("Z",)
    _block: ClassVar[BlockFunction] = staticmethod(_project_block)
    sweeps: int = setting(2, ge=1)

    @property
    def momentum(self) -> float:
        """Weight α of the momentum on Z; 0 for the plain method."""
        return 0.0

    def start(self, problem: Problem, W: Array, H: Array) -> State:
        return self._advance(problem, W, H)[0]

    def step(self, problem: Problem, state: State) -> State:
        return self._advance(problem, state.W_next, state.H_next, state)[0]

    def _first_Z(self, problem: Problem, Z: Array) -> Array:
        """Z⁰, which the paper leaves open: Z¹ itself, so that the first momentum is zero."""
        return Z

    def _advance(
        self, problem: Problem, W: Array, H: Array, before: State | None = None, **shared: float
    ) -> tuple[State, Array, Sums]:
        """Evaluate W, H and find the next; also return Z and the sums of the pass."""
        V = starting_basis(H, problem.shape) if before is None else before.V
        rows, alpha = {"W": W}, 0.0
        if before is not None and self.momentum:
            rows, alpha = {"W": W, "Z": before.Z, "Z_before": before.Z_before}, self.momentum
        out = {"Z": problem.shape[1], "Y": V.shape[1]}
        new, sums = problem.run(self._block, rows, out, H=H, V=V.astype(problem.dtype), alpha=alpha, **shared)
        found = polish(problem, new.Z, Sweep(new.Y, sums["S"], sums["YY"]), self.sweeps)
        kept: dict[str, Any] = {"W_next": found.W, "H_next": found.H, "V": found.V}
        if "Z" in self.keeps:
            kept |= {"Z": new.Z, "Z_before": self._first_Z(problem, new.Z) if before is None else before.Z}
        return State(W, H, problem.relative(sums["squares"]), **kept), new.Z, sums


@dataclass(frozen=True)
class ANaive(Naive):
    """Run `Naive` with momentum on Z.

    A-Naive of Saul, as given by Seraghiti et al. [1]_: Z^(k+1) ← Z^(k+1) + α (Z^k − Z^(k−1)) before the TSVD. Three m×n
    arrays are kept.

    Parameters
    ----------
    sweeps : int, default=2
        Passes for each TSVD, warm-started from the last.
    alpha : float, default=0.7
        Momentum in [0, 1), with the paper's default (the authors' driver for Table 2 used 0.5).

    References
    ----------
    .. [1] G. Seraghiti et al., "Accelerated algorithms for nonlinear matrix decomposition with the ReLU function",
       MLSP 2023, arXiv:2305.08687.

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
    >>> options = {"random_state": 0, "tol": 0, "max_iter": 30}
    >>> plain = relunmd.decompose(X, 4, relunmd.Naive(), **options)
    >>> relunmd.decompose(X, 4, relunmd.ANaive(alpha=0.6), **options).error < plain.error
    True
    """

    name = "a-naive"
    summary = "Naive with Polyak's momentum on Z"
    keeps = {**Naive.keeps, "Z": "mn", "Z_before": "mn"}
    alpha: float = setting(0.7, ge=0, lt=1)

    @property
    def momentum(self) -> float:
        return self.alpha
