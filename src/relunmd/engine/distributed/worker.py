"""What runs on a worker: its parts of X, its rows of the arrays that belong to them, and passes over both.

Both are kept in this process beside Dask's own memory and outlive a task. A pass is one task: it makes all of the
worker's blocks in as many threads as the worker has, and adds up as much of the tree of sums as it can. Nothing that a
pass reads is changed, and what was kept against a loss is never written over.
"""

import bisect
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from relunmd import memory
from relunmd._util import need
from relunmd.engine import kernels
from relunmd.engine.blas_threads import one_blas_thread
from relunmd.engine.distributed.parts import Computed, PartFacts, changed, in_memory
from relunmd.engine.executor import BlockFunction, Sums, Team, grouped
from relunmd.engine.matrix import Matrix, RowLayout, Scratch, Source
from relunmd.engine.matrix.read_check import row_sums
from relunmd.engine.matrix.source import InMemory
from relunmd.engine.tree_sum import Tree
from relunmd.errors import ClusterError, FileError, RelunmdError
from relunmd.io.archive import read_archive, write_archive

__all__ = ["Layout", "LostRowsError", "MissingError", "Order", "Partial", "Refusal", "Turned"]

Array = NDArray[Any]
Nodes = dict[tuple[int, int], Sums]
ByBlock = dict[int, Array]
Arrays = dict[int, ByBlock]
"""Rows of arrays, by the array's number and the block's."""

_SHARE_FOR_X = 0.4
"""Of a worker's memory: what it keeps of X at most. The rest is for W and what belongs to it, and for Dask."""


class MissingError(Exception):
    """A worker has not the rows it is asked for: it is another process than the one that had them."""


class LostRowsError(ClusterError):
    """Rows that were handed over to the user are lost with the worker that had them."""


@dataclass(frozen=True)
class Layout:
    """Where X is cut, as all workers see it."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    starts: tuple[int, ...]

    def rows(self) -> RowLayout:
        return RowLayout(*self.shape, starts=self.starts)


@dataclass(frozen=True)
class Order:
    """What a worker is to do in a pass."""

    function: BlockFunction
    dtype: np.dtype[Any]
    scale: float
    parts: Sequence[int]
    rows: Mapping[str, int]
    """The numbers of the arrays to be read."""
    out: Mapping[str, tuple[int, int, np.dtype[Any]]]
    """Number, columns and dtype of those to be written."""
    drop: Sequence[int]
    """Numbers of arrays that nobody will ask for any more."""
    kept: int
    """The generation that `restore` would bring back; earlier ones are no longer needed."""
    epoch: int
    """Rises whenever the arrays are set back: what was asked for before that is no longer to be done."""


@dataclass(frozen=True)
class Partial:
    """A worker's share of the sums: nodes of the tree, and how long it took."""

    nodes: Nodes
    seconds: float
    parts: int = 1


@dataclass(frozen=True)
class Refusal:
    """What a task raises on purpose, as its result: Dask would write a raised one to the worker's log as a failure."""

    reason: Exception


F = TypeVar("F", bound=Callable[..., Any])


def _answers(function: F) -> F:
    """A task that gives a Refusal for what it raises on purpose, or was given instead of another task's result."""

    @wraps(function)
    def task(*given: Any) -> Any:
        refusals = [each for each in given if isinstance(each, Refusal)]
        if refusals:
            return refusals[0]
        try:
            return function(*given)
        except (RelunmdError, MissingError) as reason:
            return Refusal(reason)

    return task  # type: ignore[return-value]


class _Rows(Source):
    """X as this worker has it: the shape is that of the whole, and its parts are where they are asked for."""

    def __init__(self, layout: Layout, store: "_Store") -> None:
        self.shape = layout.shape
        self.dtype = layout.dtype
        self.starts = layout.starts
        self._store = store

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple[InMemory, int]:
        index = bisect.bisect_right(self.starts, rows.start) - 1
        return self._store.part(index, scratch), self.starts[index]

    def read(self, rows: slice) -> Any:
        raise NotImplementedError


