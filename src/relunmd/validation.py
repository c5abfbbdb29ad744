"""Checks at the door: one clear sentence for everything that cannot be used, before any work."""

import logging
import math
import numbers
import os
import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from scipy import sparse

from relunmd import memory
from relunmd._util import library_of
from relunmd.algorithm import ALGORITHMS, AUTO, Algorithm
from relunmd.engine import kernels
from relunmd.engine.distributed import ClusterExecutor, ClusterSource, fetched, is_distributed, open_distributed
from relunmd.engine.executor import Executor, Rows, Sums, ThreadExecutor, usable_cores
from relunmd.engine.matrix import (
    Block,
    CsrSource,
    DenseSource,
    Matrix,
    Source,
    StoredArray,
    StoredCsr,
    is_stored_array,
    is_stored_group,
    power_of_two_scale,
    refuse_masked,
)
from relunmd.engine.problem import Facts, Problem
from relunmd.errors import InputError
from relunmd.init import INITS, GivenInit, Init
from relunmd.io.atomic import check_path
from relunmd.loop.driver import Callback, Limits
from relunmd.result import Decomposition

__all__ = [
    "check_algorithm",
    "check_callback",
    "check_candidates",
    "check_checkpoint",
    "check_components",
    "check_dtype",
    "check_init",
    "check_limits",
    "check_matrix",
    "check_memory",
    "check_penalty",
    "check_random_state",
    "check_rank",
    "check_ridge",
    "check_starts",
    "check_steps",
    "check_threads",
    "executor_for",
    "make_problem",
    "opened",
]

Array = NDArray[Any]
log = logging.getLogger("relunmd")
_OUR_STREAM = (2023,)
_LARGE = 10**9
"""Bytes of arrays like W and H from which on the free memory is checked."""
_WRITTEN = 4
"""Arrays like W and H that a step needs in place of those that a checkpoint is being written from."""
_MOST_THREADS = 64
_TOL = "a number in [0, 1); 0 disables it"


