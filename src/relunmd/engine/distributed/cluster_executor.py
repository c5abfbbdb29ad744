"""Passes over X on a cluster: one task a worker, sums by a fixed tree, and what to do when a worker is lost.

A pass costs a few messages however many blocks there are: each worker gets one task for all of its blocks (a task for
each block took longer in Dask's scheduler than MNIST's pass takes). H and coefficients go out, with the task if they
are small; sums come back as nodes of the same tree that threads add along, so they have the same bits. Up to four
workers' sums are added here, which saves a trip of 15 ms; those of more are added on workers first.

What a lost worker had is brought back from what was kept: every so often each worker holds on to its rows as they are,
without a copy, and hands a copy to the next worker. The loop then goes back to that moment (RowsLostError, `restore`).
"""

import logging
import re
import secrets
import shutil
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from relunmd._util import need
from relunmd.engine.blas_threads import one_blas_thread
from relunmd.engine.distributed import worker as remote
from relunmd.engine.distributed.cluster_source import MOST_LOSSES, ClusterSource
from relunmd.engine.distributed.dask_results import check_rows
from relunmd.engine.distributed.placement import place
from relunmd.engine.distributed.remote_rows import RowsOnWorkers
from relunmd.engine.distributed.worker import LostRowsError, Order, Partial, Turned
from relunmd.engine.distributed.worker_tasks import WorkersGoneError
from relunmd.engine.executor import BlockFunction, Executor, Rows, RowsLostError, Sums, Wanted
from relunmd.engine.matrix import Block, Matrix
from relunmd.errors import ClusterError, InputError

__all__ = ["KEEP_EVERY", "ClusterExecutor", "remove_other_rows"]

Array = NDArray[Any]
log = logging.getLogger("relunmd")

_FAN_IN = 4
_INLINE = 2**20
"""Bytes of arrays that go with the task; more of them are sent once, and workers get them from each other."""
_LOOK_AROUND = 2.0
"""Seconds between two questions whether a worker has joined."""
KEEP_EVERY = 10.0
"""Seconds between two times that rows are kept, at least; and thirty times as long as that takes."""
_KEEP_SHARE = 30.0
_PASSES_A_LOSS = 20
"""After how many passes workers may be lost once more than MOST_LOSSES."""


