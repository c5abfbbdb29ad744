"""ReLUNMD: scikit-learn's contract on top of `decompose` and `fit_rows`.

A fit ends with the row solve that `transform` does, with W of the iterations among its initial values: its objective is
never above that of the iterations, and unless there are very many rows `fit_transform(X)` is the same as
`fit(X).transform(X)`.
"""

# Keep annotations as written, so that help() shows them and not NumPy's unions.
from __future__ import annotations

import logging
import numbers
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from relunmd.algorithm import Algorithm
from relunmd.algorithm.online import OnlineState
from relunmd.api import Seed, Start, decompose
from relunmd.engine.distributed import is_distributed
from relunmd.engine.matrix import is_stored_array, is_stored_group, refuse_masked
from relunmd.engine.row_newton import spread
from relunmd.errors import FileError, InputError
from relunmd.new_rows import FittedRows, learn_rows, sampled_rows, solve_rows
from relunmd.result import Decomposition, Status
from relunmd.validation import (
    check_algorithm,
    check_limits,
    check_matrix,
    check_ridge,
    check_steps,
    check_threads,
    opened,
)

__all__ = ["ReLUNMD"]

Array = NDArray[Any]
log = logging.getLogger("relunmd")

_FIRST_BATCH = 50
"""Iterations on the first batch of `partial_fit`.

20 left MNIST 3 % worse after a pass than 1000, and 200 left kos 4 % worse than 20.
"""


