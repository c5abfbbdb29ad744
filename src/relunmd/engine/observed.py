"""From what the user says about the entries of X (missing values, mask, weights, limits) to a source that knows it."""

import math
import numbers
import re
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy import sparse

from relunmd._util import library_of
from relunmd.engine.distributed import ClusterSource, is_distributed, open_distributed
from relunmd.engine.matrix import Array, Bundle, CsrSource, Observation, Source, refuse_masked
from relunmd.engine.problem_setup import check_matrix
from relunmd.errors import InputError

UNSTORED = "unstored"
_MATRICES = ("mask", "weights", "lower", "upper")


@dataclass(frozen=True, eq=False)
class EntryOptions:
    """What the user says about the entries of X; see `decompose`."""

    missing_values: Any = None
    mask: Any = None
    weights: Any = None
    lower: Any = None
    upper: Any = None

    @property
    def given(self) -> bool:
        """Whether there is anything."""
        return any(getattr(self, field.name) is not None for field in fields(self))

    def transposed(self, shape: tuple[int, int]) -> "EntryOptions":
        """Return the options of Xᵀ; limits become matrices, which are never formed."""
        limits = (self.lower, self.upper)
        lower, upper = (None if a is None else np.broadcast_to(np.asarray(a, float), shape).T for a in limits)
        return replace(self, lower=lower, upper=upper)


@contextmanager
def opened(X: Any, options: EntryOptions | None = None) -> Iterator[Source]:
    """Context manager: the source of X with what is known of its entries, closed afterwards if it was opened here."""
    source = open_observed(X, EntryOptions() if options is None else options)
    try:
        yield source
    finally:
        if source is not X:
            source.close()


def open_observed(X: Any, options: EntryOptions) -> Source:
    """Return X as a source with an `observation`, wherever it is stored; the caller closes it."""
    masked = isinstance(X, np.ma.MaskedArray)
    if not (masked or options.given):
        return check_matrix(X)
    nan, stored_only = _missing(options.missing_values)
    given = {name: getattr(options, name) for name in _MATRICES if getattr(options, name) is not None}
    if masked:
        hidden = np.ma.getmaskarray(X)
        given["mask"] = hidden if options.mask is None else _either(hidden, options.mask)
        X = X.data
    limits = {name: column_limits(name, given.pop(name)) for name in ("lower", "upper") if _is_small(given.get(name))}
    if stored_only:
        _check_stored_only(X, given)
    if is_distributed(X):
        source: Source = open_distributed(X, beside=given, stored_only=stored_only)
    else:
        source = _beside(_with_missing(X, nan, stored_only), given)
    n = source.shape[1]
    lower, upper = (_row(name, limits.get(name, default), n) for name, default in (("lower", 0.0), ("upper", np.inf)))
    check_order(lower[0], upper[0])
    source.observation = Observation(lower, upper, nan, stored_only, tuple(given))
    return source


def _missing(missing_values: Any) -> tuple[bool, bool]:
    """Return whether NaN is missing, and whether entries that X does not store are."""
    if missing_values is None:
        return False, False
    if isinstance(missing_values, str) and missing_values.lower() == UNSTORED:
        return False, True
    if is_nan(missing_values):
        return True, False
    raise InputError(
        f"missing_values must be None, np.nan or {UNSTORED!r} (a sparse X whose entries that are not stored are "
        f"missing); got {reprlib.repr(missing_values)}. Mark other values by mask."
    )


def is_nan(missing_values: Any) -> bool:
    """Return whether NaN, or pandas.NA, stands for missing values."""
    if library_of(missing_values) == "pandas":
        return type(missing_values).__name__ == "NAType"
    return isinstance(missing_values, numbers.Real) and math.isnan(missing_values)


def _either(hidden: Array, mask: Any) -> Array:
    """Return the union of the mask of a masked array and another mask in memory."""
    found = mask.toarray() if sparse.issparse(mask) else np.asarray(mask)
    if found.shape != hidden.shape:
        raise InputError(f"mask must have the shape of X, {hidden.shape}; got {found.shape}.")
    return np.asarray(hidden | (found != 0))


