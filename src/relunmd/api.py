"""`decompose`: validate the arguments, build a problem, run the loop, return the result."""

# Keep annotations as written, so that help() shows them and not NumPy's unions.
from __future__ import annotations

import logging
import math
import numbers
import os
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from relunmd.algorithm import ALGORITHMS, Algorithm
from relunmd.arguments import (
    check_algorithm,
    check_callback,
    check_checkpoint,
    check_count,
    check_dtype,
    check_handles_missing,
    check_init,
    check_limits,
    check_random_state,
    check_rank,
    check_ridge,
    check_threads,
    is_mixed,
)
from relunmd.engine.distributed import Chunks, ClusterSource, is_distributed
from relunmd.engine.observed import EntryOptions, opened
from relunmd.engine.problem import Fingerprint, Problem
from relunmd.engine.problem_setup import executor_for, make_problem
from relunmd.init import INITS, Init, RandomInit
from relunmd.loop.callback import Callback
from relunmd.loop.checkpoint import Checkpoint, Identity
from relunmd.loop.cost_notice import CostNotice
from relunmd.loop.criteria import Clock
from relunmd.loop.driver import Outcome, solve
from relunmd.memory_check import check_memory
from relunmd.result import Decomposition

log = logging.getLogger("relunmd")

Initialization = str | Init | Decomposition | tuple[ArrayLike, ArrayLike]
Method = Callable[..., Any]
Seed = int | np.random.Generator | np.random.RandomState | None