class ReLUNMD(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """ReLU nonlinear matrix decomposition, X ≈ max(0, WH), as a scikit-learn transformer.

    H is `components_`; `transform` finds the W of any rows. Where TruncatedSVD and NMF have to spend components on
    making zeros come out as zeros, here any negative number will do: at equal rank sparse nonnegative X is represented
    far better.

    Parameters
    ----------
    n_components : int, default=2
        The rank, from 1 to min(n_samples, n_features).
    algorithm : str or settings object, default="auto"
        A name of `relunmd.algorithms()`, or for example ``relunmd.QuasiNewton(memory=20)``.
    init : str, settings object, pair (W0, H0) or Decomposition, default="auto"
        Where to start from; see `relunmd.inits()`.
    tol : float, default=1e-4
        Stop once the error has fallen by less than this fraction over 10 iterations; 0 turns it off.
    max_iter : int or None, default=1000
        Most iterations.
    max_time : float or None, default=None
        Most seconds for the iterations and the start; the row solve at the end is not cut short.
    target_error : float or None, default=None
        Stop once the relative error is at most this.
    ridge : float, default=0.0
        Adds ridge·‖X‖·(‖W‖² + ‖H‖²) to the squared error, for "qn" and "3b-factored"; in `transform` ridge·‖X‖·‖w‖² for
        each row, ‖X‖ being that of all rows it was fitted to. What comes back is the best error seen, so that much more
        than 0.01 is of little use.
    transform_max_iter : int, default=100
        Most Newton steps for a row in `transform`; some ten are enough as a rule.
    random_state : int, RandomState, Generator or None, default=None
        The same integer gives the same bits, whatever `n_jobs` is.
    n_jobs : int or None, default=None
        Number of threads; −1 for all cores, −2 for all but one. None is 1, or what `joblib.parallel_config` says.
    n_starts : int, default=1
        How many starts to race; see `decompose`.
    warm_start : bool, default=False
        Whether `fit` begins with the components of the last fit, filled up if there are to be more.
    verbose : bool or int, default=0
        Whether to show a line of progress on the terminal.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        H, strongest component first after `fit`.
    n_components_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X has names of strings for all features.
    n_iter_ : int
        Iterations of the fit, and one more for each further batch; of the first batch of `partial_fit` 1.
    reconstruction_err_ : float
        Frobenius norm ‖X − max(0, WH)‖ of the training data, W being what `fit_transform` returns.
    error_ : float
        The same relative to ‖X‖. (After `partial_fit` both are of the last batch, before it was learnt from.)
    history_ : History
        The course of the fit: iteration, time, error, passes. Not after `partial_fit`.
    status_ : Status
        Why the fit ended. Not after `partial_fit`.
    n_samples_seen_ : int
        Rows that were learnt from.

    Notes
    -----
    Memory of `fit`: that of `decompose`, nothing of the size of X for "qn". `transform` makes one pass over X, and two
    that validate it, and keeps nothing of its size; it takes about 1 ms for a row of 784 features at 32 components on
    two cores. A stored array (HDF5, Zarr) or a memory map is never loaded as a whole.

    The row problems of `transform` have local minima. A model therefore keeps W of some thousand training rows as
    initial values: at least of 2048, or 256 where X has more than 8192 features. With no more rows than it keeps,
    `fit_transform(X)` and `fit(X).transform(X)` are the same; with more, W of a fit may be better than what `transform`
    finds. It is never worse than that of the iterations, in the error or, with a ridge, in the penalized error.

    Ctrl-C raises KeyboardInterrupt, so that it also ends a grid search.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from relunmd import ReLUNMD
    >>> X = load_digits().data
    >>> model = ReLUNMD(n_components=16, random_state=0)
    >>> W = model.fit_transform(X)
    >>> W.shape, model.components_.shape, model.error_ < 0.16
    ((1797, 16), (16, 64), True)
    >>> model.inverse_transform(model.transform(X[:3])).shape
    (3, 64)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        algorithm: str | Algorithm[Any] = "auto",
        init: Start = "auto",
        tol: float = 1e-4,
        max_iter: int | None = 1000,
        max_time: float | None = None,
        target_error: float | None = None,
        ridge: float = 0.0,
        transform_max_iter: int = 100,
        random_state: Seed = None,
        n_jobs: int | None = None,
        n_starts: int = 1,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.algorithm = algorithm
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.target_error = target_error
        self.ridge = ridge
        self.transform_max_iter = transform_max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.n_starts = n_starts
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find H for X.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features)
            Nonnegative: an array, a frame, a sparse matrix, a memory map, an HDF5 or Zarr array, or a Dask array in
            chunks of rows (then W of `fit_transform` and `transform` is one too). Never changed.
        y : ignored

        Returns
        -------
        self
        """
        self._fit(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Find H for X, and return W: as ``fit(X).transform(X)``, without the second row solve.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        return self._fit(X).W

    def transform(self, X: Any) -> Array:
        """The rows W with the least ‖X − max(0, W·components_)‖, each found on its own.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        return self._transformed(X).W

    def inverse_transform(self, X: Any) -> Array:
        """max(0, W·components_).

        Parameters
        ----------
        X : array of shape (n_samples, n_components)
            W, as `transform` returns it.

        Returns
        -------
        ndarray of shape (n_samples, n_features); that is also the memory it takes. Of a Dask array one that is not
        computed yet.
        """
        check_is_fitted(self, "components_")
        on_dask = is_distributed(X)
        if on_dask and isinstance(X, list | tuple):
            raise InputError("inverse_transform takes W as an array, NumPy's or Dask's. Got a list of parts on Dask.")
        W = X if on_dask else check_array(X, accept_sparse=True, dtype=[np.float64, np.float32], input_name="X")
        if W.ndim != 2 or W.shape[1] != self.n_components_:
            raise InputError(f"X must have {self.n_components_} columns, one for each component. Got shape {W.shape}.")
        if on_dask:
            later: Array = np.maximum(W @ self.components_, 0)
            return later
        Theta: Array = np.asarray(W @ self.components_)
        np.maximum(Theta, 0, out=Theta)
        return Theta

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the relative error ‖X − max(0, WH)‖ / ‖X‖ with W = transform(X): greater is better, 0 is exact.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float from −1 to 0
        """
        return -self._transformed(X).error

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from some more rows, without keeping them.

        The first batch is fitted as `fit` would, for at most 50 iterations; each further one is one Newton step for H
        (`relunmd.algorithm.online`). Several passes over the data, in any order, improve it further. After `fit` it
        goes on from there.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            The first must have at least n_components rows; some hundred at a time are well spent.
        y : ignored

        Returns
        -------
        self

        Notes
        -----
        Memory: as much as the batch again, and a few arrays like H.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from relunmd import ReLUNMD
        >>> X = load_digits().data
        >>> model = ReLUNMD(n_components=16, random_state=0)
        >>> for start in range(0, 1797, 300):
        ...     model = model.partial_fit(X[start : start + 300])
        >>> model.n_iter_, model.n_samples_seen_, model.score(X) > -0.2
        (6, 1797, True)
        """
        fitted = hasattr(self, "components_")
        if is_stored_group(X) or is_distributed(X):
            what = "X on Dask" if is_distributed(X) else "a group of stored arrays"
            raise InputError(f"partial_fit takes rows in memory. Got {what}; slice it into batches.")
        A = self._validated(X[...] if is_stored_array(X) else X, reset=not fitted)
        ridge = self._ridge()
        if not fitted:
            self._first_batch(A)
            return self
        if self.n_components != self.n_components_:
            raise InputError(
                f"n_components must stay what it was in the first fit, {self.n_components_}. "
                f"Got {self.n_components!r}; to begin anew, use fit or a clone."
            )
        state, found = learn_rows(
            A,
            self._online,
            ridge=ridge,
            max_iter=check_steps(self.transform_max_iter, "transform_max_iter"),
            dtype=self.components_.dtype,
            n_threads=check_threads(self.n_jobs),
            known=self._known,
        )
        self._keep(state, found, self.n_iter_ + 1)
        self._known: Array = sampled_rows(np.vstack([self._known, found.W]), self.components_)
        self._warn_of_rows(found)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def _fit(self, X: Any) -> FittedRows:
        with self._opened(X, reset=True) as A:
            shape = _shape(A)
            self._check_rank(shape)
            d, found = self._fitted(A, self._start(A, shape), self.max_iter)
        self.history_ = d.history
        self.status_ = d.status
        self._warn_of_the_end(d, found)
        self._warn_of_rows(found)
        return found

    def _first_batch(self, A: Any) -> None:
        self._check_rank(A.shape)
        limits = check_limits(self.target_error, self.tol, self.max_iter, self.max_time)
        most = _FIRST_BATCH if limits.max_iter is None else min(limits.max_iter, _FIRST_BATCH)
        _, found = self._fitted(A, self.init, most)
        self.n_iter_ = 1
        self._warn_of_rows(found)

    def _fitted(self, A: Any, init: Start, max_iter: int | None) -> tuple[Decomposition, FittedRows]:
        """The iterations, and the rows as `transform` would find them; nothing is kept if one of them fails."""
        check_steps(self.transform_max_iter, "transform_max_iter")
        d = self._decomposed(A, init, max_iter)
        if d.status is Status.INTERRUPTED:  # A grid search must end with the fit that Ctrl-C ended.
            raise KeyboardInterrupt
        if d.status is Status.READ_FAILED:
            raise FileError(f"X could not be read after iteration {d.n_iter}; the log has the reason.")
        norm = 0.0 if d.fingerprint is None else d.fingerprint.norm
        known = sampled_rows(d.W, d.H)
        W0 = None if len(spread(len(d.W), *d.H.shape)) == len(d.W) else d.W
        checksum = "" if d.fingerprint is None else d.fingerprint.checksum
        found = self._rows(A, d.H, self._row_penalty(norm), known, W0, checksum)
        self._keep(OnlineState.after(d.H, found.W, found.shares, found.norm), found, d.n_iter)
        self._known = known
        return d, found

    def _keep(self, state: OnlineState, found: FittedRows, n_iter: int) -> None:
        """What a fit, or one more batch, has led to."""
        self._online = state
        self._penalty = self._row_penalty(state.norm)
        self.components_ = state.H
        self.n_components_ = len(state.H)
        self.n_samples_seen_ = state.rows
        self.n_iter_ = n_iter
        self.error_ = found.error
        self.reconstruction_err_ = found.error * found.norm
        for name in ("history_", "status_"):  # Those of an earlier fit.
            if hasattr(self, name):
                delattr(self, name)

    def _decomposed(self, A: Any, init: Start, max_iter: int | None) -> Decomposition:
        return decompose(
            A,
            self.n_components,
            self._method(),
            init,
            target_error=self.target_error,
            tol=self.tol,
            max_iter=max_iter,
            max_time=self.max_time,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
            n_starts=self.n_starts,
            progress=bool(self.verbose),
        )

    def _start(self, A: Any, shape: tuple[int, int]) -> Start:
        """`init`, or with `warm_start` what the last fit found, with the rows that fit to it."""
        H = getattr(self, "components_", None)
        if not self.warm_start or H is None:
            return self.init
        if H.shape[1] != shape[1] or len(H) > self.n_components:
            wanted = self.n_components, shape[1]
            log.info("warm_start: the components are %s and are to be %s; starting anew", H.shape, wanted)
            return self.init
        return self._rows(A, H, self._penalty, self._known).W, H

    def _rows(self, A: Any, H: Array, penalty: float, known: Array, W0: Any = None, checksum: str = "") -> FittedRows:
        steps = check_steps(self.transform_max_iter, "transform_max_iter")
        with opened(A) as source:
            return solve_rows(source, H, penalty, steps, n_jobs=self.n_jobs, known=known, W0=W0, checksum=checksum)

    def _transformed(self, X: Any) -> FittedRows:
        check_is_fitted(self, "components_")
        with self._opened(X, reset=False) as A:
            found = self._rows(A, self.components_, self._penalty, self._known)
        self._warn_of_rows(found)
        return found

    def _warn_of_the_end(self, d: Decomposition, found: FittedRows) -> None:
        if d.status is Status.FAILED:
            warnings.warn(d.message, RuntimeWarning, stacklevel=4)
        exact = found.error <= 100 * np.finfo(d.H.dtype).eps
        if d.status in (Status.MAX_ITER, Status.MAX_TIME) and self.tol > 0 and not exact:
            limit = d.status.name.lower()
            warnings.warn(
                f"The fit was ended by {limit}={getattr(self, limit)} before the error, now {found.error:.6g}, stopped "
                f"improving. Increase {limit}, or tol (now {self.tol}); tol=0 says that the limit is what you want.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _warn_of_rows(self, found: FittedRows) -> None:
        if found.limited:
            warnings.warn(
                f"{found.limited} of {len(found.W)} rows had not converged after transform_max_iter="
                f"{self.transform_max_iter} Newton steps. Give it more.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _method(self) -> Algorithm[Any]:
        """The algorithm, with the estimator's ridge."""
        return check_ridge(check_algorithm(self.algorithm), self.ridge)

    def _ridge(self) -> float:
        return float(getattr(self._method(), "ridge", 0.0))

    def _row_penalty(self, norm: float) -> float:
        """The weight of ‖w‖² beside the squared error of a row, given ‖X‖ of all rows."""
        ridge = self._ridge()
        if ridge and not np.isfinite(norm):
            raise InputError(f"ridge needs a finite ‖X‖ in float64. Got {norm}; divide X by a large number first.")
        return ridge * norm if ridge else 0.0

    def _check_rank(self, shape: tuple[int, int]) -> None:
        rank, most = self.n_components, min(shape)
        if isinstance(rank, bool) or not isinstance(rank, numbers.Integral) or not 1 <= int(rank) <= most:
            raise InputError(
                f"n_components must be an integer from 1 to {most}, the smaller of n_samples and n_features. Got "
                f"n_components={rank!r} with n_samples={shape[0]}, n_features={shape[1]}."
            )

    @contextmanager
    def _opened(self, X: Any, reset: bool) -> Iterator[Any]:
        """X validated; on a cluster it is opened once for all that is to be done with it."""
        if not is_distributed(X):
            yield self._validated(X, reset)
            return
        with opened(X) as source:
            self._check_features(source.shape[1], reset)
            yield source

    def _check_features(self, n_features: int, reset: bool) -> None:
        if reset:
            self.n_features_in_ = n_features
            if hasattr(self, "feature_names_in_"):  # Those of an earlier fit.
                del self.feature_names_in_
        elif n_features != self.n_features_in_:
            raise InputError(
                f"X must have the {self.n_features_in_} features that {type(self).__name__} was fitted with. "
                f"Got {n_features}."
            )

    def _validated(self, X: Any, reset: bool) -> Any:
        """X as scikit-learn checks it, in its own dtype; what is stored elsewhere is not loaded for that."""
        refuse_masked(X)
        if is_stored_array(X) or is_stored_group(X):
            self._check_features(check_matrix(X).shape[1], reset)
            return X
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_non_negative=True)


def _shape(A: Any) -> tuple[int, int]:
    """The shape of what was validated; a stored group has none of its own."""
    shape: tuple[int, int] = A.shape if hasattr(A, "shape") else check_matrix(A).shape
    return shape