def check_matrix(X: Any) -> Source:
    """X as a two-dimensional matrix of real numbers, wherever it is; who asked closes it.

    Its entries are looked at by `make_problem`.
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
        except ValueError as reason:
            if isinstance(reason, InputError):
                raise
            # SciPy's word for indices that point outside the matrix.
            raise InputError(
                f"X must be a consistent sparse matrix. Got one of which SciPy says: {reason}."
            ) from reason
    try:
        A = np.asarray(X)
    except Exception as reason:
        raise InputError(f"X must be a two-dimensional array. Got {type(X).__name__}: {reason}") from reason
    return _two_dimensional(A, DenseSource)


@contextmanager
def opened(X: Any) -> Iterator[Source]:
    """The same, closed afterwards if it was opened here."""
    source = check_matrix(X)
    try:
        yield source
    finally:
        if source is not X:
            source.close()


def _without_frame(X: Any) -> Any:
    """What a Pandas frame of sparse columns holds, as a sparse matrix; anything else as it is."""
    if library_of(X) != "pandas" or not hasattr(X, "sparse") or not hasattr(X.sparse, "to_coo"):
        return X
    try:
        return X.sparse.to_coo()
    except ValueError as reason:  # What its columns leave out is not zero.
        log.info("The sparse frame X is made dense: %s", reason)
        return X


def _two_dimensional(X: Any, source: Callable[[Any], Source]) -> Source:
    """X as a source, its dtype and number of dimensions having been looked at before anything is made of it."""
    _real(np.dtype(X.dtype))
    if X.ndim != 2:
        raise InputError(f"X must be two-dimensional. Got {X.ndim} dimension(s), shape {tuple(X.shape)}.")
    return _checked(source(X))


def _real(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biuf":
        hint = " Its real part, perhaps?" if dtype.kind == "c" else ""
        raise InputError(f"X must hold real numbers. Got dtype {dtype}.{hint}")


def _checked(source: Source) -> Source:
    if min(source.shape) == 0:
        raise InputError(f"X must not be empty. Got shape {source.shape}.")
    return source


def check_dtype(dtype: Any, X: Any) -> np.dtype[Any]:
    """The float type to compute in: that of X if it is one of ours, float64 for integers."""
    if dtype is None:
        return np.dtype(np.float32 if X.dtype.kind == "f" and X.dtype.itemsize <= 4 else np.float64)
    try:
        wanted: np.dtype[Any] = np.dtype(dtype)
    except TypeError as reason:
        raise InputError(f"dtype must be float32, float64 or None. Got {dtype!r}.") from reason
    if wanted not in (np.float32, np.float64):
        raise InputError(f"dtype must be float32, float64 or None. Got {dtype!r}.")
    return wanted


def check_rank(rank: Any, shape: tuple[int, int]) -> int:
    """The rank as an integer in 1…min(m, n)."""
    most = min(shape)
    if isinstance(rank, bool) or not isinstance(rank, numbers.Integral) or not 1 <= int(rank) <= most:
        raise InputError(
            f"rank must be an integer from 1 to {most}, the smaller side of X {shape[0]} × {shape[1]}. Got "
            f"{reprlib.repr(rank)}."
        )
    return int(rank)


def check_components(H: Any, n_columns: int) -> Array:
    """H as a finite r×n array of floats that has as many columns as X."""
    A = _factor("H", H, "")
    if A.shape[0] == 0 or A.shape[1] != n_columns:
        raise InputError(f"H must have as many columns as X, {n_columns}, and a row. Got shape {A.shape}.")
    return A


def check_candidates(candidates: Any, rank: int) -> Array:
    """Known rows of W as a finite array of k rows and `rank` columns."""
    A = _factor("candidates", candidates, "")
    if A.shape[1] != rank:
        raise InputError(f"candidates must have {rank} columns, one for each row of H. Got shape {A.shape}.")
    return A


def check_penalty(penalty: Any, name: str = "penalty") -> float:
    """A finite number of at least zero."""
    found = _number(name, penalty, "a finite number of at least 0", 0, float(np.finfo(np.float64).max))
    if found is None:
        raise InputError(f"{name} must be a finite number of at least 0. Got None.")
    return found


def check_steps(max_iter: Any, name: str = "max_iter") -> int:
    """A limit on Newton steps."""
    if isinstance(max_iter, bool) or not isinstance(max_iter, numbers.Integral) or int(max_iter) < 1:
        raise InputError(f"{name} must be an integer of at least 1. Got {max_iter!r}.")
    return int(max_iter)


def check_algorithm(algorithm: object) -> Algorithm[Any]:
    """An algorithm's settings from a name or from settings."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if isinstance(algorithm, str):
        name = algorithm.lower()
        name = AUTO if name == "auto" else name
        if name in ALGORITHMS:
            return ALGORITHMS[name]()
    raise InputError(
        f"algorithm must be one of {', '.join(['auto', *ALGORITHMS])}, or a settings object such as "
        f"relunmd.ANMD(beta0=0.9). Got {algorithm!r}."
    )


def check_ridge(method: Algorithm[Any], ridge: Any) -> Algorithm[Any]:
    """The algorithm with a ridge, if one is given."""
    strength = check_penalty(ridge, "ridge")
    own = getattr(method, "ridge", None)
    if strength in (0, own):
        return method
    if own is None:
        able = " and ".join(f'"{name}"' for name, other in ALGORITHMS.items() if hasattr(other, "ridge"))
        raise InputError(f"ridge is for the algorithms {able}. Got ridge={ridge!r} with {method.name!r}.")
    if own != 0:
        raise InputError(f"ridge must be given once. Got ridge={ridge!r}, and {own!r} in {method!r}.")
    return replace(method, ridge=strength)  # type: ignore[call-arg]


def check_init(
    init: object, algorithm: Algorithm[Any], shape: tuple[int, int], rank: int, on_cluster: bool = False
) -> Init:
    """An initialization's settings from a name, settings, a pair of factors or an earlier result.

    If X is not on a cluster, factors on Dask are fetched.
    """
    if isinstance(init, Init):
        return init
    if isinstance(init, str):
        name = algorithm.default_init if init.lower() == "auto" else init.lower()
        if name in INITS:
            return INITS[name]()
    if isinstance(init, Decomposition):
        return _given(init.W, init.H, shape, rank, on_cluster)
    if isinstance(init, tuple | list) and len(init) == 2:
        return _given(init[0], init[1], shape, rank, on_cluster)
    raise InputError(
        f"init must be one of {', '.join(INITS)}, a settings object such as relunmd.NuclearInit(steps=5), "
        f"a pair (W0, H0) or a Decomposition. Got {reprlib.repr(init)}."
    )


