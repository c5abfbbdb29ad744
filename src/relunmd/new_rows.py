"""New rows for a known H: `fit_rows` finds their W, `learn_rows` improves H with them."""

# Keep annotations as written, so that help() shows them and not NumPy's unions.
from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from relunmd.algorithm.online import OnlineState, online_step
from relunmd.arguments import check_candidates, check_components, check_count, check_dtype, check_penalty, check_threads
from relunmd.engine import row_newton
from relunmd.engine.distributed import fetched
from relunmd.engine.executor import RowsLostError
from relunmd.engine.matrix import Source
from relunmd.engine.observed import EntryOptions, open_observed, opened
from relunmd.engine.problem import Problem
from relunmd.engine.problem_setup import executor_for, make_problem
from relunmd.engine.row_newton import known_rows, spread
from relunmd.errors import FileError

Array = NDArray[Any]
log = logging.getLogger("relunmd")


@dataclass(frozen=True, eq=False)
class FittedRows:
    """Hold W for given rows X and a given H.

    Attributes
    ----------
    W : ndarray of shape (m, r)
        Left factor.
    error : float
        Relative error ‖X − max(0, WH)‖ / ‖X‖ of all rows together; 0 if X is all zero.
    row_errors : ndarray of shape (m,)
        The same for each row.
    norm : float
        Frobenius norm ‖X‖.
    shares : ndarray of shape (n,)
        The share of positive entries in each column of WH.
    limited : int
        Number of rows that had not converged when `max_iter` was reached.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> found = relunmd.fit_rows([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]], H=[[1.0, -1.0, 2.0]])
    >>> found.W.round(6)
    array([[1.],
           [0.]])
    >>> found.shares  # of positive entries in the columns of WH
    array([0.5, 0. , 0.5])
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
    candidates: ArrayLike | None = None,
    missing_values: float | str | None = None,
    mask: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    n_jobs: int | None = None,
) -> FittedRows:
    """Find W with X ≈ max(0, WH) for a known H, as `ReLUNMD.transform` does.

    Each row is an independent problem, so its w does not depend on the other rows (but for rounding). It is solved by
    Newton's method from several initial values, and the best result is returned; nothing is random.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (m, n)
        As for `decompose`; it may be all zero. If X is on Dask, W and row_errors are Dask arrays.
    H : array-like of shape (r, n)
        Right factor, for example of a decomposition of other rows.
    penalty : float, default=0.0
        Adds penalty·‖w‖² to the squared error of a row.
    max_iter : int, default=100
        Maximum number of Newton steps of a row from an initial value, for each leak; about ten are enough.
    candidates : array-like of shape (k, r), optional
        Known rows of W, for example W of the decomposition that H is from. Each row of X also starts from the multiple
        of the candidate that fits it best. On sparse data, where the row problem has many local minima, this lowers
        the error by up to a quarter. Some thousand of them are used at most, at equal distances.
    missing_values : {None, np.nan, "unstored"}, default=None
        As for `decompose`.
    mask : {array-like, sparse matrix} of shape (m, n), optional
        As for `decompose`.
    weights : {array-like, sparse matrix} of shape (m, n), optional
        As for `decompose`.
    lower : float or array-like of shape (n,) or (m, n), optional
        As for `decompose`.
    upper : float or array-like of shape (n,) or (m, n), optional
        As for `decompose`.
    dtype : {float32, float64}, optional
        As for `decompose`.
    n_jobs : int, optional
        Number of threads, as for `decompose`.

    Returns
    -------
    FittedRows
        W, the errors of all rows and of each, and how many rows did not converge.

    See Also
    --------
    decompose : Find W and H together.
    ReLUNMD : The estimator; its `transform` is this function.

    Notes
    -----
    Three passes over X. Memory: X as it is, W, and for each thread as much as H and some hundred rows. About 0.6
    ms for a row of 784 entries at rank 32 on two cores.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> rng = np.random.default_rng(0)
    >>> W, H = rng.standard_normal((50, 3)), rng.standard_normal((3, 40))
    >>> found = relunmd.fit_rows(np.maximum(0, W @ H), H)
    >>> bool(np.allclose(found.W, W)), found.error < 1e-10
    (True, True)
    """
    with opened(X, EntryOptions(missing_values, mask, weights, lower, upper)) as A:
        components = check_components(H, A.shape[1])
        known = None
        if candidates is not None:
            known = sampled_rows(check_candidates(fetched(candidates), len(components)), components)
        return solve_rows(A, components, penalty, max_iter, dtype, n_jobs, InitialRows(known))


def sampled_rows(W: Any, H: Array) -> Array:
    """Return some rows of W in the form of `InitialRows.known`."""
    return known_rows(fetched(W[spread(len(W), *H.shape)]), H)


@dataclass(frozen=True)
class InitialRows:
    """Initial values of a row solve: known rows as `sampled_rows` returns them, and W0 for the rows of X themselves."""

    known: Array | None = None
    W0: Any = None
    center: Array | None = None
    """The w that the penalty pulls to, 0 by default."""
    checksum: str = ""
    """Checksum that X must have, if it is known."""


def solve_rows(
    X: Source,
    H: Array,
    penalty: float,
    max_iter: int,
    dtype: DTypeLike | None = None,
    n_jobs: int | None = None,
    initial: InitialRows | None = None,
) -> FittedRows:
    """`fit_rows` for an open X, with initial values; raise FileError if X has another checksum than the given one."""
    initial = InitialRows() if initial is None else initial
    strength, steps = check_penalty(penalty), check_count(max_iter, "max_iter")
    with _problem(X, check_dtype(dtype, X), len(H), check_threads(n_jobs)) as problem:
        if initial.checksum and initial.checksum != problem.facts.checksum:
            raise FileError("X changed between the iterations and the fit of its rows. Was its file overwritten?")
        while True:
            try:
                W0 = initial.W0
                placed = None if W0 is None else problem.executor.placed(problem.matrix, W0)
                given = initial.known, placed, initial.center
                return _in_units(problem, row_newton.fit_rows(problem, H, strength, steps, *given))
            except RowsLostError as reason:
                log.warning("%s. Restarting the row fit", reason)


def _in_units(problem: Problem, found: row_newton.RowFit) -> FittedRows:
    squares = problem.facts.squares
    return FittedRows(
        W=problem.executor.handed_over(found.W),
        error=problem.relative(found.squares) if squares > 0 else 0.0,
        row_errors=problem.executor.handed_over(found.row_errors)[:, 0],
        norm=problem.norm,
        shares=found.shares,
        limited=found.limited,
    )


@contextmanager
def _problem(X: Source, dtype: np.dtype[Any], rank: int, n_threads: int) -> Iterator[Problem]:
    with executor_for(X, dtype, n_threads) as executor:
        yield make_problem(X, dtype, rank, executor, zeros_alone=True)
        if executor.interrupted():  # After the last pass.
            raise KeyboardInterrupt


def learn_rows(
    X: Any,
    state: OnlineState,
    *,
    ridge: float,
    max_iter: int,
    dtype: np.dtype[Any],
    n_threads: int,
    known: Array | None = None,
    options: EntryOptions | None = None,
) -> tuple[OnlineState, FittedRows]:
    """Return the state after a batch X of rows (dense or sparse), and the row fit with the H before it.

    `known` is what `sampled_rows` returns for that H. A batch of zeros is counted but does not change H. ‖X‖ of the
    ridge is that of all rows so far.
    """
    options = EntryOptions() if options is None else options
    A = open_observed(X, options)
    with _problem(A, dtype, len(state.H), n_threads) as problem:
        norm = math.hypot(state.norm, problem.norm)
        counted = replace(state, norm=norm)
        if problem.facts.squares == 0:
            found = row_newton.fit_rows(problem, state.H, ridge * norm, max_iter, known)
            return replace(counted, rows=state.rows + A.shape[0]), _in_units(problem, found)
        columns = sparse.csr_array(X).T.tocsr() if sparse.issparse(X) else np.asarray(X).T
        transposed = make_problem(
            open_observed(columns, options.transposed(A.shape)), dtype, len(state.H), problem.executor
        )
        following, found = online_step(problem, transposed, counted, ridge * norm, max_iter, known)
        return following, _in_units(problem, found)
