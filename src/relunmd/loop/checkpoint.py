"""A file from which a run goes on: what is written to it, when, and whether it is of this run.

It is written in a thread of its own, from the arrays of the run themselves: while that lasts, the loop takes away the
memory that the next steps would write over (`State.without_scratch`), which costs them new arrays and nothing else.
A write that fails is told in the log, the run goes on, and the last good checkpoint stays as it is.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.engine.distributed import remove_other_rows
from relunmd.engine.executor import RowsLostError
from relunmd.engine.problem import Fingerprint
from relunmd.errors import FileError, InputError, RelunmdError
from relunmd.io.archive import damage_told, plain, read_archive, write_archive
from relunmd.io.atomic import remove_partials
from relunmd.io.file_lock import FileLock, LockedError

__all__ = ["Checkpoint", "Identity", "Snapshot", "described", "written_by"]

Array = NDArray[Any]
log = logging.getLogger("relunmd")

_KIND = "checkpoint"
_VERSION = 1


@dataclass(frozen=True)
class Snapshot:
    """A run at some moment: what JSON can hold, and arrays by name."""

    about: dict[str, Any]
    arrays: dict[str, Array]


@dataclass(frozen=True)
class Identity:
    """What makes two runs the same, whatever their limits are."""

    fingerprint: Fingerprint
    rank: int
    dtype: str
    algorithm: str
    settings: Mapping[str, Any]
    init: Mapping[str, Any]
    n_starts: int
    generator: str
    """The kind of random bits."""
    random_state: int | None
    """None if it was not given as a number."""

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(asdict(self))
        return found

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """What differs between the run in a checkpoint and this one, a phrase each."""
        was, here = Fingerprint.from_json(other["fingerprint"]), self.fingerprint
        words = {"nonzeros": "number of nonzeros", "total": "sum", "norm": "Frobenius norm"}
        names = here.differences(was)
        told = [
            f"{words.get(name, name)} of X: checkpoint has {getattr(was, name)}, this call has {getattr(here, name)}"
            for name in names
            if name != "checksum"
        ]
        if names == ["checksum"]:
            told.append("X has other entries, or its rows or columns are in another order")
        now = self.to_json()
        names = ["rank", "dtype", "algorithm", "settings", "init", "n_starts", "generator"]
        if self.random_state is not None:  # Who gives no number takes whatever there is.
            names.append("random_state")
        return told + [
            f"{name}: checkpoint has {other[name]!r}, this call has {now[name]!r}"
            for name in names
            if now[name] != other[name]
        ]


class Checkpoint:
    """The file of one run, written at most every so many seconds."""

    def __init__(self, place: Path, every: float, identity: Identity) -> None:
        self.place = place
        self._every = every
        self._identity = identity
        self._last = time.perf_counter()
        self._thread: threading.Thread | None = None
        self._at: object = None
        """What the file is known to hold: the mark of the last snapshot that was written."""
        self._rows: Mapping[str, Any] | None = None
        """Which rows beside the file belong to it, as `Executor.write_rows` describes them."""
        self._lock = FileLock(place)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs from this file; InputError if one has it.

        A checkpoint that is still being written when the run is interrupted keeps the lock until it is on the disk.
        """
        try:
            self._lock.acquire()
        except LockedError as reason:
            raise InputError(
                f"checkpoint must not be in use by another run. {self.place} is in use by {reason}. Wait until that "
                "run ends, or name another file."
            ) from reason
        try:
            yield
        finally:
            self._lock.release()

    def open(self) -> Snapshot | None:
        """What is there already, if it is of the same run."""
        try:
            remove_partials(self.place)
        except OSError as reason:
            log.warning("What an earlier run may have left beside %s could not be removed: %s", self.place, reason)
        if not self.place.exists():
            return None
        with self.making_sense():
            about, arrays = read_archive(self.place, _KIND, _VERSION)
            differences = self._identity.differences(about["identity"])
            if differences:
                raise InputError(
                    f"checkpoint must be of the same run. That in {self.place} is of another: "
                    f"{'; '.join(differences)}. Name another file, or delete that one if it is not needed."
                )
            if self._identity.random_state is None:
                self._identity = replace(self._identity, random_state=about["identity"]["random_state"])
            self._at, self._rows = about["run"]["mark"], about["run"].get("rows")
            return Snapshot(about["run"], arrays)

    def reread(self) -> Snapshot | None:
        """What has been written so far, of a run that must go back to it; None if there is nothing of use."""
        if self._thread is not None:
            self._thread.join()
        try:
            return self.open()
        except RelunmdError as reason:
            log.warning("The checkpoint %s is of no use: %s", self.place, reason)
            return None

    @contextmanager
    def making_sense(self) -> Iterator[None]:
        """Turns whatever goes wrong with the content of the file into a FileError that says what to do."""
        try:
            with damage_told(self.place, _KIND, but=(RowsLostError,)):
                yield
        except FileError as reason:
            if isinstance(reason.__cause__, OSError | MemoryError):  # There may be nothing wrong with it.
                raise
            raise FileError(f"{reason} Name another file, or delete that one if it is not needed.") from reason

    @property
    def due(self) -> bool:
        return not self.busy and time.perf_counter() - self._last >= self._every

    @property
    def busy(self) -> bool:
        """Whether arrays of a snapshot are being read in the background."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, snapshot: Snapshot) -> None:
        """Write in the background; not while `busy`."""
        thread = threading.Thread(
            target=self._write_and_release, args=(snapshot,), name="relunmd-checkpoint", daemon=True
        )
        self._lock.acquire()  # Once more, for the thread.
        try:
            thread.start()
        except RuntimeError:  # There are as many threads as there may be.
            self._write_and_release(snapshot)
        else:
            self._thread = thread

    def holds(self, mark: object) -> bool:
        """Whether the file has the run at this moment."""
        return mark == self._at

    def wait(self, stop: Callable[[], bool]) -> bool:
        """Wait until what is being written is on the disk.

        Returns whether it could: when `stop` says so it does not wait any longer. What is being written then goes on
        as long as the process does.
        """
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(0.1)
            if stop():
                log.warning("Interrupted while the checkpoint %s is being written; not waiting for it", self.place)
                return False
        return True

    def _write_and_release(self, snapshot: Snapshot) -> None:
        try:
            self._write(snapshot)
        finally:
            self._lock.release()

    def _write(self, snapshot: Snapshot) -> None:
        about = {"identity": self._identity.to_json(), "run": snapshot.about}
        rows, before = snapshot.about.get("rows"), self._rows
        try:
            write_archive(self.place, _KIND, _VERSION, about, snapshot.arrays)
            self._at, self._rows = snapshot.about["mark"], rows
            if rows or before:
                remove_other_rows(self.place, rows)
        except Exception as reason:  # Whatever it is, the run is worth more.
            self.failed(reason)
        self._last = time.perf_counter()

    def failed(self, reason: Exception) -> None:
        """Tell that it could not be written, and do not try again at once."""
        log.warning(
            "The checkpoint %s could not be written: %s. The run goes on; the checkpoint before it, if there was "
            "one, is as it was.",
            self.place,
            reason or type(reason).__name__,
        )
        self._last = time.perf_counter()


def described(place: Path) -> dict[str, Any]:
    """What a checkpoint is of, and how far the run has come."""
    with damage_told(place, _KIND):
        about, arrays = read_archive(place, _KIND, _VERSION)
        identity, run = about["identity"], about["run"]
        X = Fingerprint.from_json(identity["fingerprint"])
        histories = _histories(arrays)
        return {
            "shape": list(X.shape),
            "rank": identity["rank"],
            "dtype": identity["dtype"],
            "algorithm": identity["algorithm"],
            "init": identity["init"]["name"],
            "starts": identity["n_starts"],
            "seed": identity["random_state"],
            "error": min(float(history["error"].min()) for history in histories),
            "iterations": max(len(history["error"]) for history in histories) - 1,
            "seconds": float(run["seconds"]),
        }


def written_by(place: Path, history: Mapping[str, Array]) -> bool:
    """Whether the run that a checkpoint is of once had this history: no two runs have the same times."""
    with damage_told(place, _KIND):
        _, arrays = read_archive(place, _KIND, _VERSION)
        return any(
            all(np.array_equal(whole[name][: len(history[name])], history[name]) for name in ("time", "error"))
            for whole in _histories(arrays)
        )


def _histories(arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
    """The histories of the courses of a run, as solve.py flattens them."""
    courses = [name.removesuffix(".history.error") for name in arrays if name.endswith(".history.error")]
    return [{column: arrays[f"{course}.history.{column}"] for column in ("time", "error")} for course in courses]