class ClusterExecutor(Executor):
    """Passes over a ClusterSource, and all that belongs to its rows."""

    def __init__(self, source: ClusterSource, dtypes: Sequence[np.dtype[Any]] = ()) -> None:
        super().__init__()
        self.source = source
        self.worker_seconds = 0.0
        """What the slowest worker took in each pass, added up."""
        self._cluster = source.cluster
        self._dtypes = dtypes
        self._next_number = 0
        self._dropped: list[int] = []
        self._generation = self._generations = 0
        self._keep_at = time.perf_counter() + KEEP_EVERY
        self._looked_at = time.perf_counter()
        self._over = False

    def __enter__(self) -> Self:
        super().__enter__()
        self._open.enter_context(one_blas_thread)  # The driver's small products have the same bits then.
        self._cluster.pressed = self._pressed
        self._cluster.deadline = self.deadline
        self.source.losses = 0
        self._open.callback(self._leave)
        try:
            self.source.describe(*self._dtypes)
        except WorkersGoneError as reason:
            self._replace_workers(reason)
        return self

    def _leave(self) -> None:
        self._cluster.pressed, self._cluster.deadline = (lambda: False), None
        self._over = True
        try:
            self._cluster.each(remote.forget, [(address, ()) for address in self.source.workers], patience=10.0)
        except Exception as reason:
            log.info("Arrays could not be let go of on all workers: %s", reason)

    def _pressed(self) -> bool:
        return self._ctrl_c.take()

    def facts(self) -> dict[str, int]:
        return {"workers": len(self.source.workers), "bytes_moved": self._cluster.sent + self._cluster.received}

    @property
    def bytes_moved(self) -> tuple[int, int]:
        """Bytes of arrays that left this process, and that came to it."""
        return self._cluster.sent, self._cluster.received

    def new_rows(self, matrix: Matrix, n_columns: int, dtype: np.dtype[Any]) -> RowsOnWorkers:
        """An array that no worker has heard of yet."""
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
    ) -> tuple[dict[str, Any], Sums]:
        if self._over:
            raise ClusterError("Rows on a cluster's workers, such as W of a Progress, are there while the run goes on.")
        made = {name: self._made(matrix, wanted) for name, wanted in out.items()}
        self._look_around()
        drop = [self._dropped.pop() for _ in range(len(self._dropped))]  # Others may come at any time.
        order = Order(
            function=function,
            dtype=matrix.dtype,
            scale=matrix.scale,
            parts=(),
            rows={name: array.number for name, array in rows.items()},  # type: ignore[attr-defined]
            out={name: (array.number, array.shape[1], array.dtype) for name, array in made.items()},
            drop=drop,
            kept=self._generation,
            epoch=self.source.epoch,
        )
        while True:
            try:
                sums = self._looked(order, shared)
                if self._ctrl_c.take():
                    raise KeyboardInterrupt
                return made, sums
            except WorkersGoneError as reason:
                self._replace_workers(reason)
                if rows:  # Without rows to start from X is all there is to it.
                    raise RowsLostError(str(reason)) from reason

    def _made(self, matrix: Matrix, wanted: Wanted) -> RowsOnWorkers:
        if isinstance(wanted, RowsOnWorkers):
            return wanted
        n_columns, dtype = wanted if isinstance(wanted, tuple) else (wanted, matrix.dtype)
        return self.new_rows(matrix, n_columns, dtype)  # type: ignore[arg-type]

    def _looked(self, order: Order, shared: Mapping[str, Any]) -> Sums:
        count = self.source.n_blocks
        small, large = _split(shared)
        cluster = self._cluster
        function = order.function
        named = f"{function.__module__.rpartition('.')[2]}{function.__name__}"
        broadcast = cluster.broadcast(large, _nbytes(large), self.source.workers) if large else None
        futures = [
            cluster.submit(
                remote.look, self.source.name, replace(order, parts=parts), small, broadcast, on=address, named=named
            )
            for address, parts in self.source.shares.items()
        ]
        cluster.sent += _nbytes(small) * len(futures) + _nbytes(large)
        while len(futures) > _FAN_IN:
            futures = [
                cluster.submit(remote.joined, count, *futures[i : i + _FAN_IN], on=self.source.workers, named="sums")
                for i in range(0, len(futures), _FAN_IN)
            ]
        partials: list[Partial] = cluster.answers(futures, self.source.workers)
        cluster.received += sum(_nbytes(share) for partial in partials for share in partial.nodes.values())
        whole = remote.joined(count, *partials)
        self.worker_seconds += whole.seconds
        (total,) = whole.nodes.values()
        return total

    def _look_around(self) -> None:
        """Now and then: has a worker joined, or left?"""
        if time.perf_counter() - self._looked_at < _LOOK_AROUND:
            return
        self._looked_at = time.perf_counter()
        present = self._cluster.workers()
        used = set(self.source.workers)
        if set(present) - used and len(used) < len(self.source.owners) and used <= set(present):
            self._welcome(present)

    def _welcome(self, present: Mapping[str, int]) -> None:
        """Give workers that have joined their share of the parts."""
        owners = place(self.source.weights, present)
        if set(owners) == set(self.source.owners):
            return
        log.info(
            "%d workers now, of which %d are new: parts move", len(present), len(set(owners) - set(self.source.owners))
        )
        before = self.source.owners
        self._surely(lambda: self._move_rows(before, owners))
        self._keep_at = time.perf_counter()

    def _move_rows(self, before: Sequence[str], owners: Sequence[str]) -> None:
        """The parts to other workers, with all rows that there are of arrays."""
        generation = self._new_generation()
        self._on_each(remote.keep, lambda parts: (generation, None, parts))
        self.source.move(owners)
        moves: dict[tuple[str, str], list[int]] = {}
        for part, (old, new) in enumerate(zip(before, owners, strict=True)):
            if old != new:
                moves.setdefault((old, new), []).append(part)
        self._hand(generation, moves)
        self._set_back(generation, final=True)

    def _new_generation(self) -> int:
        self._generations += 1
        return self._generations

    def _set_back(self, generation: int, final: bool) -> None:
        self.source.epoch += 1
        self._on_each(remote.restore, lambda parts: (generation, parts, self.source.epoch, final))

    def _on_each(self, function: Callable[..., Any], given: Callable[[list[int]], tuple[Any, ...]]) -> list[Any]:
        """Call a function on every worker, with what `given` makes of its parts."""
        return self._cluster.each(function, [(at, given(parts)) for at, parts in self.source.shares.items()])

    def _hand(self, generation: int, moves: Mapping[tuple[str, str], Sequence[int]]) -> None:
        """Copies of what was kept of some parts, from worker to worker."""
        name, cluster = self.source.name, self._cluster
        futures = []
        for (old, new), parts in moves.items():
            given = cluster.submit(remote.give, name, generation, parts, on=old)
            futures.append(cluster.submit(remote.take, name, generation, given, on=new))
        cluster.answers(futures, {address for pair in moves for address in pair})

    def _replace_workers(self, reason: Exception) -> None:
        """Have those that are left, or that come, take over the parts of those that are gone."""
        self.source.most_losses = MOST_LOSSES + self.passes // _PASSES_A_LOSS
        self.source.take_over(reason)

    def _surely(self, action: Callable[[], object]) -> None:
        """Something that needs no rows, or raises RowsLostError where rows are gone in the middle of it."""
        try:
            action()
        except WorkersGoneError as reason:
            self._replace_workers(reason)
            raise RowsLostError(str(reason)) from reason

    @property
    def keep_due(self) -> bool:
        return time.perf_counter() >= self._keep_at

    def keep(self, arrays: Mapping[str, Array]) -> None:
        given: list[Any] = [array for array in arrays.values() if isinstance(array, RowsOnWorkers)]
        numbers = sorted({array.number for array in given})
        begin = time.perf_counter()
        generation = self._new_generation()
        shares = self.source.shares

        def agree() -> None:
            self._on_each(remote.keep, lambda parts: (generation, numbers, parts))
            if len(shares) > 1:
                _, *nexts = [*shares, *shares][: len(shares) + 1]
                pairs = zip(shares.items(), nexts, strict=True)
                self._hand(generation, {(old, new): parts for (old, parts), new in pairs})

        self._surely(agree)
        self._generation = generation  # From now on the workers may let go of the one before.
        taken = time.perf_counter() - begin
        self._keep_at = time.perf_counter() + max(KEEP_EVERY, _KEEP_SHARE * taken)

    def restore(self) -> bool:
        """Bring back what was kept, wherever a copy of it is left; all arrays that were not kept are gone."""
        while self._generation:
            try:
                present = list(self._cluster.workers())
                found = self._cluster.each(remote.parts_kept, [(address, (self._generation,)) for address in present])
                have = dict(zip(present, map(set, found), strict=True))
                moves: dict[tuple[str, str], list[int]] = {}
                for part, owner in enumerate(self.source.owners):
                    if part in have.get(owner, ()):
                        continue
                    others = [address for address in present if part in have[address]]
                    if not others:
                        return False
                    moves.setdefault((others[0], owner), []).append(part)
                self._hand(self._generation, moves)
                self._set_back(self._generation, final=False)
                self._keep_at = time.perf_counter()  # There may be one copy only.
                return True
            except WorkersGoneError as reason:
                self._replace_workers(reason)
        return False

    def normal_rows(self, matrix: Matrix, n_columns: int, random: np.random.Generator) -> Array:
        seed = int(random.integers(2**63))
        W: Array = self.over_rows(matrix, _normal_block, out={"W": n_columns}, seed=seed)[0].W
        return W

    def placed(self, matrix: Matrix, A: Any) -> Array:
        if isinstance(A, RowsOnWorkers):
            return A  # type: ignore[return-value]
        rows = self.new_rows(matrix, A.shape[1], np.dtype(A.dtype))
        starts = self.source.starts
        cuts = [slice(start, stop) for start, stop in zip(starts, (*starts[1:], self.source.shape[0]), strict=True)]
        on_dask = hasattr(A, "dask")
        needed = check_rows(A) if on_dask else []
        if on_dask:
            A = A.rechunk(((*(cut.stop - cut.start for cut in cuts),), (A.shape[1],)))
        else:
            self._cluster.sent += A.nbytes

        def put() -> None:
            owners = self.source.owners
            if on_dask:
                pieces = self._cluster.compute(A.to_delayed().ravel())
            else:
                pieces = [
                    self._cluster.broadcast(np.ascontiguousarray(A[cut]), A[cut].nbytes, [owner])
                    for cut, owner in zip(cuts, owners, strict=True)
                ]
            futures = [
                self._cluster.submit(remote.put, self.source.name, rows.number, part, piece, on=owners[part])
                for part, piece in enumerate(pieces)
            ]
            self._cluster.answers(futures, owners, needs=needed)

        self._surely(put)
        return rows  # type: ignore[return-value]

    def handed_over(self, A: Array) -> Any:
        """The array as one of Dask's, a chunk for each part of X, which stays on the workers.

        Two workers have each chunk, as two tasks of Dask's: if it loses the second it makes it again from the first. If
        the first is lost it becomes a Refusal, which the second raises when it is lost too: Dask would wait forever for
        a task that depends on one that has failed before.
        """
        if not isinstance(A, RowsOnWorkers):
            return A
        array = need("dask.array", "X on Dask needs", "dask")
        delayed = need("dask", "X on Dask needs", "dask").delayed
        starts, owners = self.source.starts, self.source.owners
        originals = [
            self._cluster.submit(remote.get, self.source.name, A.number, part, on=owners[part], named="rows")
            for part in range(len(owners))
        ]
        self._surely(lambda: self._made_there(originals, owners))
        futures = self._copied(originals, owners)
        heights = np.diff([*starts, self.source.shape[0]]).tolist()
        return array.concatenate(
            [
                array.from_delayed(delayed(future, pure=True), (height, A.shape[1]), A.dtype)
                for future, height in zip(futures, heights, strict=True)
            ]
        )

    def _copied(self, originals: Sequence[Any], owners: Sequence[str]) -> Sequence[Any]:
        """Each of these on the next worker too, or on the same where there is no other.

        A copy depends on its original through a third task, which is released: a direct dependency would leave a second
        replica of the original beside the copy, of which Dask's memory manager may drop the wrong one.
        """
        workers = self.source.workers
        following = dict(zip(workers, [*workers[1:], workers[0]], strict=True))
        homes = [following[owner] for owner in owners]
        sent = [
            self._cluster.submit(remote.sent, original, on=owner)
            for original, owner in zip(originals, owners, strict=True)
        ]
        copies = [self._cluster.submit(remote.received, each, on=home) for each, home in zip(sent, homes, strict=True)]
        for copy, original in zip(copies, originals, strict=True):
            copy.original = original  # Dask keeps a result as long as its Future is there.
        self._surely(lambda: self._made_there(copies, homes))
        self._surely(lambda: self._cluster.unpin(sent))
        return copies

    def _made_there(self, futures: Sequence[Any], owners: Sequence[str]) -> None:
        """Wait for results that are to stay where they are, and let them be lost with an error instead of a hang."""
        sizes = [
            self._cluster.submit(remote.size, future, on=owner) for future, owner in zip(futures, owners, strict=True)
        ]
        try:
            self._cluster.answers(sizes, owners)
        except LostRowsError as reason:
            raise WorkersGoneError(str(reason)) from reason
        self._cluster.unpin(futures)

    def write_rows(self, arrays: Mapping[str, Array], place: Path) -> dict[str, Any] | None:
        """One file a part, written by the worker that has it, in a new folder beside `place`."""
        there: dict[str, Any] = {name: array for name, array in arrays.items() if isinstance(array, RowsOnWorkers)}
        if not there:
            return None
        folder = f"{place.name}.rows/{secrets.token_hex(6)}"
        numbers = sorted({array.number for array in there.values()})
        path = str(place.parent / folder)
        self._surely(lambda: self._on_each(remote.write_files, lambda parts: (path, numbers, parts)))
        if not Path(path).is_dir():
            log.warning("The workers wrote the rows of the checkpoint to %s, which cannot be seen from here", path)
        return {
            "folder": folder,
            "starts": list(self.source.starts),
            "arrays": {name: [array.number, array.shape[1], array.dtype.name] for name, array in there.items()},
        }

    def read_rows(self, matrix: Matrix, about: Mapping[str, Any] | None, place: Path) -> dict[str, Array]:
        if about is None:
            raise InputError("checkpoint must be of a run on a cluster. Got that of a run on one machine.")
        if list(about["starts"]) != list(self.source.starts):
            raise InputError(
                f"checkpoint must be of X in the same chunks. That in {place} has {len(about['starts'])} of them, and "
                f"X has {len(self.source.starts)}, or others."
            )
        new: dict[int, RowsOnWorkers] = {}
        for number, n_columns, dtype in about["arrays"].values():
            if int(number) not in new:
                new[int(number)] = self.new_rows(matrix, int(n_columns), np.dtype(str(dtype)))
        folder = Path(str(about["folder"]))
        if folder.is_absolute() or ".." in folder.parts:
            raise InputError(f"checkpoint must have its rows beside it. That in {place} names {folder}.")
        wanted = {number: (rows.number, rows.shape[1], rows.dtype) for number, rows in new.items()}
        path = str(place.parent / folder)
        self._surely(lambda: self._on_each(remote.read_files, lambda parts: (path, wanted, parts)))
        return {name: new[int(number)] for name, (number, _, _) in about["arrays"].items()}  # type: ignore[misc]


