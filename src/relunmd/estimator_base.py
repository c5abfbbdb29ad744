"""What ReLUNMD has from scikit-learn's contract: validation of X, tags, warnings."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from relunmd.engine.distributed import is_distributed
from relunmd.engine.matrix import is_stored_array, is_stored_group, refuse_masked
from relunmd.engine.observed import EntryOptions, is_nan, opened
from relunmd.engine.problem_setup import check_matrix
from relunmd.errors import InputError
from relunmd.history import Status
from relunmd.new_rows import FittedRows
from relunmd.result import Decomposition


class MatrixTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn transformer of nonnegative matrices, wherever they are stored."""

    n_components: int | str
    n_components_: int
    n_features_in_: int
    transform_max_iter: int
    tol: float
    missing_values: Any
    lower: Any
    upper: Any

    def _entry_options(self) -> EntryOptions:
        return EntryOptions(self.missing_values, lower=self.lower, upper=self.upper)

    @property
    def _nan_is_missing(self) -> bool:
        return is_nan(self.missing_values)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._nan_is_missing
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def _check_rank(self, shape: tuple[int, int]) -> None:
        rank, most = self.n_components, min(shape)
        if isinstance(rank, str) and rank == "auto":
            return
        if isinstance(rank, bool) or not isinstance(rank, numbers.Integral) or not 1 <= int(rank) <= most:
            raise InputError(
                f"n_components must be 'auto' or an integer between 1 and min(n_samples, n_features) = {most}; got "
                f"n_components={rank!r} with n_samples={shape[0]}, n_features={shape[1]}."
            )

    @contextmanager
    def _opened(self, X: Any, reset: bool) -> Iterator[Any]:
        """Context manager: X after validation; on a cluster it is opened only once."""
        if not is_distributed(X):
            yield self._validated(X, reset)
            return
        with opened(X, self._entry_options()) as source:
            self._check_features(source.shape[1], reset)
            yield source

    def _check_features(self, n_features: int, reset: bool) -> None:
        if reset:
            self.n_features_in_ = n_features
            if hasattr(self, "feature_names_in_"):  # Those of an earlier fit.
                del self.feature_names_in_
        elif n_features != self.n_features_in_:
            raise InputError(
                f"X must have the {self.n_features_in_} features that {type(self).__name__} was fitted with; "
                f"got {n_features}."
            )

    def _validated(self, X: Any, reset: bool) -> Any:
        """Return X as scikit-learn checks it, in its own dtype; stored arrays are not loaded."""
        refuse_masked(X)
        if is_stored_array(X) or is_stored_group(X):
            self._check_features(check_matrix(X).shape[1], reset)
            return X
        finite = "allow-nan" if self._nan_is_missing else True
        checks = {"accept_sparse": "csr", "dtype": "numeric", "ensure_non_negative": True, "ensure_all_finite": finite}
        return validate_data(self, X, reset=reset, **checks)

    def _warn_of_the_end(self, d: Decomposition, found: FittedRows) -> None:
        if d.status is Status.FAILED:
            warnings.warn(d.message, RuntimeWarning, stacklevel=4)
        exact = found.error <= 100 * np.finfo(d.H.dtype).eps
        if d.status in (Status.MAX_ITER, Status.MAX_TIME) and self.tol > 0 and not exact:
            limit = d.status.name.lower()
            warnings.warn(
                f"The fit was ended by {limit}={getattr(self, limit)} before the error, now {found.error:.6g}, stopped "
                f"improving. Increase {limit} or tol (now {self.tol}); with tol=0 there is no such warning.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _warn_of_rows(self, found: FittedRows) -> None:
        if found.limited:
            warnings.warn(
                f"{found.limited} of {len(found.W)} rows had not converged after transform_max_iter="
                f"{self.transform_max_iter} Newton steps. Increase transform_max_iter.",
                ConvergenceWarning,
                stacklevel=4,
            )


def shape_of(A: Any) -> tuple[int, int]:
    """The shape of X after validation; a stored group has no attribute `shape`."""
    shape: tuple[int, int] = A.shape if hasattr(A, "shape") else check_matrix(A).shape
    return shape
