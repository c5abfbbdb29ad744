"""The paper's baseline: max(0, X_r), X_r the rank-r TSVD of X."""

from dataclasses import dataclass

import numpy as np

from relunmd.algorithm.base import Algorithm
from relunmd.algorithm.state import Array, State
from relunmd.engine.problem import Problem
from relunmd.init import TSVDInit


@dataclass(frozen=True)
class TSVD(Algorithm):
    """The TSVD of X, whatever the initialization: no iterations, 4 to 20 passes, nothing of size m×n kept."""

    name = "tsvd"
    summary = "the baseline max(0, X_r): one truncated SVD, no iterations"
    default_init = "random"

    def start(self, problem: Problem, W: Array, H: Array) -> State:
        W, H = TSVDInit().make(problem, np.random.default_rng(0))
        return State(W, H, problem.error(W, H))

    def step(self, problem: Problem, state: State) -> State:
        return state

    def finished(self, state: State) -> bool:
        return True