def _given(W: Any, H: object, shape: tuple[int, int], rank: int, on_cluster: bool) -> GivenInit:
    if is_distributed(W) and (getattr(W, "ndim", 0) != 2 or np.dtype(W.dtype).kind not in "biuf"):
        raise InputError(
            "W0 of init must be a two-dimensional array of real numbers, NumPy's or Dask's. Got "
            f"{'a list of parts on Dask' if isinstance(W, list | tuple) else reprlib.repr(W)}."
        )
    W0: Any = W if is_distributed(W) and on_cluster else _factor("W0", fetched(W) if is_distributed(W) else W)
    H0 = _factor("H0", H)
    k = W0.shape[1]
    if W0.shape[0] != shape[0] or H0.shape != (k, shape[1]) or not 1 <= k <= rank:
        raise InputError(
            f"init must have W0 of shape ({shape[0]}, k) and H0 of shape (k, {shape[1]}) with 1 ≤ k ≤ rank = {rank}. "
            f"Got {W0.shape} and {H0.shape}."
        )
    return GivenInit(W0, H0)


def _factor(name: str, factor: object, of: str = " of init") -> Array:
    refuse_masked(factor, f"{name}{of}")
    try:
        A = np.asarray(factor)
    except Exception as reason:
        raise InputError(f"{name}{of} must be a two-dimensional array: {reason}") from reason
    if A.dtype.kind not in "biuf" or A.ndim != 2:
        raise InputError(f"{name}{of} must be a two-dimensional real array. Got dtype {A.dtype}, shape {A.shape}.")
    if not np.isfinite(A).all():
        raise InputError(f"{name}{of} must be finite. Got {(~np.isfinite(A)).sum()} entries that are not.")
    return A


def check_callback(callback: Any) -> list[Callback]:
    """The callback in a list, or an empty list."""
    if callback is not None and not callable(callback):
        raise InputError(f"callback must be a function of one argument, or None. Got {callback!r}.")
    return [] if callback is None else [callback]


def check_limits(target_error: Any, tol: Any, max_iter: Any, max_time: Any, endless: bool = False) -> Limits:
    """The stops, checked one by one and against each other; `endless` allows to have none."""
    target = _number("target_error", target_error, "a number from 0 to 1, or None", 0, 1)
    fraction = _number("tol", tol, _TOL, 0, 1)
    seconds = _number("max_time", max_time, "a positive number of seconds, or None", 0, math.inf)
    if fraction is None or fraction == 1:
        raise InputError(f"tol must be {_TOL}. Got {tol!r}.")
    if seconds == 0:
        raise InputError(f"max_time must be a positive number of seconds, or None. Got {max_time!r}.")
    whole = isinstance(max_iter, numbers.Integral) and not isinstance(max_iter, bool)
    if max_iter is not None and not (whole and max_iter >= 0):
        raise InputError(f"max_iter must be an integer of at least 0, or None. Got {max_iter!r}.")
    if target is None and fraction == 0 and max_iter is None and seconds is None and not endless:
        raise InputError(
            "Nothing would ever stop the run: give target_error, tol, max_iter, max_time or a callback. "
            "Got target_error=None, tol=0, max_iter=None, max_time=None."
        )
    return Limits(target, fraction, None if max_iter is None else int(max_iter), seconds)


def _number(name: str, value: Any, what: str, least: float, most: float) -> float | None:
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, numbers.Real) else float(value)
    except OverflowError:  # An integer beyond the floats.
        number = math.nan
    if not least <= number <= most:
        raise InputError(f"{name} must be {what}. Got {reprlib.repr(value)}.")
    return number


