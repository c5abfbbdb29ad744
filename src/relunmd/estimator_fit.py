"""How ReLUNMD fits: the iterations of `decompose`, the rows as `transform` finds them, and what a model stores."""

# Keep annotations as written, so that help() shows them and not NumPy's unions.
from __future__ import annotations

import logging
import time
import warnings
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from relunmd.algorithm import Algorithm
from relunmd.algorithm.online import OnlineState
from relunmd.api import Initialization, decompose
from relunmd.arguments import check_algorithm, check_count, check_limits, check_ridge
from relunmd.engine.matrix import Source
from relunmd.engine.observed import opened
from relunmd.engine.row_newton import spread
from relunmd.errors import FileError, InputError
from relunmd.estimator_base import MatrixTransformer, shape_of
from relunmd.history import Status
from relunmd.init import Init
from relunmd.new_rows import FittedRows, InitialRows, sampled_rows, solve_rows
from relunmd.result import Decomposition
from relunmd.selection import RankSelection, select_rank
from relunmd.selection.folds import FoldPlan
from relunmd.selection.scorer import rows_error

Array = NDArray[Any]
log = logging.getLogger("relunmd")

_FIRST_BATCH = 50
"""Iterations on the first batch of `partial_fit`: 20 left MNIST 3 % worse than 1000, 200 left kos 4 % worse than 20."""


_SEARCH_TOL = 1e-3
"""The smallest `tol` of the fits that choose the rank."""