def remove_other_rows(place: Path, about: Mapping[str, Any] | None) -> None:
    """Remove the rows of earlier checkpoints beside `place`, which no checkpoint refers to any more.

    Only folders as `write_rows` names and fills them are removed; symbolic links are not followed.
    """
    home = place.with_name(f"{place.name}.rows")
    current = Path(about["folder"]).name if about else None
    if home.is_symlink():
        log.warning("%s is a symbolic link: rows of earlier checkpoints in it are not removed", home)
        return
    try:
        for folder in home.iterdir():
            if folder.name != current and _is_ours(folder):
                shutil.rmtree(folder)
    except OSError as reason:
        log.warning("Rows of earlier checkpoints in %s could not be removed: %s", home, reason)


def _is_ours(folder: Path) -> bool:
    """Whether a folder has a name as `write_rows` gives it, and holds nothing but what workers write there."""
    return (
        _FOLDER.fullmatch(folder.name) is not None
        and folder.is_dir()
        and not folder.is_symlink()
        and all(_FILE.fullmatch(file.name) and file.is_file() and not file.is_symlink() for file in folder.iterdir())
    )


_FOLDER = re.compile("[0-9a-f]{12}")
_FILE = re.compile(r"part-[0-9]{6,}\.npz|\.relunmd-[0-9a-f]{8}-[0-9a-f]{12}\.partial")


