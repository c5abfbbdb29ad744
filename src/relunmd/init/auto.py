"""The start that is taken when none is asked for, unless the algorithm has one of its own."""

import logging
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relunmd.engine.problem import Problem
from relunmd.init.initialization import Array, Init
from relunmd.init.spectral import ShiftedInit, TSVDInit

__all__ = ["AutoInit"]

log = logging.getLogger("relunmd")

_DEAD = 0.999


@dataclass(frozen=True)
class AutoInit(Init):
    """The shifted start, with two exceptions that take the TSVD of X: where that has less than half
    the error (X is nearly of low rank itself), and where the shifted one is positive almost nowhere
    (an algorithm that looks at the error would find no slope there).

    Measured with "3b" and "a-nmd" on digits, MNIST-500, synthetic and planted matrices, the identity,
    sparse and dense noise: after 30 iterations the shifted start was well ahead of random, tsvd,
    nuclear and mean-corrected where X is sparse, and level with the best elsewhere, though its own
    error is often larger than the TSVD's. "qn" needs neither exception, and takes the shifted start itself.
    """

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "shifted, or tsvd where X itself is nearly of low rank"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        plain = TSVDInit().make(problem, random)
        shifted = ShiftedInit().make(problem, random)
        shifted_error = problem.error(*shifted)
        if shifted_error > _DEAD or problem.error(*plain) < shifted_error / 2:
            log.info("init='auto' takes the start 'tsvd'")
            return plain
        log.info("init='auto' takes the start 'shifted'")
        return shifted
