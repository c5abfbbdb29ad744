"""What a worker has: its parts of X, its rows of the arrays that belong to them, and passes over both.

Both are kept in the worker process beside Dask's own memory and outlive a task. The driver calls a method of a
`WorkerStore` by `call_store`. A pass is one task: it processes all blocks of the worker in as many threads as the
worker has, and adds up as much of the tree of sums as it can. A pass does not change what it reads, and copies that are
kept against the loss of a worker are never overwritten.
"""

import bisect
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd import memory
from relunmd.engine import kernels
from relunmd.engine.distributed.parts import (
    ComputedPart,
    PartFacts,
    changed_error,
    dask_module,
    in_memory,
    stored_bytes,
)
from relunmd.engine.distributed.refusals import WorkersLostError, refusing
from relunmd.engine.distributed.row_files import read_part, write_part
from relunmd.engine.distributed.shared_arrays import unfold_transposes
from relunmd.engine.executor import BlockFunction, Sums, Team, Tree, one_blas_thread
from relunmd.engine.matrix import Matrix, RowLayout, Scratch, Source
from relunmd.engine.matrix.read_check import row_sums
from relunmd.engine.matrix.source import InMemory, Slab
from relunmd.errors import FileError

__all__ = ["PartialSums", "PassOrder", "RowSpec", "WorkerStore", "add_sums", "call_store"]

Array = NDArray[Any]
Arrays = dict[int, dict[int, Array]]
"""Rows of arrays, by the number of the array and of the block."""
RowSpec = tuple[int, int, np.dtype[Any]]
"""Number, columns and dtype of an array of m rows."""

_SHARE_FOR_X = 0.4
"""The fraction of a worker's memory that parts of X take at most. The rest is for W, its like, and Dask."""


@dataclass(frozen=True)
class PassOrder:
    """A pass over X, as it is sent to the workers.

    Attributes
    ----------
    rows : mapping of str to int
        The numbers of the arrays that are read.
    out : mapping of str to RowSpec
        The arrays that are written.
    drop : sequence of int
        The numbers of arrays that are no longer needed.
    kept : int
        The generation of copies that `ClusterExecutor.restore` would restore. Earlier ones are no longer needed.
    epoch : int
        Increases whenever arrays are restored. Passes of an earlier epoch are not executed.
    """

    function: BlockFunction
    dtype: np.dtype[Any]
    scale: float
    rows: Mapping[str, int]
    out: Mapping[str, RowSpec]
    drop: Sequence[int]
    kept: int
    epoch: int


@dataclass(frozen=True)
class PartialSums:
    """The sums of some workers: nodes of the tree of sums, and the seconds that the slowest worker took."""

    nodes: dict[tuple[int, int], Sums]
    seconds: float


