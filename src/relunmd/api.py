"""The door: `decompose`, which checks what it is given, makes a start, runs the loop and hands back the result."""

# Annotations as they are written, not as NumPy's unions: that is what help() shows.
from __future__ import annotations

import logging
import numbers
import os
import time
import zlib
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from relunmd.algorithm import ALGORITHMS, Algorithm
from relunmd.engine.distributed import Chunks, ClusterSource, is_distributed
from relunmd.init import INITS, Init, RandomInit
from relunmd.loop.checkpoint import Checkpoint, Identity
from relunmd.loop.driver import Callback, Clock, solve
from relunmd.result import Decomposition
from relunmd.validation import (
    check_algorithm,
    check_callback,
    check_checkpoint,
    check_dtype,
    check_init,
    check_limits,
    check_memory,
    check_random_state,
    check_rank,
    check_starts,
    check_threads,
    executor_for,
    make_problem,
    opened,
)

__all__ = ["algorithms", "decompose", "inits"]

log = logging.getLogger("relunmd")

Start = str | Init | Decomposition | tuple[ArrayLike, ArrayLike]
Seed = int | np.random.Generator | np.random.RandomState | None


def decompose(
    X: ArrayLike,
    rank: int,
    algorithm: str | Algorithm[Any] = "auto",
    init: Start = "auto",
    *,
    target_error: float | None = None,
    tol: float = 1e-4,
    max_iter: int | None = 1000,
    max_time: float | None = None,
    random_state: Seed = None,
    dtype: DTypeLike | None = None,
    n_jobs: int | None = None,
    n_starts: int = 1,
    callback: Callback | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60,
) -> Decomposition:
    """Find W (m×rank) and H (rank×n) with X ≈ max(0, WH).

    Parameters
    ----------
    X : matrix of shape (m, n)
        Nonnegative and finite, of any real dtype: an array or anything that becomes one (a list, a Pandas or
        Polars frame), a memory map, a SciPy sparse matrix of any format, an HDF5 dataset or Zarr array, or a
        group of these with CSR's members data, indices and indptr and an attribute shape. Never changed, never
        converted or made dense as a whole. Or on Dask: an array in chunks of rows, NumPy's or SciPy's sparse ones, or
        a list of delayed values or futures that are some rows each. Then the work is done where the rows are, on the
        active client's cluster (see docs/scale.md).
    rank : int from 1 to min(m, n)
    algorithm : name or settings object
        A name of `relunmd.algorithms()`, "auto", or for example ``relunmd.ANMD(beta0=0.9)``.
    init : name, settings object, pair (W0, H0) or Decomposition
        A name of `relunmd.inits()`. A pair or a result of smaller rank is filled up.
    target_error : stop once the relative error ‖X − max(0, WH)‖/‖X‖ is at most this
    tol : stop once the error has fallen by less than this fraction over 10 iterations; 0 turns it off
    max_iter : most iterations; None for no limit
    max_time : most seconds since the call
        Looked at after every iteration: the start counts but is not cut short, an iteration begun is
        finished, compilation does not count.
    random_state : int, Generator, RandomState or None
        The same integer gives the same bits, whatever `n_jobs` is.
    dtype : float32 or float64
        What to compute in; by default the dtype of X, and float64 for integers and booleans.
    n_jobs : int, optional
        Number of threads; −1 for all cores, −2 for all but one. None is 1, or what `joblib.parallel_config` says. The
        workers of a cluster use the threads they have.
    n_starts : how many starts to race
        The first is `init`, the others are random. Each runs for 100 iterations, the better half for 200 more, and so
        on until one is left. For small, hard problems: it takes that many times the memory of one run.
    callback : called after the start and every iteration with a `Progress`
        Returning True stops the run. With `n_starts` it is told of every start's iterations.
    progress : show how it goes: on a terminal drawn anew, elsewhere as a line now and then
    checkpoint : path of a file from which the run can go on
        Written every so often, and at the end whatever ended the run; killed at any moment, it is whole. If it is
        there and of the same run (X, rank, algorithm, settings, start, seed and dtype) the run goes on from it, with
        the same bits as if it had never stopped; of another run it is refused. Limits may differ: a finished run with
        a larger one goes on, `max_time` being that of all sittings together. (With several starts, those that were
        dropped under a larger `tol` stay dropped.)
    checkpoint_every : least number of seconds between two of them

    Returns
    -------
    Decomposition
        The best factors seen, also when a limit, a callback or Ctrl-C ended the run, or X could not be read any more;
        `status` says which. (Ctrl-C before the first iteration, and a second Ctrl-C, raise KeyboardInterrupt.) If X
        is on Dask, W is a Dask array in the same chunks, which stays on the workers.

    Notes
    -----
    Memory: X as it is, about 30 arrays like W and like H for "qn" (10 for "3b-factored"), and for each thread some
    hundred rows; besides, what the algorithm keeps: four arrays of the size of X for "3b" and "a-nmd", one for "naive"
    and "em", three for "a-naive" and "a-em", none for "qn", "3b-factored" and "tsvd". Two passes over X check it, five
    make the default start; "qn", "3b-factored" and "3b" then make one pass an iteration, of 6mn·rank flops at most, and
    "qn" about five more, once, to compare itself with the truncated SVD.
    A checkpoint is as large as what the algorithm keeps (half of it for "3b" and "a-nmd"); while it is written, in the
    background, as much memory is taken again. Going on from one takes one pass more.

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
        A = stack.enter_context(opened(X))
        float_type = check_dtype(dtype, A)
        shape = A.shape
        rank = check_rank(rank, shape)
        method = check_algorithm(algorithm)
        start = check_init(init, method, shape, rank, on_cluster=isinstance(A, ClusterSource))
        count = check_starts(n_starts)
        callbacks = check_callback(callback)
        limits = check_limits(target_error, tol, max_iter, max_time, endless=bool(callbacks))
        random = check_random_state(random_state)
        threads = check_threads(n_jobs)
        file = check_checkpoint(checkpoint, checkpoint_every)
        check_memory(A, float_type, rank, method, start, count, checkpoint=file is not None)
        starts = [start] + [RandomInit()] * (count - 1)
        executor = executor_for(A, float_type, threads)
        executor.deadline = None if limits.max_time is None else time.perf_counter() + limits.max_time
        clock = Clock()
        stack.enter_context(executor)
        problem = make_problem(A, float_type, rank, executor)
        executor.passes = 0
        if progress:
            from relunmd.loop.progress_display import ProgressDisplay  # rich is slow to import

            callbacks.append(stack.enter_context(ProgressDisplay(f"{method.name}, rank {rank}", limits)))
        kept = None
        if file is not None:
            identity = Identity(
                fingerprint=problem.fingerprint,
                rank=rank,
                dtype=str(float_type),
                algorithm=method.name,
                settings=asdict(method),
                init=_facts_of(start),
                n_starts=len(starts),
                generator=type(random.bit_generator).__name__,
                random_state=int(random_state) if isinstance(random_state, numbers.Integral) else None,
            )
            kept = Checkpoint(*file, identity)
        outcome = solve(problem, method, starts, random, limits, clock, callbacks, kept)
        total = clock.seconds()

    log.info("%s: %s error %.6g", method.name, outcome.status.message, outcome.error)
    return Decomposition(
        W=outcome.W,
        H=outcome.H,
        error=outcome.error,
        n_iter=len(outcome.history) - 1,
        time=total,
        init_time=outcome.init_time,
        status=outcome.status,
        algorithm=method.name,
        init=start.name,
        settings=asdict(method),
        history=outcome.history,
        fingerprint=problem.fingerprint,
    )


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

    >>> import relunmd
    >>> relunmd.algorithms()["tsvd"]
    'the baseline max(0, X_r): one truncated SVD, no iterations'
    """
    return {name: algorithm.summary for name, algorithm in ALGORITHMS.items()}


def inits() -> dict[str, str]:
    """Return the names of the initializations, each with one line on it.

    >>> import relunmd
    >>> sorted(relunmd.inits())
    ['auto', 'mean-corrected', 'nuclear', 'random', 'shifted', 'tsvd']
    """
    return {name: init.summary for name, init in INITS.items()}
