"""LowRankImputer: missing values and values beyond a limit of detection, predicted by a decomposition."""

# Keep annotations as written, so that help() shows them and not NumPy's unions.
from __future__ import annotations

import math
import numbers
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.impute import MissingIndicator
from sklearn.utils.validation import check_is_fitted, validate_data

from relunmd.algorithm import Algorithm
from relunmd.api import Initialization, Seed
from relunmd.arguments import check_algorithm, check_count
from relunmd.engine import kernels
from relunmd.engine.matrix.source import read_only, refuse_masked
from relunmd.engine.observed import check_order, column_limits, is_nan
from relunmd.errors import InputError
from relunmd.estimator import ReLUNMD

Array = NDArray[Any]
_RIDGE = 3e-3
"""Between 1e-3, the best for MNIST-500 at 16 components (by 2 %), and 1e-2, the best for digits (by 12 %)."""


class LowRankImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Replace missing values, and values beyond a limit of detection, by what max(0, WH) predicts.

    Measured values are returned as they are. A missing value becomes the entry of max(0, WH); of a value that is only
    known to be below `lower` or above `upper`, the result is the mean of a normal distribution around WH, restricted to
    what is known: a value between 0 and `lower`, or from `upper` on.

    Parameters
    ----------
    n_components : int, default=5
        The rank; less if X has fewer rows or columns. More components need more measured values.
    missing_values : int, float or pandas.NA, default=np.nan
        What stands for a missing value.
    lower : float or array-like of shape (n_features,), optional
        Limits of detection, 0 for none. What X has instead of a value below the limit does not matter, as long as it is
        not above it: 0, half of the limit, or the limit itself. If NaN stands for such values, replace it by 0 first.
    upper : float or array-like of shape (n_features,), optional
        Ceilings, infinity for none.
    ridge : float or None, default=None
        See `ReLUNMD`. Without a ridge, rows with few measured values are fitted too closely. None is 3e-3 for
        algorithms that have a ridge.
    algorithm : str or Algorithm, default="auto"
        See `decompose`: "qn", "3b-factored" or "em".
    init : str, Init, tuple (W0, H0) or Decomposition, default="auto"
        The initialization.
    tol : float, default=1e-4
        Stop when the error has decreased by less than this fraction over 10 iterations.
    max_iter : int or None, default=1000
        Maximum number of iterations.
    random_state : int, RandomState, Generator or None, default=None
        The same integer gives the same bits.
    n_jobs : int or None, default=None
        Number of threads.
    keep_empty_features : bool, default=False
        Whether features without a measured value are kept, and filled with 0; otherwise they are removed.
    add_indicator : bool, default=False
        Whether to append the columns of a `sklearn.impute.MissingIndicator`.

    Attributes
    ----------
    model_ : ReLUNMD
        The fitted decomposition; None if no measured value is positive, and all predictions are 0.
    noise_ : float
        Standard deviation σ of the measured values around WH: that of the "em" algorithm, else estimated from the
        residuals of `fit`.
    n_iter_ : int
        Number of iterations of the fit.
    indicator_ : MissingIndicator or None
        Indicator of missing values, if `add_indicator`.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if all of them are strings.

    See Also
    --------
    ReLUNMD : The transformer that finds W, which also supports missing values.
    decompose : The function behind it.

    Notes
    -----
    Memory: X three times. X must be nonnegative: take logarithms, or subtract the smallest value of each column first.

    Examples
    --------
    >>> import numpy as np
    >>> from relunmd import LowRankImputer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((40, 2)) @ rng.random((2, 20))
    >>> holes = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    >>> filled = LowRankImputer(n_components=2, ridge=0, random_state=0).fit_transform(holes)
    >>> bool(np.abs(filled - X).max() < 1e-3)
    True
    """

    def __init__(
        self,
        n_components: int = 5,
        *,
        missing_values: Any = np.nan,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        ridge: float | None = None,
        algorithm: str | Algorithm = "auto",
        init: Initialization = "auto",
        tol: float = 1e-4,
        max_iter: int | None = 1000,
        random_state: Seed = None,
        n_jobs: int | None = None,
        keep_empty_features: bool = False,
        add_indicator: bool = False,
    ) -> None:
        self.n_components = n_components
        self.missing_values = missing_values
        self.lower = lower
        self.upper = upper
        self.ridge = ridge
        self.algorithm = algorithm
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find H for the measured values of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Nonnegative, with missing values.
        y : None
            Ignored.

        Returns
        -------
        LowRankImputer
            The fitted imputer.

        Examples
        --------
        >>> import numpy as np
        >>> from relunmd import LowRankImputer
        >>> LowRankImputer().fit([[1.0, np.nan], [3.0, 4.0]]).model_.components_.shape
        (2, 2)
        """
        A, missing = self._checked(X, reset=True)
        self.indicator_ = None
        if self.add_indicator:
            self.indicator_ = MissingIndicator(error_on_new=False).fit(A)
        self._kept: Array = np.asarray(~missing.all(axis=0))
        A = A[:, self._kept]
        lower, upper = self._limits(A.dtype)
        self.model_: ReLUNMD | None = None
        self.noise_, self.n_iter_ = 0.0, 1
        measured = (lower < A) & (upper > A)
        if measured.any():
            self._fit_model(A, measured)
        return self

    def _fit_model(self, A: Array, measured: Array) -> None:
        method = check_algorithm(self.algorithm)
        ridge = (_RIDGE if hasattr(method, "ridge") else 0.0) if self.ridge is None else self.ridge
        rank = min(check_count(self.n_components, "n_components"), *A.shape)
        names = ("init", "tol", "max_iter", "random_state", "n_jobs")
        options = {name: getattr(self, name) for name in names} | {"algorithm": method, "ridge": ridge}
        lower, upper = self._limits(A.dtype)
        model = ReLUNMD(rank, missing_values=np.nan, lower=lower, upper=upper, **options)
        W = model.fit_transform(A)
        # Rows of which little is known are close to the mean of the others.
        self._center = np.average(W.astype(np.float64), axis=0, weights=measured.sum(axis=1))
        residuals = (A - np.maximum(W @ model.components_, 0))[measured].astype(np.float64)
        # As many degrees of freedom as W and H have are lost, but never more than half.
        count = max(len(residuals) - rank * sum(A.shape), len(residuals) / 2)
        unit = float(np.abs(residuals).max()) or 1.0  # Squares of very large or small numbers overflow or vanish.
        noise = unit * math.sqrt(float(np.sum(np.square(residuals / unit))) / count)
        if "sigma2" in model.history_.columns:
            noise = math.sqrt(float(model.history_.sigma2[-1]))
        self.model_, self.noise_, self.n_iter_ = model, noise, model.n_iter_

    def transform(self, X: Any) -> Array:
        """Replace the missing and the limited values of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows seen in `fit`, or others.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            X with predictions. Features without a value in `fit` are removed, unless `keep_empty_features`; the columns
            of the indicator follow.

        Examples
        --------
        >>> import numpy as np
        >>> from relunmd import LowRankImputer
        >>> imputer = LowRankImputer(n_components=1, ridge=0).fit([[1.0, 2.0], [3.0, 6.0]])
        >>> imputer.transform([[2.0, np.nan]]).round(3)
        array([[2., 4.]])
        """
        A, _ = self._checked(X, reset=False)
        filled = self._imputed(A)[0]
        return filled if self.indicator_ is None else np.hstack([filled, self.indicator_.transform(A)])

    def standard_error(self, X: Any) -> Array:
        """Return the standard error of each value that `transform` returns, given W and H.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As for `transform`.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            0 for a measured value, `noise_` for a missing one, and less for a limited one: the standard deviation of a
            normal distribution within the limits. The uncertainty of W and H is not part of it.

        Examples
        --------
        >>> import numpy as np
        >>> from relunmd import LowRankImputer
        >>> X = np.random.default_rng(0).random((30, 5)) + 1
        >>> X[0, 0] = np.nan
        >>> imputer = LowRankImputer(n_components=1).fit(X)
        >>> error = imputer.standard_error(X)
        >>> bool(error[0, 0] == imputer.noise_), bool(error[1, 1] == 0)
        (True, True)
        """
        A, _ = self._checked(X, reset=False)
        return self._imputed(A)[1]

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the features of the output.

        Parameters
        ----------
        input_features : array-like of str, optional
            By default the names seen in `fit`, or x0, x1 and so on.

        Returns
        -------
        ndarray of str
            The names, with those of the indicator at the end.

        Examples
        --------
        >>> import numpy as np
        >>> from relunmd import LowRankImputer
        >>> LowRankImputer().fit([[1.0, np.nan], [3.0, np.nan]]).get_feature_names_out()
        array(['x0'], dtype=object)
        """
        check_is_fitted(self, "noise_")
        names = super().get_feature_names_out(input_features)
        kept = names if self.keep_empty_features else names[self._kept]
        return kept if self.indicator_ is None else np.hstack([kept, self.indicator_.get_feature_names_out(names)])

    def _imputed(self, A: Array) -> tuple[Array, Array]:
        """The features of the output, and their standard errors."""
        X, (lower, upper) = A[:, self._kept], self._limits(A.dtype)
        Theta = np.zeros_like(X) if self.model_ is None else self.model_._latent(X, self._center)
        missing, below, above = np.isnan(X), (lower >= X) & (lower > 0), upper <= X
        filled, error = np.where(missing, np.maximum(Theta, 0), X), np.where(missing, self.noise_, 0).astype(X.dtype)
        for where, limits in ((below, (0.0, lower)), (above, (upper, np.inf))):
            lo, hi = (np.broadcast_to(limit, X.shape)[where].astype(X.dtype) for limit in limits)
            filled[where], error[where] = self._within(Theta[where], lo, hi)
        if not self.keep_empty_features:
            return filled, error
        wide = np.zeros((2, *A.shape), X.dtype)
        wide[:, :, self._kept] = filled, error
        return wide[0], wide[1]

    def _within(self, Theta: Array, lo: Array, hi: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of normal numbers around Θ that lie between limits."""
        if self.noise_ == 0:
            return np.clip(Theta, lo, hi), np.zeros_like(Theta)
        kernels.warm_up(Theta.dtype)
        mean, deviation = np.ascontiguousarray(Theta), np.empty_like(Theta)
        sigma = np.full(len(mean), self.noise_, Theta.dtype)
        kernels.truncated_normal(read_only(lo), read_only(hi), read_only(sigma), mean, deviation)
        return mean, deviation

    def _limits(self, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """The limits of the features that are kept, in the float type of X, in which values are compared with them."""
        n, found = len(self._kept), []
        for name, default in (("lower", 0.0), ("upper", np.inf)):
            given = getattr(self, name)
            limit = column_limits(name, default if given is None else given)
            if limit.size not in (1, n):
                raise InputError(f"{name} must be a number or one for each of the {n} features; got {limit.size}.")
            found.append(np.broadcast_to(limit.ravel(), (n,))[self._kept].astype(dtype))
        check_order(*found)
        return found[0], found[1]

    @property
    def _nan_is_missing(self) -> bool:
        return is_nan(self.missing_values)

    def _checked(self, X: Any, reset: bool) -> tuple[Array, Array]:
        """X as an array with NaN for missing values, and where these are."""
        nan = self._nan_is_missing
        if not nan and not isinstance(self.missing_values, numbers.Real):
            raise InputError(f"missing_values must be a number, np.nan or pandas.NA; got {self.missing_values!r}.")
        if not reset:
            check_is_fitted(self, "noise_")
        refuse_masked(X)
        finite = "allow-nan" if nan else True
        A = validate_data(self, X, reset=reset, dtype=(np.float64, np.float32), ensure_all_finite=finite, copy=True)
        missing = np.isnan(A) if nan else self.missing_values == A
        A[missing] = np.nan
        if (A < 0).any():
            raise InputError(
                f"Negative values in data passed to {type(self).__name__}: max(0, WH) cannot represent them; got "
                f"{int((A < 0).sum())}. Subtract the smallest value of each column, or take exponentials, first."
            )
        return A, missing

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.allow_nan = self._nan_is_missing
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
