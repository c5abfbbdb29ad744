"""Whether a run fits into memory, before anything is allocated."""

import reprlib
from typing import Any

import numpy as np

from relunmd import memory
from relunmd.algorithm import ALGORITHMS, Algorithm
from relunmd.engine.distributed import ClusterSource
from relunmd.engine.matrix import Source
from relunmd.errors import InputError
from relunmd.init import INITS, Init

__all__ = ["check_memory"]

_LARGE = 10**9
"""Bytes of arrays like W and H from which on the free memory is checked."""
_WRITTEN = 4
"""Arrays like W and H that a step needs in place of those that a checkpoint is being written from."""


def check_memory(
    X: Source,
    dtype: np.dtype[Any],
    rank: int,
    algorithm: Algorithm,
    init: Init,
    n_starts: int = 1,
    checkpoint: bool = False,
) -> None:
    """Raise InsufficientMemoryError for a run that would not fit; log it where X itself takes less memory."""
    if isinstance(X, ClusterSource):
        _check_frugal(algorithm, init)
        return
    m, n = X.shape
    factors = n_starts * rank * (m + n) * algorithm.bytes_per_entry(dtype.itemsize)
    if checkpoint:  # Memory that is being written to disk cannot be reused.
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
    if checkpoint:  # The same.
        kept += (algorithm.dense_arrays + 1) // 2 * n_starts
    arrays = max(kept, init.dense_arrays)
    if arrays == 0:
        return
    if init.dense_arrays > kept:
        who, others = f"init={init.name!r}", INITS
    else:
        who, others = f"algorithm={algorithm.name!r}", ALGORITHMS  # type: ignore[assignment]
    kind = "initializations" if others is INITS else "algorithms"
    frugal = ", ".join(name for name, other in others.items() if other.dense_arrays == 0)
    what = f"{who}, which keeps {arrays} array{'s' if arrays > 1 else ''} of the size of X ({m} × {n}, {dtype}),"
    memory.require(
        arrays * m * n * dtype.itemsize,
        what,
        f"These {kind} keep no such array: {frugal}.",
        warn=X.sparse or not X.in_memory,
    )


def _check_frugal(algorithm: Algorithm, init: Init) -> None:
    """Raise InputError for what keeps arrays of the size of X: on a cluster nothing may."""
    for what, chosen, known in (("algorithm", algorithm, ALGORITHMS), ("init", init, INITS)):
        if chosen.dense_arrays:
            frugal = ", ".join(name for name, other in known.items() if other.dense_arrays == 0)
            raise InputError(f"{what} must be one of {frugal} if X is on Dask; got {chosen.name!r}.")