class FittedTransformer(MatrixTransformer):
    """A transformer that is fitted by `decompose` and by a row solve with its H."""

    algorithm: str | Algorithm
    init: Initialization
    max_iter: int | None
    max_time: float | None
    target_error: float | None
    ridge: float | str
    n_jobs: int | None
    warm_start: bool
    verbose: int
    selection_: RankSelection
    _known: Array

    def _fit(self, X: Any) -> FittedRows:
        with self._opened(X, reset=True) as A:
            shape = shape_of(A)
            self._check_rank(shape)
            begun = time.perf_counter()
            rank = self._choose(A)
            limits = {"max_iter": self.max_iter, "max_time": self.max_time}
            if self.max_time is not None and self._chosen_by_entries:
                limits["max_time"] = max(1e-3, self.max_time - (time.perf_counter() - begun))
            d, found = self._fitted(A, rank, self._initial(A, shape, rank), limits)
        self.history_ = d.history
        self.status_ = d.status
        self._warn_of_the_end(d, found)
        self._warn_of_rows(found)
        return found

    def _first_batch(self, A: Any) -> None:
        self._check_rank(A.shape)
        limits = check_limits(self.target_error, self.tol, self.max_iter, self.max_time)
        most = _FIRST_BATCH if limits.max_iter is None else min(limits.max_iter, _FIRST_BATCH)
        ends = {"max_iter": most, "max_time": self.max_time}
        _, found = self._fitted(A, self._choose(A), self.init, ends)
        self.n_iter_ = 1
        self._warn_of_rows(found)

    def _source(self, A: Any) -> AbstractContextManager[Source]:
        """Context manager: X after validation as a source with what is known of its entries."""
        return opened(A, None if isinstance(A, Source) else self._entry_options())

    def _choose(self, A: Any) -> int:
        """Return the rank of the fit; what is "auto" is chosen by `select_rank`, as `selection_`."""
        if hasattr(self, "selection_"):  # Of an earlier fit.
            del self.selection_
        if not self._chosen_by_entries:
            return int(self.n_components)
        if not isinstance(self.init, str | Init):
            raise InputError("init must be a name or an Init if n_components or ridge is 'auto'; got given factors.")
        names = ("init", "max_iter", "max_time", "random_state", "n_jobs")
        options: dict[str, Any] = {name: getattr(self, name) for name in names}
        check_limits(None, self.tol, self.max_iter, self.max_time)
        options |= {"tol": max(self.tol, _SEARCH_TOL), "refit": False, "progress": bool(self.verbose)}
        options["ranks"] = None if self.n_components == "auto" else [self.n_components]
        options["ridges"] = "auto" if self.ridge == "auto" else (self.ridge,)
        with self._source(A) as source:
            X: Any = source
            found = select_rank(X, algorithm=check_algorithm(self.algorithm), **options)
        if found.ended_by == "Ctrl-C":  # It must end a grid search too.
            raise KeyboardInterrupt
        log.info("%s", found.sentence)
        if found.ended_by:
            warnings.warn(f"{found.sentence} Increase max_time.", ConvergenceWarning, stacklevel=4)
        self.selection_ = found
        return found.rank

    @property
    def _chosen_by_entries(self) -> bool:
        """Whether the rank or the ridge is chosen by held-out entries."""
        return "auto" in [value for value in (self.n_components, self.ridge) if isinstance(value, str)]

    def _fitted(
        self, A: Any, rank: int, init: Initialization, limits: dict[str, Any]
    ) -> tuple[Decomposition, FittedRows]:
        """The iterations, and the rows as `transform` finds them; nothing is stored if one of them fails."""
        check_count(self.transform_max_iter, "transform_max_iter")
        names = ("target_error", "tol", "random_state", "n_jobs", "n_starts")
        options: dict[str, Any] = {name: getattr(self, name) for name in names} | limits
        with self._source(A) as source:
            X: Any = source
            d = decompose(X, rank, self._method(), init, progress=bool(self.verbose), **options)
        if d.status is Status.INTERRUPTED:  # Ctrl-C must end a grid search too.
            raise KeyboardInterrupt
        if d.status is Status.READ_FAILED:
            raise FileError(f"X could not be read after iteration {d.n_iter}; the log has the reason.")
        norm = 0.0 if d.fingerprint is None else d.fingerprint.norm
        known = sampled_rows(d.W, d.H)
        W0 = None if len(spread(len(d.W), *d.H.shape)) == len(d.W) else d.W
        checksum = "" if d.fingerprint is None else d.fingerprint.checksum
        found = self._rows(A, d.H, self._row_penalty(norm), InitialRows(known, W0, checksum=checksum))
        self._keep(OnlineState.after(d.H, found.W, found.shares, found.norm), found, d.n_iter)
        self._known = known
        return d, found

    def _keep(self, state: OnlineState, found: FittedRows, n_iter: int) -> None:
        """Store the result of a fit or of a batch."""
        self._online = state
        self._penalty = self._row_penalty(state.norm)
        self.components_ = state.H
        self.n_components_ = len(state.H)
        self.n_samples_seen_ = state.rows
        self.n_iter_ = n_iter
        self.error_ = found.error
        self.reconstruction_err_ = found.error * found.norm
        for name in ("history_", "status_"):
            if hasattr(self, name):
                delattr(self, name)

    def _initial(self, A: Any, shape: tuple[int, int], rank: int) -> Initialization:
        """`init`, or with `warm_start` the last H and the rows for it."""
        H = getattr(self, "components_", None)
        if not self.warm_start or H is None:
            return self.init
        if H.shape[1] != shape[1] or len(H) > rank:
            wanted = rank, shape[1]
            log.info("warm_start ignored: the last components have shape %s, not %s", H.shape, wanted)
            return self.init
        return self._rows(A, H, self._penalty, InitialRows(self._known)).W, H

    def _rows(self, A: Any, H: Array, penalty: float, initial: InitialRows) -> FittedRows:
        steps = check_count(self.transform_max_iter, "transform_max_iter")
        with self._source(A) as source:
            return solve_rows(source, H, penalty, steps, n_jobs=self.n_jobs, initial=initial)

    def _transformed(self, X: Any) -> FittedRows:
        check_is_fitted(self, "components_")
        with self._opened(X, reset=False) as A:
            found = self._rows(A, self.components_, self._penalty, InitialRows(self._known))
        self._warn_of_rows(found)
        return found

    def _latent(self, X: Any, center: Array) -> Array:
        """Return WH for an array X, with a ridge on ‖w − center‖² instead of ‖w‖²; for `LowRankImputer`."""
        H = self.components_
        return np.asarray(self._rows(X, H, self._penalty, InitialRows(self._known, center=center)).W @ H)

    def _method(self) -> Algorithm:
        """The algorithm with the ridge of the estimator."""
        ridge = self.ridge
        if isinstance(ridge, str) and ridge == "auto":
            if not hasattr(self, "selection_"):
                raise InputError("ridge must be a number after a fit without 'auto'; got 'auto'. Use fit again.")
            ridge = self.selection_.ridge
        return check_ridge(check_algorithm(self.algorithm), ridge)

    def _held_out_error(self, X: Any, plan: FoldPlan) -> float:
        """Return the error on entries of X that are held out; for `held_out_score`."""
        steps = check_count(self.transform_max_iter, "transform_max_iter")
        with self._opened(X, reset=False) as A, self._source(A) as source:
            return rows_error(source, plan, self.components_, self._penalty, steps, self._known, self.n_jobs)

    def _row_penalty(self, norm: float) -> float:
        """The weight of ‖w‖² in the objective of a row, given ‖X‖ of all rows."""
        ridge = getattr(self._method(), "ridge", 0.0)
        if ridge and not np.isfinite(norm):
            raise InputError(f"ridge needs a finite ‖X‖ in float64; got {norm}. Divide X by a large number first.")
        return ridge * norm if ridge else 0.0