def decompose(
    X: ArrayLike,
    rank: int,
    algorithm: str | Algorithm | Method = "auto",
    init: Initialization = "auto",
    *,
    ridge: float = 0.0,
    target_error: float | None = None,
    tol: float = 1e-3,
    max_iter: int | None = 1000,
    max_time: float | None = None,
    random_state: Seed = None,
    missing_values: float | str | None = None,
    mask: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    n_jobs: int | None = None,
    n_starts: int = 1,
    callback: Callback | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60,
) -> Decomposition:
    """Find W and H with X ≈ max(0, WH).

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (m, n)
        Nonnegative and finite, of any real dtype: a NumPy array or anything that converts to one (a list, a pandas or
        Polars frame), a memory map, a SciPy sparse matrix of any format, an HDF5 dataset or Zarr array, or a group of
        these with the members data, indices and indptr of CSR and an attribute shape. X is never changed and never
        converted to dense as a whole. On Dask: an array in chunks of rows, of NumPy arrays or SciPy sparse matrices,
        or a list of delayed values or futures with some rows each. Then the work is done where the rows are, on the
        cluster of the active client (see the user guide, Clusters).
    rank : int
        Between 1 and min(m, n).
    algorithm : str, Algorithm or callable, default="auto"
        A name of `relunmd.algorithms()`, an algorithm with settings such as ``relunmd.ANMD(beta0=0.9)``, or a generator
        function f(X, W, H) that yields W, H after every iteration (dense X on one machine, no checkpoint).
    init : str, Init, tuple (W0, H0) or Decomposition, default="auto"
        A name of `relunmd.inits()`, an initialization with settings, or initial factors. Factors of smaller rank are
        extended.
    ridge : float, default=0
        Adds ridge·‖X‖·(‖W‖² + ‖H‖²) to the squared error, for "qn" and "3b-factored": the error increases, W and H stay
        small, and predictions of entries that were not seen improve. 1e-3 is weak, 1e-2 strong; `select_rank` chooses
        it. The result is then the iterate with the smallest penalized error, to which `tol` applies as well.
    target_error : float, optional
        Stop when the relative error ‖X − max(0, WH)‖/‖X‖ is at most this.
    tol : float, default=1e-3
        Stop when the error has decreased by less than this fraction over 10 iterations, or ten steps where "qn" makes
        several an iteration; 0 disables it.
    max_iter : int or None, default=1000
        Maximum number of iterations; None for no limit.
    max_time : float, optional
        Maximum number of seconds since the call. It is checked after every iteration: the initialization counts but is
        not cut short, an iteration is completed, compilation does not count.
    random_state : int, Generator, RandomState or None, default=None
        The same integer gives the same bits, whatever `n_jobs` is.
    missing_values : {None, np.nan, "unstored"}, default=None
        Which entries are missing: none, so that NaN raises an error; those that are NaN; or those that a sparse X does
        not store (then explicit zeros are zeros, and a pass costs as much as there are stored entries). Masked entries
        of a masked array are missing in any case. The error, the norm and all that is reported are those of the other
        entries. The user guide, Missing values and limits, describes this and the next four arguments.
    mask : {array-like, sparse matrix} of shape (m, n), optional
        Nonzero or True where an entry is missing, as in `numpy.ma` and `pandas.isna`. What X has there is never used.
        Like `weights`, it may be stored in any way that X may be, and is read tile by tile beside X.
    weights : {array-like, sparse matrix} of shape (m, n), optional
        Nonnegative; the squared error of an entry is multiplied by its weight, 0 is missing. Only ratios matter. With
        ``missing_values="unstored"`` a sparse matrix that stores the same places as X.
    lower : float or array-like of shape (n,) or (m, n), optional
        Limits of detection. Of an entry up to its limit only that is known: any prediction up to the limit has no
        error. Zeros of X are known in the same way, so 0 is no limit.
    upper : float or array-like of shape (n,) or (m, n), optional
        Ceilings. Of an entry from its limit on only that is known; infinity is no limit.
    dtype : {float32, float64}, optional
        Float type of the computation; by default that of X, and float64 for integers and booleans. By default, "qn"
        makes the passes over a large X of float64 or integers in float32 while the error is above 3e-4 and decreases by
        much more than rounding, and then in float64: the final accuracy is that of float64. In the history, errors of
        passes in float32 have seven digits. ``dtype="float64"`` disables this.
    n_jobs : int, optional
        Number of threads; −1 for all cores, −2 for all but one. None is 1 unless `joblib.parallel_config` sets it. The
        workers of a cluster use the threads they have.
    n_starts : int, default=1
        Number of initializations to race. The first is `init`, the others are random. Each runs for 100 iterations, the
        better half for 200 more, and so on until one is left. For small, hard problems: it takes that many times the
        memory of one run.
    callback : callable, optional
        Called after the initialization and after every iteration with a `Progress`. The run stops if it returns True.
        With `n_starts` it is called for the iterations of every initialization.
    progress : bool, default=False
        Show progress: redrawn on a terminal, elsewhere a line now and then.
    checkpoint : path-like, optional
        File from which the run can be resumed. It is written atomically, every `checkpoint_every` seconds and at the
        end, whatever ended the run. If it exists and belongs to the same run (X, rank, algorithm, settings,
        initialization, seed and dtype), the run resumes from it with the same bits as if it had never stopped; a
        checkpoint of another run raises InputError. Limits may differ: a finished run resumes with a larger one, and
        `max_time` counts all sessions. With several initializations, those dropped under a larger `tol` stay dropped.
    checkpoint_every : float, default=60
        Minimum number of seconds between two checkpoints.

    Returns
    -------
    Decomposition
        The best factors seen, also when a limit, a callback or Ctrl-C ended the run, or X could no longer be read;
        `status` says which. (Ctrl-C before the first iteration, and a second Ctrl-C, raise KeyboardInterrupt.) If X
        is on Dask, W is a Dask array in the same chunks, which stays on the workers.

    See Also
    --------
    ReLUNMD : The same as a scikit-learn transformer.
    fit_rows : Find W for new rows and a known H.
    compare : Run several algorithms on X and write a report.

    Notes
    -----
    Memory: X as it is, about 30 arrays like W and H for "qn" (10 for "3b-factored"), and some hundred rows for each
    thread; besides, what the algorithm keeps: four arrays of the size of X for "3b" and "a-nmd", one for "naive" and
    "em", three for "a-naive" and "a-em", none for "qn", "3b-factored" and "tsvd". Two passes over X check it, five make
    the default initialization; "qn", "3b-factored" and "3b" then make one pass an iteration, of at most 6mn·rank flops,
    and "qn" about five more, once, to compare itself with the truncated SVD.
    A checkpoint is as large as what the algorithm keeps (half of it for "3b" and "a-nmd"); while it is written, in the
    background, as much memory is taken again. Resuming takes one more pass.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> rng = np.random.default_rng(0)
    >>> X = np.maximum(0, rng.standard_normal((60, 4)) @ rng.standard_normal((4, 50)))
    >>> d = relunmd.decompose(X, rank=4, target_error=1e-4, random_state=0)
    >>> d.status
    <Status.TARGET: 'The error reached target_error.'>
    >>> baseline = relunmd.decompose(X, rank=4, algorithm="tsvd")
    >>> d.error < 1e-3 * baseline.error
    True
    """
    with ExitStack() as stack:
        A = stack.enter_context(opened(X, EntryOptions(missing_values, mask, weights, lower, upper)))
        float_type, rank = check_dtype(dtype, A), check_rank(rank, A.shape)
        method = check_ridge(check_algorithm(algorithm), ridge)
        first = check_init(init, method, A.shape, rank, on_cluster=isinstance(A, ClusterSource))
        n_starts = check_count(n_starts, "n_starts")
        callbacks = check_callback(callback)
        limits = check_limits(target_error, tol, max_iter, max_time, endless=bool(callbacks))
        random, threads = check_random_state(random_state), check_threads(n_jobs)
        file = check_checkpoint(checkpoint, checkpoint_every, method)
        check_memory(A, float_type, rank, method, first, n_starts, checkpoint=file is not None)
        inits = [first] + [RandomInit()] * (n_starts - 1)
        mixed = is_mixed(dtype, A, method)
        executor = executor_for(A, float_type, threads, mixed)
        executor.deadline, clock = time.perf_counter() + (limits.max_time or math.inf), Clock()
        stack.enter_context(executor)
        problem = replace(make_problem(A, float_type, rank, executor), mixed=mixed)
        check_handles_missing(problem, method, first)
        executor.passes = 0
        if progress:
            from relunmd.loop.progress_display import ProgressDisplay  # rich is slow to import

            callbacks.append(stack.enter_context(ProgressDisplay(f"{method.name}, rank {rank}", limits)))
        else:
            callbacks.append(CostNotice(limits))
        saved = None if file is None else _checkpoint(*file, problem, method, inits, random, random_state)
        outcome = solve(problem, method, inits, random, limits, clock, callbacks, saved)
        total = clock.seconds()

    log.info("%s: %s error %.6g", method.name, outcome.status.message, outcome.error)
    names: dict[str, Any] = {"algorithm": method.name, "init": first.name, "settings": method.settings()}
    return result_of(outcome, total, problem.fingerprint, names)


