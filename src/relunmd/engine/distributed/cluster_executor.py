"""Passes over X on a cluster: one task per worker, sums along a fixed tree, and recovery after lost workers.

A pass takes a few messages, whatever the number of blocks: each worker gets one task for all of its blocks (one task
per block took longer in Dask's scheduler than a whole pass over MNIST). H and coefficients are sent, with the task if
they are small; sums come back as nodes of the tree that threads use, so they have the same bits. The sums of up to four
workers are added by the driver, which saves a round trip of 15 ms; those of more are added on workers first.

Rows of a lost worker are restored from copies: at intervals each worker keeps its current rows, without a copy, and
sends a copy to the next worker. The loop then resumes from that iteration (RowsLostError, `restore`).
"""

import logging
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from relunmd.engine.blas_threads import one_blas_thread
from relunmd.engine.distributed import row_files
from relunmd.engine.distributed.cluster_source import MOST_LOSSES, ClusterSource, neighbors, place
from relunmd.engine.distributed.dask_results import check_rows, dask_array
from relunmd.engine.distributed.parts import Array
from relunmd.engine.distributed.refusals import WorkersLostError
from relunmd.engine.distributed.remote_rows import RowsOnWorkers
from relunmd.engine.distributed.shared_arrays import fold_transposes, total_bytes
from relunmd.engine.distributed.worker_store import Nodes, PassOrder, add_sums
from relunmd.engine.executor import BlockFunction, Executor, Rows, RowsLostError, Sums
from relunmd.engine.matrix import Block, Matrix
from relunmd.errors import ClusterError, InputError

log = logging.getLogger("relunmd")

_FAN_IN = 4
_INLINE = 2**20
"""Bytes that are sent with each task. More is sent once, and workers fetch it from each other."""
_CHECK_EVERY = 2.0
"""Seconds between two checks for workers that have joined."""
KEEP_EVERY, _KEEP_SHARE = 10.0, 30.0
"""Rows are kept every KEEP_EVERY seconds, and at most every `_KEEP_SHARE` times the seconds that it takes."""
_PASSES_A_LOSS = 20
"""After how many passes workers may be lost once more than MOST_LOSSES."""


