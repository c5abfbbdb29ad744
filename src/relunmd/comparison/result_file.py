"""Runs, what distinguishes them, and the file of their results: one JSON line per run, written when it is finished.

A line is on the disk before the next run begins. A line that a kill cut short is dropped when the file is opened again.
Factors are in files of their own beside it.
"""

import hashlib
import json
import logging
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from relunmd.comparison.contenders import Contender
from relunmd.comparison.timed_run import InitialFactors, Trajectory
from relunmd.engine.blas_threads import usable_cores
from relunmd.errors import InputError, RelunmdError
from relunmd.io.archive import versions
from relunmd.io.atomic import write_beside
from relunmd.loop.criteria import Limits

log = logging.getLogger("relunmd")
Record = dict[str, Any]

_KEY = ("matrix", "rank", "init", "seed", "target_error", "max_iter", "max_time", "contender", "settings")
_BEGINNING = b'{"matrix"'
"""The first bytes of every line."""

MOST_POINTS = 600
"""How many points of a curve are kept: all of the first iterations, and fewer and fewer of the later ones."""


@dataclass(frozen=True)
class Matrix:
    """A matrix by name; `load` returns it when it is needed, and `mark` distinguishes it from others of that name."""

    name: str
    shape: tuple[int, int]
    load: Callable[[], Any] = field(compare=False, repr=False)
    mark: str = ""


@dataclass(frozen=True)
class Run:
    """A contender on a matrix, from an initialization, within limits; `keep_factors` saves the best W and H."""

    matrix: Matrix
    rank: int
    limits: Limits
    contender: Contender
    init: str = "nuclear"
    seed: int = 0
    keep_factors: bool = False

    @property
    def expected_seconds(self) -> float:
        """A guess of the time that it takes without the initialization."""
        m, n = self.matrix.shape
        if self.limits.max_iter == 0:
            return 1e-3
        if self.limits.target_error is None and self.limits.max_time is not None:
            return 1.3 * self.limits.max_time  # All of it, and scoring.
        return 1e-6 * m * n

    @property
    def expected_initialization(self) -> float:
        """A guess of the seconds that the initialization takes."""
        m, n = self.matrix.shape
        return 1e-9 * m * n * min(m, n) if self.init == "nuclear" else 1e-7 * m * n

    def facts(self) -> dict[str, Any]:
        """Return what distinguishes this run from others, as it is written to the results."""
        matrix = f"{self.matrix.name} #{self.matrix.mark}" if self.matrix.mark else self.matrix.name
        limits = {name: getattr(self.limits, name) for name in ("target_error", "max_iter", "max_time")}
        contender = {"contender": self.contender.label, "settings": dict(self.contender.settings)}
        return {"matrix": matrix, "rank": self.rank, "init": self.init, "seed": self.seed} | limits | contender

    @property
    def key(self) -> str:
        """The facts as one string."""
        return json.dumps(self.facts(), sort_keys=True)

    @property
    def file_name(self) -> str:
        """The name of the file of factors."""
        return f"{hashlib.sha256(self.key.encode()).hexdigest()[:16]}.npz"


def check_folder(output: str | Path, kind: str, other: str) -> Path:
    """Return the output folder if it is new, empty, or has results of this kind and not of the other."""
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output must be a folder; {folder} is a file.")
    files = sorted(path.name for path in folder.glob("[!.]*"))
    if files and Results.FILE not in files:
        raise InputError(
            f"output must be a new folder, an empty one, or one with results to resume from; {folder} has other files, "
            f"such as {files[0]}."
        )
    if "report.md" in files and ("comparison.json" in files) != (kind == "a comparison"):
        raise InputError(f"output must be a folder for {kind}; {folder} has the report of {other}. Use another folder.")
    return folder