def _split(shared: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What goes with the task, and what is too large for that; an array and its transpose go as one."""
    folded = _folded(shared)
    if _nbytes(folded) <= _INLINE:
        return folded, {}
    large = {
        name: value for name, value in folded.items() if isinstance(value, np.ndarray) and value.nbytes > _INLINE // 8
    }
    return {name: value for name, value in folded.items() if name not in large}, large


def _folded(shared: Mapping[str, Any]) -> dict[str, Any]:
    folded = dict(shared)
    arrays = [name for name, value in folded.items() if isinstance(value, np.ndarray) and value.ndim == 2]
    for i, name in enumerate(arrays):
        for other in arrays[:i]:
            A, B = folded[name], folded[other]
            if (
                isinstance(B, np.ndarray)
                and A.shape == B.shape[::-1]
                and A.flags.c_contiguous
                and A.size > 1
                and np.array_equal(A, B.T)
            ):
                folded[name] = Turned(other)
                break
    return folded


def _nbytes(values: Mapping[str, Any]) -> int:
    return sum(value.nbytes if isinstance(value, np.ndarray) else 8 for value in values.values())


def _normal_block(x: Block, rows: Rows, out: Rows, *, seed: int) -> Sums:
    random = np.random.default_rng([seed, x.rows.start])
    out.W[:] = random.standard_normal(out.W.shape)
    return {}
