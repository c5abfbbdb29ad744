"""Checks of arguments: one clear message for everything that cannot be used, before any work."""

import math
import numbers
import os
import reprlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import NDArray

from relunmd.algorithm import ALGORITHMS, AUTO, Algorithm, GeneratorAlgorithm
from relunmd.engine.blas_threads import usable_cores
from relunmd.engine.distributed import fetched, is_distributed
from relunmd.engine.matrix import Source, refuse_masked
from relunmd.engine.problem import Problem
from relunmd.errors import InputError
from relunmd.init import INITS, GivenInit, Init
from relunmd.io.atomic import check_path
from relunmd.loop.callback import Callback
from relunmd.loop.criteria import Limits
from relunmd.result import Decomposition

Array = NDArray[Any]
_OUR_STREAM = (2023,)
_MOST_THREADS = 64
_LEAST_MIXED = 2**20
"""Entries of X from which passes in float32 pay: on 500×784 they save a fifth, most of the time is Python's."""
_TOL = "a number in [0, 1); 0 disables it"


def check_dtype(dtype: Any, X: Any) -> np.dtype[Any]:
    """Return the float type of the computation: by default that of X, float64 for integers."""
    if dtype is None:
        return np.dtype(np.float32 if X.dtype.kind == "f" and X.dtype.itemsize <= 4 else np.float64)
    try:
        wanted: np.dtype[Any] = np.dtype(dtype)
    except TypeError as reason:
        raise InputError(f"dtype must be float32, float64 or None; got {dtype!r}.") from reason
    if wanted not in (np.float32, np.float64):
        raise InputError(f"dtype must be float32, float64 or None; got {dtype!r}.")
    return wanted


def is_mixed(dtype: Any, X: Source, algorithm: Algorithm) -> bool:
    """Return whether a run in float64 may compute in float32 as long as that suffices.

    That takes no weights, which may be of any size, and an X for which a pass takes longer than Python around it.
    """
    weighted = X.observation is not None and "weights" in X.observation.beside
    wanted = dtype is None and check_dtype(None, X) == np.float64 and "single" in algorithm.keeps
    return wanted and not weighted and X.shape[0] * X.shape[1] >= _LEAST_MIXED


def check_rank(rank: Any, shape: tuple[int, int], name: str = "rank") -> int:
    """Return the rank as an integer in 1…min(m, n)."""
    most = min(shape)
    if not _is_integer(rank) or not 1 <= int(rank) <= most:
        what = "an integer" if name == "rank" else "integers"
        raise InputError(f"{name} must be {what} between 1 and min(m, n) = {most}; got {reprlib.repr(rank)}.")
    return int(rank)


def check_components(H: Any, n_columns: int) -> Array:
    """Return H as a finite array of shape (r, n), n being the number of columns of X."""
    A = _factor("H", H, "")
    if A.shape[0] == 0 or A.shape[1] != n_columns:
        raise InputError(f"H must have at least one row and as many columns as X, {n_columns}; got shape {A.shape}.")
    return A


def check_candidates(candidates: Any, rank: int) -> Array:
    """Return known rows of W as a finite array of shape (k, rank)."""
    A = _factor("candidates", candidates, "")
    if A.shape[1] != rank:
        raise InputError(f"candidates must have {rank} columns, one for each row of H; got shape {A.shape}.")
    return A


def check_penalty(penalty: Any, name: str = "penalty") -> float:
    """Return a finite number of at least 0."""
    found = _number(name, penalty, "a finite number of at least 0", 0, float(np.finfo(np.float64).max))
    if found is None:
        raise InputError(f"{name} must be a finite number of at least 0; got None.")
    return found


def check_share(value: Any, name: str) -> float:
    """Return a number above 0 and at most 0.5."""
    what = "a number above 0 and at most 0.5"
    found = _number(name, value, what, 0, 0.5)
    if not found:
        raise InputError(f"{name} must be {what}; got {value!r}.")
    return found


