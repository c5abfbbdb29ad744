"""What Saul's four algorithms share: fill in Z from Θ, perhaps with momentum, then Θ = TSVD_r(Z).

The loop is cut after the TSVD: one pass forms Θ = WH, knows its error, makes Z from it, adds
the momentum of equation (4), Z^(k+1) ← Z^(k+1) + α (Z^k − Z^(k−1)), and makes the first sweep of
Z's TSVD; the further sweeps follow. The state is thus ahead of the factors it reports.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from relunmd.algorithms.base import Algorithm, Array, State, at_least_one, scratch_field
from relunmd.executor import BlockFunction, Sums
from relunmd.linalg import Factors, Sweep, polish, starting_basis
from relunmd.problem import Problem

__all__ = ["Alternating", "AlternatingState"]


@dataclass(frozen=True, eq=False)
class AlternatingState(State):
    W_next: Array
    H_next: Array
    V: Array
    """Right singular vectors, from which the next TSVD starts."""
    Z: Array
    """Z^k and, below, Z^(k−1); without columns where there is no momentum."""
    Z_before: Array
    spare: Array | None = scratch_field()


S = TypeVar("S", bound=AlternatingState)


@dataclass(frozen=True)
class Alternating(Algorithm[S]):
    """Z from Θ, Θ = TSVD_r(Z). Subclasses say how Z is made (`block`) and what else they keep."""

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
        nothing = np.empty((problem.shape[0], 0), problem.dtype)
        V = starting_basis(H, problem.shape) if before is None else before.V
        old = {"Z": nothing if before is None else before.Z}
        old["Z_before"] = nothing if before is None else before.Z_before
        spare = None if before is None else before.spare
        new, sums = problem.run(
            type(self).block,
            {"W": W, **old},
            {"Z": np.empty(problem.shape, problem.dtype) if spare is None else spare, "Y": V.shape[1]},
            H=H,
            V=V.astype(problem.dtype),
            alpha=0.0 if before is None else self.momentum,
            sigma=float(np.sqrt(sigma2)),
        )
        Z = new["Z"]
        found: Factors = polish(problem, Z, Sweep(new["Y"], sums["S"], sums["YY"]), self.sweeps)
        common = {"W": W, "H": H, "error": problem.relative(sums["squares"])}
        common |= {"W_next": found.W, "H_next": found.H, "V": found.V}
        if not self.momentum:
            common |= {"Z": nothing, "Z_before": nothing, "spare": Z}
        elif before is None:
            common |= {"Z": Z, "Z_before": self._first_memory(problem, Z)}
        else:
            common |= {"Z": Z, "Z_before": old["Z"], "spare": old["Z_before"]}
        return self._state(problem, common, sums | {"Z": Z}, sigma2)
