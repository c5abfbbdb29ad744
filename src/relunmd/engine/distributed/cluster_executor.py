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
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from relunmd.engine.distributed import row_files
from relunmd.engine.distributed.cluster_source import MOST_LOSSES, ClusterSource
from relunmd.engine.distributed.dask_results import check_rows, dask_array
from relunmd.engine.distributed.placement import neighbors, place
from relunmd.engine.distributed.refusals import WorkersLostError
from relunmd.engine.distributed.remote_rows import RowsOnWorkers
from relunmd.engine.distributed.shared_arrays import fold_transposes, split_large, total_bytes
from relunmd.engine.distributed.worker_store import PartialSums, PassOrder, add_sums
from relunmd.engine.executor import BlockFunction, Executor, Rows, RowsLostError, Sums, Wanted, one_blas_thread
from relunmd.engine.matrix import Block, Matrix
from relunmd.errors import ClusterError, InputError

__all__ = ["KEEP_EVERY", "ClusterExecutor"]

Array = NDArray[Any]
T = TypeVar("T")
log = logging.getLogger("relunmd")

_FAN_IN = 4
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

    Attributes
    ----------
    worker_seconds : float
        The seconds that the slowest worker took in each pass, added up.
    """

    def __init__(self, source: ClusterSource, dtypes: Sequence[np.dtype[Any]] = ()) -> None:
        super().__init__()
        self.source = source
        self.worker_seconds = 0.0
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
        self.source.losses = 0
        self._open.callback(self._leave)
        self._allow_losses()
        self.source.prepare(*self._dtypes)
        return self

    def _leave(self) -> None:
        self._cluster.interrupted, self._cluster.deadline = (lambda: False), None
        self._closed = True
        try:
            self._cluster.call_each("forget_rows", [(address, ()) for address in self.source.workers], timeout=10.0)
        except Exception as reason:
            log.info("Arrays could not be released on all workers: %s", reason)

    def facts(self) -> dict[str, int]:
        return {"workers": len(self.source.workers), "bytes_moved": self._cluster.bytes_moved}

    def new_rows(self, matrix: Matrix, n_columns: int, dtype: np.dtype[Any]) -> RowsOnWorkers:
        """Return an array of m rows that has not been written yet."""
        self._next_number += 1
        rows = RowsOnWorkers(self, matrix, self._next_number, n_columns, dtype)
        weakref.finalize(rows, self._dropped.append, self._next_number)
        return rows

    def _each(
        self,
        matrix: Matrix,
        function: BlockFunction,
        rows: Mapping[str, Array],
        out: Mapping[str, Wanted],
        shared: Mapping[str, Any],
    ) -> tuple[Rows, Sums]:
        if self._closed:
            raise ClusterError(
                "Rows on the workers of a cluster, such as W of a Progress, are available only during the run. "
                "Read them in the callback."
            )
        made = {name: self._wanted_rows(matrix, wanted) for name, wanted in out.items()}
        self._use_new_workers()
        order = PassOrder(
            function=function,
            dtype=matrix.dtype,
            scale=matrix.scale,
            rows={name: array.number for name, array in rows.items()},  # type: ignore[attr-defined]
            out={name: array.spec for name, array in made.items()},
            drop=[self._dropped.pop() for _ in range(len(self._dropped))],  # Others may be appended at any time.
            kept=self._generation,
            epoch=self.source.epoch,
        )
        while True:
            try:
                sums = self._run_pass(order, shared)
                if self.interrupted():
                    raise KeyboardInterrupt
                return made, sums  # type: ignore[return-value]
            except WorkersLostError as reason:
                self._replace_workers(reason)
                if rows:  # A pass that reads no rows needs X alone, and is repeated.
                    raise RowsLostError(str(reason)) from reason

    def _wanted_rows(self, matrix: Matrix, wanted: Wanted) -> RowsOnWorkers:
        if isinstance(wanted, RowsOnWorkers):
            return wanted
        n_columns, dtype = wanted if isinstance(wanted, tuple) else (wanted, matrix.dtype)
        return self.new_rows(matrix, n_columns, dtype)  # type: ignore[arg-type]

    def _run_pass(self, order: PassOrder, shared: Mapping[str, Any]) -> Sums:
        count, cluster, workers = self.source.n_blocks, self._cluster, self.source.workers
        small, large = split_large(fold_transposes(shared))
        named = f"{order.function.__module__.rpartition('.')[2]}{order.function.__name__}"
        sent = cluster.broadcast(large, total_bytes(large), workers) if large else {}
        futures = [
            cluster.call("run", order, parts, small, sent, on=address, named=named)
            for address, parts in self.source.shares.items()
        ]
        cluster.bytes_moved += total_bytes(small) * len(futures) + total_bytes(large)
        while len(futures) > _FAN_IN:
            futures = [
                cluster.submit(add_sums, count, *futures[i : i + _FAN_IN], on=workers, named="sums")
                for i in range(0, len(futures), _FAN_IN)
            ]
        partials: list[PartialSums] = cluster.results(futures, workers)
        cluster.bytes_moved += sum(total_bytes(share) for partial in partials for share in partial.nodes.values())
        whole = add_sums(count, *partials)
        self.worker_seconds += whole.seconds
        (total,) = whole.nodes.values()
        return total  # type: ignore[no-any-return]

    def _use_new_workers(self) -> None:
        """Every few seconds, give workers that have joined their share of the parts."""
        now = time.perf_counter()
        if now - self._checked_at < _CHECK_EVERY:
            return
        self._checked_at = now
        present, used = self._cluster.workers(), set(self.source.workers)
        if not used < set(present) or len(used) == len(self.source.owners):
            return
        owners = place(self.source.weights, present)
        if set(owners) != used:
            log.info("%d workers, %d of them new: parts are moved", len(present), len(set(owners) - used))
            self._recovering(lambda: self._move_rows(owners))
            self._keep_at = now

    def _move_rows(self, owners: Sequence[str]) -> None:
        """Move parts to other workers, with all rows of arrays."""
        before, generation = self.source.owners, self._new_generation()
        self._call_owners("keep", lambda parts: (generation, None, parts))
        self.source.move(owners)
        self._copy_rows(generation, before, owners)
        self._set_back(generation, final=True)

    def _new_generation(self) -> int:
        self._last_generation += 1
        return self._last_generation

    def _set_back(self, generation: int, final: bool) -> None:
        self.source.epoch += 1
        self._call_owners("restore", lambda parts: (generation, parts, self.source.epoch, final))

    def _call_owners(self, method: str, arguments: Callable[[list[int]], tuple[Any, ...]]) -> None:
        """Call a method on every worker, with arguments that depend on its parts."""
        self._cluster.call_each(method, [(at, arguments(parts)) for at, parts in self.source.shares.items()])

    def _copy_rows(self, generation: int, givers: Sequence[str], takers: Sequence[str]) -> None:
        """Copy what was kept of each part from one worker to another."""
        moves: dict[tuple[str, str], list[int]] = {}
        for part, (giver, taker) in enumerate(zip(givers, takers, strict=True)):
            if giver != taker:
                moves.setdefault((giver, taker), []).append(part)
        futures = []
        for (giver, taker), parts in moves.items():
            given = self._cluster.call("kept_rows", generation, parts, on=giver)
            futures.append(self._cluster.call("take_rows", generation, given, on=taker))
        if futures:
            self._cluster.results(futures, {address for pair in moves for address in pair})

    def _allow_losses(self) -> None:
        self.source.most_losses = MOST_LOSSES + self.passes // _PASSES_A_LOSS

    def _replace_workers(self, reason: Exception) -> None:
        self._allow_losses()
        self.source.replace_workers(reason)

    def _recovering(self, action: Callable[[], T]) -> T:
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
        generation = self._new_generation()

        def keep_and_copy() -> None:
            self._call_owners("keep", lambda parts: (generation, numbers, parts))
            self._copy_rows(generation, self.source.owners, neighbors(self.source.owners))

        self._recovering(keep_and_copy)
        self._generation = generation  # From now on the workers may release the previous one.
        now = time.perf_counter()
        self._keep_at = now + max(KEEP_EVERY, _KEEP_SHARE * (now - begin))

    def restore(self) -> bool:
        """Restore what was kept from the copies that are left; all other arrays are lost."""
        while self._generation:
            try:
                present = list(self._cluster.workers())
                found = self._cluster.call_each("kept_parts", [(at, (self._generation,)) for at in present])
                givers = []
                for part, owner in enumerate(self.source.owners):
                    holders = [address for address, parts in zip(present, found, strict=True) if part in parts]
                    if not holders:
                        return False
                    givers.append(owner if owner in holders else holders[0])
                self._copy_rows(self._generation, givers, self.source.owners)
                self._set_back(self._generation, final=False)
                self._keep_at = time.perf_counter()  # There may be only one copy.
                return True
            except WorkersLostError as reason:
                self._replace_workers(reason)
        return False

    def normal_rows(self, matrix: Matrix, n_columns: int, random: np.random.Generator) -> Array:
        seed = int(random.integers(2**63))
        return self.over_rows(matrix, _normal_block, out={"W": n_columns}, seed=seed)[0]["W"]

    def placed(self, matrix: Matrix, A: Any) -> Array:
        if isinstance(A, RowsOnWorkers):
            return A  # type: ignore[return-value]
        rows = self.new_rows(matrix, A.shape[1], np.dtype(A.dtype))
        on_dask, heights = hasattr(A, "dask"), self.source.heights
        needs = check_rows(A) if on_dask else []
        if on_dask:
            A = A.rechunk((tuple(heights), (A.shape[1],)))
        else:
            self._cluster.bytes_moved += A.nbytes
            A = [np.ascontiguousarray(piece) for piece in np.split(A, np.cumsum(heights)[:-1])]

        def put() -> None:
            cluster, owners = self._cluster, self.source.owners
            if on_dask:
                pieces = cluster.compute(A.to_delayed().ravel())
            else:
                pieces = [cluster.broadcast(piece, piece.nbytes, [at]) for piece, at in zip(A, owners, strict=True)]
            futures = [
                cluster.call("put_rows", rows.number, part, piece, on=owners[part]) for part, piece in enumerate(pieces)
            ]
            cluster.results(futures, owners, needs=needs)

        self._recovering(put)
        return rows  # type: ignore[return-value]

    def handed_over(self, A: Array) -> Any:
        """Return the array as a Dask array that stays on the workers, with a chunk for each part of X."""
        if not isinstance(A, RowsOnWorkers):
            return A
        return self._recovering(lambda: dask_array(self.source, A))

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
        return {
            "folder": folder,
            "starts": list(self.source.starts),
            "arrays": {name: [array.number, array.shape[1], array.dtype.name] for name, array in there.items()},
        }

    def read_rows(self, matrix: Matrix, about: Mapping[str, Any] | None, place: Path) -> dict[str, Array]:
        if about is None:
            raise InputError(
                f"checkpoint must be of a run on a cluster. {place} is of a run on one machine; name another file."
            )
        if list(about["starts"]) != list(self.source.starts):
            raise InputError(
                f"checkpoint must be of X in the same chunks. {place} is of {len(about['starts'])} chunks; X has "
                f"{len(self.source.starts)}, of these or other sizes. Rechunk X, or name another file."
            )
        folder = Path(str(about["folder"]))
        if folder.is_absolute() or ".." in folder.parts:
            raise InputError(f"The rows of a checkpoint must be in a folder beside it. {place} names {folder}.")
        new = {
            int(number): self.new_rows(matrix, int(n_columns), np.dtype(str(dtype)))
            for number, n_columns, dtype in about["arrays"].values()
        }
        wanted = {number: rows.spec for number, rows in new.items()}
        path = str(place.parent / folder)
        self._recovering(lambda: self._call_owners("read_rows", lambda parts: (path, wanted, parts)))
        return {name: new[int(number)] for name, (number, _, _) in about["arrays"].items()}  # type: ignore[misc]

    def remove_other_rows(self, place: Path, rows: Mapping[str, Any] | None) -> None:
        """Remove the rows of earlier checkpoints beside `place`; `rows` is what `write_rows` returned for the last."""
        row_files.remove_other_rows(place, rows)


def _remote(arrays: Mapping[str, Any]) -> dict[str, RowsOnWorkers]:
    """Return the arrays whose rows are on the workers."""
    return {name: array for name, array in arrays.items() if isinstance(array, RowsOnWorkers)}


def _normal_block(x: Block, rows: Rows, out: Rows, *, seed: int) -> Sums:
    random = np.random.default_rng([seed, x.rows.start])
    out["W"][:] = random.standard_normal(out["W"].shape)
    return {}
