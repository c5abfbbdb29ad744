"""Starts made of one truncated SVD: of X, of X with its mean taken out, of X with its zeros lowered.

All three are a TSVD of X + lift·[X > 0] − left·rightᵀ, which is never formed.
"""

import logging
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np

from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg import truncated_svd
from relunmd.engine.matrix import Block
from relunmd.engine.passes import sweep_of_x
from relunmd.engine.problem import Problem
from relunmd.errors import InputError
from relunmd.init.initialization import Array, Init, best_multiple

__all__ = ["MeanCorrectedInit", "ShiftedInit", "TSVDInit"]

log = logging.getLogger("relunmd")

_ENOUGH = 0.1
"""How exact the TSVDs of changed X are: 4 passes do. To 1e-6 they took up to 16, and no run from them went better."""


@dataclass(frozen=True)
class TSVDInit(Init):
    """The rank-r TSVD of X: max(0, X_r) is the baseline of the paper. 4 to 20 passes."""

    name: ClassVar[str] = "tsvd"
    summary: ClassVar[str] = "the rank-r TSVD of X"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        found = truncated_svd(problem, lambda V: sweep_of_x(problem, V), problem.rank, random)
        return found.W, found.H


@dataclass(frozen=True)
class MeanCorrectedInit(Init):
    """TSVD_r of 2(X − row_mean·col_meanᵀ/mean), times the best multiple.

    Since X = ½(Θ + |Θ|) and |Θ| is nearly a product of means, this is nearly TSVD_r(Θ). 6 passes.
    """

    name: ClassVar[str] = "mean-corrected"
    summary: ClassVar[str] = "TSVD of X less its product of means; best where about half of X is zero"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        n = problem.shape[1]
        rows, sums = problem.run(_means_block, out={"total": 1})
        left = rows.total / n
        right = sums["total"][:, None] / problem.facts.total * n
        found = truncated_svd(
            problem, lambda V: sweep_of_x(problem, V, left=left, right=right), problem.rank, random, _ENOUGH
        )
        if np.linalg.norm(found.H) <= np.sqrt(np.finfo(problem.dtype).eps * problem.facts.squares):
            log.info("X is the product of its means, so init='mean-corrected' has nothing left: using init='tsvd'")
            return TSVDInit().make(problem, random)
        return best_multiple(problem, found.W, found.H)


def _means_block(x: Block, rows: Rows, out: Rows) -> Sums:
    total = np.zeros(x.n_columns)
    out.total[:] = 0
    for at in x.strips:
        for tile in x.across(at):
            X = tile.X.astype(np.float64) * tile.scale
            out.total[at] += X.sum(axis=1, keepdims=True)
            total[tile.columns] += X.sum(axis=0)
    return {"total": total}


@dataclass(frozen=True)
class ShiftedInit(Init):
    """TSVD_r of X with every zero replaced by −c times the mean positive entry. 4 passes; what "qn" starts from.

    Measured end to end with "qn" against random, tsvd, mean-corrected, c = ¼ and ½, TSVDs exact and rough, on digits,
    MNIST, CBCL's basis, synthetic and planted matrices and term counts: with c = 1 it was ahead or within 2 % after
    30, 60 and 100 passes, those of the start included. The figures are in docs/flagship.md.

    Parameters
    ----------
    c : how far below zero the zeros are put, in mean positive entries
    """

    c: float = 1.0
    name: ClassVar[str] = "shifted"
    summary: ClassVar[str] = "TSVD of X with its zeros lowered; best where X is very sparse"

    def __post_init__(self) -> None:
        if not (isinstance(self.c, Real) and 0 < float(self.c) < np.inf):
            raise InputError(f"c of ShiftedInit must be a positive number. Got {self.c!r}.")

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        depth = float(self.c) * problem.mean_positive
        right = np.ones((problem.shape[1], 1))
        found = truncated_svd(
            problem,
            lambda V: sweep_of_x(problem, V, lift=depth, left=depth, right=right),
            problem.rank,
            random,
            _ENOUGH,
        )
        return found.W, found.H
