"""The door for X on Dask: an array in row chunks, or a list of rows to be made."""

import logging
import math
from typing import Any

import numpy as np

from relunmd._util import library_of, need
from relunmd.engine.blas_threads import usable_cores
from relunmd.engine.distributed.cluster_source import ClusterSource
from relunmd.engine.distributed.parts import Computed
from relunmd.engine.distributed.worker_tasks import check_client
from relunmd.errors import InputError

__all__ = ["current_client", "is_distributed", "open_distributed", "refuse_distributed"]

log = logging.getLogger("relunmd")
_OURS: list[Any] = []
"""The cluster that was started because there was none; arrays on it may be in use until the process ends."""


def is_distributed(X: object) -> bool:
    """Whether X is on Dask: its array, or a list of its delayed values or futures. (Dask is not imported for that.)"""
    if isinstance(X, list | tuple):
        return len(X) > 0 and all(library_of(part) in ("dask", "distributed") for part in X)
    return library_of(X) in ("dask", "distributed")


def refuse_distributed(X: object, what: str) -> None:
    """InputError for X on Dask where that is not supported, before any work.

    Parameters
    ----------
    what : the function, as the message names it
    """
    if is_distributed(X) or isinstance(X, ClusterSource):
        kind = f"a list of {type(X[0]).__name__} objects" if isinstance(X, list | tuple) else f"a {type(X).__module__}"
        raise InputError(
            f"{what} needs X in memory or in a file; X on Dask is not supported. Got {kind}; X.compute() brings a Dask "
            "array into memory."
        )


def current_client() -> Any:
    """The active client, or one for a cluster of threads in this process, which is said in the log."""
    distributed = need("distributed", "X on Dask needs", "dask")
    try:
        return distributed.get_client()
    except ValueError:
        pass
    if not _OURS or _OURS[-1].status != "running":
        threads = usable_cores()
        client = distributed.Client(
            processes=False, n_workers=1, threads_per_worker=threads, dashboard_address=":0", set_as_default=True
        )
        log.info("There is no active dask.distributed.Client: started one in this process, with %d threads", threads)
        _OURS.append(client)
    return _OURS[-1]


def open_distributed(X: Any, client: Any = None) -> ClusterSource:
    """X as a source whose rows are on the workers of a client's cluster, by default those of the active one."""
    dask = need("dask", "X on Dask needs", "dask")
    _leave_pool()
    futures_of = need("distributed.client", "X on Dask needs", "dask").futures_of
    needs = futures_of(X)
    if client is None:
        client = _client_of(needs) or current_client()
    if not isinstance(X, list | tuple):
        X = _by_rows(X)
        if futures_of(X):  # Of a graph on top of futures to_delayed() loses these.
            X = client.persist(X)
            made = {future.key: future for future in futures_of(X)}
            parts: list[Any] = [made[key] for (key,) in X.__dask_keys__()]
        else:
            parts = list(X.to_delayed()[:, 0])
        heights = None if any(map(math.isnan, X.chunks[0])) else [float(height) for height in X.chunks[0]]
    else:
        parts, heights = _checked_parts(X), None
    if heights is not None and 0.0 in heights:
        parts = [part for part, height in zip(parts, heights, strict=True) if height]
        heights = [height for height in heights if height]
    loaders: list[Any] = []
    futures: dict[int, Any] = {}
    for index, part in enumerate(parts):
        if library_of(part) == "distributed" or futures_of(part) or _has_futures(part):
            loaders.append(None)
            futures[index] = part if library_of(part) == "distributed" else client.compute(part)
        else:
            (alone,) = dask.optimize(part)  # Of a graph for all of X what this part needs.
            loaders.append(Computed(alone))
    source = ClusterSource(client, loaders, futures, heights, needs)
    found = [float(height) for height in np.diff([*source.starts, source.shape[0]])]
    if heights is not None and (found != heights or source.shape[1] != X.shape[1]):
        source.close()
        raise InputError(
            f"X must have chunks of the shapes that it declares, {X.shape[0]} rows and {X.shape[1]} columns in all. "
            f"Got {source.shape[0]} and {source.shape[1]} when they were computed."
        )
    return source


def _has_futures(delayed: Any) -> bool:
    """Whether tasks of a delayed value have futures among their arguments, which `futures_of` does not find."""
    graph = dict(delayed.__dask_graph__())
    return any(not graph.keys() >= set(getattr(task, "dependencies", ())) for task in graph.values())


def _leave_pool() -> None:
    """Within a task of Dask's, give its thread back to the worker: the run's own tasks need it."""
    distributed = need("distributed", "X on Dask needs", "dask")
    if getattr(need("distributed.threadpoolexecutor", "X on Dask needs", "dask").thread_state, "proceed", False):
        distributed.secede()


def _client_of(futures: list[Any]) -> Any:
    """The client that has made these futures, None if there are none; ClusterError if it is closed."""
    for future in futures:
        check_client(future.client, " that made X")
    return futures[0].client if futures else None


def _checked_parts(X: Any) -> list[Any]:
    for part in X:
        if type(part).__name__ not in ("Delayed", "DelayedLeaf", "DelayedAttr", "Future"):
            raise InputError(
                f"A list of parts of X must have dask.delayed values, each some rows. Got {type(part).__name__}."
            )
    return list(X)


def _by_rows(X: Any) -> Any:
    """A Dask array in chunks of whole rows."""
    if not isinstance(X, need("dask.array", "X on Dask needs", "dask").Array):
        raise InputError(
            f"X on Dask must be a dask.array or a list of dask.delayed rows. Got {type(X).__name__}; of a frame, "
            "to_dask_array() makes one."
        )
    if X.ndim != 2:
        raise InputError(f"X must be two-dimensional. Got {X.ndim} dimension(s), shape {X.shape}.")
    if 0 in X.shape:
        raise InputError(f"X must not be empty. Got shape {X.shape}.")
    if len(X.chunks[1]) > 1:
        log.info("X has %d chunks of columns: it is cut into rows alone", len(X.chunks[1]))
        X = X.rechunk({1: -1})
    return X
