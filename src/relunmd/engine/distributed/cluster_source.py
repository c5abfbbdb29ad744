"""X on the workers of a cluster: who has which part of it, and where it is cut."""

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from relunmd.engine.distributed import worker as remote
from relunmd.engine.distributed import worker_tasks
from relunmd.engine.distributed.parts import Computed, PartFacts, changed, common
from relunmd.engine.distributed.placement import place, place_again
from relunmd.engine.distributed.worker import Layout
from relunmd.engine.distributed.worker_tasks import Cluster, WorkersGoneError
from relunmd.engine.matrix import Scratch, Source
from relunmd.engine.matrix.source import InMemory
from relunmd.errors import ClusterError, InputError
from relunmd.memory import human_bytes

__all__ = ["MOST_LOSSES", "ClusterSource"]

log = logging.getLogger("relunmd")
_LARGE = 2**18
MOST_LOSSES = 10
"""How often workers may be lost: a run that is too large for their memory loses them again and again."""


class ClusterSource(Source):
    """X in parts on the workers of a cluster; `close` lets go of it there.

    Parameters
    ----------
    client : of dask.distributed
    loaders : for each part what the workers load it with, or None where Dask has made it already
    futures : the parts that Dask has made
    heights : how many rows each part has, as far as that is known; to share them out fairly
    needs : futures of the user's that those in `futures` depend on
    """

    in_memory = False

    def __init__(
        self,
        client: Any,
        loaders: Sequence[Any],
        futures: Mapping[int, Any],
        heights: Sequence[float] | None = None,
        needs: Sequence[Any] = (),
    ) -> None:
        if client.asynchronous:
            raise InputError(
                "X on Dask needs a synchronous Client. Got an asynchronous one; call relunmd in a thread, for example "
                "by asyncio.to_thread."
            )
        self.name = secrets.token_hex(4)
        self.epoch = 0
        """How often arrays were set back to an earlier state; see `Order.epoch`."""
        self.client = client
        self.cluster = Cluster(client, self.name)
        self.loaders = loaders
        self.futures = futures
        self._needs = [*futures.values(), *needs]
        self.losses, self.most_losses = 0, MOST_LOSSES
        """How often workers were lost since X was opened or a run began, and how often they may be."""
        self.weights = [1.0] * len(loaders) if heights is None else list(heights)
        self.owners = place(self.weights, self.cluster.wait_for_workers(worker_tasks.PATIENCE))
        self.cluster.find_way()
        self._warm: list[np.dtype[Any]] = []
        self._checksums: dict[int, int] = {}
        try:
            self._lay_out(self._open(range(len(loaders))))
            try:
                self.describe()
            except WorkersGoneError as reason:
                self.take_over(reason)
        except BaseException:
            self.close()
            raise

    def _open(self, parts: Iterable[int]) -> dict[int, PartFacts]:
        """Have the owners take these parts; what they found."""
        while True:
            wanted: dict[str, list[int]] = {}
            for part in parts:
                wanted.setdefault(self.owners[part], []).append(part)
            try:
                tasks = [(address, self._to_open(mine)) for address, mine in wanted.items()]
                found = self.cluster.each(remote.open_parts, tasks, needs=self._needs)
            except WorkersGoneError as reason:
                self._place_again(reason)
                parts = range(len(self.owners))  # A worker of the same address may be another process.
                continue
            facts = {part: facts for some in found for part, facts in some.items()}
            self._compare(facts)
            return facts

    def _compare(self, facts: Mapping[int, PartFacts]) -> None:
        """Raise FileError if a part is not what another worker, or the same one, had of it before."""
        for part, found in facts.items():
            if self._checksums.setdefault(part, found.checksum) != found.checksum:
                raise changed(part)

    def _place_again(self, reason: Exception) -> None:
        """Give the parts of lost workers to those that are there; ClusterError if that cannot help."""
        self.losses += 1
        if self.losses > self.most_losses:
            raise ClusterError(
                f"Workers were lost {self.losses} times, the last time: {reason}. Is their memory too small? "
                "docs/scale.md has what they need. With a checkpoint the run resumes from it."
            )
        present = self.cluster.wait_for_workers(worker_tasks.PATIENCE)
        gone = set(self.workers) - set(present)
        log.warning("Lost %d of %d workers (%s); %d are there", len(gone), len(self.workers), reason, len(present))
        self._check_futures(present)
        self.owners = place_again(self.owners, present)

    def _check_futures(self, present: Iterable[str]) -> None:
        """Raise ClusterError if parts of X that Dask had made are lost, or are on workers that do not answer."""
        if not self.futures:
            return
        cancelled = [part for part, future in self.futures.items() if future.status == "cancelled"]
        holders = self.cluster.ask("who_has", keys=[future.key for future in self.futures.values()])
        reachable, silent = set(present), []
        for part, future in self.futures.items():
            on = set(holders.get(future.key, ()))
            if on and not on & reachable:
                silent.append(part)
        for parts, why in ((cancelled, "were lost with their workers"), (silent, "are on workers that do not answer")):
            if parts:
                raise ClusterError(
                    f"{len(parts)} of {len(self.loaders)} parts of X (the first is part {parts[0]}) {why}. Make them "
                    "again, or hand over X as a dask.array or as delayed values, which can be recomputed."
                )

    def _to_open(self, parts: Sequence[int]) -> tuple[Any, ...]:
        """What a worker needs to take these parts."""
        loaders = {part: self._sent(self.loaders[part]) for part in parts if part not in self.futures}
        return loaders, *((part, self.futures[part]) for part in parts if part in self.futures)

    def _sent(self, loader: Any) -> Any:
        """A loader as it travels: one that holds the rows themselves is no good as a part of a task."""
        large = isinstance(loader, Computed) and loader.nbytes > _LARGE
        return self.cluster.broadcast(loader, loader.nbytes, self.workers) if large else loader

    def _lay_out(self, facts: Mapping[int, PartFacts]) -> None:
        heights = [facts[part].n_rows for part in range(len(self.loaders))]
        if 0 in heights:  # Nothing to be done there, and a block has at least a row.
            raise InputError(f"Every part of X must have a row. Got {heights.count(0)} of {len(heights)} without.")
        n_columns, self.dtype, sparse = common(facts.values())
        self.sparse = sparse
        self.shape = sum(heights), n_columns
        self.starts = tuple(int(start) for start in np.cumsum([0, *heights[:-1]]))
        self.nbytes = sum(part.nbytes for part in facts.values())
        self.layout = Layout(self.shape, self.dtype, self.starts)
        self.n_blocks = len(self.layout.rows().blocks)
        read_again = sum(not part.held for part in facts.values())
        log.info(
            "X of %d × %d, %s in %d parts on %d workers; %d parts are made anew in every pass",
            *self.shape,
            human_bytes(self.nbytes),
            len(heights),
            len(self.workers),
            read_again,
        )

    @property
    def owners(self) -> list[str]:
        """For each part the worker that has it."""
        return self._owners

    @owners.setter
    def owners(self, owners: list[str]) -> None:
        self._owners = owners
        self.shares: dict[str, list[int]] = {}
        for part, owner in enumerate(owners):
            self.shares.setdefault(owner, []).append(part)

    @property
    def workers(self) -> list[str]:
        """Those that have a part, in the order of the parts."""
        return list(self.shares)

    def take_over(self, reason: Exception) -> None:
        """Have the workers that are left, or that join, take the parts of those that are gone."""
        while True:
            self._place_again(reason)
            try:
                self.open_missing()
                self.describe()
                return
            except WorkersGoneError as again:
                reason = again

    def open_missing(self) -> None:
        """Have the owners take the parts that they have not yet: those of a lost worker, or of one that began anew."""
        found = self.cluster.each(remote.parts_open, [(address, ()) for address in self.workers])
        known = dict(zip(self.workers, map(set, found), strict=True))
        self._open([part for part, owner in enumerate(self.owners) if part not in known[owner]])

    def describe(self, *dtypes: np.dtype[Any]) -> None:
        """Tell the workers where X is cut, and which float types they will compute in."""
        self._warm += [dtype for dtype in dtypes if dtype not in self._warm]
        self.cluster.each(remote.describe, [(address, (self.layout, self._warm)) for address in self.workers])

    def move(self, owners: Sequence[str]) -> None:
        """Have other workers take over parts; rows of arrays do not move with them."""
        before, self.owners = self.owners, list(owners)
        self._open([part for part, owner in enumerate(self.owners) if owner != before[part]])
        self.describe()

    def close(self) -> None:
        """Let go of X on the workers; arrays that were handed over stay."""
        try:
            self.cluster.each(remote.close, [(address, ()) for address in self.cluster.workers()], patience=5.0)
        except Exception as reason:
            log.info("X could not be let go of on all workers: %s", reason)

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple[InMemory, int]:
        raise NotImplementedError("The rows of X are on the workers.")

    def read(self, rows: slice) -> Any:
        raise NotImplementedError("The rows of X are on the workers.")
