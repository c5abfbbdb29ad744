"""X on the workers of a cluster: which worker owns which part, and how parts of lost workers are opened again.

A worker owns consecutive parts, so that its sums are few nodes of the tree of sums. Parts that Dask has computed
already are moved for that.
"""

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from relunmd.engine.distributed.parts import ComputedPart, PartFacts, changed_error
from relunmd.engine.distributed.refusals import WorkersLostError
from relunmd.engine.distributed.worker_tasks import Cluster
from relunmd.engine.matrix import RowLayout, Source
from relunmd.errors import ClusterError, InputError
from relunmd.memory import human_bytes

log = logging.getLogger("relunmd")
_LARGE_GRAPH = 2**18
"""Bytes of a part's graph that are sent with a task."""
MOST_LOSSES = 10
"""How often workers may be lost: a run that is too large for their memory loses them repeatedly."""


def place(weights: Sequence[float], workers: Mapping[str, float]) -> list[str]:
    """Return an owner for each part, in proportion to the workers' numbers of threads.

    >>> place([1, 1, 1, 1], {"a": 1, "b": 1})
    ['a', 'a', 'b', 'b']
    >>> place([1, 1, 1, 1], {"a": 1, "b": 3})
    ['a', 'b', 'b', 'b']
    """
    addresses = sorted(workers)
    ends = np.cumsum([workers[address] for address in addresses])
    middles = np.cumsum(weights) - np.asarray(weights) / 2
    return [addresses[i] for i in np.searchsorted(ends, middles / sum(weights) * ends[-1], side="right")]


def place_again(owners: Sequence[str], workers: Mapping[str, int]) -> list[str]:
    """Return the owners with the parts of lost workers assigned to the others, by the room that these have.

    >>> place_again(["a", "a", "b", "b"], {"b": 1, "c": 1})
    ['c', 'c', 'b', 'b']
    """
    fair = len(owners) / sum(workers.values())
    room = {address: max(fair * threads - owners.count(address), 0.0) for address, threads in workers.items()}
    lost = [owner for owner in owners if owner not in workers]
    new = iter(place([1.0] * len(lost), room))
    return [owner if owner in workers else next(new) for owner in owners]


def neighbors(owners: Sequence[str]) -> list[str]:
    """Return for each part the worker after its owner, which keeps the copies; the owner if it is alone.

    >>> neighbors(["a", "a", "b", "c"])
    ['b', 'b', 'c', 'a']
    """
    workers = list(dict.fromkeys(owners))
    following = dict(zip(workers, [*workers[1:], workers[0]], strict=True))
    return [following[owner] for owner in owners]


