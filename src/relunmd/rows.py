"""The doors to rows when H is known: `fit_rows`, which finds their W, and `learn_rows`, which improves H by them."""

# Annotations as they are written, not as NumPy's unions: that is what help() shows.
from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from relunmd import row_fit
from relunmd.algorithms.online import OnlineState, online_step
from relunmd.executor import RowsLostError
from relunmd.matrix import Source
from relunmd.problem import Problem
from relunmd.validation import (
    check_components,
    check_dtype,
    check_matrix,
    check_penalty,
    check_steps,
    check_threads,
    executor_for,
    make_problem,
    opened,
)

__all__ = ["FittedRows", "fit_rows", "learn_rows"]

Array = NDArray[Any]
log = logging.getLogger("relunmd")


@dataclass(frozen=True, eq=False)
class FittedRows:
    """W for given rows X and a given H.

    Attributes
    ----------
    W : ndarray of shape (m, r)
    error : ‖X − max(0, WH)‖ / ‖X‖, of all rows together; 0 if X is all zero
    row_errors : the same for each row, of shape (m,)
    norm : ‖X‖
    shares : the share of positive entries of each column of WH, of shape (n,)
    limited : how many rows had not converged when `max_iter` was reached
    """

    W: Array
    error: float
    row_errors: Array
    norm: float
    shares: Array
    limited: int


def fit_rows(
    X: ArrayLike,
    H: ArrayLike,
    *,
    penalty: float = 0.0,
    max_iter: int = 100,
    dtype: DTypeLike | None = None,
    n_jobs: int | None = None,
) -> FittedRows:
    """Find W with X ≈ max(0, WH) for a known H: what `ReLUNMD.transform` does.

    Each row is a problem of its own, so that its w does not depend on the other rows (but for rounding). It is solved
    by Newton's method from four starts, and the best end is taken; nothing is random.

    Parameters
    ----------
    X : matrix of shape (m, n), as for `decompose`; it may be all zero. (On Dask W and row_errors are Dask arrays.)
    H : array of shape (r, n)
    penalty : adds penalty·‖w‖² to the squared error of a row
    max_iter : most Newton steps of a row from a start, on the latent residual and on the error; some ten are enough
    dtype : float32 or float64, as for `decompose`
    n_jobs : number of threads; None or −1 for all cores

    Returns
    -------
    FittedRows

    Notes
    -----
    Three passes over X. Memory: X as it is, W, and for each thread as much as H and some hundred rows. About 0.8 ms
    a row of 784 entries at rank 32 on two cores.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> rng = np.random.default_rng(0)
    >>> W, H = rng.standard_normal((50, 3)), rng.standard_normal((3, 40))
    >>> found = relunmd.fit_rows(np.maximum(0, W @ H), H)
    >>> bool(np.allclose(found.W, W)), found.error < 1e-10
    (True, True)
    """
    with ExitStack() as stack:
        A = stack.enter_context(opened(X))
        float_type = check_dtype(dtype, A)
        components = check_components(H, A.shape[1])
        strength, steps = check_penalty(penalty), check_steps(max_iter)
        problem = stack.enter_context(_problem(A, float_type, len(components), check_threads(n_jobs)))
        while True:
            try:
                return _in_units(problem, row_fit.fit_rows(problem, components, strength, steps))
            except RowsLostError as reason:
                log.warning("%s. Beginning again", reason)


def _in_units(problem: Problem, found: row_fit.RowFit) -> FittedRows:
    scale, squares = problem.matrix.scale, problem.facts.squares
    return FittedRows(
        W=problem.executor.handed_over((found.W.astype(np.float64) / scale).astype(problem.dtype)),
        error=problem.relative(found.squares) if squares > 0 else 0.0,
        row_errors=problem.executor.handed_over(found.row_errors)[:, 0],
        norm=math.sqrt(squares) / scale,
        shares=found.shares,
        limited=found.limited,
    )


@contextmanager
def _problem(X: Source, dtype: np.dtype[Any], rank: int, n_threads: int) -> Iterator[Problem]:
    with executor_for(X, dtype, n_threads) as executor:
        yield make_problem(X, dtype, rank, executor, zeros_alone=True)


def learn_rows(
    X: Any, state: OnlineState, *, ridge: float, max_iter: int, dtype: np.dtype[Any], n_threads: int
) -> tuple[OnlineState, FittedRows]:
    """The state after a batch X of rows (an array, or sparse), and what `fit_rows` found with the H before it.

    Rows of zeros say nothing of H; a batch of nothing else is counted only. The ridge's ‖X‖ is that of all rows so far,
    and H's term has this batch's share of it.
    """
    A = check_matrix(X)
    with _problem(A, dtype, len(state.H), n_threads) as problem:
        norm = math.hypot(state.norm, math.sqrt(problem.facts.squares) / problem.matrix.scale)
        counted = replace(state, norm=norm)
        if problem.facts.squares == 0:
            found = row_fit.fit_rows(problem, state.H, ridge * norm, max_iter)
            return replace(counted, rows=state.rows + A.shape[0]), _in_units(problem, found)
        columns = check_matrix(sparse.csr_array(X).T.tocsr() if sparse.issparse(X) else np.asarray(X).T)
        transposed = make_problem(columns, dtype, len(state.H), problem.executor)
        following, found = online_step(problem, transposed, counted, ridge * norm, max_iter)
        return following, _in_units(problem, found)
