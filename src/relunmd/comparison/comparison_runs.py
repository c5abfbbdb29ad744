"""A comparison on a matrix of one's own: what is run.

This is the one definition: `relunmd compare`, `relunmd.compare` and the page are made from it, and whatever algorithm
the library has, or a user has registered, is in all three.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from relunmd.algorithm import ALGORITHMS, AUTO, Algorithm
from relunmd.algorithm.tsvd import TSVD as TSVD_SETTINGS
from relunmd.arguments import check_limits
from relunmd.comparison import image_detection
from relunmd.comparison.comparison_report import comparison_report
from relunmd.comparison.contenders import NMF, Contender, built_in, registered
from relunmd.comparison.experiment import TSVD
from relunmd.comparison.outcome import Comparison, settled_at
from relunmd.comparison.plan import Case, Matrix, Run
from relunmd.comparison.plan_display import Display
from relunmd.comparison.report import Report
from relunmd.comparison.report_building import check_folder, make_report
from relunmd.comparison.result_file import Record, Results
from relunmd.comparison.runner import Outcome
from relunmd.engine.blas_threads import usable_cores
from relunmd.engine.distributed import refuse_distributed
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.matrix import Source
from relunmd.engine.problem_setup import check_matrix, make_problem
from relunmd.errors import InputError
from relunmd.init import INITS
from relunmd.inspection import row_parts
from relunmd.loop.criteria import Limits
from relunmd.plot.chart import shown_name
from relunmd.plot.image_sheets import check_image_shape
from relunmd.result import Status

__all__ = ["compare"]

BASELINES = (TSVD, NMF)
_MOST_KEPT, _MOST_KEPT_IN_ALL = 1 << 26, 1 << 29
"""Bytes of W and H up to which they are kept for the pictures."""


def compare(
    X: Any,
    ranks: int | Sequence[int],
    output: str | Path = "comparison",
    *,
    algorithms: Sequence[str | Algorithm | Contender] | None = None,
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
    X : m×n, nonnegative: whatever `decompose` takes except X on Dask
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
    Everything is computed in float64. BLAS is limited to one thread for all methods, NMF and registered ones included;
    the library's algorithms spread their work over threads of their own, one for each core. A registered method that
    needs more BLAS threads sets them with threadpoolctl.

    An array in memory is copied once; sparse X and X in a file stay as they are, except for what a method needs. A
    method for which the memory does not suffice, or that fails, is left out with a note. X is read once more than the
    runs do, so that the results of another X in the same folder are not taken for those of this one.

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
    refuse_distributed(X, "compare")
    source = check_matrix(X)
    shape = source.shape
    limits = check_limits(None, 0, max_iter, None if max_time == np.inf else max_time, endless=True)
    if limits.max_time is None and limits.max_iter is None:
        raise InputError("max_time or max_iter must be given, or the runs would not end.")
    chosen_ranks = _check_ranks(ranks, shape)
    contenders = _contenders(algorithms)
    if init not in INITS:
        raise InputError(f"init must be one of {', '.join(INITS)}. Got {init!r}.")
    if column_names is not None and len(column_names) != shape[1]:
        raise InputError(f"column_names must be {shape[1]} names, as X has columns. Got {len(column_names)}.")
    if image_shape is not None and image_shape != "auto":
        image_shape = check_image_shape(image_shape, shape[1])
    how_many, first = _whole("starts", starts, 1), _whole("seed", seed, 0)
    folder = check_folder(output, of_comparison=True)
    mark, nonzeros = _looked_at(source)
    pixels: Any = image_detection.guess_image_shape(source) if image_shape == "auto" else image_shape
    matrix = Matrix(str(name), shape, lambda: X, mark)
    plan = _Plan(matrix, chosen_ranks, contenders, limits, how_many, init, first)
    settings = plan.settings(nonzeros, pixels, guessed=image_shape == "auto")
    results = Results(folder)
    names = None if column_names is None else [str(one) for one in column_names]
    found: list[Comparison] = []

    def report(outcome: Outcome) -> Report:
        comparison = plan.comparison(results, outcome, settings, pixels, folder)
        comparison.write()
        found.append(comparison)
        return comparison_report(comparison, source, names, plan.who_is_who(), results.environments(plan.runs()))

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
        keeps = start == 0 and self._size(rank) <= _MOST_KEPT
        if keeps and rank < self.ranks[-1]:  # Those of the largest rank are for the report, others where there is room.
            keeps = len(self.contenders) * sum(map(self._size, self.ranks)) <= _MOST_KEPT_IN_ALL
        # The SVD is one step, which may take longer than the others are given.
        limits = Limits(None, 0, 1, None) if contender is TSVD else self.limits
        return Run(Case(self.matrix, rank, limits, self.init, self.seed + start, None, keeps), contender)

    def _size(self, rank: int) -> int:
        """Bytes of W and H."""
        return 8 * rank * sum(self.matrix.shape)

    def settings(self, nonzeros: int, pixels: tuple[int, int] | None, guessed: bool) -> dict[str, str]:
        """What was asked for, in words."""
        m, n = self.matrix.shape
        limits = [f"{self.limits.max_time:g} s"] if self.limits.max_time is not None else []
        limits += [f"{self.limits.max_iter} iterations"] if self.limits.max_iter is not None else []
        seeds = f"seed {self.seed}" if self.starts == 1 else f"seeds {self.seed} to {self.seed + self.starts - 1}"
        told = f"{pixels[0]} × {pixels[1]} pixels{', guessed from the data' * guessed}" if pixels else "not images"
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
            "computed in": f"float64; the library's algorithms in {usable_cores()} threads; BLAS in one thread for all",
        }

    def who_is_who(self) -> dict[str, str]:
        """What the names mean."""
        found = {}
        for contender in (*self.contenders, *BASELINES):
            algorithm = contender.settings.get("algorithm")
            found[contender.label] = (
                ALGORITHMS[algorithm].summary if algorithm in ALGORITHMS else "a method of one's own"
            )
        return found | {NMF.label: "scikit-learn's nonnegative matrix factorisation, X ≈ WH with W, H ≥ 0"}

    def comparison(
        self,
        results: Results,
        outcome: Outcome,
        settings: Mapping[str, str],
        pixels: tuple[int, int] | None,
        folder: Path,
    ) -> Comparison:
        """What came out."""
        runs, notes, to_come = [], _Notes(), []
        why = outcome.missing.get(self.matrix.name, "").removeprefix(f"{self.matrix.name}: ")
        if why and not any(results.get(run) for run in self.runs()):
            raise InputError(why)
        for run in self.runs():
            record = results.get(run)
            label, rank = run.contender.label, run.case.rank
            if record is None and run.key in outcome.failed:
                notes.add(label, rank, f"could not be run: {outcome.failed[run.key]}")
            elif record is None and outcome.interrupted:
                to_come.append((rank, label))
            elif record is not None:
                runs.append(_told(run, record, results.factors_file(run)))
                if not record["n_iter"]:
                    notes.add(label, rank, f"finished no iteration: {record['status'].rstrip('.')}")
                elif _still_falls(runs[-1]):
                    notes.add(label, rank, "still fell in the last tenth of the time, by more than a hundredth")
        said = notes.sentences()
        if why:
            said.append(f"The rest could not be run: {why}")
        if to_come:
            said.append(f"It was interrupted: {len(to_come)} of {len(self.runs())} runs are yet to come.")
        begun = {run["seed"]: run["start_error"] for run in runs if run["rank"] == self.ranks[-1]}
        if len(begun) > 1 and max(begun.values()) <= 1.001 * min(begun.values()):
            said.append(f"The {self.init} starts of different seeds are nearly the same; random ones are not.")
        labels = tuple(contender.label for contender in (*self.contenders, *BASELINES))
        name, shape = self.matrix.name, self.matrix.shape
        return Comparison(name, shape, self.ranks, labels, runs, settings, said, to_come, pixels, folder)


class _Notes:
    """Remarks on runs, those that are the same in one sentence."""

    def __init__(self) -> None:
        self._ranks: dict[str, dict[str, set[int]]] = {}

    def add(self, label: str, rank: int, what: str) -> None:
        self._ranks.setdefault(what, {}).setdefault(label, set()).add(rank)

    def sentences(self) -> list[str]:
        return [
            f"{', '.join(f'{label} at rank {_counted(ranks)}' for label, ranks in by_label.items())} {what}."
            for what, by_label in self._ranks.items()
        ]


def _counted(ranks: set[int]) -> str:
    return " and ".join(map(str, sorted(ranks)))


def _still_falls(run: Mapping[str, Any]) -> bool:
    """Whether a run that ended by its time limit lowered its error by a hundredth in the last tenth."""
    settled = settled_at(run)
    return run["status"] == Status.MAX_TIME.message and settled is not None and settled > 0.9 * run["time"]


def _told(run: Run, record: Record, factors: str | None) -> dict[str, Any]:
    kept = ("error", "n_iter", "time", "start_error", "start_time", "status", "curve", "settings")
    return {
        "algorithm": run.contender.label,
        "rank": run.case.rank,
        "seed": run.case.seed,
        **{key: record[key] for key in kept},
        "factors": factors,
    }


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}. Got {value!r}.")
    return int(value)


def _check_ranks(ranks: Any, shape: tuple[int, int]) -> tuple[int, ...]:
    several = list(ranks) if isinstance(ranks, Iterable) and not isinstance(ranks, str | bytes) else [ranks]
    if not several:
        raise InputError("ranks must be one or several numbers. Got none.")
    for rank in several:
        if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or not 1 <= rank <= min(shape):
            raise InputError(f"ranks must be whole numbers from 1 to {min(shape)}, as X is {shape}. Got {rank!r}.")
    return tuple(sorted({int(rank) for rank in several}))


def _contenders(algorithms: Any) -> tuple[Contender, ...]:
    """Those asked for, without the baselines, which always take part."""
    known = {name: built_in(name) for name in ALGORITHMS if name != TSVD.settings["algorithm"]}
    known |= {contender.label: contender for contender in registered()}
    if algorithms is None:
        return tuple(known.values())
    if isinstance(algorithms, str | Algorithm | Contender) or not isinstance(algorithms, Iterable):
        algorithms = [algorithms]
    by_name = {name.lower(): contender for name, contender in known.items()} | {"auto": known[AUTO]}
    by_name |= {shown_name(name).lower(): contender for name, contender in known.items()}
    found: dict[str, Contender] = {}
    for given in algorithms:
        if isinstance(given, TSVD_SETTINGS) or (isinstance(given, str) and given.strip().lower() in ("tsvd", "nmf")):
            continue
        if isinstance(given, Algorithm):
            contender = built_in(given)
        elif isinstance(given, Contender):
            contender = given
        elif isinstance(given, str) and given.strip().lower() in by_name:
            contender = by_name[given.strip().lower()]
        else:
            raise InputError(f"algorithms must be among {', '.join(known)}. Got {given!r}.")
        if contender.label in {one.label for one in BASELINES}:
            raise InputError(f"algorithms must have other names than the baselines. Got {contender.label!r}.")
        if contender.label in found and found[contender.label].settings != contender.settings:
            raise InputError(
                f"algorithms must have a name each. Got two called {contender.label!r}; "
                "comparison.built_in(settings, label) gives one another."
            )
        found[contender.label] = contender
    if not found:
        raise InputError(
            "algorithms must name one at least besides the baselines TSVD and NMF, which always take part. Got "
            f"{algorithms!r}."
        )
    return tuple(found.values())


def _looked_at(X: Source) -> tuple[str, int]:
    """A short hash of what X holds, and the number of its nonzeros; refuses what cannot be decomposed."""
    digest = hashlib.blake2b(repr((X.shape, str(X.dtype))).encode(), digest_size=8)
    nonzeros, sound = 0, True
    for _, part in row_parts(X):
        arrays = [part.data, part.indices, part.indptr] if sparse.issparse(part) else [np.asarray(part)]
        values = arrays[0]
        nonzeros += int(np.count_nonzero(values))
        sound = sound and bool(np.isfinite(values).all()) and bool(values.min(initial=0) >= 0)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
    if not sound or nonzeros == 0:
        with ThreadExecutor(usable_cores()) as executor:
            make_problem(X, np.dtype(np.float64), 1, executor)  # Says what is wrong, and where.
    return digest.hexdigest(), nonzeros