def check_count(value: Any, name: str) -> int:
    """Return an integer of at least 1."""
    if not _is_integer(value) or int(value) < 1:
        raise InputError(f"{name} must be an integer of at least 1; got {value!r}.")
    return int(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_algorithm(algorithm: object) -> Algorithm:
    """Return an algorithm from a name, an `Algorithm` or a generator function."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if isinstance(algorithm, str):
        name = algorithm.lower()
        name = AUTO if name == "auto" else name
        if name in ALGORITHMS:
            return ALGORITHMS[name]()
    elif callable(algorithm) and not isinstance(algorithm, type):
        return GeneratorAlgorithm(algorithm)
    hint = f" Did you mean {algorithm.__name__}()?" if isinstance(algorithm, type) else ""
    raise InputError(
        f"algorithm must be one of {', '.join(['auto', *ALGORITHMS])}, an Algorithm such as relunmd.ANMD(beta0=0.9), "
        f"or a generator function of X, W and H; got {algorithm!r}.{hint}"
    )


def check_ridge(method: Algorithm, ridge: Any) -> Algorithm:
    """Return the algorithm with a ridge, if one is given."""
    strength = check_penalty(ridge, "ridge")
    own = getattr(method, "ridge", None)
    if strength in (0, own):
        return method
    if own is None:
        able = " and ".join(f'"{name}"' for name, other in ALGORITHMS.items() if hasattr(other, "ridge"))
        raise InputError(f"ridge is supported by {able}; got ridge={ridge!r} with algorithm {method.name!r}.")
    if own != 0:
        raise InputError(f"ridge must be given only once; got ridge={ridge!r}, and {own!r} in {method!r}.")
    return replace(method, ridge=strength)  # type: ignore[call-arg]


def check_init(init: object, algorithm: Algorithm, shape: tuple[int, int], rank: int, on_cluster: bool = False) -> Init:
    """Return an initialization from a name, an `Init`, a pair of factors or an earlier result.

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
        f"init must be one of {', '.join(INITS)}, an Init such as relunmd.NuclearInit(steps=5), a pair (W0, H0) or a "
        f"Decomposition; got {reprlib.repr(init)}."
    )


def check_handles_missing(problem: Problem, algorithm: Algorithm, init: Init) -> None:
    """Raise InputError if entries are missing, limited or weighted, and `algorithm` or `init` does not support it."""
    if problem.matrix.observation is None:
        return
    choices: Any = (("algorithm", algorithm, ALGORITHMS), ("init", init, INITS))
    for argument, chosen, known in choices:
        if not chosen.handles_missing:
            able = ", ".join(name for name, choice in known.items() if choice.handles_missing)
            raise InputError(
                f"{argument} must be one of {able} if entries of X are missing, limited or weighted; "
                f"got {chosen.name!r}."
            )


def _given(W: Any, H: object, shape: tuple[int, int], rank: int, on_cluster: bool) -> GivenInit:
    if is_distributed(W) and (getattr(W, "ndim", 0) != 2 or np.dtype(W.dtype).kind not in "biuf"):
        raise InputError(
            "W0 of init must be a two-dimensional array of real numbers, from NumPy or Dask; got "
            f"{'a list of parts on Dask' if isinstance(W, list | tuple) else reprlib.repr(W)}."
        )
    W0: Any = W if is_distributed(W) and on_cluster else _factor("W0", fetched(W) if is_distributed(W) else W)
    H0 = _factor("H0", H)
    k = W0.shape[1]
    if W0.shape[0] != shape[0] or H0.shape != (k, shape[1]) or not 1 <= k <= rank:
        raise InputError(
            f"init must have W0 of shape ({shape[0]}, k) and H0 of shape (k, {shape[1]}) with 1 ≤ k ≤ rank = {rank}; "
            f"got {W0.shape} and {H0.shape}."
        )
    return GivenInit(W0, H0)


def _factor(name: str, factor: object, of: str = " of init") -> Array:
    refuse_masked(factor, f"{name}{of}")
    try:
        A = np.asarray(factor)
    except Exception as reason:
        raise InputError(f"{name}{of} must be a two-dimensional array: {reason}") from reason
    if A.dtype.kind not in "biuf" or A.ndim != 2:
        raise InputError(f"{name}{of} must be a two-dimensional real array; got dtype {A.dtype}, shape {A.shape}.")
    if not np.isfinite(A).all():
        raise InputError(f"{name}{of} must be finite; got {(~np.isfinite(A)).sum()} entries that are not.")
    return A


