"""Results in a file of JSON lines, one finished run each, written as they come.

A line is on the disk before the next run begins; one that a kill cut short is dropped when the
file is opened again. Factors that are to be kept are in files of their own beside it.
"""

import json
import logging
import math
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from relunmd.comparison.plan import Run
from relunmd.comparison.timed_run import Course, Start
from relunmd.engine.blas_threads import usable_cores
from relunmd.errors import RelunmdError
from relunmd.io.archive import versions
from relunmd.io.atomic import write_beside

__all__ = ["Record", "Results", "environment"]

log = logging.getLogger("relunmd")
Array = NDArray[Any]
Record = dict[str, Any]

_BEGINNING = b'{"matrix"'
"""How every line begins."""

MOST_POINTS = 600
"""How many points of a curve are kept: the first iterations all, later ones ever more sparsely."""


class Results:
    """What has been run, by the runs' keys."""

    FILE = "results.jsonl"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / self.FILE
        self._records: dict[str, Record] = {}
        self._environment = environment()
        with self._writing():
            folder.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            self._read()

    def get(self, run: Run) -> Record | None:
        """The record of a run, if it has been made."""
        return self._records.get(run.key)

    def has(self, run: Run) -> bool:
        """Whether nothing of this run is missing, its kept factors included."""
        return run.key in self._records and (not run.case.keep_factors or self._factors_path(run).exists())

    def factors(self, run: Run) -> tuple[Array, Array]:
        """The best W and H of a run that keeps them."""
        with np.load(self._factors_path(run), allow_pickle=False) as arrays:
            return arrays["W"], arrays["H"]

    def add(self, run: Run, start: Start, course: Course, measured: dict[str, float]) -> Record:
        """Write a finished run down."""
        kept = _kept_points(course.errors)
        record = run.facts() | {
            "error": course.error,
            "n_iter": len(course.errors) - 1,
            "time": round(course.times[-1], 6),
            "start_error": start.error,
            "start_time": round(start.seconds, 6),
            "status": course.status,
            "measured": {name: value if math.isfinite(value) else None for name, value in measured.items()},
            "curve": {
                "iteration": kept,
                "time": [float(f"{course.times[i]:.6g}") for i in kept],
                "error": [float(f"{course.errors[i]:.9g}") for i in kept],
            },
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": self._environment,
        }
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        with self._writing():
            if run.case.keep_factors and course.best is not None:
                W, H = course.best
                self._factors_path(run).parent.mkdir(exist_ok=True)
                write_beside(self._factors_path(run), lambda out: np.savez(out, W=W, H=H))
            self._append(line)
        self._records[run.key] = record
        return record

    def environments(self, runs: list[Run]) -> list[dict[str, Any]]:
        """The different machines and versions that the runs were made with."""
        found: list[dict[str, Any]] = []
        for run in runs:
            record = self.get(run)
            if record is not None and record["environment"] not in found:
                found.append(record["environment"])
        return found

    def factors_file(self, run: Run) -> str | None:
        """Where within the folder the factors of a run are, if they are."""
        path = self._factors_path(run)
        return path.relative_to(self.folder).as_posix() if path.exists() else None

    def _factors_path(self, run: Run) -> Path:
        return self.folder / "factors" / f"{run.file_name}.npz"

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What the file system refuses, as a sentence that names the folder."""
        try:
            yield
        except OSError as reason:
            raise RelunmdError(
                f"The output must be a folder that can be written to. Got {self.folder}: {reason}. What it has is "
                f"intact; the same command goes on from there."
            ) from reason

    def _append(self, line: bytes) -> None:
        """Add a line and see it onto the disk; of one that does not fit nothing is left."""
        before = self.path.stat().st_size
        try:
            with self.path.open("ab") as lines:
                lines.write(line)
                lines.flush()
                os.fsync(lines.fileno())
        except OSError:
            os.truncate(self.path, before)
            raise

    def _read(self) -> None:
        raw = self.path.read_bytes()
        *whole, last = raw.split(b"\n")
        for number, line in enumerate(whole, 1):
            self._take(line, number)
        if not last:
            return
        if last[: len(_BEGINNING)] != _BEGINNING[: len(last)]:
            raise self._foreign(len(whole) + 1, "it does not begin like one")
        try:
            self._take(last, len(whole) + 1)
            self._append(b"\n")  # Only the end of the line is missing.
        except RelunmdError:
            log.warning("%s ended in the middle of a line; that run will be made again", self.path)
            os.truncate(self.path, len(raw) - len(last))

    def _take(self, line: bytes, number: int) -> None:
        try:
            record = json.loads(line)
            self._records[_key(record)] = record
        except (ValueError, KeyError, TypeError) as reason:
            raise self._foreign(number, repr(reason)) from reason

    def _foreign(self, number: int, why: str) -> RelunmdError:
        return RelunmdError(
            f"{self.path} must have a result of this program on every line. Line {number} is none ({why}): take that "
            f"line out, or name another folder."
        )


def _key(record: Record) -> str:
    names = ("matrix", "rank", "init", "seed", "target_error", "max_iter", "max_time", "contender", "settings")
    return json.dumps({name: record[name] for name in names}, sort_keys=True)


def _kept_points(errors: list[float]) -> list[int]:
    """Which iterations of a curve to keep: at most about MOST_POINTS, with the first, the last and the best."""
    count = len(errors)
    if count <= MOST_POINTS:
        return list(range(count))
    early = MOST_POINTS // 6
    later = np.geomspace(early, count - 1, MOST_POINTS - early).round().astype(int)
    return sorted({*range(early), *later.tolist(), int(np.argmin(errors)), count - 1})


def environment() -> dict[str, Any]:
    """The machine and the versions, as far as results and times depend on them."""
    packages = versions()
    blas = {f"{found['internal_api']} {found['version']}" for found in threadpool_info() if found["user_api"] == "blas"}
    return {
        "python": packages.pop("python"),
        "versions": packages,
        "blas": sorted(blas),
        "machine": f"{platform.system()} {platform.machine()}, {_processor()}",
        "cores": usable_cores(),
    }


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"
