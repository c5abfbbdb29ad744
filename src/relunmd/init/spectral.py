"""Initializations by one truncated SVD: of X, of X minus its means, of X with its zeros lowered.

All three are TSVDs of X + lift·[X > 0] − left·rightᵀ, which is never formed. The default chooses between two of them.
"""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg.truncated_svd import truncated_svd
from relunmd.engine.matrix import Array, Block
from relunmd.engine.passes import sweep_of_filled_x, sweep_of_x
from relunmd.engine.problem import Problem
from relunmd.init.initialization import Init, best_multiple
from relunmd.settings import setting

log = logging.getLogger("relunmd")

_DEAD = 0.999


def tsvd_of_x(
    problem: Problem, random: np.random.Generator, tol: float | None = 1e-9, **shift: Any
) -> tuple[Array, Array]:
    """Return the factors of the TSVD of X + lift·[X > 0] − left·rightᵀ; of a filled X if entries are missing.

    A rough one in two passes if `tol` is None. For a modified X that suffices: four passes improved no run after the
    first, and 1e-6, up to 16 passes, improved none at all.
    """
    means = problem.facts.column_means
    if means is not None:
        row, centered = (1 if shift.get("lift") else 0), "right" in shift and not shift.get("lift")
        found = truncated_svd(
            problem, lambda V: sweep_of_filled_x(problem, V, means[row], centered), problem.rank, random, tol
        )
        return found.W, found.H
    found = truncated_svd(problem, lambda V: sweep_of_x(problem, V, **shift), problem.rank, random, tol)
    return found.W, found.H


@dataclass(frozen=True)
class TSVDInit(Init):
    """Compute the rank-r truncated SVD of X; 4 to 20 passes.

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
    >>> d = relunmd.decompose(X, rank=4, init=relunmd.TSVDInit(), max_iter=50)
    >>> d.init, d.error < 0.01
    ('tsvd', True)
    """

    name = "tsvd"
    summary = "the rank-r TSVD of X"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        return tsvd_of_x(problem, random)


@dataclass(frozen=True)
class MeanCorrectedInit(Init):
    """Compute TSVD_r of 2(X − row_mean·col_meanᵀ/mean), scaled by the best multiple; 4 passes.

    Since X = ½(Θ + ``|Θ|``) and ``|Θ|`` is nearly a product of means, this is nearly TSVD_r(Θ).

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
    >>> options = {"algorithm": "3b", "random_state": 0, "max_iter": 1}
    >>> plain = relunmd.decompose(X, rank=4, init="tsvd", **options)
    >>> corrected = relunmd.decompose(X, rank=4, init=relunmd.MeanCorrectedInit(), **options)
    >>> bool(corrected.history.error[0] < plain.history.error[0])
    True
    """

    name = "mean-corrected"
    summary = "TSVD of X minus its product of means; best if about half of X is zero"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        if problem.facts.column_means is not None:
            return best_multiple(problem, *tsvd_of_x(problem, random, None, right=None))
        n = problem.shape[1]
        rows, sums = problem.run(_means_block, out={"total": 1})
        left = rows.total / n
        right = sums["total"][:, None] / problem.facts.total * n
        W, H = tsvd_of_x(problem, random, None, left=left, right=right)
        if np.linalg.norm(H) <= np.sqrt(np.finfo(problem.dtype).eps * problem.facts.squares):
            log.info("X is the product of its means: init='mean-corrected' uses init='tsvd'")
            return TSVDInit().make(problem, random)
        return best_multiple(problem, W, H)


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
    """Compute TSVD_r of X with every zero replaced by −c times the mean positive entry; 2 passes.

    The default of "qn".

    Parameters
    ----------
    c : float, default=1.0
        Depth of the zeros, relative to the mean positive entry.

    Notes
    -----
    Measured with "qn" against random, tsvd, mean-corrected, c = ¼ and ½, exact and rough TSVDs, on digits, MNIST, the
    basis of CBCL, synthetic and planted matrices and term counts: with c = 1 it was ahead or within 2 % after 30, 60
    and 100 passes, including those of the initialization (docs/background/flagship.md).

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.planted(60, 40, 4, zeros=0.9, random_state=0)
    >>> d = relunmd.decompose(X, rank=4, init=relunmd.ShiftedInit(c=0.5), random_state=0, max_iter=30)
    >>> d.init, d.error < 0.1
    ('shifted', True)
    """

    c: float = setting(1.0, gt=0)
    name = "shifted"
    summary = "TSVD of X with its zeros lowered; best if X is very sparse"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        depth = self.c * (problem.facts.total / problem.facts.positives)
        right = np.ones((problem.shape[1], 1))
        return tsvd_of_x(problem, random, None, lift=depth, left=depth, right=right)


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

    name = "auto"
    summary = "shifted, or tsvd if X itself is nearly of low rank"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        plain = TSVDInit().make(problem, random)
        shifted = ShiftedInit().make(problem, random)
        shifted_error = problem.error(*shifted)
        use_tsvd = shifted_error > _DEAD or problem.error(*plain) < shifted_error / 2
        log.info("init='auto' uses init=%r", "tsvd" if use_tsvd else "shifted")
        return plain if use_tsvd else shifted