class WorkerStore(Source):
    """One X on one worker.

    Attributes
    ----------
    arrays : Arrays
        The current rows of arrays.
    kept : dict of int to Arrays
        Copies by generation, of this worker's blocks and of those of a neighbor.
    loaders, held, facts : dict
        By part: what loads it, its rows if they are kept in memory, and its properties.
    """

    def __init__(self, n_threads: int) -> None:
        self.lock = threading.RLock()
        self.arrays: Arrays = {}
        self.kept: dict[int, Arrays] = {}
        self.loaders: dict[int, Any] = {}
        self.held: dict[int, InMemory] = {}
        self.facts: dict[int, PartFacts] = {}
        self.team = Team(n_threads)
        self._checksums: dict[int, int] = {}
        self._epoch = 0
        self._matrices: dict[tuple[np.dtype[Any], float], Matrix] = {}
        self._cuts: list[slice] = []
        self._blocks: dict[int, list[int]] = {}

    def open_parts(self, loaders: Mapping[int, Any], *held: tuple[int, Any]) -> dict[int, PartFacts]:
        """Take parts of X: some to load, and some that Dask has computed already.

        Loaded parts are kept in memory as long as there is room for them.
        """
        others = [rows for store in list(_STORES.values()) for rows in list(store.held.values())]
        room = _room_for_x() - sum(map(stored_bytes, others))
        for index, part in held:
            self.held[index] = in_memory(part)
            self._describe_part(index, self.held[index])
        for index, loader in loaders.items():
            self.loaders[index] = loader
            rows = self.load(index)
            room -= stored_bytes(rows)
            if room >= 0:
                self.held[index] = rows
            self._describe_part(index, rows)
        return {index: self.facts[index] for index in [*loaders, *dict(held)]}

    def _describe_part(self, index: int, rows: InMemory) -> None:
        checksum, size = self._checksums.get(index, 0), stored_bytes(rows)
        self.facts[index] = PartFacts(*rows.shape, rows.dtype, rows.sparse, size, index in self.held, checksum)

    def opened_parts(self) -> dict[int, PartFacts]:
        """Return the properties of the parts that this worker has."""
        return dict(self.facts)

    def load(self, index: int) -> InMemory:
        """Load a part; raise FileError if it comes from a file and is not what it was before."""
        loader = self.loaders[index]
        rows = in_memory(loader.load())
        if not isinstance(loader, ComputedPart):  # Another processor may round differently.
            checksum = int(row_sums(rows.read(slice(0, rows.shape[0]))).sum(dtype=np.uint64))
            if self._checksums.setdefault(index, checksum) != checksum:
                raise changed_error(index)
        return rows

    def describe(
        self, shape: tuple[int, int], dtype: np.dtype[Any], starts: tuple[int, ...], warm: Sequence[np.dtype[Any]]
    ) -> None:
        """Set the shape, the dtype and the parts of the whole X, and compile the kernels for some float types."""
        self.shape, self.dtype, self.starts = shape, dtype, starts
        self._cuts = RowLayout(*shape, starts=starts).blocks
        self._matrices, self._blocks = {}, {}
        for block, cut in enumerate(self._cuts):
            self._blocks.setdefault(bisect.bisect_right(starts, cut.start) - 1, []).append(block)
        for float_type in warm:
            kernels.warm_up(float_type)

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple[InMemory, int]:
        """Return a part, held or loaded; a loaded one is kept for this thread until it needs another."""
        index = bisect.bisect_right(self.starts, rows.start) - 1
        start = self.starts[index]
        if index in self.held:
            return self.held[index], start
        slab = scratch.kept
        if not (isinstance(slab, Slab) and slab.has(self, rows)):
            if index not in self.loaders:
                raise _lost(f"part {index} of X")
            scratch.kept = slab = None  # Frees the memory of the previous part.
            loaded = self.load(index)
            scratch.kept = slab = Slab(self, start, start + loaded.shape[0], loaded)
        return slab.part, start

    def read(self, rows: slice) -> Any:
        raise NotImplementedError

    def blocks(self, parts: Sequence[int]) -> list[int]:
        """Return the blocks of some parts."""
        if not self._cuts:
            raise _lost("X")
        return [block for part in parts for block in self._blocks[part]]

    def rows_of(self, number: int, block: int) -> Array:
        """Return a block's rows of an array."""
        try:
            return self.arrays[number][block]
        except KeyError:
            raise _lost(f"block {block} of array {number}") from None

    def height(self, block: int) -> int:
        """Return the number of rows of a block."""
        return int(self._cuts[block].stop - self._cuts[block].start)

    def run(self, order: PassOrder, parts: Sequence[int], shared: dict[str, Any], large: dict[str, Any]) -> PartialSums:
        """Make a pass over this worker's blocks."""
        begin = time.perf_counter()
        blocks = self.blocks(parts)
        if order.epoch < self._epoch:
            raise _lost("the arrays of an earlier epoch")
        for number in order.drop:
            self.arrays.pop(number, None)
        self.kept = {generation: kept for generation, kept in self.kept.items() if generation >= order.kept}
        self._allocate(order.out.values(), blocks)
        matrix = self._matrices.setdefault((order.dtype, order.scale), Matrix(self, order.dtype, order.scale))
        # Any thread takes a block of a part that is held. Another part is loaded by one thread for all its blocks.
        jobs = [[block] for part in parts if part in self.held for block in self._blocks[part]]
        jobs += [self._blocks[part] for part in parts if part not in self.held]
        tree = Tree(len(self._cuts), self.team.sums.give_back)
        values = unfold_transposes({**shared, **large})

        def work(job: int, scratch: Scratch) -> None:
            for index in jobs[job]:
                given = {name: self.rows_of(number, index) for name, number in order.rows.items()}
                made = {name: self.rows_of(number, index) for name, (number, _, _) in order.out.items()}
                tree.add(order.function(matrix.block(index, scratch), given, made, **values), index)

        with one_blas_thread:
            self.team.spread(work, len(jobs), lambda: False)
        self.team.sums.end_of_pass()
        return PartialSums(tree.nodes, time.perf_counter() - begin)

    def _allocate(self, specs: Any, blocks: Sequence[int]) -> None:
        """Allocate what a pass writes, unless it exists and is not kept.

        All blocks of an array are slices of one allocation: their own would be too small for the large pages that NumPy
        requests from the system.
        """
        for number, columns, dtype in specs:
            known = self.arrays.get(number, {})
            if all(block in known and not self._is_kept(number, block) for block in blocks):
                continue
            ends = np.cumsum([self.height(block) for block in blocks])
            whole = np.empty((ends[-1], columns), dtype)
            self.arrays[number] = dict(zip(blocks, np.split(whole, ends[:-1]), strict=True))

    def _is_kept(self, number: int, block: int) -> bool:
        rows = self.arrays[number][block]
        return any(kept.get(number, {}).get(block) is rows for kept in self.kept.values())

    def put_rows(self, number: int, part: int, rows: Any) -> None:
        """Store a part's rows of an array that the user passed."""
        blocks = self.blocks([part])
        ends = np.cumsum([self.height(block) for block in blocks])
        pieces = [np.array(piece, order="C") for piece in np.split(np.asarray(rows), ends[:-1])]
        self.arrays.setdefault(number, {}).update(zip(blocks, pieces, strict=True))

    def get_rows(self, number: int, part: int) -> Array:
        """Return a copy of a part's rows of an array."""
        return np.concatenate([self.rows_of(number, block) for block in self.blocks([part])])

    def keep(self, generation: int, numbers: Sequence[int] | None, parts: Sequence[int]) -> None:
        """Keep the current rows of some arrays (None for all) without a copy: kept rows are not overwritten."""
        blocks = self.blocks(parts)
        if numbers is None:
            numbers = [number for number, rows in self.arrays.items() if rows.keys() >= set(blocks)]
        self.kept.setdefault(generation, {}).update(
            {number: {block: self.rows_of(number, block) for block in blocks} for number in numbers}
        )

    def kept_rows(self, generation: int, parts: Sequence[int]) -> Arrays:
        """Return what was kept of some parts."""
        blocks = self.blocks(parts)
        kept = self.kept.get(generation)
        if kept is None or not all(rows.keys() >= set(blocks) for rows in kept.values()):
            raise _lost(f"generation {generation} of the kept rows")
        return {number: {block: rows[block] for block in blocks} for number, rows in kept.items()}

    def take_rows(self, generation: int, given: Arrays) -> None:
        """Keep a copy of what another worker kept."""
        kept = self.kept.setdefault(generation, {})
        for number, rows in given.items():
            # A copy, which is writable: what Dask received over the network may not be.
            kept.setdefault(number, {}).update({block: np.array(array) for block, array in rows.items()})

    def kept_parts(self, generation: int) -> list[int]:
        """Return the parts of which this worker has everything that was kept."""
        kept = self.kept.get(generation)
        if kept is None:
            return []
        return [part for part, blocks in self._blocks.items() if all(r.keys() >= set(blocks) for r in kept.values())]

    def restore(self, generation: int, parts: Sequence[int], epoch: int, final: bool) -> None:
        """Set the arrays back to what was kept of these parts; if `final`, it need not be kept any longer."""
        self.arrays = self.kept_rows(generation, parts)
        self._epoch = epoch
        if final:
            del self.kept[generation]

    def write_rows(self, folder: str, numbers: Sequence[int], parts: Sequence[int]) -> None:
        """Write the rows of arrays, one file per part."""
        for part in parts:
            blocks = self.blocks([part])
            write_part(folder, part, {f"{n}.{block}": self.rows_of(n, block) for n in numbers for block in blocks})

    def read_rows(self, folder: str, wanted: Mapping[int, RowSpec], parts: Sequence[int]) -> None:
        """Read what `write_rows` wrote; `wanted` maps the number of an array in the file to the array now."""
        for part in parts:
            arrays = read_part(folder, part)
            for old, (number, columns, dtype) in wanted.items():
                for block in self.blocks([part]):
                    rows = arrays.get(f"{old}.{block}")
                    if rows is None or rows.shape != (self.height(block), columns) or rows.dtype != dtype:
                        raise FileError(
                            f"The rows of part {part} in {folder} are damaged: those of block {block} are missing or "
                            "have another shape or dtype. Name another checkpoint, or delete this one."
                        )
                    self.arrays.setdefault(number, {})[block] = np.ascontiguousarray(rows)

    def forget_rows(self) -> None:
        """Release the arrays, but not X."""
        self.arrays, self.kept = {}, {}

    def close(self) -> None:
        """Release the threads."""
        self.team.close()


