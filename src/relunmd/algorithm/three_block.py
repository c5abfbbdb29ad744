"""3B-NMD, the paper's Algorithm 2: least squares for W and for H, momentum on Z and on Θ.

The paper's loop is cut between its lines 6 and 7, so that one pass does a whole iteration: while a
block is in cache its Θ = WH is formed (line 7, and with it the error of W, H is known),
extrapolated (line 8), turned into the next Z (lines 3 and 4), and gives its rows of the next W
(line 5) and its share of WᵀZ and WᵀW, from which the next H follows (line 6). The state is thus
one half-iteration ahead of the factors it reports.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from relunmd.algorithm.interface import Algorithm, Array, Shape, State, in_unit_interval, scratch_field, spare_or_new
from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg import gram_solve, right_inverse
from relunmd.engine.matrix import Block
from relunmd.engine.problem import Problem

__all__ = ["ThreeBlock", "ThreeBlockState"]


@dataclass(frozen=True, eq=False)
class ThreeBlockState(State):
    W_next: Annotated[Array, Shape("mr")]
    H_next: Annotated[Array, Shape("rn")]
    Theta: Annotated[Array, Shape("mn")]
    Z: Annotated[Array, Shape("mn")]
    spare_Theta: Array | None = scratch_field()
    spare_Z: Array | None = scratch_field()


@dataclass(frozen=True)
class ThreeBlock(Algorithm[ThreeBlockState]):
    """Momentum three-block NMD (3B-NMD); one pass and 6mnr flops an iteration, four m×n arrays.

    Parameters
    ----------
    beta : the momentum β in [0, 1), the paper's 0.7

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> d = relunmd.decompose(np.eye(20), rank=8, algorithm=relunmd.ThreeBlock(beta=0.5))
    >>> d.algorithm
    '3b'
    """

    beta: float = 0.7
    name: ClassVar[str] = "3b"
    summary: ClassVar[str] = "3B-NMD (Algorithm 2): the fastest of the paper's; keeps four m×n arrays"
    state_type: ClassVar[type[State]] = ThreeBlockState
    dense_arrays: ClassVar[int] = 4

    def __post_init__(self) -> None:
        in_unit_interval(self, "beta")

    def start(self, problem: Problem, W: Array, H: Array) -> ThreeBlockState:
        zeros = {name: np.zeros(problem.shape, problem.dtype) for name in ("Theta", "Z")}
        # Without momentum, Θ⁰ = W⁰H⁰ and Z⁰ = Z¹ = P(Θ⁰). The paper fixes Z⁰ on I₊ only, where it is X.
        return _advance(problem, W, H, zeros, {"Theta": None, "Z": None}, beta=0.0)

    def step(self, problem: Problem, state: ThreeBlockState) -> ThreeBlockState:
        return _advance(
            problem,
            state.W_next,
            state.H_next,
            {"Theta": state.Theta, "Z": state.Z},
            {"Theta": state.spare_Theta, "Z": state.spare_Z},
            float(self.beta),
        )


def _advance(
    problem: Problem, W: Array, H: Array, old: Rows, spare: dict[str, Array | None], beta: float
) -> ThreeBlockState:
    """Evaluate W, H and go on to the next; one pass."""
    out: dict[str, Any] = {name: spare_or_new(spare[name], old[name]) for name in old}
    new, sums = problem.run(
        _block, {"W": W, **old}, {"W": problem.rank, **out}, H=H, inverse=right_inverse(H), beta=beta
    )
    return ThreeBlockState(
        W=W,
        H=H,
        error=problem.relative(sums["squares"]),
        W_next=new["W"],
        H_next=gram_solve(sums["WW"], sums["WZ"]).astype(problem.dtype),
        Theta=new["Theta"],
        Z=new["Z"],
        spare_Theta=old["Theta"],
        spare_Z=old["Z"],
    )


def _block(x: Block, rows: Rows, out: Rows, *, H: Array, inverse: Array, beta: float) -> Sums:
    squares = 0.0
    WZ, WW = x.sums(H.shape), x.sums((len(H), len(H)))
    for tile in x.tiles():
        at = tile.rows
        Theta, Z = out["Theta"][at], out["Z"][at]
        T = x.theta(tile, rows["W"], H)
        squares += kernels.extrapolate(T, tile.X, tile.scale, rows["Theta"][at], Theta, beta)[0]
        kernels.latent(Theta, tile.X, tile.scale, rows["Z"][at], Z, beta)
        W = np.matmul(Z, inverse, out=out["W"][at])
        WZ += np.matmul(W.T, Z, out=x.scratch_tile("WZ", len(H)))
        WW += W.T @ W
    return {"squares": squares, "WZ": WZ, "WW": WW}