def check_random_state(random_state: Any) -> np.random.Generator:
    """A generator from None, an integer, a Generator or a RandomState."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, size=4))
    whole = isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool)
    if random_state is None or (whole and random_state >= 0):
        # A stream of our own: default_rng(0) may well be what the user made X with, and a start
        # drawn from the same numbers would then be the answer.
        return np.random.default_rng(np.random.SeedSequence(random_state, spawn_key=_OUR_STREAM))
    raise InputError(
        f"random_state must be None, an integer of at least 0, a numpy Generator or RandomState. Got {random_state!r}."
    )


def check_threads(n_jobs: Any) -> int:
    """The number of threads as scikit-learn counts jobs.

    None is 1, or what `joblib.parallel_config` says; −1 is all cores that this process may use, −2 all but one, and so
    on. More threads than blocks would have nothing to do.
    """
    if n_jobs is None:
        n_jobs = get_active_backend()[1]
        n_jobs = 1 if n_jobs is None else n_jobs
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, numbers.Integral) or int(n_jobs) == 0:
        raise InputError(f"n_jobs must be an integer other than 0, or None; -1 uses all cores. Got {n_jobs!r}.")
    cores = usable_cores()
    return max(1, cores + 1 + int(n_jobs)) if int(n_jobs) < 0 else min(int(n_jobs), max(cores, _MOST_THREADS))


def check_starts(n_starts: Any) -> int:
    """The number of starts as an integer of at least one."""
    if isinstance(n_starts, bool) or not isinstance(n_starts, numbers.Integral) or int(n_starts) < 1:
        raise InputError(f"n_starts must be an integer of at least 1. Got {n_starts!r}.")
    return int(n_starts)


def check_checkpoint(checkpoint: Any, every: Any) -> tuple[Path, float] | None:
    """The file of a run, in a folder that is there, and how often it is written; None for none."""
    seconds = _number("checkpoint_every", every, "a number of seconds of at least 0", 0, math.inf)
    if seconds is None:
        raise InputError("checkpoint_every must be a number of seconds of at least 0. Got None.")
    if checkpoint is None:
        return None
    place = check_path("checkpoint", checkpoint)
    if not place.parent.is_dir() or place.is_dir():
        raise InputError(f"checkpoint must be a file in a folder that is there. Got {place}.")
    if not os.access(place.parent, os.W_OK):
        raise InputError(f"checkpoint must be in a folder that can be written to. Got {place}.")
    return place, seconds


def check_memory(
    X: Source,
    dtype: np.dtype[Any],
    rank: int,
    algorithm: Algorithm[Any],
    init: Init,
    n_starts: int = 1,
    checkpoint: bool = False,
) -> None:
    """Refuse what would not fit, before anything is allocated; where X takes less than they would, say so."""
    if isinstance(X, ClusterSource):
        _check_frugal(algorithm, init)
        return
    m, n = X.shape
    factors = n_starts * rank * (m + n) * algorithm.bytes_per_entry(dtype.itemsize)
    if checkpoint:  # Arrays that are being written cannot be reused.
        factors += n_starts * rank * (m + n) * _WRITTEN * dtype.itemsize
    if factors > _LARGE:
        memory.require(
            factors,
            f"algorithm={algorithm.name!r} for X of {m} × {n} at rank {rank}, with all its arrays like W and H,",
            "Lower the rank"
            + (f", or n_starts={reprlib.repr(n_starts)}" if n_starts > 1 else "")
            + (", or the algorithm's memory." if hasattr(algorithm, "memory") else "."),
        )
    kept = algorithm.dense_arrays * n_starts
    if checkpoint:  # What is being written cannot be written over.
        kept += (algorithm.dense_arrays + 1) // 2 * n_starts
    arrays = max(kept, init.dense_arrays)
    if arrays == 0:
        return
    if init.dense_arrays > kept:
        who, others = f"init={init.name!r}", INITS
    else:
        who, others = f"algorithm={algorithm.name!r}", ALGORITHMS  # type: ignore[assignment]
    kind = "starts" if others is INITS else "algorithms"
    frugal = ", ".join(name for name, other in others.items() if other.dense_arrays == 0)
    what = f"{who}, which keeps {arrays} array{'s' if arrays > 1 else ''} of the size of X ({m} × {n}, {dtype}),"
    memory.require(
        arrays * m * n * dtype.itemsize,
        what,
        f"These {kind} keep no such array: {frugal}.",
        warn=X.sparse or not X.in_memory,
    )


def _check_frugal(algorithm: Algorithm[Any], init: Init) -> None:
    """On a cluster nothing of the size of X is kept."""
    for what, chosen, known in (("algorithm", algorithm, ALGORITHMS), ("init", init, INITS)):
        if chosen.dense_arrays:
            frugal = ", ".join(name for name, other in known.items() if other.dense_arrays == 0)
            raise InputError(f"{what} must be one of {frugal} where X is on Dask. Got {chosen.name!r}.")


def executor_for(X: Source, dtype: np.dtype[Any], n_threads: int) -> Executor:
    """What runs passes over X where it is, its kernels compiled."""
    needed = {dtype, wide_type(X, dtype)}
    if isinstance(X, ClusterSource):
        return ClusterExecutor(X, sorted(needed, key=str))
    for float_type in needed:
        kernels.warm_up(float_type)
    return ThreadExecutor(n_threads)


def wide_type(X: Any, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float type that entries are checked in: that of the computation if X has it, else float64."""
    return dtype if X.dtype.newbyteorder("=") == dtype else np.dtype(np.float64)


