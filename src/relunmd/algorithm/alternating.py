"""What Saul's four algorithms share: fill in Z from Θ, perhaps with momentum, then Θ = TSVD_r(Z).

The loop is cut after the TSVD: one pass forms Θ = WH, knows its error, makes Z from it, adds
the momentum of equation (4), Z^(k+1) ← Z^(k+1) + α (Z^k − Z^(k−1)), and makes the first sweep of
Z's TSVD; the further sweeps follow. The state is thus ahead of the factors it reports.

From the nuclear initialization two sweeps give the iteration counts of exact TSVDs on the paper's matrices.
From a random one the first TSVDs are less exact, and on sparse X a run may take another path, to a smaller or
a larger error: on a planted 200×150 matrix of rank 8 with 95 % zeros A-NMD reaches 0.0095 to 0.039 in 120
iterations with two sweeps, 0.014 to 0.016 with twelve (three seeds). More sweeps make such runs follow those
with exact TSVDs.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np

from relunmd.algorithm.interface import Algorithm, Array, Shape, State, at_least_one, scratch_field
from relunmd.engine.executor import BlockFunction, Sums
from relunmd.engine.linalg import Sweep, polish, starting_basis
from relunmd.engine.problem import Problem

__all__ = ["Alternating", "AlternatingState"]


@dataclass(frozen=True, eq=False)
class AlternatingState(State):
    W_next: Annotated[Array, Shape("mr")]
    H_next: Annotated[Array, Shape("rn")]
    V: Annotated[Array, Shape("np", "float64")]
    """Right singular vectors, from which the next TSVD starts."""
    Z: Annotated[Array, Shape("mo")]
    """Z^k and, below, Z^(k−1); without columns where there is no momentum."""
    Z_before: Annotated[Array, Shape("mo")]
    spare: Array | None = scratch_field()


S = TypeVar("S", bound=AlternatingState)


@dataclass(frozen=True)
class Alternating(Algorithm[S]):
    """Z from Θ, Θ = TSVD_r(Z). Subclasses define how Z is made (`block`) and what else they keep.

    Parameters
    ----------
    sweeps : passes spent on a TSVD, warm-started from the last. Two give the iteration counts of exact TSVDs from the
        nuclear initialization; from random ones a run on sparse X may take another path
    """

    sweeps: int = 2
    block: ClassVar[BlockFunction]

    @property
    def momentum(self) -> float:
        return 0.0

    def __post_init__(self) -> None:
        at_least_one(self, "sweeps")

    @abstractmethod
    def _state(self, problem: Problem, common: dict[str, Any], sums: Sums, sigma2: float) -> S:
        """The state from what all have in common and the sums of the pass."""

    def _first_memory(self, problem: Problem, Z: Array) -> Array:
        """Z⁰, which the paper leaves open: Z¹ itself, so that the first momentum is zero."""
        return Z.copy()

    def _advance(
        self,
        problem: Problem,
        W: Array,
        H: Array,
        before: S | None = None,
        sigma2: float = 0.0,
    ) -> S:
        """Evaluate W, H and go on to the next, `before` being the state to go on from."""
        rows, alpha, spare = {"W": W}, 0.0, None
        V = starting_basis(H, problem.shape) if before is None else before.V
        if before is not None:
            rows |= {"Z": before.Z, "Z_before": before.Z_before}
            alpha, spare = self.momentum if before.Z.size else 0.0, before.spare
        new, sums = problem.run(
            type(self).block,
            rows,
            {"Z": problem.shape[1] if spare is None else spare, "Y": V.shape[1]},
            H=H,
            V=V.astype(problem.dtype),
            alpha=alpha,
            sigma=float(np.sqrt(sigma2)),
        )
        Z = new["Z"]
        found = polish(problem, Z, Sweep(new["Y"], sums["S"], sums["YY"]), self.sweeps)
        common: dict[str, Any] = {"W": W, "H": H, "error": problem.relative(sums["squares"])}
        common |= {"W_next": found.W, "H_next": found.H, "V": found.V}
        if not self.momentum:
            common |= {"Z": Z[:, :0], "Z_before": Z[:, :0], "spare": Z}
        elif before is None:
            common |= {"Z": Z, "Z_before": self._first_memory(problem, Z)}
        else:
            common |= {"Z": Z, "Z_before": before.Z, "spare": before.Z_before}
        return self._state(problem, common, sums | {"Z": Z}, sigma2)
