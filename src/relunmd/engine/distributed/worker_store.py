"""What a worker has: its parts of X, its rows of the arrays that belong to them, and passes over both.

Both are kept in the worker process beside Dask's own memory and outlive a task. The driver calls a method of a
`WorkerStore` by `call_store`. A pass is one task: it processes all blocks of the worker in as many threads as the
worker has, and adds up as much of the tree of sums as it can. A pass does not change what it reads, and copies that are
kept against the loss of a worker are never overwritten.
"""

import bisect
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from relunmd import memory
from relunmd.engine import kernels
from relunmd.engine.blas_threads import one_blas_thread
from relunmd.engine.distributed.parts import Array, ComputedPart, PartFacts, changed_error, in_memory, part_bytes
from relunmd.engine.distributed.refusals import WorkersLostError, refusing
from relunmd.engine.distributed.row_files import read_part, write_part
from relunmd.engine.distributed.shared_arrays import unfold_transposes
from relunmd.engine.executor import BlockFunction, Sums, Team, grouped
from relunmd.engine.matrix import Matrix, RowLayout, Scratch, Source
from relunmd.engine.matrix.read_check import row_sums
from relunmd.engine.matrix.source import InMemory, Slab
from relunmd.engine.tree_sum import Tree
from relunmd.errors import FileError

Arrays = dict[int, dict[int, Array]]
"""Rows of arrays, by the number of the array and the part of X."""
RowSpec = tuple[int, int, np.dtype[Any]]
"""Number, columns and dtype of an array of m rows."""

Nodes = dict[tuple[int, int], Sums]
"""Nodes of the tree of sums, by the run of blocks that they are the sums of."""

_SHARE_FOR_X = 0.4
"""The fraction of a worker's memory that parts of X take at most. The rest is for W, its like, and Dask."""