_STORES: dict[tuple[str, str], WorkerStore] = {}
"""By the name of X and the address of the worker: several workers may be threads of one process."""
_STORES_LOCK = threading.Lock()
_WITHOUT_X = ("open_parts", "opened_parts", "kept_parts", "close")
"""Methods that may be called on a worker that does not have X."""


@refusing
def call_store(name: str, method: str, *given: Any) -> Any:
    """Call a method of this worker's store for the X of this name."""
    worker = _this_worker()
    key = name, worker.address
    with _STORES_LOCK:
        store = _STORES.get(key)
        if store is None:
            if method not in _WITHOUT_X:
                raise _lost("X")
            store = WorkerStore(worker.state.nthreads)
        if method == "open_parts":
            _STORES[key] = store
        elif method == "close":
            _STORES.pop(key, None)
    with store.lock:
        return getattr(store, method)(*given)


@refusing
def add_sums(count: int, *partials: PartialSums) -> PartialSums:
    """Add the sums of several workers; `count` is the number of blocks of X."""
    tree = Tree(count, lambda _: None)
    for partial in partials:
        for (start, stop), share in partial.nodes.items():
            own = {key: np.array(value) if isinstance(value, np.ndarray) else value for key, value in share.items()}
            tree.add(own, start, stop)
    return PartialSums(tree.nodes, max(partial.seconds for partial in partials))


def _lost(what: str) -> WorkersLostError:
    return WorkersLostError(f"a worker no longer has {what}")


def _this_worker() -> Any:
    return dask_module().get_worker()


def _room_for_x() -> int:
    limit = getattr(_this_worker().memory_manager, "memory_limit", None) or memory.available_bytes() or 2**34
    return int(_SHARE_FOR_X * limit)
