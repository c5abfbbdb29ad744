"""Results as Dask arrays whose rows are on the workers, and how they are read without waiting forever."""

import secrets
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from relunmd._util import library_of
from relunmd.engine.distributed.cluster_source import ClusterSource, neighbors
from relunmd.engine.distributed.parts import Array, dask_module
from relunmd.engine.distributed.refusals import WorkersLostError, refusing
from relunmd.engine.distributed.remote_rows import RowsOnWorkers
from relunmd.engine.distributed.worker_tasks import Cluster, check_client
from relunmd.errors import ClusterError

_TRIES = 3
"""How often rows are fetched if workers are lost meanwhile."""
_TIMEOUT, _SLOWEST_NETWORK = 120.0, 1e7
"""Seconds to wait for rows, and bytes per second that are added to that."""


def dask_array(source: ClusterSource, rows: RowsOnWorkers) -> Any:
    """Return an array as a Dask array with a chunk for each part of X, which stays on the workers.

    Two workers have each chunk, as the results of two tasks: if Dask loses the second it recomputes it from the first.
    If the first is lost it becomes an exception, for which the second raises ClusterError when it is lost too: Dask
    would wait forever for a task that depends on one that failed before. The second depends on the first through a
    third task, which is released: a direct dependency would leave a replica of the first beside the second, and Dask's
    memory manager may then drop the wrong one. `Client.replicate` does not help: replicas are dropped and not renewed
    (dask/distributed #6578).
    """
    array, delayed = dask_module("dask.array"), dask_module("dask").delayed
    cluster, owners, following = source.cluster, source.owners, neighbors(source.owners)
    first = [cluster.call("get_rows", rows.number, part, on=at, named="rows") for part, at in enumerate(owners)]
    _settle(cluster, first, owners)
    copies = _submit_each(cluster, sent, first, owners)
    second = _submit_each(cluster, received, copies, following)
    for copy, original in zip(second, first, strict=True):
        copy.original = original  # Dask keeps a result as long as its Future exists.
    _settle(cluster, second, following)
    cluster.unpin(copies)
    values = zip(second, source.heights, strict=True)
    chunks = [array.from_delayed(delayed(at, pure=True), (n, rows.shape[1]), rows.dtype) for at, n in values]
    return array.concatenate(chunks)


def _settle(cluster: Cluster, futures: Sequence[Any], workers: Sequence[str]) -> None:
    """Wait for results that stay on these workers, and let Dask recompute them elsewhere, where they raise."""
    cluster.results(_submit_each(cluster, size, futures, workers), workers)
    cluster.unpin(futures)


def _submit_each(cluster: Cluster, function: Any, futures: Sequence[Any], workers: Sequence[str]) -> list[Any]:
    return [cluster.submit(function, future, on=worker) for future, worker in zip(futures, workers, strict=True)]


@refusing
def sent(rows: Array) -> Array:
    """Return the same rows, as another task."""
    return rows


def received(rows: Array | Exception) -> Array:
    """Return the rows of a result; raise ClusterError if they are lost."""
    if isinstance(rows, Exception):
        raise ClusterError(
            "Rows of this result were lost with the Dask workers that held them. Call relunmd again (with a checkpoint "
            "it resumes), and save the result right after the call."
        )
    return rows


@refusing
def size(rows: Array) -> int:
    """Return the number of rows, a small result to wait for."""
    return len(rows)


def check_rows(array: Any) -> list[Any]:
    """Return the futures in a Dask array; raise ClusterError if rows are lost or their client is closed."""
    futures: list[Any] = dask_module("distributed.client").futures_of(array)
    for future in futures:
        check_client(future.client, " of this Dask array")
        if future.status == "cancelled":
            raise ClusterError(f"Rows of this Dask array ({future.key}) were lost with their worker. Compute it again.")
    return futures


def fetched(array: Any) -> Array:
    """Return the content of a NumPy or Dask array.

    Parameters
    ----------
    array : numpy.ndarray or dask.array.Array

    Returns
    -------
    numpy.ndarray

    Raises
    ------
    ClusterError
        Rows were lost with their worker, a worker that has some does not answer, or the client is closed.
    """
    if library_of(array) != "dask":
        return np.asarray(array)
    futures = check_rows(array)
    if not futures:
        return np.asarray(array.compute())
    cluster = Cluster(futures[0].client, secrets.token_hex(4))
    timeout = _TIMEOUT + array.nbytes / _SLOWEST_NETWORK
    for _ in range(_TRIES):  # Dask recomputes what is lost with a worker from a copy.
        held = cluster.ask("who_has", keys=[future.key for future in futures])
        holders = {address for addresses in held.values() for address in addresses}
        try:
            (content,) = cluster.results(cluster.compute([array]), holders, timeout, needs=futures)
            return np.asarray(content)
        except WorkersLostError as reason:
            failure = reason
    raise ClusterError(f"Rows on Dask could not be fetched: {failure}. Try again when the workers answer.") from failure


class Chunks:
    """A Dask array in the form in which `write_archive` writes it: chunk by chunk, each read by `fetched`."""

    def __init__(self, array: Any) -> None:
        self.dtype, self.shape, self.numblocks = array.dtype, array.shape, array.numblocks
        chunks = [array.blocks[i] for i in range(self.numblocks[0])]
        self.blocks = [SimpleNamespace(compute=partial(fetched, chunk)) for chunk in chunks]