@dataclass(frozen=True)
class PassOrder:
    """A pass over X, as it is sent to the workers.

    Attributes
    ----------
    matrix : Matrix
        X without its source, which is on the worker.
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
    matrix: Matrix
    rows: Mapping[str, int]
    out: Mapping[str, RowSpec]
    drop: Sequence[int]
    kept: int
    epoch: int


class WorkerStore(Source):
    """One X on one worker.

    Attributes
    ----------
    arrays : Arrays
        The current rows of arrays.
    kept : dict of int to Arrays
        Copies by generation, of this worker's parts and of those of a neighbor.
    loaders, held, facts : dict
        By part: what loads it, its rows of X if they are kept in memory, and its properties.
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
        self._blocks: dict[int, list[int]] = {}
        """The blocks of each part of X, here or elsewhere."""

    def open_parts(self, loaders: Mapping[int, Any], *held: tuple[int, Any]) -> dict[int, PartFacts]:
        """Take parts of X: some to load, and some that Dask has computed already; return those that this worker has.

        Loaded parts are kept in memory as long as there is room for them.
        """
        limit = getattr(_this_worker().memory_manager, "memory_limit", None) or memory.available_bytes() or 2**34
        others = [rows for store in list(_STORES.values()) for rows in list(store.held.values())]
        room = int(_SHARE_FOR_X * limit) - sum(map(part_bytes, others))
        computed = dict(held)
        self.loaders.update(loaders)
        for index in [*computed, *loaders]:
            rows = in_memory(computed[index]) if index in computed else self.load(index)
            size, checksum = part_bytes(rows), self._checksums.get(index, 0)
            room -= size
            if room >= 0 or index in computed:
                self.held[index] = rows
            self.facts[index] = PartFacts(*rows.shape, rows.dtype, rows.sparse, size, index in self.held, checksum)
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

    def describe(self, shape: tuple[int, int], dtype: Any, starts: tuple[int, ...], warm: Iterable[Any]) -> None:
        """Set the shape, the dtype and the parts of the whole X, and compile the kernels for some float types."""
        self.shape, self.dtype, self.starts = shape, dtype, starts
        self._blocks = {}
        for block, cut in enumerate(RowLayout(*shape, starts=starts).blocks):
            self._blocks.setdefault(self._part_at(cut.start), []).append(block)
        for float_type in warm:
            kernels.warm_up(float_type)

    def _part_at(self, row: int) -> int:
        return bisect.bisect_right(self.starts, row) - 1

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple[InMemory, int]:
        """Return a part, held or loaded; a loaded one is kept for this thread until it needs another."""
        index = self._part_at(rows.start)
        start = self.starts[index]
        if index in self.held:
            return self.held[index], start
        slab = Slab.find(scratch, self, rows)
        if slab is None:
            if index not in self.loaders:
                raise _lost(f"part {index} of X")
            scratch.kept = None  # Frees the memory of the previous part.
            loaded = self.load(index)
            scratch.kept = slab = Slab(self, start, start + loaded.shape[0], loaded)
        return slab.part, start

    def read(self, rows: slice) -> Any:
        raise NotImplementedError

    def _rows_of(self, number: int, part: int) -> Array:
        """Return a part's rows of an array."""
        try:
            return self.arrays[number][part]
        except KeyError:
            raise _lost(f"part {part} of array {number}") from None

    def run(self, order: PassOrder, parts: Sequence[int], folded: Mapping[str, Any]) -> Nodes:
        """Make a pass over the blocks of some parts; return their sums as far as they can be added."""
        if not self._blocks or not self.facts.keys() >= set(parts) or order.epoch < self._epoch:
            raise _lost("X, or the arrays of an earlier epoch")
        for number in order.drop:
            self.arrays.pop(number, None)
        self.kept = {generation: kept for generation, kept in self.kept.items() if generation >= order.kept}
        self._allocate(order.out.values(), parts)
        shared = unfold_transposes(folded)
        matrix = replace(order.matrix, source=self)
        tree = Tree(sum(map(len, self._blocks.values())), self.team.sums.give_back)
        # Any thread takes a block of a part that is held. Another part is loaded by one thread for all its blocks.
        jobs = [(part, [block]) for part in parts if part in self.held for block in self._blocks[part]]
        jobs += [(part, self._blocks[part]) for part in parts if part not in self.held]

        def work(job: int, scratch: Scratch) -> None:
            part, blocks = jobs[job]
            for index in blocks:
                x = matrix.block(index, scratch)
                cut = slice(x.rows.start - self.starts[part], x.rows.stop - self.starts[part])
                given = {name: self._rows_of(number, part)[cut] for name, number in order.rows.items()}
                made = {name: self._rows_of(number, part)[cut] for name, (number, _, _) in order.out.items()}
                tree.add(order.function(x, grouped(given), grouped(made), **shared), index)

        with one_blas_thread:
            self.team.spread(work, len(jobs), lambda: False)
        self.team.sums.end_of_pass()
        return tree.nodes

    def _allocate(self, specs: Iterable[RowSpec], parts: Sequence[int]) -> None:
        """Allocate what a pass writes, unless it exists and is not kept.

        All parts of an array are slices of one allocation: their own may be too small for the large pages that NumPy
        requests from the system.
        """
        for number, columns, dtype in specs:
            known = self.arrays.get(number, {})
            kept = [arrays.get(number, {}) for arrays in self.kept.values()]
            if all(part in known and not any(rows.get(part) is known[part] for rows in kept) for part in parts):
                continue
            ends = np.cumsum([self.facts[part].n_rows for part in parts])
            whole = np.empty((ends[-1], columns), dtype)
            self.arrays[number] = dict(zip(parts, np.split(whole, ends[:-1]), strict=True))

    def put_rows(self, number: int, part: int, rows: Any) -> None:
        """Store a part's rows of an array."""
        self.arrays.setdefault(number, {})[part] = np.array(rows, order="C")

    def get_rows(self, number: int, part: int) -> Array:
        """Return a copy of a part's rows of an array."""
        return self._rows_of(number, part).copy()

    def keep(self, generation: int, numbers: Sequence[int] | None, parts: Sequence[int]) -> None:
        """Keep the current rows of some arrays (None for all) without a copy: kept rows are not overwritten."""
        if numbers is None:
            numbers = [number for number, rows in self.arrays.items() if rows.keys() >= set(parts)]
        kept = {number: {part: self._rows_of(number, part) for part in parts} for number in numbers}
        self.kept.setdefault(generation, {}).update(kept)

    def kept_rows(self, generation: int, parts: Sequence[int]) -> Arrays:
        """Return what was kept of some parts."""
        if not set(parts) <= set(self.kept_parts(generation)):
            raise _lost(f"generation {generation} of the kept rows")
        return {number: {part: rows[part] for part in parts} for number, rows in self.kept[generation].items()}

    def take_rows(self, generation: int, given: Arrays) -> None:
        """Keep a copy of what another worker kept."""
        kept = self.kept.setdefault(generation, {})
        for number, rows in given.items():
            # A copy, which is writable: what Dask received over the network may not be.
            kept.setdefault(number, {}).update({part: np.array(array) for part, array in rows.items()})

    def kept_parts(self, generation: int) -> list[int]:
        """Return the parts of which this worker has everything that was kept."""
        kept = self.kept.get(generation)
        if kept is None:
            return []
        return [part for part in self._blocks if all(part in rows for rows in kept.values())]

    def restore(self, generation: int, parts: Sequence[int], epoch: int) -> None:
        """Set the arrays back to what was kept of these parts."""
        self.arrays, self._epoch = self.kept_rows(generation, parts), epoch

    def write_rows(self, folder: str, numbers: Sequence[int], parts: Sequence[int]) -> None:
        """Write the rows of arrays, one file per part."""
        for part in parts:
            write_part(folder, part, {str(number): self._rows_of(number, part) for number in numbers})

    def read_rows(self, folder: str, wanted: Mapping[int, RowSpec], parts: Sequence[int]) -> None:
        """Read what `write_rows` wrote; `wanted` maps the number of an array in the file to the array now."""
        for part in parts:
            arrays = read_part(folder, part)
            for old, (number, columns, dtype) in wanted.items():
                rows = arrays.get(str(old))
                if rows is None or rows.shape != (self.facts[part].n_rows, columns) or rows.dtype != dtype:
                    raise FileError(f"part-{part:06d} in {folder} is damaged: array {old} is missing or differs.")
                self.put_rows(number, part, rows)

    def forget_rows(self) -> None:
        """Release the arrays, but not X."""
        self.arrays, self.kept = {}, {}

    def close(self) -> None:
        """Release the threads."""
        self.team.close()


