"""The comparison object: errors, curves and factors by algorithm and rank, written to files and read from them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.comparison.contenders import NMF, TSVD
from relunmd.comparison.report import write_csv
from relunmd.comparison.result_file import error_at, mean
from relunmd.errors import FileError
from relunmd.io.archive import versions
from relunmd.io.atomic import write_beside
from relunmd.plot.chart import Series, number

__all__ = ["Comparison", "ratio", "settling_time"]

Array = NDArray[Any]
_FIELDS = ("ranks", "labels", "runs", "settings", "notes", "to_come", "image_shape")


@dataclass(frozen=True)
class Comparison:
    """Result of `relunmd.compare`. `relunmd.plot` draws it.

    Attributes
    ----------
    name : str
        Name of the matrix.
    shape : tuple of int
        Shape of the matrix.
    ranks : tuple of int
        Ranks in increasing order.
    labels : tuple of str
        Labels of the algorithms and the two baselines.
    runs : sequence of mapping
        One per finished run: "algorithm", "rank", "seed", "error", "n_iter", "time", "start_error" and "start_time" (of
        the initial factors), "status", "curve" (lists "iteration", "time" and "error", thinned out), "settings", and
        "factors" (a file, or None).
    settings : mapping
        Arguments of the comparison, as text.
    notes : sequence of str
        Remarks, such as what could not be run and why.
    to_come : sequence of (int, str)
        Rank and label of the runs that are missing after an interruption.
    image_shape : tuple of int or None
        Height and width if the rows are images.
    folder : Path
        Folder of the results, report.html, report.md, comparison.csv, comparison.json and the pictures.
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
        """Path of the report, a single self-contained HTML file."""
        return self.folder / "report.html"

    def of(self, rank: int, label: str) -> list[Mapping[str, Any]]:
        """Return the runs of an algorithm at a rank that finished an iteration, one per seed.

        Parameters
        ----------
        rank : int
            The rank.
        label : str
            Label of the algorithm.

        Returns
        -------
        list of mapping
            Empty while runs are missing: a mean over some of the seeds would mislead.
        """
        if (rank, label) in self.to_come:
            return []
        return [run for run in self.runs if run["rank"] == rank and run["algorithm"] == label and run["n_iter"]]

    def errors(self) -> dict[str, dict[int, float]]:
        """Return the final errors by algorithm and rank, best algorithm at the largest rank first.

        Returns
        -------
        dict
            ``{label: {rank: error}}``, means over the seeds.
        """
        found = {}
        for label in self.labels:
            runs = {rank: [run["error"] for run in self.of(rank, label)] for rank in self.ranks}
            found[label] = {rank: mean(errors) for rank, errors in runs.items() if errors}
        shown = [label for label, by_rank in found.items() if by_rank]
        order = sorted(shown, key=lambda label: (-max(found[label]), found[label][max(found[label])]))
        return {label: found[label] for label in order}

    def ranking(self, rank: int) -> list[str]:
        """Return the algorithms and baselines that have an error at a rank, best first.

        Parameters
        ----------
        rank : int
            The rank.

        Returns
        -------
        list of str
        """
        errors = {label: by_rank[rank] for label, by_rank in self.errors().items() if rank in by_rank}
        return sorted(errors, key=lambda label: errors[label])

    def curves(self, rank: int) -> list[Series]:
        """Return the smallest error up to each time, from the initial error on, best algorithm first.

        Parameters
        ----------
        rank : int
            The rank.

        Returns
        -------
        list of Series
            Means over the seeds. The truncated SVD has no curve. The curve of NMF, which has its own initialization,
            leaves out the first sweeps, which are far above the others.
        """
        return [_curve(label, self.of(rank, label)) for label in self.ranking(rank) if label != TSVD.label]

    def factors(self, rank: int) -> dict[str, tuple[Array, Array]]:
        """Return W and H of the first seed at a rank, best algorithm first.

        Parameters
        ----------
        rank : int
            The rank.

        Returns
        -------
        dict
            ``{label: (W, H)}`` of the runs whose factors were kept.
        """
        found = {}
        for label in self.ranking(rank):
            files = [self.folder / run["factors"] for run in self.of(rank, label) if run["factors"]]
            if files and files[0].exists():
                with np.load(files[0], allow_pickle=False) as arrays:
                    found[label] = arrays["W"], arrays["H"]
        return found

    def table(self) -> list[dict[str, Any]]:
        """Return one row per run, as in comparison.csv.

        Returns
        -------
        list of dict
            "error / TSVD's" is the ratio to the error of the truncated SVD at that rank; "seconds to 1 %" is the time
            until the error was within 1 % of the smallest of the run.
        """
        base = self.errors().get(TSVD.label, {})
        rows = []
        for run in self.runs:
            error = run["error"] if run["n_iter"] else None
            common = run["algorithm"] not in (TSVD.label, NMF.label)  # The baselines do not use the initial factors.
            rows.append(
                {
                    "rank": run["rank"],
                    "algorithm": run["algorithm"],
                    "seed": run["seed"],
                    "error": error,
                    "error / TSVD's": ratio(error, base.get(run["rank"])),
                    "iterations": run["n_iter"],
                    "seconds": run["time"],
                    "seconds to 1 %": settling_time(run),
                    "initial error": run["start_error"] if common else None,
                    "seconds of the initialization": run["start_time"] if common else None,
                    "status": run["status"],
                }
            )
        return rows

    @classmethod
    def load(cls, folder: str | Path) -> "Comparison":
        """Read a comparison from its folder; nothing in it is executed.

        Parameters
        ----------
        folder : path
            The output folder of `relunmd.compare`.

        Returns
        -------
        Comparison

        Raises
        ------
        FileError
            If the folder does not hold a comparison, or it is damaged.

        Examples
        --------
        >>> import relunmd
        >>> relunmd.Comparison.load("nowhere")
        Traceback (most recent call last):
        relunmd.errors.FileError: nowhere does not contain a comparison.
        """
        path = Path(folder) / "comparison.json"
        if not path.exists():
            raise FileError(f"{folder} does not contain a comparison.")
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            runs = [dict(run) for run in facts["runs"]]
            for run in runs:
                if run["factors"] is not None and not re.fullmatch(r"factors/[0-9a-f]+\.npz", run["factors"]):
                    raise ValueError(f"{run['factors']!r} is not one of its files")
            (m, n), sides = facts["shape"], facts["image_shape"]
            return cls(
                str(facts["matrix"]),
                (int(m), int(n)),
                tuple(map(int, facts["ranks"])),
                tuple(map(str, facts["labels"])),
                runs,
                dict(facts["settings"]),
                list(facts["notes"]),
                [(int(rank), str(label)) for rank, label in facts["to_come"]],
                None if sides is None else (int(sides[0]), int(sides[1])),
                Path(folder),
            )
        except (OSError, ValueError, KeyError, TypeError, IndexError) as reason:
            raise FileError(
                f"{path} must be a file written by a comparison; reading it failed: {reason!r}."
            ) from reason

    def write(self) -> None:
        """Write comparison.csv and comparison.json to the folder."""
        rows = [
            {
                name: number(value) if isinstance(value, float) else "" if value is None else value
                for name, value in row.items()
            }
            for row in self.table()
        ]
        write_csv(self.folder / "comparison.csv", list(rows[0]) if rows else [], [list(row.values()) for row in rows])
        facts = {"matrix": self.name, "shape": self.shape, "versions": versions()}
        facts |= {name: getattr(self, name) for name in _FIELDS}
        text = json.dumps(facts, ensure_ascii=False, allow_nan=False, indent=1)
        write_beside(self.folder / "comparison.json", lambda out: out.write(text.encode("utf-8", "replace")))


def ratio(error: float | None, base: float | None) -> float | None:
    """Return error / base, or None if one is missing or base is 0."""
    return error / base if error is not None and base else None


def settling_time(run: Mapping[str, Any]) -> float | None:
    """Return the seconds until a run was within 1 % of its smallest error, or None."""
    curve = run["curve"]
    times = (t for t, e in zip(curve["time"][1:], curve["error"][1:], strict=True) if e <= 1.01 * run["error"])
    return next(times, None)


def _curve(label: str, runs: Sequence[Mapping[str, Any]]) -> Series:
    last, first = (max(run["curve"]["time"][place] for run in runs) for place in (-1, 1))
    times = np.array(runs[0]["curve"]["time"])
    if len(runs) > 1:
        times = np.concatenate([[0.0], np.geomspace(first, last, 200) if last > first else [last]])
    errors = np.mean([error_at(run, times) for run in runs], axis=0)
    if label == NMF.label:  # It does not begin with the common initial factors, and its first sweeps are far above.
        highest = 1.2 * max(errors[-1], mean([run["start_error"] for run in runs]))
        errors[(times < first) | (errors > highest)] = np.nan
    return Series.of(label, times, errors)