class _Store:
    """One X on one worker."""

    def __init__(self, n_threads: int) -> None:
        self.lock = threading.RLock()
        self.arrays: Arrays = {}
        self.epoch = 0
        self.kept: dict[int, Arrays] = {}
        """By generation, of this worker's blocks and of those it keeps for another."""
        self.loaders: dict[int, Any] = {}
        self.held: dict[int, InMemory] = {}
        self.checksums: dict[int, int] = {}
        self.team = Team(n_threads)
        self._layout: Layout | None = None
        self._matrices: dict[tuple[np.dtype[Any], float], Matrix] = {}
        self._blocks: dict[int, list[int]] = {}
        self._cuts: list[slice] = []

    def describe(self, layout: Layout) -> None:
        """Learn where X is cut."""
        self._cuts = layout.rows().blocks
        self._layout = layout
        self._matrices = {}
        self._blocks = {}
        for block, cut in enumerate(self._cuts):
            part = bisect.bisect_right(layout.starts, cut.start) - 1
            self._blocks.setdefault(part, []).append(block)

    def part(self, index: int, scratch: Scratch) -> InMemory:
        """The rows of a part: as they are held, or loaded anew and kept for this thread until it asks for others."""
        found = self.held.get(index)
        if found is not None:
            return found
        last = scratch.kept
        if not (isinstance(last, _Loaded) and last.store is self and last.index == index):
            if index not in self.loaders:
                raise MissingError(f"part {index} of X")
            scratch.kept = last = None  # Its memory is free for the next.
            scratch.kept = last = _Loaded(self, index, self.load(index)[0])
        return last.rows

    def load(self, index: int) -> tuple[InMemory, int]:
        """Load a part and its checksum; what is read from a file must be the same each time."""
        loader = self.loaders[index]
        rows = in_memory(loader.load())
        checksum = 0 if isinstance(loader, Computed) else _checksum(rows)  # Another processor may round differently.
        if self.checksums.setdefault(index, checksum) != checksum:
            raise changed(index)
        return rows, checksum

    def blocks(self, parts: Sequence[int]) -> list[int]:
        return [block for part in parts for block in self._blocks[part]]

    def rows_of(self, number: int, block: int) -> Array:
        try:
            return self.arrays[number][block]
        except KeyError:
            raise MissingError(f"block {block} of array {number}") from None

    def look(self, order: Order, shared: Mapping[str, Any]) -> Partial:
        begin = time.perf_counter()
        if self._layout is None or order.epoch < self.epoch:
            raise MissingError("X, or what has been set back since")
        self._forget(order)
        key = order.dtype, order.scale
        if key not in self._matrices:
            self._matrices[key] = Matrix(_Rows(self._layout, self), order.dtype, order.scale)
        matrix = self._matrices[key]
        # Blocks of a part that is held go to any thread; a part that is not held is loaded by one thread, for all of
        # its blocks one after the other.
        jobs = [[block] for part in order.parts if part in self.held for block in self._blocks[part]]
        jobs += [self._blocks[part] for part in order.parts if part not in self.held]
        tree = Tree(len(self._cuts), self.team.sums.give_back)
        self._make_room(order)

        def one(job: int, scratch: Scratch) -> None:
            for index in jobs[job]:
                block = matrix.block(index, scratch)
                given = {name: self.rows_of(number, index) for name, number in order.rows.items()}
                made = {name: self.rows_of(number, index) for name, (number, _, _) in order.out.items()}
                tree.add(order.function(block, grouped(given), grouped(made), **shared), index)

        self.team.spread(one, len(jobs), lambda: False)
        self.team.sums.end_of_pass()
        return Partial(tree.nodes, time.perf_counter() - begin, len(order.parts))

    def _make_room(self, order: Order) -> None:
        """Memory for what a pass writes: what is there, or new if that is kept.

        One array for all blocks, of which each has its rows: in arrays of their own they would be too small for the
        large pages that NumPy asks the system for.
        """
        blocks = self.blocks(order.parts)
        for number, columns, dtype in order.out.values():
            known = self.arrays.get(number, {})
            if all(block in known and not self._is_kept(number, block, known[block]) for block in blocks):
                continue
            whole = np.empty((sum(self.height(block) for block in blocks), columns), dtype)
            self.arrays[number], at = {}, 0
            for block in blocks:
                self.arrays[number][block] = whole[at : at + self.height(block)]
                at += self.height(block)

    def _is_kept(self, number: int, block: int, rows: Array) -> bool:
        return any(kept.get(number, {}).get(block) is rows for kept in self.kept.values())

    def height(self, block: int) -> int:
        """Rows of a block."""
        cut = self._cuts[block]
        return int(cut.stop - cut.start)

    def _forget(self, order: Order) -> None:
        for number in order.drop:
            self.arrays.pop(number, None)
        for generation in [known for known in self.kept if known < order.kept]:
            del self.kept[generation]


@dataclass
class _Loaded:
    store: _Store
    index: int
    rows: InMemory = field(repr=False)


_STORES: dict[tuple[str, str], _Store] = {}
"""By the name of X and the worker: several workers may be threads of one process."""
_BEGINNING = threading.Lock()


def _here() -> Any:
    return need("distributed", "X on Dask needs", "dask").get_worker()


def _store(name: str) -> _Store:
    found = _STORES.get((name, _here().address))
    if found is None:
        raise MissingError("X")
    return found