def result_of(outcome: Outcome, seconds: float, fingerprint: Fingerprint, names: dict[str, Any]) -> Decomposition:
    """Return the result of a run; `names` has the algorithm, its settings and the initialization."""
    return Decomposition(
        outcome.W,
        outcome.H,
        error=outcome.error,
        n_iter=len(outcome.history) - 1,
        time=seconds,
        init_time=outcome.init_time,
        status=outcome.status,
        history=outcome.history,
        fingerprint=fingerprint,
        **names,
    )


def _checkpoint(
    place: Path,
    every: float,
    problem: Problem,
    method: Algorithm,
    inits: list[Init],
    random: np.random.Generator,
    seed: Seed,
) -> Checkpoint:
    """The checkpoint of a run, with what identifies the run."""
    identity = Identity(
        fingerprint=problem.fingerprint,
        rank=problem.rank,
        dtype="mixed" if problem.mixed else str(problem.dtype),
        algorithm=method.name,
        settings=method.settings(),
        init=_facts_of(inits[0]),
        n_starts=len(inits),
        generator=type(random.bit_generator).__name__,
        random_state=int(seed) if isinstance(seed, numbers.Integral) else None,
    )
    return Checkpoint(place, every, identity, problem.executor.remove_other_rows)


def _facts_of(init: Init) -> dict[str, Any]:
    """The name and settings of an initialization, with checksums in place of arrays."""
    return {"name": init.name} | {name: _checksummed(value) for name, value in vars(init).items()}


def _checksummed(value: Any) -> Any:
    """The checksum of an array, NumPy's or Dask's, which is fetched chunk by chunk; anything else as it is."""
    if is_distributed(value):
        checksum = 0
        for chunk in Chunks(value).blocks:
            checksum = zlib.crc32(np.ascontiguousarray(chunk.compute()).data, checksum)
        return checksum
    return zlib.crc32(np.ascontiguousarray(value).data) if isinstance(value, np.ndarray) else value


def algorithms() -> dict[str, str]:
    """Return the names of the algorithms, each with one line on what it is for and what it needs.

    Returns
    -------
    dict of str to str
        Names for the argument `algorithm` of `decompose`, with their descriptions.

    See Also
    --------
    inits : The names of the initializations.

    Examples
    --------
    >>> import relunmd
    >>> relunmd.algorithms()["tsvd"]
    'the baseline max(0, X_r): one truncated SVD, no iterations'
    """
    return {name: algorithm.summary for name, algorithm in ALGORITHMS.items()}


def inits() -> dict[str, str]:
    """Return the names of the initializations, each with one line that describes it.

    Returns
    -------
    dict of str to str
        Names for the argument `init` of `decompose`, with their descriptions.

    See Also
    --------
    algorithms : The names of the algorithms.

    Examples
    --------
    >>> import relunmd
    >>> sorted(relunmd.inits())
    ['auto', 'mean-corrected', 'nuclear', 'random', 'shifted', 'tsvd']
    """
    return {name: init.summary for name, init in INITS.items()}