class Results:
    """The finished runs in a folder.

    Parameters
    ----------
    folder : Path
        It is created if it does not exist.
    """

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
        """Return the record of a run, or None."""
        return self._records.get(run.key)

    def has(self, run: Run) -> bool:
        """Return whether a run is complete, including its factors if they are kept."""
        return run.key in self._records and (not run.keep_factors or self.factors_file(run) is not None)

    def factors_file(self, run: Run) -> str | None:
        """Return the file of the factors of a run, relative to the folder, or None."""
        name = f"factors/{run.file_name}"
        return name if (self.folder / name).exists() else None

    def add(self, run: Run, initial: InitialFactors, trajectory: Trajectory) -> Record:
        """Write a finished run, and return its record."""
        kept = _kept_points(trajectory.errors)
        times = [float(f"{trajectory.times[i]:.6g}") for i in kept]
        errors = [float(f"{trajectory.errors[i]:.9g}") for i in kept]
        record = run.facts() | {"error": trajectory.error, "n_iter": len(trajectory.errors) - 1}
        record |= {"time": round(trajectory.times[-1], 6), "start_error": initial.error}
        record |= {"start_time": round(initial.seconds, 6), "status": trajectory.status}
        record["curve"] = {"iteration": kept, "time": times, "error": errors}
        record["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        record["environment"] = self._environment
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        with self._writing():
            if run.keep_factors and trajectory.best is not None:
                W, H = trajectory.best
                (self.folder / "factors").mkdir(exist_ok=True)
                write_beside(self.folder / "factors" / run.file_name, lambda out: np.savez(out, W=W, H=H))
            self._append(line)
        self._records[run.key] = record
        return record

    def environments(self, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Return the different machines and versions that the runs were made with."""
        found = [record["environment"] for record in map(self.get, runs) if record is not None]
        return [one for place, one in enumerate(found) if one not in found[:place]]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn errors of the file system into a message that names the folder."""
        try:
            yield
        except OSError as reason:
            raise RelunmdError(
                f"output must be a folder that can be written to; got {self.folder}: {reason}. Its results are intact; "
                "the same command resumes."
            ) from reason

    def _append(self, line: bytes) -> None:
        """Append a line and flush it to the disk; a line that does not fit leaves nothing behind."""
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
            self._parse(line, number)
        if not last:
            return
        try:
            self._parse(last, len(whole) + 1)
            self._append(b"\n")  # Only the end of the line is missing.
        except RelunmdError:
            if last[: len(_BEGINNING)] != _BEGINNING[: len(last)]:  # Not a line of ours.
                raise
            log.warning("%s ended in the middle of a line; that run is made again", self.path)
            os.truncate(self.path, len(raw) - len(last))

    def _parse(self, line: bytes, number: int) -> None:
        try:
            record = json.loads(line)
            self._records[json.dumps({name: record[name] for name in _KEY}, sort_keys=True)] = record
        except (ValueError, KeyError, TypeError) as reason:
            raise RelunmdError(
                f"{self.path} must have a result of this program on every line; line {number} is not one ({reason!r}). "
                "Remove that line, or use another folder."
            ) from reason


def _kept_points(errors: Sequence[float]) -> list[int]:
    """Return the iterations of a curve to keep: about MOST_POINTS, with the first, the last and the best."""
    count = len(errors)
    if count <= MOST_POINTS:
        return list(range(count))
    early = MOST_POINTS // 6
    later = np.geomspace(early, count - 1, MOST_POINTS - early).round().astype(int)
    return sorted({*range(early), *later.tolist(), int(np.argmin(errors)), count - 1})


def environment() -> dict[str, Any]:
    """Return the machine and the versions, as far as results and times depend on them."""
    packages, facts = versions(), Path("/proc/cpuinfo")
    blas = {f"{found['internal_api']} {found['version']}" for found in threadpool_info() if found["user_api"] == "blas"}
    text = facts.read_text(encoding="utf-8", errors="replace") if facts.exists() else ""
    model = re.search(r"^model name\s*:(.*)$", text, re.MULTILINE)
    processor = model[1].strip() if model else platform.processor() or "unknown processor"
    machine = f"{platform.system()} {platform.machine()}, {processor}"
    found = {"python": packages.pop("python"), "versions": packages, "blas": sorted(blas)}
    return found | {"machine": machine, "cores": usable_cores()}
