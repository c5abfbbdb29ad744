"""The start that is taken when none is asked for."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relunmd.init.base import Array, Init
from relunmd.init.spectral import ShiftedInit, TSVDInit
from relunmd.problem import Problem

__all__ = ["AutoInit"]


@dataclass(frozen=True)
class AutoInit(Init):
    """The shifted start, or "tsvd" where that has less than half the error: then X is nearly of low rank itself.

    Measured with "3b" on digits, MNIST-500, planted matrices of 90 to 99 % zeros, the identity and
    sparse noise, the shifted start was ahead of all others after 30 iterations everywhere and at
    most level after 300, though its own error is often larger than the TSVD's.
    """

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "shifted, or tsvd where X itself is nearly of low rank"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        plain = TSVDInit().make(problem, random)
        shifted = ShiftedInit().make(problem, random)
        return plain if problem.error(*plain) < problem.error(*shifted) / 2 else shifted
