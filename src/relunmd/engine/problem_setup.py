"""From X as the user has it to a problem: open X, choose the executor, check every entry, find the scale."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from relunmd._util import library_of
from relunmd.engine import kernels
from relunmd.engine.distributed import ClusterExecutor, ClusterSource, is_distributed, open_distributed
from relunmd.engine.entry_checks import known_moments, scan
from relunmd.engine.executor import Executor, Rows, Sums, ThreadExecutor
from relunmd.engine.kernels import Held
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


def executor_for(X: Source, dtype: np.dtype[Any], n_threads: int, mixed: bool = False) -> Executor:
    """Return the executor for passes over X, with compiled kernels."""
    needed = {dtype, wide_type(X, dtype)} | ({np.dtype(np.float32)} if mixed else set())
    if isinstance(X, ClusterSource):
        return ClusterExecutor(X, sorted(needed, key=str))
    for float_type in needed:
        kernels.warm_up(float_type)
    return ThreadExecutor(n_threads)


def wide_type(X: Any, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float type in which entries are checked: that of the computation if X has it, else float64."""
    if X.observation is not None and X.observation.beside:  # Weights may be of any size.
        return np.dtype(np.float64)
    return dtype if X.dtype.newbyteorder("=") == dtype else np.dtype(np.float64)


def make_problem(X: Source, dtype: np.dtype[Any], rank: int, executor: Executor, zeros_alone: bool = False) -> Problem:
    """Check that every entry is finite and nonnegative, and find the scale; two passes.

    X may be all zero if `zeros_alone`, as a batch of rows may be.
    """
    raw = Matrix(X, wide_type(X, dtype), 1.0, X.observation)
    found = scan(raw, executor)
    if found.infinite or found.nan:
        place = _first(raw, executor, negative=False)
        entries = _entries(found.infinite + found.nan)
        hint = " Use missing_values=np.nan if NaN stands for missing values." if found.nan else ""
        raise InputError(
            f"X must be finite{_in_float64(X)}; got NaN or infinity in {entries}, the first at {place}.{hint}"
        )
    if found.negative:
        place = _first(raw, executor, negative=True)
        raise InputError(
            f"X must be nonnegative: max(0, WH) cannot represent a negative entry; got a negative value in "
            f"{_entries(found.negative)}, the first at {place}. If these are rounding errors, use "
            f"{'X.maximum(0)' if X.sparse else 'np.maximum(X, 0)'}."
        )
    limits, converted, largest = np.finfo(dtype), X.dtype.newbyteorder("=") != dtype, found.largest
    if largest == 0 and not zeros_alone:
        raise InputError(
            f"X must have a positive entry{' that is not missing' if found.missing else ''}{_in_float64(X)}; "
            "got zeros, which W = 0, H = 0 fits exactly."
        )
    if converted and largest > 0 and not float(limits.tiny) <= largest <= float(limits.max):
        raise InputError(f"dtype={dtype} cannot hold X, whose largest entry is {largest:.3g}. Use dtype='float64'.")
    scale = power_of_two_scale(largest, raw.dtype) if largest > 0 else 1.0
    known = found.observation
    matrix = Matrix(X.reduced(() if known is None else known.beside), dtype, scale, known)
    facts = _facts(matrix, executor, f"{found.checksum:016x}")
    X.validated()
    if facts.squares == 0 and not zeros_alone:
        raise InputError("X must have an entry above its limits lower; got none: W = 0, H = 0 fits X exactly.")
    return Problem(matrix, rank, facts, executor)


def held_out_problem(problem: Problem, held: Held) -> Problem:
    """Return the problem in which the entries of `held` are missing; one pass."""
    known = problem.matrix.with_observation().observation
    matrix = replace(problem.matrix, observation=replace(known, held=held))  # type: ignore[type-var]
    return replace(problem, matrix=matrix, facts=_facts(matrix, problem.executor, problem.facts.checksum))


def _facts(matrix: Matrix, executor: Executor, checksum: str) -> Facts:
    if matrix.observation is None:
        _, sums = executor.run(matrix, _moments_block)
        means, missing = None, 0
    else:
        sums = known_moments(matrix, executor)
        means, missing = sums["means"], matrix.shape[0] * matrix.shape[1] - int(sums["known"])
    return Facts(sums["total"], sums["squares"], int(sums["positives"]), checksum, missing, means)


def _in_float64(X: Source) -> str:
    """Text for messages about entries that are converted to a narrower type."""
    wide = X.dtype.kind == "f" and X.dtype.itemsize > 8
    return f" in float64, which {X.dtype} is converted to" if wide else ""


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _moments_block(x: Block, rows: Rows, out: Rows) -> Sums:
    totals = np.zeros(3)
    for at in x.strips:
        for tile in x.across(at):
            totals += kernels.entry_moments(tile.X, tile.scale)
    return dict(zip(("total", "squares", "positives"), totals.tolist(), strict=True))


def _first(raw: Matrix, executor: Executor, negative: bool) -> str:
    """Describe the first invalid entry, row by row."""
    wide = Matrix(raw.source, np.dtype(np.float64), 1.0, raw.observation)
    places = executor.run(wide, _first_block, negative=negative)[1]["places"]
    if not places:
        raise RuntimeError("No invalid entry was found a second time: X changed while it was read.")
    row, column, value = min(places)
    return f"row {row}, column {column} ({value if wide.source.dtype.kind == 'f' else int(value)})"


def _first_block(x: Block, rows: Rows, out: Rows, *, negative: bool) -> Sums:
    nan_is_missing = x.matrix.observation is not None and x.matrix.observation.nan
    if x.matrix.stored_only:
        return _first_stored(x, negative)
    for tile in x.tiles():
        known = tile.known
        wrong = tile.X < 0 if negative else ~np.isfinite(tile.X)
        wrong &= ~(np.isnan(tile.X) & nan_is_missing)
        if known is not None:
            for hidden in (known.mask != 0, known.weights == 0):
                wrong &= ~hidden if len(hidden) else True
        if wrong.any():
            i, j = np.argwhere(wrong)[0].tolist()
            return {"places": [(x.rows.start + tile.rows.start + i, j, float(tile.X[i, j]))]}
    return {"places": []}


def _first_stored(x: Block, negative: bool) -> Sums:
    for at in x.strips:
        stored = x.whole(at).stored()
        values, columns, starts = stored.rows
        wrong = values < 0 if negative else ~np.isfinite(values)
        wrong &= stored.weights > 0 if len(stored.weights) else True
        if wrong.any():
            k = int(np.argmax(wrong))
            row = x.rows.start + at.start + int(np.searchsorted(starts, k, side="right")) - 1
            return {"places": [(row, int(columns[k]), float(values[k]))]}
    return {"places": []}
