"""ReLUNMD: scikit-learn's contract on top of `decompose` and `fit_rows`.

A fit ends with the row solve of `transform`, with W of the iterations among its initial values: its objective is never
above that of the iterations, and unless there are very many rows `fit_transform(X)` equals `fit(X).transform(X)`.
"""

# Keep annotations as written, so that help() shows them and not NumPy's unions.
from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, check_is_fitted

from relunmd.algorithm import Algorithm
from relunmd.api import Initialization, Seed
from relunmd.arguments import check_count, check_threads
from relunmd.engine.distributed import is_distributed
from relunmd.engine.matrix import is_stored_array, is_stored_group
from relunmd.errors import InputError
from relunmd.estimator_fit import FittedTransformer
from relunmd.new_rows import learn_rows, sampled_rows

Array = NDArray[Any]


class ReLUNMD(FittedTransformer):
    """Decompose X ≈ max(0, WH) as a scikit-learn transformer.

    H is `components_`; `transform` finds W for any rows. TruncatedSVD and NMF spend components on reproducing zeros;
    here any negative entry of WH reproduces a zero, so at equal rank sparse nonnegative X is represented far better.

    Parameters
    ----------
    n_components : int or "auto", default=2
        The rank, between 1 and min(n_samples, n_features). "auto" chooses it by `select_rank` in `fit`, which takes
        some ten times as long.
    algorithm : str, Algorithm or callable, default="auto"
        A name of `relunmd.algorithms()`, or an algorithm such as ``relunmd.QuasiNewton(memory=20)``; see `decompose`.
    init : str, Init, tuple (W0, H0) or Decomposition, default="auto"
        The initialization; see `relunmd.inits()`.
    tol : float, default=1e-3
        Stop when the error has decreased by less than this fraction over 10 iterations, or ten steps where "qn" makes
        several an iteration; 0 disables it.
    max_iter : int or None, default=1000
        Maximum number of iterations.
    max_time : float or None, default=None
        Maximum number of seconds for initialization and iterations; the row solve at the end is not cut short.
    target_error : float or None, default=None
        Stop when the relative error is at most this.
    ridge : float or "auto", default=0.0
        Adds ridge·‖X‖·(‖W‖² + ‖H‖²) to the squared error, for "qn" and "3b-factored"; in `transform` ridge·‖X‖·‖w‖² for
        each row, with ‖X‖ of the training data. "auto" chooses it by `select_rank` in `fit`, with the rank if that is
        "auto" too.
    missing_values : {None, np.nan, "unstored"}, default=None
        Which entries are missing, here and in new rows: none, those that are NaN, or those that a sparse X does not
        store. Errors and scores are then those of the other entries.
    lower : float or array-like of shape (n_features,), optional
        Limits of detection: of an entry up to its limit only that is known. See `decompose`.
    upper : float or array-like of shape (n_features,), optional
        Ceilings: of an entry from its limit on only that is known.
    transform_max_iter : int, default=100
        Maximum number of Newton steps for a row in `transform`; about ten are usually enough.
    random_state : int, RandomState, Generator or None, default=None
        The same integer gives the same bits, whatever `n_jobs` is.
    n_jobs : int or None, default=None
        Number of threads; −1 for all cores, −2 for all but one. None is 1 unless `joblib.parallel_config` sets it.
    n_starts : int, default=1
        Number of initializations to race; see `decompose`.
    warm_start : bool, default=False
        Whether `fit` starts from the components of the last fit, extended if `n_components` is larger.
    verbose : bool or int, default=0
        Whether to show progress.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        H, strongest component first after `fit`.
    n_components_ : int
        Number of components.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if all of them are strings.
    n_iter_ : int
        Iterations of the fit, plus one for each further batch; 1 after the first batch of `partial_fit`.
    reconstruction_err_ : float
        Frobenius norm ‖X − max(0, WH)‖ of the training data, with W as `fit_transform` returns it.
    error_ : float
        The same relative to ‖X‖. (After `partial_fit` both are of the last batch, before the update of H.)
    history_ : History
        Iteration, time, error and passes of the fit. Not after `partial_fit`.
    status_ : Status
        Why the fit ended. Not after `partial_fit`.
    n_samples_seen_ : int
        Number of rows used so far.
    selection_ : RankSelection
        How the rank and the ridge were chosen, if one of them is "auto".

    See Also
    --------
    decompose : The function behind `fit`, with checkpoints and callbacks.
    fit_rows : The function behind `transform`.

    Notes
    -----
    Memory of `fit`: that of `decompose`, nothing of the size of X for "qn". `transform` makes one pass over X, and two
    that validate it, and keeps nothing of its size; it takes about 0.6 ms for a row of 784 features at 32 components on
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
        n_components: int | str = 2,
        *,
        algorithm: str | Algorithm = "auto",
        init: Initialization = "auto",
        tol: float = 1e-3,
        max_iter: int | None = 1000,
        max_time: float | None = None,
        target_error: float | None = None,
        ridge: float | str = 0.0,
        missing_values: float | str | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
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
        self.missing_values = missing_values
        self.lower = lower
        self.upper = upper
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
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Nonnegative: an array, a frame, a sparse matrix, a memory map, an HDF5 or Zarr array, or a Dask array in
            chunks of rows (then W of `fit_transform` and `transform` is one too). Never changed.
        y : None
            Ignored.

        Returns
        -------
        ReLUNMD
            The fitted estimator.

        Examples
        --------
        >>> import relunmd
        >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
        >>> model = relunmd.ReLUNMD(n_components=4, random_state=0).fit(X)
        >>> model.components_.shape, model.error_ < 0.01
        ((4, 40), True)
        """
        self._fit(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Find H for X and return W, as ``fit(X).transform(X)`` without the second row solve.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data, as for `fit`.
        y : None
            Ignored.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            The factor W.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
        >>> model = relunmd.ReLUNMD(n_components=4, random_state=0)
        >>> W = model.fit_transform(X)
        >>> bool(np.allclose(W, model.transform(X), atol=1e-3))
        True
        """
        return self._fit(X).W

    def transform(self, X: Any) -> Array:
        """Find W that minimizes ‖X − max(0, WH)‖ with H = ``components_``, each row on its own.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows with the features of the training data.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            The factor W.

        Examples
        --------
        >>> import relunmd
        >>> X = relunmd.datasets.synthetic(80, 40, 4, random_state=0)
        >>> model = relunmd.ReLUNMD(n_components=4, random_state=0).fit(X[:60])
        >>> model.transform(X[60:]).shape
        (20, 4)
        """
        return self._transformed(X).W

    def inverse_transform(self, X: Any) -> Array:
        """Return max(0, WH) with H = ``components_``.

        Parameters
        ----------
        X : array of shape (n_samples, n_components)
            W, as `transform` returns it.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The approximation of the data. For a Dask array W, a Dask array that is not computed yet.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
        >>> model = relunmd.ReLUNMD(n_components=4, random_state=0)
        >>> W = model.fit_transform(X)
        >>> bool(np.linalg.norm(X - model.inverse_transform(W)) < 0.01 * np.linalg.norm(X))
        True
        """
        check_is_fitted(self, "components_")
        on_dask = is_distributed(X)
        if on_dask and isinstance(X, list | tuple):
            raise InputError("inverse_transform needs W as a NumPy or Dask array; got a list of parts on Dask.")
        W = X if on_dask else check_array(X, accept_sparse=True, dtype=[np.float64, np.float32], input_name="X")
        if W.ndim != 2 or W.shape[1] != self.n_components_:
            raise InputError(f"X must have {self.n_components_} columns, one for each component; got shape {W.shape}.")
        if on_dask:
            later: Array = np.maximum(W @ self.components_, 0)
            return later
        Theta: Array = np.asarray(W @ self.components_)
        np.maximum(Theta, 0, out=Theta)
        return Theta

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the relative error ‖X − max(0, WH)‖ / ‖X‖ with W = transform(X).

        W is fitted to the very entries that are scored, so the score never prefers a smaller rank or a ridge: it
        measures compression. To choose the rank use `select_rank` or the scorer `held_out_score`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows with the features of the training data.
        y : None
            Ignored.

        Returns
        -------
        float
            Between −1 and 0; greater is better.

        Examples
        --------
        >>> import relunmd
        >>> X = relunmd.datasets.synthetic(80, 40, 4, random_state=0)
        >>> model = relunmd.ReLUNMD(n_components=4, random_state=0).fit(X[:60])
        >>> -0.01 < model.score(X[60:]) <= 0
        True
        """
        return -self._transformed(X).error

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Update H with a batch of rows, without keeping them.

        The first batch is fitted as in `fit`, for at most 50 iterations; each further one is one Newton step for H
        (`relunmd.algorithm.online`). Several passes over the data, in any order, improve it further. After `fit` it
        continues from the fitted H.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            The first batch must have at least n_components rows; some hundred rows are a good size.
        y : None
            Ignored.

        Returns
        -------
        ReLUNMD
            The estimator itself.

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
            raise InputError(f"partial_fit needs rows in memory; got {what}. Slice it into batches.")
        A = self._validated(X[...] if is_stored_array(X) else X, reset=not fitted)
        if not fitted:
            self._first_batch(A)
            return self
        ridge = getattr(self._method(), "ridge", 0.0)
        if self.n_components not in ("auto", self.n_components_):
            raise InputError(f"n_components must stay {self.n_components_}; got {self.n_components!r}. Use fit again.")
        state, found = learn_rows(
            A,
            self._online,
            ridge=ridge,
            max_iter=check_count(self.transform_max_iter, "transform_max_iter"),
            dtype=self.components_.dtype,
            n_threads=check_threads(self.n_jobs),
            known=self._known,
            options=self._entry_options(),
        )
        self._keep(state, found, self.n_iter_ + 1)
        self._known = sampled_rows(np.vstack([self._known, found.W]), self.components_)
        self._warn_of_rows(found)
        return self
