"""Fault injection: an executor that loses its rows, and runs in which it does so at every call in turn.

``python -m tests.faults`` injects a loss at every call of every case and prints a table; test_faults.py runs
a selection.
"""

# ruff: noqa: T201
import contextlib
import itertools
import logging
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

import relunmd
from relunmd.engine.distributed.remote_rows import RowsOnWorkers
from relunmd.engine.executor import RowsLostError, ThreadExecutor
from relunmd.errors import ClusterError
from relunmd.loop.checkpoint import Checkpoint
from tests.conftest import relative_error

X = (np.random.default_rng(0).random((40, 30)) < 0.25) * 1.0
"""Binary: rows that are fitted again to H end at another point."""
STOP = 5
FIRST_LEG = 3


class FaultyExecutor(ThreadExecutor):
    """Threads whose arrays of m rows are held as a cluster's workers hold them, and are lost at certain calls.

    At a loss all arrays are dropped, and with `copies_lost` those that were kept too. The contract is that of
    ClusterExecutor: a call that needs rows raises RowsLostError; one that needs X alone is repeated and succeeds, and
    the next that needs rows raises. `restore` brings back what was kept, or returns False if that is lost.

    Parameters
    ----------
    losses : numbers of the calls at which rows are lost, counted from 0
    copies_lost : whether what was kept is lost too, at every loss or at those of certain calls
    keep_every : rows are kept at every so many states; None for never
    """

    def __init__(
        self, losses: Iterable[int] = (), copies_lost: bool | Collection[int] = False, keep_every: int | None = 3
    ) -> None:
        super().__init__(1)
        self.calls: list[str] = []
        self._losses = set(losses)
        self.copies_lost = self._losses if copies_lost is True else set(copies_lost or ())
        self._keep_every = keep_every
        self._states = 0
        self._next_number = 0
        self._arrays: dict[int, np.ndarray] = {}
        self._kept: dict[int, np.ndarray] = {}

    def _call(self, kind: str) -> bool:
        """Count a call; returns whether rows are lost in it."""
        self.calls.append(kind)
        number = len(self.calls) - 1
        if number in self._losses:
            self.lose(number in self.copies_lost)
        return number in self._losses

    def lose(self, copies_too: bool) -> None:
        """Lose the rows now; the next call that needs some raises."""
        self._arrays = {}
        if copies_too:
            self._kept = {}

    def _need_rows(self, kind: str) -> None:
        if self._call(kind):
            raise RowsLostError(f"Rows were lost in call {len(self.calls) - 1} ({kind})")

    def _found(self, rows: RowsOnWorkers) -> np.ndarray:
        try:
            return self._arrays[rows.number]
        except KeyError:
            raise RowsLostError(f"A worker has not array {rows.number}") from None

    def new_rows(self, matrix, wanted):
        if isinstance(wanted, RowsOnWorkers):
            return wanted
        n_columns, dtype = wanted if isinstance(wanted, tuple) else (wanted, matrix.dtype)
        self._next_number += 1
        return RowsOnWorkers(self, matrix, self._next_number, n_columns, np.dtype(dtype))

    def _each(self, matrix, function, rows, out, shared):
        if rows:
            self._need_rows(function.__name__)
        else:
            self._call(function.__name__)
        given = {name: self._found(array) for name, array in rows.items()}
        made = {name: self.new_rows(matrix, wanted) for name, wanted in out.items()}
        for array in made.values():
            if array.number not in self._arrays:
                self._arrays[array.number] = np.full(array.shape, np.nan, array.dtype)
        written = {name: self._arrays[array.number] for name, array in made.items()}
        _, sums = super()._each(matrix, function, given, written, shared)
        return made, sums

    def normal_rows(self, matrix, n_columns, random):
        return self.placed(matrix, super().normal_rows(matrix, n_columns, random))

    def placed(self, matrix, A):
        if isinstance(A, RowsOnWorkers):
            return A
        self._need_rows("placed")
        rows = self.new_rows(matrix, (A.shape[1], A.dtype))
        self._arrays[rows.number] = np.array(A)
        return rows

    def handed_over(self, A):
        if not isinstance(A, RowsOnWorkers):
            return A
        self._need_rows("handed_over")
        return self._found(A).copy()

    @property
    def keep_due(self) -> bool:
        self._states += 1
        return self._keep_every is not None and self._states % self._keep_every == 0

    def keep(self, arrays):
        self._need_rows("keep")
        there = [array for array in arrays.values() if isinstance(array, RowsOnWorkers)]
        self._kept = {array.number: self._found(array).copy() for array in there}

    def restore(self) -> bool:
        self._call("restore")
        self._arrays = {number: array.copy() for number, array in self._kept.items()}
        return bool(self._kept)

    def write_rows(self, arrays, place):
        there = {name: array for name, array in arrays.items() if isinstance(array, RowsOnWorkers)}
        folder = f"{place.name}.rows/{secrets.token_hex(6)}"
        path = place.parent / folder
        path.mkdir(parents=True)
        self._need_rows("write_rows")
        numbers = {array.number: self._found(array) for array in there.values()}
        np.savez(path / "part-000000.npz", **{str(number): array for number, array in numbers.items()})
        return {
            "folder": folder,
            "starts": [0],
            "arrays": {name: [array.number, array.shape[1], array.dtype.name] for name, array in there.items()},
        }

    def read_rows(self, matrix, about, place):
        self._need_rows("read_rows")
        new = {}
        with np.load(place.parent / about["folder"] / "part-000000.npz") as members:
            for number in members:
                new[int(number)] = self.placed(matrix, members[number])
        return {name: new[int(number)] for name, (number, _, _) in about["arrays"].items()}


