"""The comparison object: errors, curves and factors by algorithm and rank, written to files and read from them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from relunmd.comparison.contenders import NMF, TSVD, Array
from relunmd.comparison.report.report_files import write_csv, write_text
from relunmd.errors import FileError
from relunmd.io.archive import versions
from relunmd.plot.chart import Series


@dataclass(frozen=True)
class Comparison:
    """Hold the result of `relunmd.compare`; `relunmd.plot` draws it.

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
    page

    See Also
    --------
    compare : Run a comparison.

    Examples
    --------
    In the folder of ``relunmd.compare(relunmd.datasets.digits()[:200], [4, 8], "comparison", algorithms=["qn"])``:

    >>> import relunmd
    >>> found = relunmd.Comparison.load("comparison")
    >>> found.labels, found.ranks
    (('qn', 'TSVD', 'NMF'), (4, 8))
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
        """Path of the report: report.html, a single self-contained file, or report.md if that was not written."""
        page = self.folder / "report.html"
        return page if page.exists() else self.folder / "report.md"

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

        Examples
        --------
        >>> import relunmd
        >>> found = relunmd.Comparison.load("comparison")
        >>> [run["seed"] for run in found.of(8, "qn")]
        [0]
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

        Examples
        --------
        >>> import relunmd
        >>> found = relunmd.Comparison.load("comparison")
        >>> found.errors()["qn"][8] < found.errors()["TSVD"][8]
        True
        """
        found: dict[str, dict[int, float]] = {}
        for label in self.labels:
            for rank in self.ranks:
                if runs := self.of(rank, label):
                    found.setdefault(label, {})[rank] = fmean(run["error"] for run in runs)
        return dict(sorted(found.items(), key=lambda item: (-max(item[1]), item[1][max(item[1])])))

    def ranking(self, rank: int) -> list[str]:
        """Return the algorithms and baselines that have an error at a rank, best first.

        Parameters
        ----------
        rank : int
            The rank.

        Returns
        -------
        list of str
            Labels.

        Examples
        --------
        >>> import relunmd
        >>> found = relunmd.Comparison.load("comparison")
        >>> found.ranking(8)[0]
        'qn'
        """
        errors = {label: by_rank[rank] for label, by_rank in self.errors().items() if rank in by_rank}
        return sorted(errors, key=errors.__getitem__)

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

        Examples
        --------
        >>> import relunmd
        >>> found = relunmd.Comparison.load("comparison")
        >>> [curve.label for curve in found.curves(8)]
        ['qn', 'NMF']
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

        Examples
        --------
        >>> import relunmd
        >>> found = relunmd.Comparison.load("comparison")
        >>> W, H = found.factors(8)["qn"]
        >>> W.shape, H.shape
        ((200, 8), (8, 64))
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

        Examples
        --------
        >>> import relunmd
        >>> found = relunmd.Comparison.load("comparison")
        >>> for row in found.table():
        ...     print(row["rank"], row["algorithm"], row["error"] < 0.5)
        4 qn True
        4 TSVD True
        4 NMF True
        8 qn True
        8 TSVD True
        8 NMF True
        """
        base, rows = self.errors().get(TSVD.label, {}), []
        for run in self.runs:
            error = run["error"] if run["n_iter"] else None
            tsvd = base.get(run["rank"])
            initialized = run["algorithm"] not in (TSVD.label, NMF.label)  # The baselines ignore the initial factors.
            row = {name: run[name] for name in ("rank", "algorithm", "seed")}
            row |= {"error": error, "error / TSVD's": error / tsvd if error is not None and tsvd else None}
            row |= {"iterations": run["n_iter"], "seconds": run["time"], "seconds to 1 %": settling_time(run)}
            row |= {"initial error": run["start_error"] if initialized else None}
            row |= {"seconds of the initialization": run["start_time"] if initialized else None}
            rows.append(row | {"status": run["status"]})
        return rows

    @classmethod
    def load(cls, folder: str | Path) -> "Comparison":
        """Read a comparison from its folder; nothing in it is executed.

        Parameters
        ----------
        folder : path-like
            The output folder of `relunmd.compare`.

        Returns
        -------
        Comparison
            The comparison, with the paths of its files in that folder.

        Raises
        ------
        FileError
            If the folder does not hold a comparison, or it is damaged.

        Examples
        --------
        >>> import relunmd
        >>> relunmd.Comparison.load("comparison").shape
        (200, 64)
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
            name, (m, n), sides, notes = str(facts["name"]), facts["shape"], facts["image_shape"], list(facts["notes"])
            shape, ranks = (int(m), int(n)), tuple(map(int, facts["ranks"]))
            labels, settings = tuple(map(str, facts["labels"])), dict(facts["settings"])
            to_come = [(int(rank), str(label)) for rank, label in facts["to_come"]]
            pixels = None if sides is None else (int(sides[0]), int(sides[1]))
            return cls(name, shape, ranks, labels, runs, settings, notes, to_come, pixels, Path(folder))
        except (OSError, ValueError, KeyError, TypeError, IndexError) as reason:
            raise FileError(f"{path} must be a file written by a comparison; got {reason!r}.") from reason

    def write(self) -> None:
        """Write comparison.csv and comparison.json to the folder.

        Examples
        --------
        >>> import relunmd
        >>> found = relunmd.Comparison.load("comparison")
        >>> found.write()
        >>> (found.folder / "comparison.csv").read_text().partition(",seconds")[0]
        "rank,algorithm,seed,error,error / TSVD's,iterations"
        """
        rows = self.table()
        write_csv(self.folder / "comparison.csv", list(rows[0]) if rows else [], [list(row.values()) for row in rows])
        facts = {name: value for name, value in vars(self).items() if name != "folder"} | {"versions": versions()}
        write_text(self.folder / "comparison.json", json.dumps(facts, ensure_ascii=False, allow_nan=False, indent=1))


def settling_time(run: Mapping[str, Any]) -> float | None:
    """Return the seconds until a run was within 1 % of its smallest error, or None."""
    points = zip(run["curve"]["time"][1:], run["curve"]["error"][1:], strict=True)
    return next((time for time, error in points if error <= 1.01 * run["error"]), None)


def error_at(run: Mapping[str, Any], times: Array) -> Array:
    """Return the smallest error of an iteration finished by each time; before the first, the initial error."""
    errors = np.array(run["curve"]["error"])
    errors[1:] = np.minimum.accumulate(errors[1:])  # A method may increase it for a while, as qn does.
    return np.asarray(errors[np.searchsorted(run["curve"]["time"], times, side="right") - 1])


def _curve(label: str, runs: Sequence[Mapping[str, Any]]) -> Series:
    last, first = (max(run["curve"]["time"][place] for run in runs) for place in (-1, 1))
    times = np.array(runs[0]["curve"]["time"])
    if len(runs) > 1:
        times = np.concatenate([[0.0], np.geomspace(first, last, 200) if last > first else [last]])
    errors = np.mean([error_at(run, times) for run in runs], axis=0)
    if label == NMF.label:  # It does not begin with the common initial factors, and its first sweeps are far above.
        highest = 1.2 * max(errors[-1], fmean(run["start_error"] for run in runs))
        errors[(times < first) | (errors > highest)] = np.nan
    return Series.of(label, times, errors)
