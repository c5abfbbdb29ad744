"""The random start of the paper, section 5.1."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relunmd.init.base import Array, Init, best_multiple
from relunmd.problem import Problem

__all__ = ["RandomInit"]


@dataclass(frozen=True)
class RandomInit(Init):
    """Standard normal W and H, times the best multiple. One pass."""

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "normal W and H, optimally scaled; one pass, clearly worse than the others"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        m, n = problem.shape
        W = random.standard_normal((m, problem.rank)).astype(problem.dtype)
        H = random.standard_normal((problem.rank, n)).astype(problem.dtype)
        return best_multiple(problem, W, H)