@dataclass(frozen=True)
class Case:
    """A run into which losses are injected."""

    algorithm: str
    scenario: str
    """"limit", "callback" (which reads W and stops), "Ctrl-C", "race", "stopped race" or "resume"."""
    checkpoint: bool
    copies_lost: bool
    keep_every: int | None = 3

    def __str__(self) -> str:
        kept = "never kept" if self.keep_every is None else "copies lost too" if self.copies_lost else "copies kept"
        return f"{self.algorithm}, {self.scenario}, {'with' if self.checkpoint else 'no'} checkpoint, {kept}"


ALGORITHMS = ("qn", "3b-factored")
SCENARIOS = ("limit", "callback", "Ctrl-C", "race", "stopped race", "resume")


def all_cases() -> list[Case]:
    kept = [(False, 3), (True, 3), (False, None)]
    return [
        Case(algorithm, scenario, checkpoint, copies_lost, keep_every)
        for algorithm, scenario, checkpoint, (copies_lost, keep_every) in itertools.product(
            ALGORITHMS, SCENARIOS, (False, True), kept
        )
        if checkpoint or scenario != "resume"
    ]


@dataclass
class Told:
    """What a run told its callback, and what it ended with."""

    iterations: list[int]
    executor: FaultyExecutor
    stopped: relunmd.Progress | None = None
    """When the callback first asked to stop."""
    limit: int = 0
    """The largest iteration until then."""
    result: relunmd.Decomposition | None = None
    reason: BaseException | None = None


def run(case: Case, folder: Path, losses: Iterable[int] = (), more: int = 0) -> Told:
    """A run of a case; `more` iterations than that, and no stop but max_iter, to resume from its checkpoint."""
    return run_on(FaultyExecutor(losses, case.copies_lost, case.keep_every), case, folder, more)


def run_on(executor: FaultyExecutor, case: Case, folder: Path, more: int = 0) -> Told:
    told = Told([], executor)

    def callback(progress: relunmd.Progress) -> bool:
        told.iterations.append(progress.iteration)
        stops = progress.iteration == STOP if case.scenario in ("callback", "Ctrl-C") else len(told.iterations) == 13
        if more or not stops or case.scenario in ("limit", "race", "resume"):
            return False
        if case.scenario == "callback":
            assert progress.W.shape == (len(X), 3)
        if told.stopped is not None:  # It asks once.
            return False
        told.stopped, told.limit = progress, max(told.iterations)
        if case.scenario == "Ctrl-C":
            raise KeyboardInterrupt
        return True

    with patched(told.executor):
        try:
            told.result = relunmd.decompose(
                X,
                3,
                case.algorithm,
                "random" if "race" in case.scenario else "auto",
                tol=0,
                max_iter=12 + more,
                random_state=1,
                n_starts=3 if "race" in case.scenario else 1,
                callback=callback,
                checkpoint=folder / "run.npz" if case.checkpoint else None,
                checkpoint_every=0,
            )
        except BaseException as reason:
            told.reason = reason
    return told


