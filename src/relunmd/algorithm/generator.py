"""A plain generator function as an algorithm, for a first try: ``decompose(X, rank, algorithm=f)``."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunmd.algorithm.base import Algorithm
from relunmd.algorithm.state import Array, State
from relunmd.engine.problem import Problem


@dataclass(frozen=True)
class GeneratorAlgorithm(Algorithm):
    """Runs a generator function f(X, W, H) that yields W, H after every iteration.

    X is dense, read-only and in the user's units; W and H are the initial factors. A run cannot be resumed from a
    checkpoint: what the function keeps is unknown. If it ends, the run has converged.

    Parameters
    ----------
    function : callable
        The same function that `relunmd.compare` accepts.
    """

    summary = "a generator function"
    writes = ("X", "X in the units of the user")
    function: Callable[[Array, Array, Array], Iterator[tuple[Array, Array]]]

    @property
    def name(self) -> str:  # type: ignore[override]
        return getattr(self.function, "__name__", "generator")

    def settings(self) -> dict[str, Any]:
        return {}

    def start(self, problem: Problem, W: Array, H: Array) -> State:
        scale = problem.dtype.type(problem.matrix.scale)
        X = problem.dense / scale
        X.flags.writeable = False
        iterates = self.function(X, W.copy(), H / scale)
        return State(W, H, problem.error(W, H), iterates=iterates, ended=False)

    def step(self, problem: Problem, state: State) -> State:
        try:
            W, H = next(state.iterates)
        except StopIteration:
            return state.replace(ended=True)
        W, H = np.array(W, problem.dtype), np.array(H, problem.dtype) * problem.dtype.type(problem.matrix.scale)
        return state.replace(W=W, H=H, error=problem.error(W, H))

    def finished(self, state: State) -> bool:
        return bool(state.ended)

    def first_state(self, problem: Problem, W: Array, H: Array) -> State:
        return self.start(problem, W, H)

    def next_state(self, problem: Problem, state: State) -> State:
        return self.step(problem, state)
