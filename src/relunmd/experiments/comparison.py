"""A comparison on a matrix of one's own: what is run, what came out, and what the report says about it.

This is the one definition: `relunmd compare`, `relunmd.compare` and the page are made from it, and whatever algorithm
the library has, or a user has registered, is in all three.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.algorithms import ALGORITHMS, Algorithm
from relunmd.archive import versions
from relunmd.charts import Series, number, shown_name
from relunmd.errors import FileError, InputError
from relunmd.experiments import imaging
from relunmd.experiments.contenders import NMF, Contender, built_in, registered
from relunmd.experiments.display import Display
from relunmd.experiments.experiment import TSVD, mean
from relunmd.experiments.making import check_folder, make_report
from relunmd.experiments.plan import Case, Matrix, Run
from relunmd.experiments.results import Record, Results
from relunmd.experiments.runner import Outcome
from relunmd.files import write_beside
from relunmd.init import INITS
from relunmd.matrix import Source
from relunmd.plot.images import check_image_shape
from relunmd.report import Report, write_csv
from relunmd.solve import Limits
from relunmd.validation import check_limits, check_matrix, check_random_state, check_rank, check_starts

__all__ = ["Comparison", "compare"]

Array = NDArray[Any]
BASELINES = (TSVD, NMF)
_MOST_KEPT = 1 << 26
"""Bytes of W and H up to which they are kept for the pictures."""
_READ_ROWS = 4096


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
    folder : where the results, the page report.html, report.md, comparison.csv, comparison.json and the pictures are
    """

    name: str
    shape: tuple[int, int]
    ranks: tuple[int, ...]
    labels: tuple[str, ...]
    runs: Sequence[Mapping[str, Any]] = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    notes: Sequence[str]
    folder: Path

    @property
    def page(self) -> Path:
        """The page that can be mailed."""
        return self.folder / "report.html"

    def of(self, rank: int, label: str) -> list[Mapping[str, Any]]:
        """The runs of an algorithm at a rank that finished an iteration, one a start."""
        return [run for run in self.runs if run["rank"] == rank and run["algorithm"] == label and run["n_iter"]]

    def errors(self) -> dict[str, dict[int, float]]:
        """The final error by algorithm, best first, and rank; means over the starts, of finished iterations."""
        found = {
            label: {rank: mean([run["error"] for run in self.of(rank, label)]) for rank in self.ranks}
            for label in self.labels
        }
        kept = {label: {r: e for r, e in by_rank.items() if np.isfinite(e)} for label, by_rank in found.items()}
        there = [label for label, by_rank in kept.items() if by_rank]
        return {label: kept[label] for label in sorted(there, key=lambda label: list(kept[label].values())[-1])}

    def ranking(self, rank: int) -> list[str]:
        """The algorithms and baselines that have an error at a rank, best first."""
        errors = self.errors()
        return sorted((label for label in errors if rank in errors[label]), key=lambda label: errors[label][rank])

    def curves(self, rank: int) -> list[Series]:
        """The smallest error up to each time, which is what a run that ended then would hand back, the best one first.

        Of several starts it is the mean. The truncated SVD has no curve.
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
                "error / TSVD's": run["error"] / base[run["rank"]] if run["n_iter"] and run["rank"] in base else None,
                "iterations": run["n_iter"],
                "seconds": run["time"],
                "seconds to 1 %": settled_at(run),
                "error of the start": run["start_error"],
                "seconds of the start": run["start_time"],
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
            return cls(str(facts["matrix"]), (int(m), int(n)), ranks, labels, runs, settings, notes, place)
        except (OSError, ValueError, KeyError, TypeError) as reason:
            raise FileError(f"{path} must be as a comparison writes it. It is not: {reason!r}.") from reason

    def _write(self) -> None:
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
            "versions": versions(),
            "runs": list(self.runs),
        }
        text = json.dumps(facts, ensure_ascii=False, allow_nan=False, indent=1)
        write_beside(self.folder / "comparison.json", lambda out: out.write(text.encode("utf-8", "replace")))


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
    errors = np.mean([_best_so_far(run, times, own_start) for run in runs], axis=0)
    if own_start:
        highest = 1.2 * max(errors[-1], mean([run["start_error"] for run in runs]))
        errors = np.where(errors <= highest, errors, np.nan)  # Its first sweeps are far above all else.
    return Series.of(label, times, errors)


def _best_so_far(run: Mapping[str, Any], times: Array, own_start: bool) -> Array:
    errors = np.array(run["curve"]["error"])
    if own_start:
        errors[0] = np.inf
    places = np.searchsorted(np.array(run["curve"]["time"]), times, side="right") - 1
    return np.asarray(np.minimum.accumulate(errors)[places])


def compare(
    X: Any,
    ranks: int | Sequence[int],
    output: str | Path = "comparison",
    *,
    algorithms: Sequence[str | Algorithm[Any] | Contender] | None = None,
    max_time: float | None = 5.0,
    max_iter: int | None = None,
    starts: int = 1,
    init: str = "shifted",
    seed: int = 0,
    image_shape: tuple[int, int] | str | None = "auto",
    column_names: Sequence[str] | None = None,
    name: str = "X",
    display: Display | None = None,
) -> Comparison:
    """Run algorithms side by side on X at several ranks, with a truncated SVD and scikit-learn's NMF as baselines.

    Parameters
    ----------
    X : m×n, nonnegative: whatever `decompose` takes
    ranks : one or several
    output : folder for the results, the page report.html, report.md, comparison.csv, comparison.json, and the pictures;
        a run that it has already is not made again
    algorithms : names of `relunmd.algorithms()` or of registered methods, settings, or contenders; None for all
    max_time : seconds for each run, without its start; None for no limit (then `max_iter` is needed)
    max_iter : iterations for each run
    starts : how many starts, each from a seed of its own, `seed`, `seed` + 1, …; means are shown
    init : the start that all algorithms have in common, a name of `relunmd.inits()`. The baselines are as they are: the
        SVD has no start, NMF begins with NNDSVDa, since its factors may not be negative
    image_shape : height and width if the rows of X are images; None if they are not; "auto" to find out
    column_names : n names, for a table of what the components are of
    name : what the report calls X
    display : how progress is shown

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        For what cannot be used, before anything is run.
    KeyboardInterrupt
        At Ctrl-C, after the report of the runs that were finished has been written.

    Notes
    -----
    Everything is computed in float64. An array in memory is copied once; sparse X and X in a file stay as they are,
    except for what a method needs. One for which the memory does not suffice is left out with a note, as is one that
    fails. X is read once more than the runs do, so that the results of another X in the same folder are not taken for
    those of this one.

    Examples
    --------
    >>> import tempfile, relunmd
    >>> from relunmd import datasets
    >>> folder = tempfile.TemporaryDirectory()
    >>> found = relunmd.compare(
    ...     datasets.digits()[:200], [4, 8], f"{folder.name}/out", algorithms=["qn", "3b"], max_time=None, max_iter=30
    ... )  # doctest: +ELLIPSIS
    8 runs to make...
    >>> found.ranking(8)[0], sorted(found.errors()["TSVD"])
    ('qn', [4, 8])
    >>> folder.cleanup()
    """
    source = check_matrix(X)
    shape = source.shape
    limits = check_limits(None, 0, max_iter, max_time, endless=True)
    if limits.max_time is None and limits.max_iter is None:
        raise InputError("max_time or max_iter must be given, or the runs would not end.")
    check_random_state(seed)
    chosen_ranks = _check_ranks(ranks, shape)
    contenders = _contenders(algorithms)
    if init not in INITS:
        raise InputError(f"init must be one of {', '.join(INITS)}. Got {init!r}.")
    if column_names is not None and len(column_names) != shape[1]:
        raise InputError(f"column_names must be {shape[1]} names, as X has columns. Got {len(column_names)}.")
    if image_shape is not None and image_shape != "auto":
        image_shape = check_image_shape(image_shape, shape[1])
    folder = check_folder(output)
    mark, nonzeros = _looked_at(source)
    pixels: Any = imaging.guess_image_shape(source) if image_shape == "auto" else image_shape
    plan = _Plan(
        Matrix(name, shape, lambda: X, mark), chosen_ranks, contenders, limits, check_starts(starts), init, seed
    )
    settings = plan.settings(nonzeros, pixels, guessed=image_shape == "auto")
    results = Results(folder)
    names = None if column_names is None else [str(one) for one in column_names]
    found: list[Comparison] = []

    def report(outcome: Outcome) -> Report:
        from relunmd.experiments.compared import comparison_report

        if plan.matrix.name in outcome.missing:
            raise InputError(outcome.missing[plan.matrix.name].partition(": ")[2])
        comparison = plan.comparison(results, outcome, settings, folder)
        comparison._write()
        found.append(comparison)
        return comparison_report(comparison, source, pixels, names, results.environments(plan.runs()))

    make_report(plan.runs(), results, display, report)
    return found[0]


@dataclass(frozen=True)
class _Plan:
    """What is to be run."""

    matrix: Matrix
    ranks: tuple[int, ...]
    contenders: tuple[Contender, ...]
    limits: Limits
    starts: int
    init: str
    seed: int

    def runs(self) -> list[Run]:
        """Rank by rank and start by start, so that what is the same start is made once; the baselines once a rank."""
        found = []
        for rank in self.ranks:
            for start in range(self.starts):
                everyone = (*self.contenders, *BASELINES) if start == 0 else self.contenders
                found += [self._run(rank, start, contender) for contender in everyone]
        return found

    def _run(self, rank: int, start: int, contender: Contender) -> Run:
        m, n = self.matrix.shape
        keeps = start == 0 and 8 * rank * (m + n) <= _MOST_KEPT
        # The SVD is one step, which may take longer than the others are given.
        limits = Limits(None, 0, 1, None) if contender is TSVD else self.limits
        return Run(Case(self.matrix, rank, limits, self.init, self.seed + start, None, keeps), contender)

    def settings(self, nonzeros: int, pixels: tuple[int, int] | None, guessed: bool) -> dict[str, str]:
        """What was asked for, in words."""
        m, n = self.matrix.shape
        limits = [f"{self.limits.max_time:g} s"] if self.limits.max_time is not None else []
        limits += [f"{self.limits.max_iter} iterations"] if self.limits.max_iter is not None else []
        seeds = f"seed {self.seed}" if self.starts == 1 else f"seeds {self.seed} to {self.seed + self.starts - 1}"
        told = f"{pixels[0]} × {pixels[1]} pixels{', as they look' * guessed}" if pixels else "not images"
        return {
            "matrix": self.matrix.name,
            "shape": f"{m} × {n}",
            "zeros": f"{1 - nonzeros / (m * n):.1%}",
            "rows": told,
            "ranks": ", ".join(map(str, self.ranks)),
            "algorithms": ", ".join(contender.label for contender in self.contenders),
            "baselines": "TSVD, max(0, X_r); NMF of scikit-learn, coordinate descent from NNDSVDa, which is timed",
            "each run": " or ".join(limits),
            "start": f"{self.init}, the same for all algorithms, not timed; {seeds}",
            "computed in": "float64",
        }

    def comparison(self, results: Results, outcome: Outcome, settings: Mapping[str, str], folder: Path) -> Comparison:
        """What came out."""
        runs, notes = [], []
        for run in self.runs():
            record = results.get(run)
            where = f"{run.contender.label} at rank {run.case.rank}"
            if record is not None:
                runs.append(_told(run, record, results.factors_file(run)))
                if not record["n_iter"]:
                    notes.append(f"{where} finished no iteration: {record['status'].rstrip('.')}.")
            elif run.key in outcome.failed:
                notes.append(f"{where} could not be run: {outcome.failed[run.key]}")
        if outcome.interrupted:
            notes.append(f"It was interrupted: {len(runs)} of {len(self.runs())} runs are here; the same call goes on.")
        labels = tuple(contender.label for contender in (*self.contenders, *BASELINES))
        matrix = self.matrix
        return Comparison(matrix.name, matrix.shape, self.ranks, labels, runs, settings, notes, folder)


def _told(run: Run, record: Record, factors: str | None) -> dict[str, Any]:
    kept = ("error", "n_iter", "time", "start_error", "start_time", "status", "curve", "settings")
    return {
        "algorithm": run.contender.label,
        "rank": run.case.rank,
        "seed": run.case.seed,
        **{key: record[key] for key in kept},
        "factors": factors,
    }


def _check_ranks(ranks: Any, shape: tuple[int, int]) -> tuple[int, ...]:
    several = list(ranks) if isinstance(ranks, Iterable) and not isinstance(ranks, str | bytes) else [ranks]
    if not several:
        raise InputError("ranks must be one or several numbers. Got none.")
    return tuple(sorted({check_rank(rank, shape) for rank in several}))


def _contenders(algorithms: Any) -> tuple[Contender, ...]:
    """Those asked for, without the baselines, which always take part."""
    known = {name: built_in(name) for name in ALGORITHMS if name != TSVD.settings["algorithm"]}
    known |= {contender.label: contender for contender in registered()}
    if algorithms is None:
        return tuple(known.values())
    if isinstance(algorithms, str | Algorithm | Contender) or not isinstance(algorithms, Iterable):
        algorithms = [algorithms]
    by_name = {name.lower(): contender for name, contender in known.items()}
    by_name |= {shown_name(name).lower(): contender for name, contender in known.items()}
    found: dict[str, Contender] = {}
    for given in algorithms:
        if isinstance(given, str) and given.strip().lower() in {one.label.lower() for one in BASELINES}:
            continue
        if isinstance(given, Algorithm):
            contender = built_in(given)
        elif isinstance(given, Contender):
            contender = given
        elif isinstance(given, str) and given.strip().lower() in by_name:
            contender = by_name[given.strip().lower()]
        else:
            raise InputError(f"algorithms must be among {', '.join(known)}. Got {given!r}.")
        if contender.label in found and found[contender.label].settings != contender.settings:
            raise InputError(
                f"algorithms must have a name each. Got two called {contender.label!r}; "
                "experiments.built_in(settings, label) gives one another."
            )
        found[contender.label] = contender
    if not found:
        raise InputError("algorithms must name one at least besides the baselines. Got none.")
    return tuple(found.values())


def _looked_at(X: Source) -> tuple[str, int]:
    """A short hash of what X holds, and the number of its nonzeros."""
    digest = hashlib.blake2b(repr((X.shape, str(X.dtype))).encode(), digest_size=8)
    nonzeros = 0
    for begin in range(0, X.shape[0], _READ_ROWS):
        part = X.read(slice(begin, min(X.shape[0], begin + _READ_ROWS)))
        arrays = [part.data, part.indices, part.indptr] if hasattr(part, "indptr") else [np.asarray(part)]
        nonzeros += int(np.count_nonzero(arrays[0]))
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest(), nonzeros