@contextlib.contextmanager
def patched(executor: FaultyExecutor) -> Iterator[None]:
    """Runs on this executor with short legs; every fourth state is written to a checkpoint, at once, without fsync."""
    states = itertools.count(1)
    with (
        mock.patch("relunmd.api.executor_for", return_value=executor),
        mock.patch("relunmd.loop.checkpoint.Checkpoint.due", property(lambda self: next(states) % 4 == 0)),
        mock.patch("relunmd.loop.race.FIRST_ROUND", FIRST_LEG),
        mock.patch("relunmd.loop.checkpoint.Checkpoint.begin", Checkpoint._write),
        mock.patch("relunmd.io.atomic.os.fsync"),
    ):
        yield


def prepared(case: Case, folder: Path) -> None:
    """What a run of the case finds."""
    if case.scenario == "resume":
        with patched(FaultyExecutor()):
            relunmd.decompose(X, 3, case.algorithm, tol=0, max_iter=6, random_state=1, checkpoint=folder / "run.npz")


def fault(case: Case, losses: Iterable[int], undisturbed: Told) -> tuple[str, str | None]:
    """Inject losses into a run: how it ended, and what is wrong with that."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(case, folder)
        told = run(case, folder, losses)
        if isinstance(told.reason, ClusterError):
            return "ClusterError", None
        if told.result is None:
            return "raised", f"{type(told.reason).__name__}: {told.reason}"
        ended, wrong = _judged(told.result, told, undisturbed)
        return ended, wrong or _checkpoint_fault(case, folder, told.result)


def _judged(d: relunmd.Decomposition, told: Told, undisturbed: Told) -> tuple[str, str | None]:
    whole = undisturbed.result
    if told.stopped is None:
        error, limit = whole.error, whole.n_iter
    else:  # A loss before the stop may have delayed it.
        error, limit = told.stopped.best_error, told.limit
    same = abs(d.error - error) <= 1e-6
    faults = {
        f"status {d.status.name}": d.status is not whole.status,
        f"n_iter {d.n_iter} after a stop at {limit}": d.n_iter > limit,
        f"went on to iteration {max(told.iterations, default=0)}": max(told.iterations, default=0) > limit,
        f"error {d.error:.4f}, undisturbed {error:.4f}": not same
        and not (told.executor.copies_lost and d.error <= 1.05 * error),
        "its error is not that of its factors": abs(relative_error(X, d.W, d.H) - d.error) > 1e-9,
        "its history does not lead to its error": d.history.error.min() != d.error,
        "its times do not rise": bool((np.diff(d.history.time) <= 0).any()),
    }
    wrong = [what for what, so in faults.items() if so]
    return "same result" if same else "another point", "; ".join(wrong) or None


def _checkpoint_fault(case: Case, folder: Path, d: relunmd.Decomposition) -> str | None:
    """Resume from what the run left."""
    if not case.checkpoint:
        return None
    again = run(case, folder, more=2)
    if again.result is None:
        return f"its checkpoint cannot be resumed: {type(again.reason).__name__}: {again.reason}"
    if again.result.error > d.error * (1 + 1e-9):
        return f"its checkpoint leads to the error {again.result.error}, not {d.error}"
    return None


def undisturbed_run(case: Case) -> Told:
    with tempfile.TemporaryDirectory() as name:
        prepared(case, Path(name))
        told = run(case, Path(name))
        if told.result is None:
            raise RuntimeError(f"{case} fails undisturbed") from told.reason
        return told


def main() -> int:
    """Inject a loss at every call of every case, then pairs of losses; print a table."""
    logging.getLogger("relunmd").setLevel(logging.CRITICAL)
    points, total, failures = 0, Counter(), []
    print(f"{'case':66} points  same  other  ClusterError  failed")
    for case in all_cases():
        whole = undisturbed_run(case)
        ends: Counter[str] = Counter()
        failed = 0
        calls = len(whole.executor.calls)
        pairs = [(i, j) for i in range(0, calls, 7) for j in (i + 1, i + 2, i + 5)]
        for losses in [*((i,) for i in range(calls)), *pairs]:
            ended, wrong = fault(case, losses, whole)
            ends[ended] += 1
            if wrong:
                failed += 1
                failures.append(f"{case}, loss at {losses} ({whole.executor.calls[losses[0]]}): {wrong}")
        points += calls + len(pairs)
        total.update(ends)
        print(
            f"{case!s:66} {calls + len(pairs):6}  {ends['same result']:4}  {ends['another point']:5}  "
            f"{ends['ClusterError']:12}  {failed:6}",
            flush=True,
        )
    print(f"{points} injection points: {dict(total)}; {len(failures)} failed")
    for line in failures[: int(sys.argv[1]) if len(sys.argv) > 1 else 20]:
        print(" ", line)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