_STORES: dict[tuple[str, str], WorkerStore] = {}
"""By the name of X and the address of the worker: several workers may be threads of one process."""
_STORES_LOCK = threading.Lock()
_WITHOUT_X = ("open_parts", "kept_parts", "close")
"""Methods that may be called on a worker that does not have X."""


@refusing
def call_store(name: str, method: str, *given: Any) -> Any:
    """Call a method of this worker's store for the X of this name."""
    worker = _this_worker()
    key = name, worker.address
    with _STORES_LOCK:
        store = _STORES.get(key)
        if store is None and method not in _WITHOUT_X:
            raise _lost("X")
        store = store or WorkerStore(worker.state.nthreads)
        if method == "open_parts":
            _STORES[key] = store
        elif method == "close":
            _STORES.pop(key, None)
    with store.lock:
        return getattr(store, method)(*given)


@refusing
def add_sums(count: int, *partials: Nodes) -> Nodes:
    """Add the sums of several workers; `count` is the number of blocks of X."""
    tree = Tree(count, lambda _: None)
    for partial in partials:
        for (start, stop), share in partial.items():
            own = {key: np.array(value) if isinstance(value, np.ndarray) else value for key, value in share.items()}
            tree.add(own, start, stop)
    return tree.nodes


def _lost(what: str) -> WorkersLostError:
    return WorkersLostError(f"a worker no longer has {what}")


def _this_worker() -> Any:
    return import_module("distributed").get_worker()
