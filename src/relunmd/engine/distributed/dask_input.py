"""X as users have it on Dask: an array in row chunks, or a list of delayed rows or futures."""

import logging
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from relunmd._util import library_of
from relunmd.engine.blas_threads import usable_cores
from relunmd.engine.distributed.cluster_source import ClusterSource
from relunmd.engine.distributed.parts import ComputedPart, bundled, dask_module
from relunmd.engine.distributed.worker_tasks import check_client
from relunmd.errors import InputError

log = logging.getLogger("relunmd")
_OWN_CLIENTS: list[Any] = []
"""Clients that were started because none was active, so that they stay open until the process ends."""


def is_distributed(X: object) -> bool:
    """Return whether X is on Dask: an array, or a list of delayed values or futures. Does not import Dask."""
    parts = X if isinstance(X, list | tuple) else [X]
    return len(parts) > 0 and all(library_of(part) in ("dask", "distributed") for part in parts)


def refuse_distributed(X: object, what: str) -> None:
    """Raise InputError if X is on Dask.

    Parameters
    ----------
    X : object
    what : str
        The name of the function that does not support it, for the message.
    """
    if is_distributed(X) or isinstance(X, ClusterSource):
        kind = f"a list of {type(X[0]).__name__} objects" if isinstance(X, list | tuple) else f"a {type(X).__module__}"
        raise InputError(f"{what} needs X in memory or in a file; got {kind}. X.compute() loads a Dask array.")


def current_client() -> Any:
    """Return the active client, or start one for a cluster of threads in this process and log that."""
    distributed, threads = dask_module(), usable_cores()
    try:
        return distributed.get_client()
    except ValueError:
        log.info("There is no active dask.distributed.Client; starting one in this process with %d threads", threads)
        options = {"processes": False, "n_workers": 1, "threads_per_worker": threads, "dashboard_address": ":0"}
        _OWN_CLIENTS.append(distributed.Client(**options))
        return _OWN_CLIENTS[-1]


def open_distributed(
    X: Any, client: Any = None, beside: Mapping[str, Any] | None = None, stored_only: bool = False
) -> ClusterSource:
    """Return X as a source whose rows are on the workers of a cluster.

    Parameters
    ----------
    X : dask.array.Array, or list of dask.delayed values or futures
    client : distributed.Client, optional
        By default the client that computed X, or the active one.
    beside : mapping of str to matrices of the shape of X
        What is read beside X: like X on Dask, or in memory if X is a Dask array. They get the chunks of X.
    stored_only : bool
        Whether entries that a sparse X does not store are missing.

    Returns
    -------
    ClusterSource

    Raises
    ------
    InputError
        X is not a matrix of real numbers, or its chunks do not have the shapes that it declares.
    ClusterError
        The client is closed, or parts of X are lost.
    """
    if getattr(dask_module("distributed.threadpoolexecutor").thread_state, "proceed", False):
        dask_module().secede()  # Within a Dask task: the run's own tasks need its thread.
    futures_of = dask_module("distributed.client").futures_of
    needs = futures_of(X)
    for future in needs:
        check_client(future.client, " that computed X")
    if client is None:
        client = needs[0].client if needs else current_client()
    declared = None
    if isinstance(X, list | tuple):
        kinds, parts = (dask_module("dask.delayed").Delayed, dask_module().Future), list(X)
        wrong = [type(part).__name__ for part in parts if not isinstance(part, kinds)]
        if wrong:
            raise InputError(f"The parts of X must be dask.delayed values or futures; got {wrong[0]}.")
    else:
        X = _by_rows(X)
        if futures_of(X):  # to_delayed() of a graph on top of futures would lose these.
            X = client.persist(X)
            known = {future.key: future for future in futures_of(X)}
            parts = [known[key] for (key,) in X.__dask_keys__()]
        else:
            parts = list(X.to_delayed()[:, 0])
        if not any(map(math.isnan, X.chunks[0])):
            declared = [height for height in X.chunks[0] if height]
            parts = [part for part, height in zip(parts, X.chunks[0], strict=True) if height]
    if beside or stored_only:
        pieces = [_pieces(name, matrix, declared, len(parts)) for name, matrix in (beside or {}).items()]
        bundle = dask_module("dask").delayed(bundled)
        parts = [bundle(X, list(beside or {}), stored_only, *some) for X, *some in zip(parts, *pieces, strict=True)]
    futures = {index: client.compute(part) for index, part in enumerate(parts) if _has_futures(part)}
    optimize = dask_module("dask").optimize  # Reduces a graph for all of X to what one part needs.
    loaders = [None if i in futures else ComputedPart(optimize(part)[0]) for i, part in enumerate(parts)]
    source = ClusterSource(client, loaders, futures, declared or [1.0] * len(parts), needs)
    if declared is not None and (source.heights != declared or source.shape[1] != X.shape[1]):
        source.close()
        raise InputError(f"The chunks of X must have the sizes X declares, {X.shape} in total; got {source.shape}.")
    return source


def _pieces(name: str, matrix: Any, heights: list[int] | None, count: int) -> list[Any]:
    """Return a matrix beside X in as many parts as X has."""
    if isinstance(matrix, list | tuple) and is_distributed(matrix):
        if len(matrix) != count:
            raise InputError(f"{name} must have as many parts as X, {count}; got {len(matrix)}.")
        return list(matrix)
    if heights is None:
        raise InputError(f"{name} must be a list of {count} parts, as X is; got {type(matrix).__name__}.")
    if is_distributed(matrix):
        if matrix.ndim != 2 or matrix.shape[0] != sum(heights):
            raise InputError(f"{name} must have the shape of X, with {sum(heights)} rows; got {matrix.shape}.")
        return list(matrix.rechunk((tuple(heights), -1)).to_delayed()[:, 0])
    if not hasattr(matrix, "shape") or matrix.shape[0] != sum(heights):
        raise InputError(f"{name} must have the shape of X, with {sum(heights)} rows; got {np.shape(matrix)}.")
    rows = matrix.tocsr() if sparse.issparse(matrix) else matrix
    ends = np.cumsum(heights)
    return [rows[end - height : end] for height, end in zip(heights, ends.tolist(), strict=True)]


def _has_futures(part: Any) -> bool:
    """Return whether a part is a future, or depends on futures; `futures_of` misses those among tasks' arguments."""
    if library_of(part) == "distributed":
        return True
    graph = dict(part.__dask_graph__())
    needed = {key for task in graph.values() for key in getattr(task, "dependencies", ())}
    return bool(dask_module("distributed.client").futures_of(part)) or not graph.keys() >= needed


def _by_rows(X: Any) -> Any:
    """Return a Dask array in chunks of whole rows."""
    if not isinstance(X, dask_module("dask.array").Array):
        raise InputError(f"X on Dask must be a dask.array or a list of dask.delayed rows; got {type(X).__name__}.")
    if X.ndim != 2:
        raise InputError(f"X must be two-dimensional; got {X.ndim} dimension(s), shape {X.shape}.")
    if 0 in X.shape:
        raise InputError(f"X must not be empty; got shape {X.shape}.")
    if len(X.chunks[1]) > 1:
        log.info("X has %d chunks of columns; it is rechunked to whole rows", len(X.chunks[1]))
        X = X.rechunk({1: -1})
    return X
