"""Initialization with given factors: a pair (W0, H0) or an earlier result, extended if their rank is smaller."""

from dataclasses import dataclass, field

import numpy as np

from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg.truncated_svd import Sweep, empty_share, truncated_svd
from relunmd.engine.matrix import Array, Block
from relunmd.engine.passes import LATENT, residual_strip
from relunmd.engine.problem import Problem
from relunmd.init.initialization import Init


@dataclass(frozen=True, eq=False)
class GivenInit(Init):
    """Given factors with k ≤ r components.

    Missing components are those of the TSVD of P(Θ) − Θ, which reduce the latent residual.

    Parameters
    ----------
    W0 : ndarray of shape (m, k)
    H0 : ndarray of shape (k, n)
    """

    W0: Array = field(repr=False)
    H0: Array = field(repr=False)
    name = "given"
    summary = "factors given by the user"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        # Half of the scale to each factor: neither overflows.
        root = float(np.sqrt(problem.matrix.scale))
        given = {"W": problem.executor.placed(problem.matrix, self.W0)}
        rows, sums = problem.over_rows(_scaled_block, given, {"W": self.W0.shape[1]}, root=root)
        W, H = rows.W, np.ascontiguousarray((self.H0.astype(np.float64) * root).astype(problem.dtype))
        if not (sums["nonzero"] and H.any()):  # 3B cannot leave factors of zeros.
            W, H = problem.over_rows(_scaled_block, given, {"W": 0}, root=root)[0].W, H[:0]
        missing = problem.rank - len(H)
        if missing == 0:
            return W, H
        more = truncated_svd(problem, lambda V: _sweep_of_gap(problem, W, H, V), missing, random, tol=1e-6)
        beside, _ = problem.over_rows(_beside_block, {"W": W, "more": more.W}, {"W": problem.rank})
        return beside.W, np.ascontiguousarray(np.vstack([H, more.H]))


def _scaled_block(x: Block, rows: Rows, out: Rows, *, root: float) -> Sums:
    """Scale as many columns as `out` has by `root`, and count the blocks with nonzeros."""
    W = out.W
    W[:] = rows.W[:, : W.shape[1]].astype(np.float64) * root
    return {"nonzero": int(W.any())}


def _beside_block(x: Block, rows: Rows, out: Rows) -> Sums:
    np.concatenate([rows.W, rows.more], axis=1, out=out.W)
    return {}


def _sweep_of_gap(problem: Problem, W: Array, H: Array, V: Array) -> Sweep:
    out, sums = problem.run(_gap_block, {"W": W}, {"Y": V.shape[1]}, H=H, V=np.ascontiguousarray(V, problem.dtype))
    return Sweep(out.Y, sums["S"], sums["YY"])


def _gap_block(x: Block, rows: Rows, out: Rows, *, H: Array, V: Array) -> Sums:
    sums = empty_share(x, V)
    for at in x.strips:
        gap = residual_strip(x, at, rows.W[at], H, LATENT, np.zeros((at.stop - at.start, 2)))
        Y = gap.times(V, out.Y[at])
        gap.add_transposed_times(Y, sums["S"])
        sums["YY"] += Y.T @ Y
    return sums
