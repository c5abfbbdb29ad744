"""Results on Dask as the user has them: arrays whose rows are on the workers, and how they are read without a hang."""

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd._util import library_of, need
from relunmd.engine.distributed.worker_tasks import Cluster, WorkersGoneError, check_client
from relunmd.errors import ClusterError

__all__ = ["Chunks", "check_rows", "fetched"]

Array = NDArray[Any]
_NEEDED = "A result on Dask needs"
_TRIES = 3
"""How often rows are fetched if workers are lost meanwhile."""
_PATIENCE, _SLOWEST = 120.0, 1e7
"""Seconds to wait for rows, and bytes per second of the slowest network."""


def check_rows(array: Any) -> list[Any]:
    """The futures that a Dask array is made of; ClusterError if rows are lost, or their client is closed."""
    futures: list[Any] = need("distributed.client", _NEEDED, "dask").futures_of(array)
    for future in futures:
        check_client(future.client, " that has these rows")
        if future.status == "cancelled":
            raise ClusterError(
                f"Rows of this Dask array ({future.key}) are lost: their worker is gone, or their client was closed. "
                "Make it again; a result of relunmd by calling it again, which resumes from a checkpoint."
            )
    return futures


def fetched(array: Any) -> Array:
    """The content of a NumPy or Dask array.

    Raises
    ------
    ClusterError
        Rows are lost with the worker that held them, a worker that holds some does not answer, or the client is closed.
    """
    if library_of(array) != "dask":
        return np.asarray(array)
    futures = check_rows(array)
    if not futures:
        return np.asarray(array.compute())
    cluster = Cluster(futures[0].client, secrets.token_hex(4))
    tries, patience = _TRIES, _PATIENCE + array.nbytes / _SLOWEST
    while True:  # What is lost with a worker Dask makes again from a copy.
        held = cluster.ask("who_has", keys=[future.key for future in futures])
        holders = {address for addresses in held.values() for address in addresses}
        try:
            (content,) = cluster.answers(cluster.compute([array]), holders, patience, needs=futures)
            return np.asarray(content)
        except WorkersGoneError as reason:
            tries -= 1
            if tries == 0:
                raise ClusterError(
                    f"Rows of a result on Dask cannot be fetched: {reason}. Try again when the workers answer; what "
                    "was lost with a worker must be computed again."
                ) from reason


class Chunks:
    """A Dask array as `archive` writes it, one chunk of rows at a time, fetched by `fetched`."""

    def __init__(self, array: Any) -> None:
        self.dtype, self.shape, self.numblocks = array.dtype, array.shape, array.numblocks
        self._array = array

    @property
    def blocks(self) -> Sequence[Any]:
        """For each chunk of rows something that has `compute`."""
        return [_Chunk(self._array.blocks[i]) for i in range(self.numblocks[0])]


class _Chunk:
    def __init__(self, array: Any) -> None:
        self._array = array

    def compute(self) -> Array:
        return fetched(self._array)
