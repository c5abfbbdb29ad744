"""From X as the user has it to a problem: open X, choose the executor, check every entry, find the scale."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse

from relunmd._util import library_of
from relunmd.engine import kernels
from relunmd.engine.distributed import ClusterExecutor, ClusterSource, is_distributed, open_distributed
from relunmd.engine.executor import Executor, Rows, Sums, ThreadExecutor
from relunmd.engine.matrix import Block, CsrSource, DenseSource, Matrix, Source, power_of_two_scale, refuse_masked
from relunmd.engine.matrix.stored import StoredArray, StoredCsr, is_stored_array, is_stored_group
from relunmd.engine.problem import Facts, Problem
from relunmd.errors import InputError

log = logging.getLogger("relunmd")


def check_matrix(X: Any) -> Source:
    """Return X as a source of real rows and columns, wherever it is stored; the caller closes it.

    `make_problem` checks its entries.
    """
    if isinstance(X, Source):
        return X
    if is_distributed(X):
        return open_distributed(X)
    refuse_masked(X)
    if is_stored_group(X):
        stored = StoredCsr(X)
        _real(stored.dtype)
        return _checked(stored)
    if is_stored_array(X):
        return _two_dimensional(X, StoredArray)
    X = _without_frame(X)
    if sparse.issparse(X):
        try:
            return _two_dimensional(X, CsrSource)
        except InputError:
            raise
        except ValueError as reason:
            raise InputError(f"X must be a consistent sparse matrix; SciPy reports: {reason}.") from reason
    try:
        A = np.asarray(X)
    except Exception as reason:
        raise InputError(f"X must be a two-dimensional array; got {type(X).__name__}: {reason}") from reason
    return _two_dimensional(A, DenseSource)


@contextmanager
def opened(X: Any) -> Iterator[Source]:
    """Context manager: the source of X, closed afterwards if it was opened here."""
    source = check_matrix(X)
    try:
        yield source
    finally:
        if source is not X:
            source.close()


def _without_frame(X: Any) -> Any:
    """Return a pandas frame of sparse columns as a sparse matrix, anything else unchanged."""
    if library_of(X) != "pandas" or not hasattr(X, "sparse") or not hasattr(X.sparse, "to_coo"):
        return X
    try:
        return X.sparse.to_coo()
    except ValueError as reason:  # The fill value is not zero.
        log.info("The sparse frame X is converted to dense: %s", reason)
        return X


def _two_dimensional(X: Any, source: Callable[[Any], Source]) -> Source:
    """Return X as a source, after checking its dtype and number of dimensions."""
    _real(np.dtype(X.dtype))
    if X.ndim != 2:
        raise InputError(f"X must be two-dimensional; got {X.ndim} dimension(s), shape {tuple(X.shape)}.")
    return _checked(source(X))


def _real(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biuf":
        hint = " Pass its real part." if dtype.kind == "c" else ""
        raise InputError(f"X must hold real numbers; got dtype {dtype}.{hint}")


def _checked(source: Source) -> Source:
    if min(source.shape) == 0:
        raise InputError(f"X must not be empty; got shape {source.shape}.")
    return source


def executor_for(X: Source, dtype: np.dtype[Any], n_threads: int) -> Executor:
    """Return the executor for passes over X, with compiled kernels."""
    needed = {dtype, wide_type(X, dtype)}
    if isinstance(X, ClusterSource):
        return ClusterExecutor(X, sorted(needed, key=str))
    for float_type in needed:
        kernels.warm_up(float_type)
    return ThreadExecutor(n_threads)


def wide_type(X: Any, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float type in which entries are checked: that of the computation if X has it, else float64."""
    return dtype if X.dtype.newbyteorder("=") == dtype else np.dtype(np.float64)


