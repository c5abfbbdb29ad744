"""3B-NMD, the paper's Algorithm 2: least squares for W and for H, momentum on Z and on Θ.

The paper's loop is cut between its lines 6 and 7, so that one pass does a whole iteration: the state is half an
iteration ahead of the factors it reports.
"""

from dataclasses import dataclass

import numpy as np

from relunmd.algorithm.base import Algorithm
from relunmd.algorithm.state import Array, State
from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg.gram import gram_solve, right_inverse
from relunmd.engine.matrix import Block
from relunmd.engine.problem import Problem
from relunmd.settings import setting


@dataclass(frozen=True)
class ThreeBlock(Algorithm):
    """Run momentum three-block NMD (3B-NMD), Algorithm 2 of Seraghiti et al. (MLSP 2023, arXiv:2305.08687).

    One pass and 6mnr flops an iteration; four m×n arrays are kept.

    Parameters
    ----------
    beta : float, default=0.7
        Momentum β in [0, 1), with the paper's default.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> relunmd.decompose(np.eye(20), 8, relunmd.ThreeBlock(beta=0.5), random_state=0, max_iter=50).error < 0.1
    True
    """

    name = "3b"
    summary = "3B-NMD (Algorithm 2): the fastest of the paper's; keeps four m×n arrays"
    keeps = {"W_next": "mr", "H_next": "rn", "Theta": "mn", "Z": "mn"}
    beta: float = setting(0.7, ge=0, lt=1)

    def start(self, problem: Problem, W: Array, H: Array) -> State:
        # Without momentum Θ⁰ = W⁰H⁰ and Z⁰ = Z¹ = P(Θ⁰). The paper fixes Z⁰ on I₊ only, where it is X.
        zeros = np.zeros(problem.shape, problem.dtype)
        return self._advance(problem, W, H, zeros, zeros, beta=0.0)

    def step(self, problem: Problem, state: State) -> State:
        return self._advance(problem, state.W_next, state.H_next, state.Theta, state.Z, self.beta)

    def _advance(self, problem: Problem, W: Array, H: Array, Theta: Array, Z: Array, beta: float) -> State:
        rows = {"W": W, "Theta": Theta, "Z": Z}
        out = {"W": problem.rank, "Theta": problem.shape[1], "Z": problem.shape[1]}
        new, sums = problem.run(_block, rows, out, H=H, inverse=right_inverse(H), beta=beta)
        H_next = gram_solve(sums["WW"], sums["WZ"])  # line 6: H ← argmin ‖Z − WH‖
        error = problem.relative(sums["squares"])
        return State(W, H, error, W_next=new.W, H_next=H_next, Theta=new.Theta, Z=new.Z)


def _block(x: Block, rows: Rows, out: Rows, *, H: Array, inverse: Array, beta: float) -> Sums:
    squares, WZ, WW = 0.0, x.sums(H.shape), x.sums((len(H), len(H)))
    for tile in x.tiles():
        at = tile.rows
        Theta, Z, W = out.Theta[at], out.Z[at], out.W[at]
        T = x.theta(tile, rows.W, H)  # line 7: Θ = WH
        # line 8: Θ ← Θ + β(Θ − Θ_old)
        squares += kernels.extrapolate(T, *tile.scaled, rows.Theta[at], Theta, beta)[0]
        kernels.latent(Theta, *tile.scaled, rows.Z[at], Z, beta)  # lines 3 and 4: Z ← P(Θ), Z ← Z + β(Z − Z_old)
        np.matmul(Z, inverse, out=W)  # line 5: W ← argmin ‖Z − WH‖
        WZ += np.matmul(W.T, Z, out=x.scratch_tile("WZ", len(H)))
        WW += W.T @ W
    return {"squares": squares, "WZ": WZ, "WW": WW}