def _check_stored_only(X: Any, given: dict[str, Any]) -> None:
    others = [name for name in given if name != "weights"]
    if others:
        raise InputError(
            f"{others[0]} must not be a matrix if missing_values={UNSTORED!r}; got {type(given[others[0]]).__name__}. "
            "Remove entries from X instead of masking them; limits are numbers or one for each column."
        )
    if not is_distributed(X) and not (sparse.issparse(X) or isinstance(X, Source)) and not hasattr(X, "attrs"):
        raise InputError(f"missing_values={UNSTORED!r} needs a sparse X; got {type(X).__name__}. Use NaN in an array.")


def _with_missing(X: Any, nan: bool, stored_only: bool) -> Source:
    """Return X alone as a source."""
    pandas = library_of(X) == "pandas" and not hasattr(getattr(X, "sparse", None), "to_coo")
    if nan and pandas and np.asarray(X).dtype == object:  # As with pandas.NA.
        try:
            X = X.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError) as reason:
            raise InputError(f"X must hold real numbers; pandas reports: {reason}.") from reason
    if stored_only and sparse.issparse(X):
        check_matrix(X)
        return CsrSource(X, stored_only=True)
    source = check_matrix(X)
    if stored_only and isinstance(source, ClusterSource):
        raise InputError(f"missing_values={UNSTORED!r} must be given when X is opened on the cluster; got an open X.")
    if stored_only and not source.sparse:
        raise InputError(f"missing_values={UNSTORED!r} needs a sparse X; got a dense one of shape {source.shape}.")
    source.stored_only = stored_only
    return source


def _beside(X: Source, given: dict[str, Any]) -> Source:
    """Return X with the matrices beside it."""
    if isinstance(X, ClusterSource) and given:
        raise InputError(f"{next(iter(given))} must be given when X is opened on the cluster; got an open X.")
    beside = {}
    for name, value in given.items():
        refuse_masked(value, name)
        if is_distributed(value):
            raise InputError(
                f"{name} must not be on Dask if X is not; got {type(value).__name__}. Use {name}.compute()."
            )
        if X.stored_only and not sparse.issparse(value):
            raise InputError(
                f"{name} must be a sparse matrix that stores the entries of X if missing_values={UNSTORED!r}; "
                f"got {type(value).__name__}."
            )
        try:
            beside[name] = CsrSource(value, stored_only=True) if X.stored_only else check_matrix(value)
        except (InputError, ValueError) as reason:
            raise InputError(re.sub(r"\bX\b", name, str(reason), count=1)) from reason
        if beside[name].shape != X.shape:
            raise InputError(f"{name} must have the shape of X, {X.shape}; got {beside[name].shape}.")
    return Bundle(X, beside) if beside else X


def _is_small(limit: Any) -> bool:
    """Return whether a limit is a number or one for each column."""
    if limit is None or sparse.issparse(limit):
        return False
    if not hasattr(limit, "shape"):
        return np.ndim(np.array(limit, dtype=object)) < 2
    return len(limit.shape) < 2 or limit.shape[0] == 1


def column_limits(name: str, limit: Any) -> Array:
    """Return a limit for all columns, or one for each, in shape (1, 1) or (1, n); raise InputError if it is invalid."""
    try:
        found = np.asarray(limit, np.float64).reshape(1, -1)
    except (TypeError, ValueError) as reason:
        what = f"a number, one for each column or a matrix; got {reprlib.repr(limit)}"
        raise InputError(f"{name} must be {what}.") from reason
    wrong = np.isnan(found) | (found < 0) | (np.isinf(found) & (name == "lower"))
    if wrong.any():
        finite = " and finite" if name == "lower" else ""
        raise InputError(f"{name} must be nonnegative{finite}; got {found[wrong][0]}.")
    return found


def check_order(lower: Array, upper: Array) -> None:
    """Raise InputError unless every lower limit is below the upper one."""
    if (lower >= upper).any():
        column = int(np.argmax(lower >= upper))
        got = f"lower {lower[column]:g} and upper {upper[column]:g} in column {column}"
        raise InputError(f"lower must be below upper; got {got}.")


def _row(name: str, limit: Any, n: int) -> Array:
    found = np.asarray(limit, np.float64).reshape(1, -1)
    if found.size not in (1, n):
        raise InputError(f"{name} must be a number, one for each of the {n} columns, or a matrix; got {found.size}.")
    return np.array(np.broadcast_to(found, (1, n)))
