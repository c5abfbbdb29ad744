"""The checkpoint file of a run: what is written to it, when, and whether it belongs to this run.

A background thread writes the arrays of the run themselves: the executor does not reuse their memory as long as the
thread refers to them. If a write fails, a warning is logged, the run continues, and the last good checkpoint stays.
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

from relunmd.engine.executor import RowsLostError
from relunmd.engine.problem import Fingerprint
from relunmd.errors import FileError, InputError, RelunmdError
from relunmd.io.archive import file_errors, plain, read_archive, write_archive
from relunmd.io.atomic import remove_partials
from relunmd.io.file_lock import FileLock
from relunmd.loop.snapshot import Snapshot

Array = NDArray[Any]
log = logging.getLogger("relunmd")

_KIND = "checkpoint"
_VERSION = 1


@dataclass(frozen=True)
class Identity:
    """What makes two runs the same; limits may differ."""

    fingerprint: Fingerprint
    rank: int
    dtype: str
    algorithm: str
    settings: Mapping[str, Any]
    init: Mapping[str, Any]
    n_starts: int
    generator: str
    """The bit generator of the random numbers."""
    random_state: int | None
    """None if it was not given as an integer."""

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(asdict(self))
        return found

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """Describe what differs between the run in a checkpoint and this one."""
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
        if self.random_state is not None:  # Without a seed any is accepted.
            names.append("random_state")
        return told + [
            f"{name}: checkpoint has {other[name]!r}, this call has {now[name]!r}"
            for name in names
            if now[name] != other[name]
        ]


class Checkpoint:
    """The file of one run, written at most once in `every` seconds.

    `remove_rows` removes rows that earlier checkpoints stored beside the file (see `Executor.remove_other_rows`).
    """

    def __init__(
        self, place: Path, every: float, identity: Identity, remove_rows: Callable[[Path, Any], None] | None = None
    ) -> None:
        self.place = place
        self._every = every
        self._identity = identity
        self._remove_rows = remove_rows
        self._last = time.perf_counter()
        self._thread: threading.Thread | None = None
        self._at: object = None
        """The mark of the last snapshot that was written."""
        self._rows: Mapping[str, Any] | None = None
        """The rows beside the file that belong to it, as `Executor.write_rows` describes them."""
        self._lock = FileLock(place)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the file; raise InputError if another run has it.

        A checkpoint that is still being written when the run is interrupted keeps the lock until it is on disk.
        """
        with self._lock.held():
            yield

    def open(self) -> Snapshot | None:
        """Read the file, if it exists and belongs to the same run."""
        try:
            remove_partials(self.place)
        except OSError as reason:
            log.warning("Temporary files beside %s could not be removed: %s", self.place, reason)
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
        """Read the file again, for a run that must return to it; None if it cannot be used."""
        if self._thread is not None:
            self._thread.join()
        try:
            return self.open()
        except RelunmdError as reason:
            log.warning("The checkpoint %s cannot be used: %s", self.place, reason)
            return None

    @contextmanager
    def making_sense(self) -> Iterator[None]:
        """Turn whatever is wrong with the content of the file into a FileError that says what to do."""
        try:
            with file_errors(self.place, _KIND, but=(RowsLostError,)):
                yield
        except FileError as reason:
            if isinstance(reason.__cause__, OSError | MemoryError):  # The file itself may be fine.
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
        """Write in the background; must not be called while `busy`."""
        thread = threading.Thread(
            target=self._write_and_release, args=(snapshot,), name="relunmd-checkpoint", daemon=True
        )
        self._lock.acquire()  # Once more, for the thread.
        try:
            thread.start()
        except RuntimeError:  # No further thread can be started.
            self._write_and_release(snapshot)
        else:
            self._thread = thread

    def holds(self, mark: object) -> bool:
        """Whether the file has the run at the moment with this mark."""
        return mark == self._at

    def wait(self, stop: Callable[[], bool]) -> bool:
        """Wait until the checkpoint is on disk; return False if `stop` ended the waiting.

        Writing then continues in the background as long as the process lives.
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
            if self._remove_rows is not None and (rows or before):
                self._remove_rows(self.place, rows)
        except Exception as reason:  # Whatever it is, the run must continue.
            self.failed(reason)
        self._last = time.perf_counter()

    def failed(self, reason: Exception) -> None:
        """Log that it could not be written, and do not try again at once."""
        log.warning(
            "The checkpoint %s could not be written: %s. The run continues; the previous checkpoint, if any, is "
            "unchanged.",
            self.place,
            reason or type(reason).__name__,
        )
        self._last = time.perf_counter()


def described(place: Path) -> dict[str, Any]:
    """Describe the run of a checkpoint and its progress."""
    with file_errors(place, _KIND):
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
    """Whether the run of a checkpoint once had this history: no two runs have the same times."""
    with file_errors(place, _KIND):
        _, arrays = read_archive(place, _KIND, _VERSION)
        return any(
            all(np.array_equal(whole[name][: len(history[name])], history[name]) for name in ("time", "error"))
            for whole in _histories(arrays)
        )


def _histories(arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
    """The histories of the trajectories of a run, as `Race.flatten` names them."""
    prefixes = [name.removesuffix(".history.error") for name in arrays if name.endswith(".history.error")]
    return [{column: arrays[f"{prefix}.history.{column}"] for column in ("time", "error")} for prefix in prefixes]
