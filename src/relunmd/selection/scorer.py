"""A scorer for GridSearchCV: the error on entries of new rows that were left out."""

# Keep annotations as written, so that help() shows them and not NumPy's unions.
from __future__ import annotations

import logging
import math
from typing import Any

from sklearn.utils.validation import check_is_fitted

from relunmd.arguments import check_count, check_random_state, check_share, check_threads
from relunmd.engine import row_newton
from relunmd.engine.executor import RowsLostError
from relunmd.engine.matrix import Array, Source
from relunmd.engine.problem_setup import executor_for, make_problem
from relunmd.errors import InputError
from relunmd.selection.folds import FoldPlan, folds

log = logging.getLogger("relunmd")


def held_out_score(
    estimator: Any, X: Any, y: Any = None, *, n_folds: int = 5, share: float = 0.1, random_state: Any = 0
) -> float:
    """Return minus the relative error of a fitted estimator on entries of X that it does not see.

    Parts of the entries are left out in turn, W is found for the rest, and the entries are predicted by max(0, WH).
    Unlike ``estimator.score``, which finds W from the very entries that it scores and so prefers the largest rank,
    it decreases when the rank is too large. Use it as ``GridSearchCV(ReLUNMD(), grid, scoring=held_out_score)``.

    Parameters
    ----------
    estimator : ReLUNMD or Pipeline
        Fitted; the last step of a pipeline must be a ReLUNMD.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows, usually new ones.
    y : None
        Ignored.
    n_folds : int, default=5
        Number of parts that are left out in turn.
    share : float, default=0.1
        Share of the entries in each.
    random_state : int, Generator, RandomState or None, default=0
        Decides which entries are left out.

    Returns
    -------
    float
        Minus ‖x − max(0, WH)‖ / ‖x‖ over the entries that were left out; greater is better, predicting zeros is −1.

    Notes
    -----
    Costs as much as `n_folds` calls of ``transform``.

    Examples
    --------
    >>> import relunmd
    >>> from sklearn.model_selection import GridSearchCV
    >>> X = relunmd.datasets.synthetic(120, 40, 3, random_state=0)
    >>> model = relunmd.ReLUNMD(random_state=0)
    >>> search = GridSearchCV(model, {"n_components": [2, 3, 4]}, scoring=relunmd.held_out_score, cv=3)
    >>> search.fit(X).best_params_
    {'n_components': 3}
    """
    if hasattr(estimator, "steps"):
        X, estimator = (estimator[:-1].transform(X) if len(estimator) > 1 else X), estimator[-1]
    if not hasattr(estimator, "_held_out_error"):
        raise InputError(f"held_out_score needs a ReLUNMD, or a pipeline that ends with one; got {estimator!r}.")
    check_is_fitted(estimator, "components_")
    seed, part = int(check_random_state(random_state).integers(2**63)), check_share(share, "share")
    return -float(estimator._held_out_error(X, FoldPlan(seed, check_count(n_folds, "n_folds"), part, part)))


def rows_error(X: Source, plan: FoldPlan, H: Array, penalty: float, max_iter: int, known: Array, n_jobs: Any) -> float:
    """Return the relative error on the entries of all folds; W is found for the others, as in `solve_rows`."""
    with executor_for(X, H.dtype, check_threads(n_jobs)) as executor:
        problem = make_problem(X, H.dtype, len(H), executor, zeros_alone=True)
        squares, total, scaled = 0.0, 0.0, H * H.dtype.type(problem.matrix.scale)
        for fold in folds(problem, plan):
            while True:
                try:
                    W = row_newton.fit_rows(fold.seen, H, penalty, max_iter, known).W
                    error = fold.held.error(W, scaled)
                    break
                except RowsLostError as reason:
                    log.warning("%s. Restarting the row fit", reason)
            squares += error**2 * fold.held.facts.squares
            total += fold.held.facts.squares
        if executor.interrupted():  # After the last pass.
            raise KeyboardInterrupt
    if total == 0:
        raise InputError("X has no positive entry among those that are left out. Increase share or n_folds.")
    return math.sqrt(squares / total)
