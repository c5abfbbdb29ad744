"""X on the workers of a cluster: who has which part of it, and where it is cut."""

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from relunmd.cluster import asking
from relunmd.cluster import worker as remote
from relunmd.cluster.asking import Cluster, WorkersGoneError
from relunmd.cluster.parts import Computed, PartFacts, common
from relunmd.cluster.placing import place, place_again
from relunmd.cluster.worker import Layout
from relunmd.errors import InputError
from relunmd.matrix import Scratch, Source
from relunmd.matrix.source import InMemory
from relunmd.memory import human_bytes

__all__ = ["ClusterSource"]

log = logging.getLogger("relunmd")
_LARGE = 2**18


class ClusterSource(Source):
    """X in parts on the workers of a cluster; `close` lets go of it there.

    Parameters
    ----------
    client : of dask.distributed
    loaders : for each part what the workers load it with, or None where Dask has made it already
    futures : the parts that Dask has made
    heights : how many rows each part has, as far as that is known; to share them out fairly
    """

    in_memory = False

    def __init__(
        self, client: Any, loaders: Sequence[Any], futures: Mapping[int, Any], heights: Sequence[float] | None = None
    ) -> None:
        self.name = secrets.token_hex(4)
        self.client = client
        self.cluster = Cluster(client, self.name)
        self.loaders = loaders
        self.futures = futures
        self.weights = [1.0] * len(loaders) if heights is None else list(heights)
        self.owners = place(self.weights, self.cluster.wait_for_workers(asking.PATIENCE))
        self.cluster.find_way()
        self._warm: list[np.dtype[Any]] = []
        try:
            facts = self._open(range(len(loaders)))
            self._lay_out(facts)
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
                found = self.cluster.each(remote.open_parts, tasks)
            except WorkersGoneError:
                self.owners = place_again(self.owners, self.cluster.wait_for_workers(asking.PATIENCE))
                parts = range(len(self.owners))  # One that is there may have been started anew.
                continue
            return {part: facts for some in found for part, facts in some.items()}

    def _to_open(self, parts: Sequence[int]) -> tuple[Any, ...]:
        """What a worker needs to take these parts."""
        loaders = {part: self._sent(self.loaders[part]) for part in parts if part not in self.futures}
        return loaders, *((part, self.futures[part]) for part in parts if part in self.futures)

    def _sent(self, loader: Any) -> Any:
        """A loader as it travels: one that holds the rows themselves is no good as a part of a task."""
        large = isinstance(loader, Computed) and loader.nbytes > _LARGE
        return self.cluster.broadcast(loader) if large else loader

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
        self.describe()
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