class ClusterSource(Source):
    """X in parts on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
    loaders : sequence
        For each part an object whose `load` returns its rows on a worker; None where Dask has computed it already.
    futures : mapping of int to distributed.Future
        The parts that Dask has computed.
    weights : sequence of float
        The number of rows of each part, or 1 where it is not known; used to balance the load.
    needs : sequence of distributed.Future
        Futures of the user that those in `futures` depend on.

    Attributes
    ----------
    owners : list of str
        The worker of each part.
    losses, most_losses : int
        How often workers were lost since X was opened or a run began, and how often they may be.
    epoch : int
        How often arrays were restored to an earlier state; see `PassOrder`.
    """

    in_memory = False

    def __init__(
        self, client: Any, loaders: Sequence[Any], futures: Mapping[int, Any], weights: Sequence[float], needs: Any = ()
    ) -> None:
        if client.asynchronous:
            raise InputError("X on Dask needs a synchronous Client; got an asynchronous one. Use asyncio.to_thread.")
        self.cluster = Cluster(client, secrets.token_hex(4))
        self.loaders, self.futures, self.weights = loaders, futures, weights
        self.losses, self.most_losses = 0, MOST_LOSSES
        self.epoch = self.n_blocks = 0
        self._needs = [*futures.values(), *needs]
        self._warm: list[np.dtype[Any]] = []
        self._facts: dict[int, PartFacts] = {}
        self.owners = place(self.weights, self.cluster.wait_for_workers())
        self.cluster.find_direct_route()
        try:
            self.prepare()
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> list[str]:
        """The workers that own parts, in the order of the parts."""
        return list(dict.fromkeys(self.owners))

    @property
    def heights(self) -> list[int]:
        """The number of rows of each part."""
        return [self._facts[part].n_rows for part in range(len(self.loaders))]

    def shares(self, parts: Iterable[int] | None = None) -> dict[str, list[int]]:
        """Return some parts, by default all, by the worker that owns them."""
        found: dict[str, list[int]] = {}
        for part in range(len(self.owners)) if parts is None else parts:
            found.setdefault(self.owners[part], []).append(part)
        return found

    def prepare(self, *dtypes: np.dtype[Any], lost: WorkersLostError | None = None) -> None:
        """Open the parts that are not open and compile kernels for some float types.

        Parts of lost workers, now or meanwhile, are opened on the workers that are left or have joined.
        """
        self._warm += [dtype for dtype in dtypes if dtype not in self._warm]
        while True:
            if lost is not None:
                self._place_again(lost)
            try:
                return self._open_missing()
            except WorkersLostError as reason:
                lost = reason

    def move(self, owners: list[str]) -> None:
        """Open parts on other workers; rows of arrays are not moved."""
        self.owners = owners
        self._open_missing()

    def _open_missing(self) -> None:
        """Open the parts that their owners do not have yet: new ones, or those of a lost or restarted worker."""
        opened = self.cluster.call_each("open_parts", dict.fromkeys(self.workers, ({},)))
        known = dict(zip(self.workers, opened, strict=True))
        missing = [part for part, owner in enumerate(self.owners) if part not in known[owner]]
        tasks = {address: self._to_open(parts) for address, parts in self.shares(missing).items()}
        opened += self.cluster.call_each("open_parts", tasks, needs=self._needs) if tasks else []
        self._compare({part: facts for some in opened for part, facts in some.items()})
        if not self.n_blocks:
            self._lay_out()
        description = self.shape, self.dtype, self.starts, self._warm
        self.cluster.call_each("describe", dict.fromkeys(self.workers, description))

    def _compare(self, facts: Mapping[int, PartFacts]) -> None:
        """Store the properties of parts; raise FileError if a part differs from what a worker had of it before."""
        for part, found in facts.items():
            if self._facts.setdefault(part, found).checksum != found.checksum:
                raise changed_error(part)

    def _to_open(self, parts: Sequence[int]) -> tuple[Any, ...]:
        """Return the arguments of `WorkerStore.open_parts`."""
        loaders = {part: self._sendable(self.loaders[part]) for part in parts if part not in self.futures}
        return loaders, *((part, self.futures[part]) for part in parts if part in self.futures)

    def _sendable(self, loader: Any) -> Any:
        """Return a loader, or its future if it contains the rows themselves, which is too large for a task."""
        large = isinstance(loader, ComputedPart) and loader.nbytes > _LARGE_GRAPH
        return self.cluster.broadcast(loader, loader.nbytes, self.workers) if large else loader

    def _place_again(self, reason: Exception) -> None:
        """Assign the parts of lost workers to those that are present; raise ClusterError if that cannot help."""
        self.losses += 1
        if self.losses > self.most_losses:
            raise ClusterError(
                f"Workers were lost {self.losses} times, the last time because {reason}. Check whether their memory is "
                "too small (the documentation lists what they need). With a checkpoint the run resumes from it."
            )
        present = self.cluster.wait_for_workers()
        gone = set(self.workers) - set(present)
        log.warning("Lost %d of %d workers (%s); %d remain", len(gone), len(self.workers), reason, len(present))
        self._check_futures(set(present))
        self.owners = place_again(self.owners, present)

    def _check_futures(self, present: set[str]) -> None:
        """Raise ClusterError if parts of X that Dask had computed are lost or on workers that do not answer.

        Dask cancels scattered data that is lost with its worker (dask/distributed #3149).
        """
        if not self.futures:
            return
        holders = self.cluster.ask("who_has", keys=[future.key for future in self.futures.values()])
        for part, future in self.futures.items():
            on = holders.get(future.key)
            if future.status == "cancelled" or (on and present.isdisjoint(on)):
                raise ClusterError(
                    f"Part {part} of X was lost with its workers, or these do not answer. Compute it again, or pass X "
                    "as a dask.array or delayed values, which can be recomputed."
                )

    def _lay_out(self) -> None:
        """Derive the shape, the dtype and the blocks of X from its parts."""
        facts, heights = self._facts.values(), self.heights
        if 0 in heights:
            raise InputError(f"Every part of X must have rows; got {heights.count(0)} of {len(heights)} without.")
        widths = sorted({part.n_columns for part in facts})
        if len(widths) > 1:
            raise InputError(f"All parts of X must have the same number of columns; got {widths[0]} and {widths[-1]}.")
        self.shape, self.sparse = (sum(heights), widths[0]), all(part.sparse for part in facts)
        self.dtype = np.result_type(*{part.dtype for part in facts})
        self.starts = tuple(int(start) for start in np.cumsum([0, *heights[:-1]]))
        self.n_blocks = len(RowLayout(*self.shape, starts=self.starts).blocks)
        size, loaded = human_bytes(sum(part.nbytes for part in facts)), sum(not part.held for part in facts)
        log.info("X of shape %s, %s in %d parts; %d are loaded in every pass", self.shape, size, len(heights), loaded)

    def close(self) -> None:
        """Release X on the workers; arrays that were returned to the user stay."""
        try:
            self.cluster.call_each("close", dict.fromkeys(self.cluster.workers(), ()), timeout=5.0)
        except Exception as reason:
            log.info("X could not be released on all workers: %s", reason)

    def read(self, *given: Any, **named: Any) -> Any:
        raise NotImplementedError("The rows of X are on the workers.")

    part = read
