"""The default initialization, unless the algorithm has its own."""

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
    """The shifted initialization, or the TSVD of X in two cases.

    The TSVD is used if it has less than half the error (X is nearly of low rank itself), or if the shifted
    initialization is positive almost nowhere (there the gradient of the error vanishes).

    Notes
    -----
    Measured with "3b" and "a-nmd" on digits, MNIST-500, synthetic and planted matrices, the identity, sparse and dense
    noise: after 30 iterations, the shifted initialization was well ahead of random, tsvd, nuclear and mean-corrected if
    X is sparse, and level with the best otherwise, though its initial error is often larger than that of the TSVD. "qn"
    needs neither exception and uses the shifted initialization itself.
    """

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "shifted, or tsvd if X itself is nearly of low rank"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        plain = TSVDInit().make(problem, random)
        shifted = ShiftedInit().make(problem, random)
        shifted_error = problem.error(*shifted)
        use_tsvd = shifted_error > _DEAD or problem.error(*plain) < shifted_error / 2
        log.info("init='auto' uses init=%r", "tsvd" if use_tsvd else "shifted")
        return plain if use_tsvd else shifted