@_answers
def open_parts(name: str, loaders: Mapping[int, Any], *held: tuple[int, Any]) -> dict[int, PartFacts]:
    """Take parts of X: some to be loaded by this worker, and some that Dask has made already.

    What is loaded stays in memory as long as there is room for it.
    """
    worker = _here()
    with _BEGINNING:
        store = _STORES.setdefault((name, worker.address), _Store(worker.state.nthreads))
    with store.lock:
        room = _room(worker) - sum(_nbytes(rows) for other in list(_STORES.values()) for rows in other.held.values())
        found = {}
        for index, part in held:
            store.held[index] = in_memory(part)
            found[index] = _facts(store.held[index], held=True, checksum=0)
        for index, loader in loaders.items():
            store.loaders[index] = loader
            rows, checksum = store.load(index)
            room -= _nbytes(rows)
            if room >= 0:
                store.held[index] = rows
            found[index] = _facts(rows, held=room >= 0, checksum=checksum)
        return found


def _room(worker: Any) -> int:
    limit = getattr(worker.memory_manager, "memory_limit", None) or memory.available_bytes() or 2**34
    return int(_SHARE_FOR_X * limit)


def _nbytes(rows: InMemory) -> int:
    whole = rows.read(slice(0, rows.shape[0])) if not rows.sparse else rows.csr  # type: ignore[attr-defined]
    if not rows.sparse:
        return int(whole.nbytes)
    return int(whole.data.nbytes + whole.indices.nbytes + whole.indptr.nbytes)


def _facts(rows: InMemory, held: bool, checksum: int) -> PartFacts:
    return PartFacts(*rows.shape, rows.dtype, rows.sparse, _nbytes(rows), held, checksum)


def _checksum(rows: InMemory) -> int:
    return int(row_sums(rows.read(slice(0, rows.shape[0]))).sum(dtype=np.uint64))


@_answers
def describe(name: str, layout: Layout, dtypes: Sequence[np.dtype[Any]] = ()) -> None:
    """Learn where X is cut, and have the kernels for these float types ready."""
    store = _store(name)
    with store.lock:
        store.describe(layout)
    for dtype in dtypes:
        kernels.warm_up(dtype)


@_answers
def look(name: str, order: Order, shared: Mapping[str, Any], broadcast: Mapping[str, Any] | None = None) -> Partial:
    """A pass over this worker's blocks; what is shared may come in two parts."""
    store = _store(name)
    with store.lock, one_blas_thread:
        return store.look(order, _unfolded({**shared, **(broadcast or {})}))


@_answers
def joined(count: int, *partials: Partial) -> Partial:
    """Several workers' shares as one."""
    tree = Tree(count, lambda _: None)
    for partial in partials:
        for (start, stop), share in partial.nodes.items():
            own = {key: np.array(value) if isinstance(value, np.ndarray) else value for key, value in share.items()}
            tree.add(own, start, stop)
    return Partial(tree.nodes, max(p.seconds for p in partials), sum(p.parts for p in partials))


@dataclass(frozen=True)
class Turned:
    """An array that is another one's transpose, row by row in memory: not worth sending twice."""

    of: str


def _unfolded(shared: dict[str, Any]) -> dict[str, Any]:
    return {
        name: np.ascontiguousarray(shared[value.of].T) if isinstance(value, Turned) else value
        for name, value in shared.items()
    }


@_answers
def put(name: str, number: int, part: int, rows: Any) -> None:
    """Take a part's rows of an array that the user has."""
    store = _store(name)
    with store.lock:
        at = 0
        array = store.arrays.setdefault(number, {})
        for block in store.blocks([part]):
            array[block] = np.array(rows[at : at + store.height(block)], order="C")
            at += store.height(block)


@_answers
def get(name: str, number: int, part: int) -> Array:
    """A part's rows of an array, for the user; a Refusal if Dask runs it again after a loss."""
    try:
        store = _store(name)
        with store.lock:
            rows = [store.rows_of(number, block) for block in store.blocks([part])]
            return rows[0].copy() if len(rows) == 1 else np.concatenate(rows)
    except MissingError as reason:
        raise LostRowsError(
            f"Rows of this result (part {part}) were lost with the Dask workers that held them and cannot be "
            "recomputed. Call relunmd again; with a checkpoint it resumes. Saving the result right after the call "
            "keeps it."
        ) from reason


@_answers
def sent(rows: Array) -> Array:
    """The same rows, as another task."""
    return rows


def received(rows: Array | Refusal) -> Array:
    """The rows that the user gets, or an exception for rows that are lost."""
    if isinstance(rows, Refusal):
        raise rows.reason
    return rows


@_answers
def size(rows: Array) -> int:
    """How many rows there are: an answer that is small."""
    return len(rows)