def make_problem(X: Source, dtype: np.dtype[Any], rank: int, executor: Executor, zeros_alone: bool = False) -> Problem:
    """Check that every entry is finite and nonnegative, and find the scale; two passes.

    X may be all zero if `zeros_alone`, as a batch of rows may be.
    """
    raw = Matrix(X, wide_type(X, dtype))
    _, sums = executor.run(raw, _scan_block)
    if sums["not_finite"]:
        place = _first(raw, executor, negative=False)
        entries = _entries(sums["not_finite"])
        raise InputError(f"X must be finite{_in_float64(X)}; got NaN or infinity in {entries}, the first at {place}.")
    if sums["negative"]:
        place = _first(raw, executor, negative=True)
        raise InputError(
            f"X must be nonnegative: max(0, WH) cannot represent a negative entry; got a negative value in "
            f"{_entries(sums['negative'])}, the first at {place}. If these are rounding errors, use "
            f"{'X.maximum(0)' if X.sparse else 'np.maximum(X, 0)'}."
        )
    largest = max(sums["largest"])
    if largest == 0 and not zeros_alone:
        raise InputError(f"X must have a positive entry{_in_float64(X)}; got zeros, which W = 0, H = 0 fits exactly.")
    limits, converted = np.finfo(dtype), X.dtype.newbyteorder("=") != dtype
    if converted and largest > 0 and not float(limits.tiny) <= largest <= float(limits.max):
        raise InputError(f"dtype={dtype} cannot hold X, whose largest entry is {largest:.3g}. Use dtype='float64'.")
    matrix = Matrix(X, dtype, power_of_two_scale(largest, raw.dtype) if largest > 0 else 1.0)
    checksum = f"{int(sums['checksum'][0]):016x}"
    _, sums = executor.run(matrix, _moments_block)
    X.validated()
    facts = Facts(sums["total"], sums["squares"], int(sums["positives"]), checksum)
    return Problem(matrix, rank, facts, executor)


def _in_float64(X: Source) -> str:
    """Text for messages about entries that are converted to a narrower type."""
    wide = X.dtype.kind == "f" and X.dtype.itemsize > 8
    return f" in float64, which {X.dtype} is converted to" if wide else ""


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _scan_block(x: Block, rows: Rows, out: Rows) -> Sums:
    largest, not_finite, negative, checksum = 0.0, 0, 0, np.zeros(1, np.uint64)
    for at in x.strips:
        for tile in x.across(at):
            with np.errstate(over="ignore"):  # Sums modulo 2⁶⁴, where numba is turned off.
                found = kernels.scan(tile.X, x.rows.start + at.start, tile.columns.start, x.n_columns)
            largest = max(largest, float(found[0]))
            not_finite, negative = not_finite + found[1], negative + found[2]
            checksum += np.uint64(found[3])
    return {"largest": [largest], "not_finite": not_finite, "negative": negative, "checksum": checksum}


def _moments_block(x: Block, rows: Rows, out: Rows) -> Sums:
    totals = np.zeros(3)
    for at in x.strips:
        for tile in x.across(at):
            totals += kernels.entry_moments(tile.X, tile.scale)
    return dict(zip(("total", "squares", "positives"), totals.tolist(), strict=True))


def _first(raw: Matrix, executor: Executor, negative: bool) -> str:
    """Describe the first invalid entry, row by row."""
    wide = Matrix(raw.source, np.dtype(np.float64))
    places = executor.run(wide, _first_block, negative=negative)[1]["places"]
    if not places:
        raise RuntimeError("No invalid entry was found a second time: X changed while it was read.")
    row, column, value = min(places)
    return f"row {row}, column {column} ({value if wide.source.dtype.kind == 'f' else int(value)})"


def _first_block(x: Block, rows: Rows, out: Rows, *, negative: bool) -> Sums:
    for tile in x.tiles():
        wrong = np.argwhere(tile.X < 0 if negative else ~np.isfinite(tile.X))
        if len(wrong):
            i, j = wrong[0].tolist()
            return {"places": [(x.rows.start + tile.rows.start + i, j, float(tile.X[i, j]))]}
    return {"places": []}
