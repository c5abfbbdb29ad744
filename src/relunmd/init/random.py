"""The random initialization of the paper (section 5.1)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relunmd.engine.problem import Problem
from relunmd.init.initialization import Array, Init, best_multiple

__all__ = ["RandomInit"]


@dataclass(frozen=True)
class RandomInit(Init):
    """Standard normal W and H, scaled by the best multiple. One pass."""

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "normal W and H, optimally scaled; one pass, clearly worse than the others"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        W = problem.executor.normal_rows(problem.matrix, problem.rank, random)
        H = random.standard_normal((problem.rank, problem.shape[1])).astype(problem.dtype)
        return best_multiple(problem, W, H)
