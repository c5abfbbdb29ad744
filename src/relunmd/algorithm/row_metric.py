"""The metric of "qn": one r×r matrix for all rows of W and one for all columns of H, and a correction for each of them.

The metric of all rows, (HHᵀ + εI)⁻¹, ignores that only entries with a nonzero residual have curvature. Row i has
Aᵢ = Σ hⱼhⱼᵀ over these entries, its block of the Gauss–Newton matrix. On small X each row has a metric of its own,
(Aᵢ + share·HHᵀ)⁻¹: on planted matrices the error after 300 passes is at most a tenth of that without. On large X, where
these matrices take longer to read than the passes that they save, each row has a number in their place, the trace of
(HHᵀ)⁻¹Aᵢ/r, by which the metric of all rows is divided: 300 passes over kos do what 600 did. The share of HHᵀ is there
because zeros without a residual may get one when the row moves. Columns likewise. On working sets there are only
numbers: with matrices so many zeros outside the set became positive that most cycles were undone.
"""

from typing import NamedTuple

import numpy as np

from relunmd.engine import kernels
from relunmd.engine.matrix import Array
from relunmd.engine.problem import Problem

OWN = np.dtype(np.float32)
_MOST_NUMBERS = 2**22
"""(m + n)r² up to which each row has a matrix."""
_SHARE, _SHARE_OF_NUMBERS = 0.02, 0.05
"""The share of HHᵀ, for matrices and for numbers. 0.2 was slower on planted matrices, 0.003 on k1b."""
_EPSILON, _LEAST = 1e-6, 1e-30


class Metric(NamedTuple):
    """The metric of all rows, and what some rows have of their own: r² numbers each, one number, or nothing."""

    shared: Array
    own: Array | None

    def times(self, A: Array, out: Array) -> None:
        """out ← the product of each row of A with its metric."""
        if self.own is not None and self.own.shape[1] > 1:
            kernels.rows_times(self.own, A, out)
            return
        np.matmul(A, self.shared, out=out)
        if self.own is not None:
            out *= self.own


def own_numbers(problem: Problem) -> int:
    """Return how many numbers each row and column has of its own."""
    if problem.matrix.observation is not None:
        return 0
    r = problem.rank
    small = sum(problem.shape) * r**2 <= _MOST_NUMBERS
    return r**2 if small and problem.inner is None else 1


def parts(A: Array, shared: Array, count: int) -> Array:
    """Return what each row a of A adds to the sums Aᵢ: aaᵀ as `count` = r² numbers, aᵀ·shared·a/r, or nothing."""
    if count == 0:
        return np.empty((len(A), 0), A.dtype)
    if count == 1:
        return np.asarray(((A @ shared.astype(A.dtype)) * A).sum(axis=1, keepdims=True) / A.dtype.type(len(shared)))
    return np.asarray((A[:, :, None] * A[:, None, :]).reshape(len(A), -1))


def own_metrics(sums: Array, gram: Array, penalty: float) -> Array:
    """Return what rows have of their own, given the sums of `parts`; `gram` is that of all rows."""
    if sums.shape[1] == 1:
        return np.asarray((1 + _SHARE_OF_NUMBERS) / (sums + _SHARE_OF_NUMBERS), OWN)
    r = len(gram)
    floor = max(_EPSILON * float(np.trace(gram)) / r, _LEAST) + penalty
    regular = sums.reshape(-1, r, r) + (_SHARE * gram + floor * np.eye(r))
    return np.asarray(np.linalg.inv(regular).reshape(-1, r * r), OWN)
