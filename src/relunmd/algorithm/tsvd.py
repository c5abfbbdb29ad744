"""The paper's baseline: max(0, X_r), X_r the rank-r TSVD of X."""

from dataclasses import dataclass

import numpy as np

from relunmd.algorithm.base import Algorithm
from relunmd.algorithm.state import Array, State
from relunmd.engine.problem import Problem
from relunmd.init import TSVDInit


@dataclass(frozen=True)
class TSVD(Algorithm):
    """Compute max(0, X_r), where X_r is the truncated SVD of X: the baseline.

    There are no iterations and the initialization is ignored. It makes 4 to 20 passes and keeps nothing of the size of
    X.

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
    >>> d = relunmd.decompose(X, rank=4, algorithm=relunmd.TSVD())
    >>> d.n_iter, round(d.error, 3)
    (0, 0.42)
    """

    name = "tsvd"
    summary = "the baseline max(0, X_r): one truncated SVD, no iterations"
    handles_missing = True
    default_init = "random"

    def start(self, problem: Problem, W: Array, H: Array) -> State:
        W, H = TSVDInit().make(problem, np.random.default_rng(0))
        return State(W, H, problem.error(W, H))

    def step(self, problem: Problem, state: State) -> State:
        return state

    def finished(self, state: State) -> bool:
        return True