class ClusterExecutor(Executor):
    """Runs passes over a ClusterSource, with arrays of m rows on the workers.

    Parameters
    ----------
    source : ClusterSource
    dtypes : sequence of numpy.dtype
        The float types of the computation, for which the workers compile the kernels first.
    """

    def __init__(self, source: ClusterSource, dtypes: Sequence[np.dtype[Any]] = ()) -> None:
        super().__init__()
        self.source = source
        self._cluster = source.cluster
        self._dtypes = dtypes
        self._next_number = 0
        self._dropped: list[int] = []
        self._generation = self._last_generation = 0
        """The generation of copies that `restore` restores (0 for none), and the last one that was begun."""
        self._checked_at = time.perf_counter()
        self._keep_at = self._checked_at + KEEP_EVERY
        self._closed = False

    def __enter__(self) -> Self:
        super().__enter__()
        self._open.enter_context(one_blas_thread)  # So that the driver's small products have the same bits.
        self._cluster.interrupted, self._cluster.deadline = self.interrupted, self.deadline
        self.source.losses, self.source.most_losses = 0, MOST_LOSSES
        self._open.callback(self._leave)
        self.source.prepare(*self._dtypes)
        return self

    def _leave(self) -> None:
        self._cluster.interrupted, self._cluster.deadline = (lambda: False), None
        self._closed = True
        try:
            self._cluster.call_each("forget_rows", dict.fromkeys(self.source.workers, ()), timeout=10.0)
        except Exception as reason:
            log.info("Arrays could not be released on all workers: %s", reason)

    def facts(self) -> dict[str, int]:
        return {"workers": len(self.source.workers), "bytes_moved": self._cluster.bytes_moved}

    def new_rows(self, matrix: Matrix, wanted: Any) -> RowsOnWorkers:
        """Return an array of m rows to write: `wanted` itself, or a new one of so many columns (and that dtype)."""
        if isinstance(wanted, RowsOnWorkers):
            return wanted
        n_columns, dtype = wanted if isinstance(wanted, tuple) else (wanted, matrix.dtype)
        self._next_number += 1
        rows = RowsOnWorkers(self, matrix, self._next_number, n_columns, dtype)
        weakref.finalize(rows, self._dropped.append, self._next_number)
        return rows

    def _each(self, matrix: Matrix, function: BlockFunction, rows: Any, out: Any, shared: Any) -> tuple[Any, Sums]:
        if self._closed:
            raise ClusterError("On a cluster, W of a Progress is available only during the run. Read it in a callback.")
        made = {name: self.new_rows(matrix, wanted) for name, wanted in out.items()}
        self._use_new_workers()
        numbers = {name: array.number for name, array in rows.items()}
        specs = {name: array.spec for name, array in made.items()}
        drop = [self._dropped.pop() for _ in range(len(self._dropped))]  # Others may be appended at any time.
        versions = self._generation, self.source.epoch
        sent: Any = replace(matrix, source=None)  # type: ignore[arg-type]
        order = PassOrder(function, sent, numbers, specs, drop, *versions)
        while True:
            try:
                sums = self._run_pass(order, shared)
                if self.interrupted():
                    raise KeyboardInterrupt
                return made, sums
            except WorkersLostError as reason:
                self._replace_workers(reason)
                if rows:  # A pass that reads no rows needs X alone, and is repeated.
                    raise RowsLostError(str(reason)) from reason

    def _run_pass(self, order: PassOrder, shared: Mapping[str, Any]) -> Sums:
        count, cluster, workers = self.source.n_blocks, self._cluster, self.source.workers
        calls, folded = self.source.shares().items(), fold_transposes(shared)
        size = total_bytes(folded)
        named = f"{order.function.__module__.rpartition('.')[2]}{order.function.__name__}"
        given = cluster.broadcast(folded, size, workers) if size > _INLINE else folded
        cluster.bytes_moved += size if size > _INLINE else size * len(workers)
        futures = [cluster.call("run", order, parts, given, on=address, named=named) for address, parts in calls]
        while len(futures) > _FAN_IN:
            groups = [futures[i : i + _FAN_IN] for i in range(0, len(futures), _FAN_IN)]
            futures = [cluster.submit(add_sums, count, *group, on=workers, named="sums") for group in groups]
        partials: list[Nodes] = cluster.results(futures, workers)
        cluster.bytes_moved += sum(total_bytes(share) for nodes in partials for share in nodes.values())
        (total,) = add_sums(count, *partials).values()
        return total  # type: ignore[no-any-return]

    def _use_new_workers(self) -> None:
        """Every few seconds, give workers that have joined their share of the parts."""
        now = time.perf_counter()
        if now - self._checked_at < _CHECK_EVERY:
            return
        self._checked_at = now
        present, used = self._cluster.workers(), set(self.source.workers)
        more_helps = used < set(present) and len(used) < len(self.source.owners)
        owners = place(self.source.weights, present) if more_helps else self.source.owners
        if set(owners) != used:
            log.info("%d workers, %d of them new: parts are moved", len(present), len(set(owners) - used))
            self._recovering(lambda: self._move_rows(owners))

    def _move_rows(self, owners: list[str]) -> None:
        """Move parts to other workers, with all rows of arrays."""
        generation = self._keep_rows(None)
        self.source.move(owners)
        if not self._restore_rows(generation):
            raise WorkersLostError("rows were lost while parts were moved")

    def _keep_rows(self, numbers: Sequence[int] | None) -> int:
        """Let every worker keep its rows of some arrays, None for all; return the generation."""
        self._last_generation = generation = self._last_generation + 1
        self._call_owners("keep", lambda parts: (generation, numbers, parts))
        return generation

    def _restore_rows(self, generation: int) -> bool:
        """Restore what was kept from the copies that are left; return whether there is a copy of each part."""
        present = list(self._cluster.workers())
        found = self._cluster.call_each("kept_parts", dict.fromkeys(present, (generation,)))
        held = list(zip(present, found, strict=True))
        holders = [[address for address, parts in held if part in parts] for part in range(len(self.source.owners))]
        if not all(holders):
            return False
        givers = [owner if owner in on else on[0] for owner, on in zip(self.source.owners, holders, strict=True)]
        self._copy_rows(generation, givers, self.source.owners)
        self.source.epoch += 1
        self._call_owners("restore", lambda parts: (generation, parts, self.source.epoch))
        self._keep_at = time.perf_counter()  # There may be only one copy.
        return True

    def _call_owners(self, method: str, arguments: Callable[[list[int]], tuple[Any, ...]]) -> None:
        """Call a method on every worker, with arguments that depend on its parts."""
        self._cluster.call_each(method, {at: arguments(parts) for at, parts in self.source.shares().items()})

    def _copy_rows(self, generation: int, givers: Sequence[str], takers: Sequence[str]) -> None:
        """Copy what was kept of each part from one worker to another."""
        moves: dict[tuple[str, str], list[int]] = {}
        for part, pair in enumerate(zip(givers, takers, strict=True)):
            if pair[0] != pair[1]:
                moves.setdefault(pair, []).append(part)
        futures = []
        for (giver, taker), parts in moves.items():
            given = self._cluster.call("kept_rows", generation, parts, on=giver)
            futures.append(self._cluster.call("take_rows", generation, given, on=taker))
        if futures:
            self._cluster.results(futures, {address for pair in moves for address in pair})

    def _replace_workers(self, reason: WorkersLostError) -> None:
        self.source.most_losses = MOST_LOSSES + self.passes // _PASSES_A_LOSS
        self.source.prepare(lost=reason)

    def _recovering(self, action: Callable[[], Any]) -> Any:
        """Return the result of an action that needs rows; replace lost workers and raise RowsLostError."""
        try:
            return action()
        except WorkersLostError as reason:
            self._replace_workers(reason)
            raise RowsLostError(str(reason)) from reason

    @property
    def keep_due(self) -> bool:
        return time.perf_counter() >= self._keep_at

    def keep(self, arrays: Mapping[str, Array]) -> None:
        numbers = sorted({array.number for array in _remote(arrays).values()})
        begin = time.perf_counter()

        def keep_and_copy() -> int:
            generation = self._keep_rows(numbers)
            self._copy_rows(generation, self.source.owners, neighbors(self.source.owners))
            return generation

        self._generation = self._recovering(keep_and_copy)  # From now on the workers may release the previous one.
        now = time.perf_counter()
        self._keep_at = now + max(KEEP_EVERY, _KEEP_SHARE * (now - begin))

    def restore(self) -> bool:
        while self._generation:
            try:
                return self._restore_rows(self._generation)
            except WorkersLostError as reason:
                self._replace_workers(reason)
        return False

    def normal_rows(self, matrix: Matrix, n_columns: int, random: np.random.Generator) -> Array:
        seed = int(random.integers(2**63))
        return self.over_rows(matrix, _normal_block, out={"W": n_columns}, seed=seed)[0].W  # type: ignore[no-any-return]

    def placed(self, matrix: Matrix, A: Any) -> Array:
        if isinstance(A, RowsOnWorkers):
            return A  # type: ignore[return-value]
        rows = self.new_rows(matrix, (A.shape[1], np.dtype(A.dtype)))
        heights, needs = self.source.heights, check_rows(A) if hasattr(A, "dask") else []

        def put() -> None:
            cluster, owners = self._cluster, self.source.owners
            if hasattr(A, "dask"):
                pieces = cluster.compute(A.rechunk((tuple(heights), (A.shape[1],))).to_delayed().ravel())
            else:
                cut = zip(np.split(A, np.cumsum(heights)[:-1]), owners, strict=True)
                pieces = [cluster.broadcast(np.ascontiguousarray(piece), piece.nbytes, [at]) for piece, at in cut]
                cluster.bytes_moved += A.nbytes
            calls = zip(range(len(pieces)), pieces, owners, strict=True)
            futures = [cluster.call("put_rows", rows.number, *given, on=owner) for *given, owner in calls]
            cluster.results(futures, owners, needs=needs)

        self._recovering(put)
        return rows  # type: ignore[return-value]

    def handed_over(self, A: Array) -> Any:
        """Return the array as a Dask array that stays on the workers, with a chunk for each part of X."""
        return self._recovering(lambda: dask_array(self.source, A)) if isinstance(A, RowsOnWorkers) else A

    def write_rows(self, arrays: Mapping[str, Array], place: Path) -> dict[str, Any] | None:
        """Write one file per part, on the worker that owns it, in a new folder beside `place`."""
        there = _remote(arrays)
        if not there:
            return None
        folder = row_files.new_folder(place)
        path = str(place.parent / folder)
        numbers = sorted({array.number for array in there.values()})
        self._recovering(lambda: self._call_owners("write_rows", lambda parts: (path, numbers, parts)))
        if not Path(path).is_dir():
            log.warning("The workers wrote the rows of the checkpoint to %s, which this process cannot see", path)
        specs = {name: [array.number, array.shape[1], array.dtype.name] for name, array in there.items()}
        return {"folder": folder, "starts": list(self.source.starts), "arrays": specs}

    def read_rows(self, matrix: Matrix, about: Mapping[str, Any] | None, place: Path) -> dict[str, Array]:
        if about is None:
            raise InputError(f"checkpoint must be of a run on a cluster; {place} is of a run on one machine.")
        if list(about["starts"]) != list(self.source.starts):
            raise InputError(f"checkpoint must be of X in the same chunks; those of {place} differ. Rechunk X.")
        folder = Path(str(about["folder"]))
        if folder.is_absolute() or ".." in folder.parts:
            raise InputError(f"The rows of a checkpoint must be in a folder beside it. {place} names {folder}.")
        specs = {int(number): (int(columns), np.dtype(str(kind))) for number, columns, kind in about["arrays"].values()}
        new = {number: self.new_rows(matrix, spec) for number, spec in specs.items()}
        wanted = {number: rows.spec for number, rows in new.items()}
        path = str(place.parent / folder)
        self._recovering(lambda: self._call_owners("read_rows", lambda parts: (path, wanted, parts)))
        return {name: new[int(number)] for name, (number, _, _) in about["arrays"].items()}  # type: ignore[misc]

    def remove_other_rows(self, place: Path, about: Mapping[str, Any] | None) -> None:
        """Remove the rows of earlier checkpoints beside `place`; `about` is what `write_rows` returned for the last."""
        row_files.remove_other_rows(place, about)


def _remote(arrays: Mapping[str, Any]) -> dict[str, RowsOnWorkers]:
    """Return the arrays whose rows are on the workers."""
    return {name: array for name, array in arrays.items() if isinstance(array, RowsOnWorkers)}


def _normal_block(x: Block, rows: Rows, out: Rows, *, seed: int) -> Sums:
    random = np.random.default_rng([seed, x.rows.start])
    out.W[:] = random.standard_normal(out.W.shape)
    return {}
