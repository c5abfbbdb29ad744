"""What a comparison found: errors, curves and factors by algorithm and rank, written to files and read from them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.comparison.contenders import NMF
from relunmd.comparison.experiment import TSVD, error_at, mean
from relunmd.comparison.report import write_csv
from relunmd.errors import FileError
from relunmd.io.archive import versions
from relunmd.io.atomic import write_beside
from relunmd.plot.chart import Series, number

__all__ = ["Comparison", "ratio", "settled_at"]

Array = NDArray[Any]
_WITHOUT_START = (TSVD.label, NMF.label)
"""They do not begin where the others do."""


@dataclass(frozen=True)
class Comparison:
    """What a comparison found. `relunmd.plot` draws it.

    Attributes
    ----------
    name, shape : of the matrix
    ranks : in rising order
    labels : of the algorithms and the two baselines
    runs : a dict for every run that was made: "algorithm", "rank", "seed", "error", "n_iter", "time", "start_error",
        "start_time", "status", "curve" (lists "iteration", "time" and "error", thinned), "factors" (a file, or None)
    settings : what was asked for
    notes : what could not be run, and why
    to_come : rank and algorithm of what is yet to be run, if it was interrupted
    image_shape : height and width, if the rows are images
    folder : where the results, the page report.html, report.md, comparison.csv, comparison.json and the pictures are
    """

    name: str
    shape: tuple[int, int]
    ranks: tuple[int, ...]
    labels: tuple[str, ...]
    runs: Sequence[Mapping[str, Any]] = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    notes: Sequence[str]
    to_come: Sequence[tuple[int, str]]
    image_shape: tuple[int, int] | None
    folder: Path

    @property
    def page(self) -> Path:
        """The page that can be mailed; report.md if Jinja2 was missing when the report was written."""
        page = self.folder / "report.html"
        return page if page.exists() else self.folder / "report.md"

    def of(self, rank: int, label: str) -> list[Mapping[str, Any]]:
        """The runs of an algorithm at a rank that finished an iteration, one a start; none while more are to come.

        A mean over part of the starts would be another's.
        """
        if (rank, label) in self.to_come:
            return []
        return [run for run in self.runs if run["rank"] == rank and run["algorithm"] == label and run["n_iter"]]

    def errors(self) -> dict[str, dict[int, float]]:
        """The final error by algorithm, best first, and rank; means over the starts, of finished iterations."""
        found = {
            label: {rank: mean([run["error"] for run in self.of(rank, label)]) for rank in self.ranks}
            for label in self.labels
        }
        kept = {label: {r: e for r, e in by_rank.items() if np.isfinite(e)} for label, by_rank in found.items()}
        there = [label for label, by_rank in kept.items() if by_rank]
        return {label: kept[label] for label in sorted(there, key=lambda label: _last(kept[label]))}

    def ranking(self, rank: int) -> list[str]:
        """The algorithms and baselines that have an error at a rank, best first."""
        errors = self.errors()
        return sorted((label for label in errors if rank in errors[label]), key=lambda label: errors[label][rank])

    def curves(self, rank: int) -> list[Series]:
        """The smallest error of an iteration up to each time, from the start's on, the best algorithm first.

        Of several starts it is the mean. The truncated SVD has no curve. That of NMF, which has a start of its own,
        begins where it is not far above the others'.
        """
        return [_curve(label, self.of(rank, label)) for label in self.ranking(rank) if label != TSVD.label]

    def factors(self, rank: int) -> dict[str, tuple[Array, Array]]:
        """W and H of the first start at a rank, best algorithm first, of those whose factors were kept."""
        found = {}
        for label in self.ranking(rank):
            kept = [run["factors"] for run in self.of(rank, label) if run["factors"]]
            if kept and (self.folder / kept[0]).exists():
                with np.load(self.folder / kept[0], allow_pickle=False) as arrays:
                    found[label] = arrays["W"], arrays["H"]
        return found

    def table(self) -> list[dict[str, Any]]:
        """A row for every run, as comparison.csv has it.

        "error / TSVD's" is the ratio to the truncated SVD's error at that rank; "seconds to 1 %" is when the error was
        within one hundredth of the run's smallest.
        """
        base = self.errors().get(TSVD.label, {})
        return [
            {
                "rank": run["rank"],
                "algorithm": run["algorithm"],
                "seed": run["seed"],
                "error": run["error"] if run["n_iter"] else None,
                "error / TSVD's": ratio(run["error"], base.get(run["rank"])) if run["n_iter"] else None,
                "iterations": run["n_iter"],
                "seconds": run["time"],
                "seconds to 1 %": settled_at(run),
                "error of the start": None if run["algorithm"] in _WITHOUT_START else run["start_error"],
                "seconds of the start": None if run["algorithm"] in _WITHOUT_START else run["start_time"],
                "status": run["status"],
            }
            for run in self.runs
        ]

    @classmethod
    def load(cls, folder: str | Path) -> "Comparison":
        """What an earlier comparison wrote to a folder; nothing in it is executed.

        >>> import relunmd
        >>> relunmd.Comparison.load("nowhere")
        Traceback (most recent call last):
        relunmd.errors.FileError: There is no comparison in nowhere.
        """
        place = Path(folder)
        path = place / "comparison.json"
        if not path.exists():
            raise FileError(f"There is no comparison in {place}.")
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            m, n = facts["shape"]
            ranks, labels = tuple(map(int, facts["ranks"])), tuple(map(str, facts["algorithms"]))
            runs = [dict(run) for run in facts["runs"]]
            for run in runs:
                file = run["factors"]
                if file is not None and not re.fullmatch(r"factors/[0-9a-f]+\.npz", file):
                    raise ValueError(f"{file!r} is no file of it")
            settings, notes = dict(facts["settings"]), list(facts["notes"])
            to_come = [(int(rank), str(label)) for rank, label in facts["to come"]]
            sides = facts["image shape"]
            pixels = None if sides is None else (int(sides[0]), int(sides[1]))
            name, shape = str(facts["matrix"]), (int(m), int(n))
            return cls(name, shape, ranks, labels, runs, settings, notes, to_come, pixels, place)
        except (OSError, ValueError, KeyError, TypeError) as reason:
            raise FileError(f"{path} must be as a comparison writes it. It is not: {reason!r}.") from reason

    def write(self) -> None:
        """comparison.csv and comparison.json, in its folder."""
        rows = self.table()
        columns = list(rows[0]) if rows else []
        write_csv(self.folder / "comparison.csv", columns, [[_written(v) for v in row.values()] for row in rows])
        facts = {
            "matrix": self.name,
            "shape": list(self.shape),
            "ranks": list(self.ranks),
            "algorithms": list(self.labels),
            "settings": dict(self.settings),
            "notes": list(self.notes),
            "to come": [list(one) for one in self.to_come],
            "image shape": self.image_shape,
            "versions": versions(),
            "runs": list(self.runs),
        }
        text = json.dumps(facts, ensure_ascii=False, allow_nan=False, indent=1)
        write_beside(self.folder / "comparison.json", lambda out: out.write(text.encode("utf-8", "replace")))


def ratio(error: float, base: float | None) -> float | None:
    """How large an error is beside another; None where there is none, or it is zero."""
    return error / base if base else None


def _last(by_rank: Mapping[int, float]) -> tuple[int, float]:
    rank = max(by_rank)
    return -rank, by_rank[rank]


def _written(value: Any) -> Any:
    return number(value) if isinstance(value, float) else "" if value is None else value


def settled_at(run: Mapping[str, Any]) -> float | None:
    """Seconds after which a run was within one hundredth of its smallest error."""
    curve = run["curve"]
    reached = [t for t, e in zip(curve["time"][1:], curve["error"][1:], strict=True) if e <= 1.01 * run["error"]]
    return float(reached[0]) if reached else None


def _curve(label: str, runs: Sequence[Mapping[str, Any]]) -> Series:
    last = max(run["curve"]["time"][-1] for run in runs)
    first = max(run["curve"]["time"][1] for run in runs)
    if len(runs) == 1:
        times = np.array(runs[0]["curve"]["time"])
    else:
        times = np.concatenate([[0.0], np.geomspace(first, last, 200) if last > first else [last]])
    own_start = label == NMF.label  # What the others begin with is not its own.
    errors = np.mean([error_at(run, times) for run in runs], axis=0)
    if own_start:
        errors[times < first] = np.nan
        highest = 1.2 * max(errors[-1], mean([run["start_error"] for run in runs]))
        errors = np.where(errors <= highest, errors, np.nan)  # Its first sweeps are far above all else.
    return Series.of(label, times, errors)