@_answers
def keep(name: str, generation: int, numbers: Sequence[int] | None, parts: Sequence[int]) -> None:
    """Hold on to these arrays (None for all) as they are now, uncopied: what is kept is not written over."""
    store = _store(name)
    with store.lock:
        blocks = store.blocks(parts)
        if numbers is None:
            numbers = [number for number, rows in store.arrays.items() if all(block in rows for block in blocks)]
        store.kept.setdefault(generation, {}).update(
            {number: {block: store.rows_of(number, block) for block in blocks} for number in numbers}
        )


@_answers
def give(name: str, generation: int, parts: Sequence[int]) -> Arrays:
    """What was kept of some parts, for another worker."""
    store = _store(name)
    with store.lock:
        blocks = store.blocks(parts)
        kept = store.kept.get(generation)
        if kept is None:
            raise MissingError(f"generation {generation}")
        return {number: {block: rows[block] for block in blocks} for number, rows in kept.items()}


@_answers
def take(name: str, generation: int, given: Arrays) -> None:
    """Keep what another worker gave."""
    store = _store(name)
    with store.lock:
        kept = store.kept.setdefault(generation, {})
        for number, rows in given.items():
            # Own memory, and writable: what comes over the network need not be.
            kept.setdefault(number, {}).update({block: np.array(array) for block, array in rows.items()})


@_answers
def parts_kept(name: str, generation: int) -> list[int]:
    """Of which parts this worker has everything that was kept."""
    try:
        store = _store(name)
    except MissingError:
        return []
    with store.lock:
        kept = store.kept.get(generation)
        if kept is None:
            return []
        return [
            part for part, blocks in store._blocks.items()
            if all(block in rows for rows in kept.values() for block in blocks)
        ]  # fmt: skip


@_answers
def parts_open(name: str) -> list[int]:
    """Of which parts this worker has X."""
    try:
        store = _store(name)
    except MissingError:
        return []
    return sorted({*store.loaders, *store.held})


@_answers
def restore(name: str, generation: int, parts: Sequence[int], epoch: int, final: bool) -> None:
    """The arrays of these parts as they were kept, and no others; `final` if they need not be kept any longer."""
    store = _store(name)
    with store.lock:
        kept = store.kept.get(generation, {})
        blocks = store.blocks(parts)
        if not all(block in rows for rows in kept.values() for block in blocks):
            raise MissingError(f"generation {generation}")
        store.arrays = {number: {block: rows[block] for block in blocks} for number, rows in kept.items()}
        store.epoch = epoch
        if final:
            del store.kept[generation]


@_answers
def write_files(name: str, folder: str, numbers: Sequence[int], parts: Sequence[int]) -> int:
    """Write the rows of arrays to one file a part; returns the bytes."""
    store = _store(name)
    written = 0
    with store.lock:
        for part in parts:
            rows = {
                f"{number}.{block}": store.rows_of(number, block)
                for number in numbers
                for block in store.blocks([part])
            }
            place = _file_of(folder, part)
            place.parent.mkdir(parents=True, exist_ok=True)
            write_archive(place, _ROWS, _VERSION, {"part": part}, rows)
            written += sum(array.nbytes for array in rows.values())
    return written


_ROWS, _VERSION = "rows", 1


def _file_of(folder: str, part: int) -> Path:
    return Path(folder) / f"part-{part:06d}.npz"


@_answers
def read_files(
    name: str, folder: str, wanted: Mapping[int, tuple[int, int, np.dtype[Any]]], parts: Sequence[int]
) -> None:
    """Read what `write_files` wrote: for each number then, the number, columns and dtype of the array now."""
    store = _store(name)
    with store.lock:
        for part in parts:
            place = _file_of(folder, part)
            about, arrays = read_archive(place, _ROWS, _VERSION)
            if about["part"] != part:
                raise FileError(f"{place} must be part {part} of a run. It is part {about['part']}.")
            for old, (number, columns, dtype) in wanted.items():
                for block in store.blocks([part]):
                    rows = arrays.get(f"{old}.{block}")
                    if rows is None or rows.shape != (store.height(block), columns) or rows.dtype != dtype:
                        raise FileError(f"{place} must have the rows of block {block}. It has not, or of another size.")
                    store.arrays.setdefault(number, {})[block] = np.ascontiguousarray(rows)


@_answers
def forget(name: str) -> None:
    """Let go of the arrays, and keep X."""
    store = _store(name)
    with store.lock:
        store.arrays, store.kept = {}, {}


@_answers
def close(name: str) -> None:
    """Let go of X and of all that belongs to it."""
    store = _STORES.pop((name, _here().address), None)
    if store is not None:
        with store.lock:
            store.team.close()