def check_callback(callback: Any) -> list[Callback]:
    """Return the callback in a list, or an empty list."""
    if callback is not None and not callable(callback):
        raise InputError(f"callback must be a function of one argument, or None; got {callback!r}.")
    return [] if callback is None else [callback]


def check_limits(target_error: Any, tol: Any, max_iter: Any, max_time: Any, endless: bool = False) -> Limits:
    """Return the limits; `endless` allows a run without any."""
    target = _number("target_error", target_error, "a number from 0 to 1, or None", 0, 1)
    fraction = _number("tol", tol, _TOL, 0, 1)
    seconds = _number("max_time", max_time, "a positive number of seconds, or None", 0, math.inf)
    if fraction is None or fraction == 1:
        raise InputError(f"tol must be {_TOL}; got {tol!r}.")
    if seconds == 0:
        raise InputError(f"max_time must be a positive number of seconds, or None; got {max_time!r}.")
    if max_iter is not None and not (_is_integer(max_iter) and max_iter >= 0):
        raise InputError(f"max_iter must be an integer of at least 0, or None; got {max_iter!r}.")
    if target is None and fraction == 0 and max_iter is None and seconds is None and not endless:
        raise InputError(
            "The run would never stop: set target_error, tol, max_iter, max_time or a callback; got target_error=None, "
            "tol=0, max_iter=None, max_time=None."
        )
    return Limits(target, fraction, None if max_iter is None else int(max_iter), seconds)


def _number(name: str, value: Any, what: str, least: float, most: float) -> float | None:
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, numbers.Real) else float(value)
    except OverflowError:  # An integer too large for a float.
        number = math.nan
    if not least <= number <= most:
        raise InputError(f"{name} must be {what}; got {reprlib.repr(value)}.")
    return number


def check_random_state(random_state: Any) -> np.random.Generator:
    """Return a generator from None, an integer, a Generator or a RandomState."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, size=4))
    if random_state is None or (_is_integer(random_state) and random_state >= 0):
        # A stream of its own: if the user made X with default_rng(0), a random initialization from the same numbers
        # would be the exact solution.
        return np.random.default_rng(np.random.SeedSequence(random_state, spawn_key=_OUR_STREAM))
    raise InputError(
        f"random_state must be None, an integer of at least 0, a numpy Generator or RandomState; got {random_state!r}."
    )


def check_threads(n_jobs: Any) -> int:
    """Return the number of threads as scikit-learn counts jobs.

    None is 1 unless `joblib.parallel_config` sets it; −1 is all cores that this process may use, −2 all but one, and so
    on.
    """
    if n_jobs is None:
        n_jobs = get_active_backend()[1]
        n_jobs = 1 if n_jobs is None else n_jobs
    if not _is_integer(n_jobs) or int(n_jobs) == 0:
        raise InputError(f"n_jobs must be a nonzero integer or None (-1 uses all cores); got {n_jobs!r}.")
    cores = usable_cores()
    return max(1, cores + 1 + int(n_jobs)) if int(n_jobs) < 0 else min(int(n_jobs), max(cores, _MOST_THREADS))


def check_checkpoint(checkpoint: Any, every: Any, algorithm: Algorithm) -> tuple[Path, float] | None:
    """Return the file of a run and the seconds between two writes; None without a checkpoint."""
    seconds = _number("checkpoint_every", every, "a number of seconds of at least 0", 0, math.inf)
    if seconds is None:
        raise InputError("checkpoint_every must be a number of seconds of at least 0; got None.")
    if checkpoint is None:
        return None
    if isinstance(algorithm, GeneratorAlgorithm):
        raise InputError("checkpoint is not supported for a generator function; write an Algorithm (CONTRIBUTING.md).")
    place = check_path("checkpoint", checkpoint)
    if not place.parent.is_dir() or place.is_dir():
        raise InputError(f"checkpoint must be a file in an existing folder; got {place}.")
    if not os.access(place.parent, os.W_OK):
        raise InputError(f"checkpoint must be in a writable folder; got {place}.")
    return place, seconds
