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
    written = _WRITTEN * dtype.itemsize if checkpoint else 0  # Memory that is being written to disk cannot be reused.
    factors = n_starts * rank * (m + n) * (algorithm.bytes_per_entry(dtype.itemsize) + written)
    if factors > _LARGE:
        what = f"algorithm={algorithm.name!r} for X of {m} × {n} at rank {rank}, with all its arrays like W and H,"
        starts = f", or n_starts={reprlib.repr(n_starts)}" if n_starts > 1 else ""
        own = ", or the algorithm's memory" if hasattr(algorithm, "memory") else ""
        memory.require(factors, what, f"Lower the rank{starts}{own}.")
    kept = (algorithm.dense_arrays + ((algorithm.dense_arrays + 1) // 2 if checkpoint else 0)) * n_starts
    argument, chosen, arrays = (
        ("init", init, init.dense_arrays) if init.dense_arrays > kept else ("algorithm", algorithm, kept)
    )
    if arrays:
        what = f"{argument}={chosen.name!r}, which keeps {arrays} array{'s' if arrays > 1 else ''} of the size of X"
        kind = "initializations" if argument == "init" else "algorithms"
        remedy = f"These {kind} keep no such array: {_frugal(argument)}."
        size = arrays * m * n * dtype.itemsize
        memory.require(size, f"{what} ({m} × {n}, {dtype}),", remedy, warn=X.sparse or not X.in_memory)


def _check_frugal(algorithm: Algorithm, init: Init) -> None:
    """Raise InputError for what keeps arrays of the size of X: on a cluster nothing may."""
    for argument, chosen in (("algorithm", algorithm), ("init", init)):
        if chosen.dense_arrays:
            raise InputError(f"{argument} must be one of {_frugal(argument)} if X is on Dask; got {chosen.name!r}.")


def _frugal(argument: str) -> str:
    """The choices for an argument that keep no array of the size of X."""
    known: Any = ALGORITHMS if argument == "algorithm" else INITS
    return ", ".join(name for name, choice in known.items() if choice.dense_arrays == 0)