def make_problem(X: Source, dtype: np.dtype[Any], rank: int, executor: Executor, zeros_alone: bool = False) -> Problem:
    """Look at every entry: refuse what is not finite or negative, and find the scale; two passes.

    X may be all zero if `zeros_alone`: a few rows of something larger may be.
    """
    raw = Matrix(X, wide_type(X, dtype))
    _, sums = executor.run(raw, _scan_block)
    if sums["not_finite"]:
        place = _first(raw, executor, negative=False)
        raise InputError(
            f"X must be finite{_in_float64(X)}. Got NaN or infinity in {_entries(sums['not_finite'])}, the first at "
            f"{place}."
        )
    if sums["negative"]:
        place = _first(raw, executor, negative=True)
        raise InputError(
            f"X must be nonnegative: max(0, WH) cannot represent a negative entry. Got a negative value in "
            f"{_entries(sums['negative'])}, the first at {place}. If it is rounding, "
            f"{'X.maximum(0)' if X.sparse else 'np.maximum(X, 0)'} mends it."
        )
    largest = max(sums["largest"])
    if largest == 0 and not zeros_alone:
        raise InputError(
            f"X must have a positive entry{_in_float64(X)}. Got a matrix of zeros, which W = 0, H = 0 fits exactly."
        )
    limits = np.finfo(dtype)
    converted = X.dtype.newbyteorder("=") != dtype
    if converted and largest > 0 and not float(limits.tiny) <= largest <= float(limits.max):
        raise InputError(f"dtype={dtype} cannot hold X, whose largest entry is {largest:.3g}. Use dtype='float64'.")
    matrix = Matrix(X, dtype, power_of_two_scale(largest, raw.dtype) if largest > 0 else 1.0)
    checksum = f"{int(sums['checksum'][0]):016x}"
    _, sums = executor.run(matrix, _moments_block)
    X.validated()
    facts = Facts(sums["total"], sums["squares"], int(sums["positives"]), checksum)
    return Problem(matrix, rank, facts, executor)


def _in_float64(X: Source) -> str:
    """What to add to a message on entries that are converted to a narrower type."""
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
    """Where the first wrong entry is, and what it is; rows from left to right."""
    wide = Matrix(raw.source, np.dtype(np.float64))
    places = executor.run(wide, _first_block, negative=negative)[1]["places"]
    if not places:
        raise RuntimeError("No wrong entry was found a second time: X changed while it was looked at.")
    row, column, value = min(places)
    return f"row {row}, column {column} ({value if wide.source.dtype.kind == 'f' else int(value)})"


def _first_block(x: Block, rows: Rows, out: Rows, *, negative: bool) -> Sums:
    for tile in x.tiles():
        wrong = np.argwhere(tile.X < 0 if negative else ~np.isfinite(tile.X))
        if len(wrong):
            i, j = wrong[0].tolist()
            return {"places": [(x.rows.start + tile.rows.start + i, j, float(tile.X[i, j]))]}
    return {"places": []}
