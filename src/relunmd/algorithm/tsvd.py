"""The paper's baseline: max(0, X_r), X_r the rank-r TSVD of X."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relunmd.algorithm.interface import Algorithm, Array, State
from relunmd.engine.problem import Problem
from relunmd.init import TSVDInit

__all__ = ["TSVD", "TSVDState"]


@dataclass(frozen=True, eq=False)
class TSVDState(State):
    @property
    def done(self) -> bool:
        return True


@dataclass(frozen=True)
class TSVD(Algorithm[TSVDState]):
    """The TSVD of X, whatever the start: no iterations, 4 to 20 passes, nothing of size m×n kept."""

    name: ClassVar[str] = "tsvd"
    summary: ClassVar[str] = "the baseline max(0, X_r): one truncated SVD, no iterations"
    state_type: ClassVar[type[State]] = TSVDState
    default_init: ClassVar[str] = "random"

    def start(self, problem: Problem, W: Array, H: Array) -> TSVDState:
        W, H = TSVDInit().make(problem, np.random.default_rng(0))
        return TSVDState(W, H, problem.error(W, H))

    def step(self, problem: Problem, state: TSVDState) -> TSVDState:
        return state
