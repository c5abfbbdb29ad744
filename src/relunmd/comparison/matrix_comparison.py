"""`compare`: which runs a comparison on a matrix consists of, and what they result in."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from relunmd.algorithm import ALGORITHMS, AUTO, Algorithm
from relunmd.algorithm.tsvd import TSVD as TSVD_SETTINGS
from relunmd.arguments import check_limits
from relunmd.comparison.comparison_display import ComparisonDisplay
from relunmd.comparison.comparison_report import comparison_report
from relunmd.comparison.comparison_result import Comparison, settling_time
from relunmd.comparison.contenders import NMF, TSVD, Contender, Method, built_in, registered
from relunmd.comparison.image_detection import guess_image_shape
from relunmd.comparison.report.report_files import write_report
from relunmd.comparison.result_file import Matrix, Results, Run, check_folder
from relunmd.comparison.runner import Runner
from relunmd.engine.blas_threads import usable_cores
from relunmd.engine.distributed import refuse_distributed
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.problem_setup import check_matrix, make_problem
from relunmd.errors import InputError
from relunmd.history import Status
from relunmd.init import INITS
from relunmd.loop.criteria import Limits
from relunmd.plot.chart import shown_name
from relunmd.plot.image_sheets import check_image_shape

_MOST_KEPT = 1 << 26
"""Bytes of W and H up to which they are kept for the pictures."""


def compare(
    X: Any,
    ranks: int | Sequence[int],
    output: str | Path = "comparison",
    *,
    algorithms: Sequence[str | Algorithm | Method | Contender] | None = None,
    max_time: float | None = 5.0,
    max_iter: int | None = None,
    starts: int = 1,
    init: str = "shifted",
    seed: int = 0,
    image_shape: tuple[int, int] | str | None = "auto",
    column_names: Sequence[str] | None = None,
    name: str = "X",
    display: ComparisonDisplay | None = None,
) -> Comparison:
    """Compare algorithms on X at several ranks, with a truncated SVD and scikit-learn's NMF as baselines.

    Parameters
    ----------
    X : {array-like, sparse matrix, HDF5 or Zarr array} of shape (m, n)
        Nonnegative matrix; whatever `decompose` accepts except X on Dask.
    ranks : int or sequence of int
        Ranks at which to compare.
    output : path, default="comparison"
        Folder for the results, report.html, report.md, comparison.csv, comparison.json and the pictures. Runs whose
        results it holds are not repeated.
    algorithms : sequence of {str, Algorithm, callable, Contender}, default=None
        Names of `relunmd.algorithms()` or of registered methods, instances with settings, generator functions of X, W
        and H that yield W, H, or contenders. None for all.
    max_time : float, default=5.0
        Seconds for each run, without its initialization. None for no limit; then `max_iter` is required.
    max_iter : int, default=None
        Maximum number of iterations of each run.
    starts : int, default=1
        Number of initializations, with seeds `seed`, `seed` + 1, …; means are reported.
    init : str, default="shifted"
        Initialization of all algorithms, a name of `relunmd.inits()`. The baselines do not use it: the SVD needs none,
        and NMF begins with NNDSVDa, because its factors may not be negative.
    seed : int, default=0
        Seed of the first initialization.
    image_shape : tuple of int, "auto" or None, default="auto"
        Height and width if the rows of X are images, None if they are not; "auto" detects square images.
    column_names : sequence of n str, default=None
        Names of the columns, for a table of the largest entries of each component.
    name : str, default="X"
        Name of X in the report.
    display : ComparisonDisplay, default=None
        Progress display; by default one on standard output.

    Returns
    -------
    Comparison
        Errors, curves and factors.

    Raises
    ------
    InputError
        If an argument is invalid; raised before anything is run.
    KeyboardInterrupt
        On Ctrl-C, after the report of the finished runs has been written.

    Notes
    -----
    Everything is computed in float64. BLAS is limited to one thread for all methods, including NMF and registered ones;
    the library's algorithms use one thread per core. A registered method that needs more BLAS threads sets them with
    threadpoolctl.

    An array in memory is copied once; sparse X and X in a file stay as they are unless a method needs another form. A
    method that fails, or for which the memory does not suffice, is left out with a note. X is hashed, so that results
    of another X in the same folder are not mistaken for results of this one.

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
    n = source.shape[1]
    limits = check_limits(None, 0, max_iter, None if max_time == np.inf else max_time, endless=True)
    if limits.max_time is None and limits.max_iter is None:
        raise InputError("max_time or max_iter must be given; without a limit the runs would not end.")
    chosen_ranks, contenders = _check_ranks(ranks, source.shape), _check_algorithms(algorithms)
    if init not in INITS:
        raise InputError(f"init must be one of {', '.join(INITS)}; got {init!r}.")
    if column_names is not None and len(column_names) != n:
        raise InputError(f"column_names must be {n} names, one per column of X; got {len(column_names)}.")
    guess = image_shape == "auto"
    pixels: Any = None if guess or image_shape is None else check_image_shape(image_shape, n)
    seeds = range(_check_integer("seed", seed, 0), seed + _check_integer("starts", starts, 1))
    folder = check_folder(output, "a comparison", "the paper's experiments")
    with ThreadExecutor(usable_cores()) as executor:
        entries = make_problem(source, np.dtype(np.float64), 1, executor).facts
    pixels = guess_image_shape(source) if guess else pixels
    matrix = Matrix(str(name), source.shape, lambda: X, f"{source.shape} {entries.checksum}")
    plan = _Plan(matrix, chosen_ranks, (*contenders, TSVD, NMF), limits, seeds, init, pixels)
    runner, runs = Runner(Results(folder), display or ComparisonDisplay()), plan.runs()
    with runner.made(runs):
        found = plan.comparison(runner, runs, plan.settings(entries.positives, guess))
        found.write()
        environments = runner.results.environments(runs)
        write_report(comparison_report(found, source, column_names, plan.summaries(), environments), folder)
        if display is None:
            runner.display.print(f"Report: {found.page}")
    return found


@dataclass(frozen=True)
class _Plan:
    """The checked arguments of a comparison; the baselines are the last contenders."""

    matrix: Matrix
    ranks: tuple[int, ...]
    contenders: tuple[Contender, ...]
    limits: Limits
    seeds: range
    init: str
    pixels: tuple[int, int] | None

    def runs(self) -> list[Run]:
        """Return the runs by rank and seed, so that initial factors are computed once; the baselines once per rank."""
        found = []
        for rank, seed, contender in product(self.ranks, self.seeds, self.contenders):
            first = seed == self.seeds[0]
            most = _MOST_KEPT if rank == self.ranks[-1] else _MOST_KEPT // 8  # The report shows the largest rank.
            keep = first and 8 * rank * sum(self.matrix.shape) <= most
            # The SVD is one step, which may take longer than the time limit.
            limits = Limits(None, 0, 1, None) if contender is TSVD else self.limits
            if first or contender not in (TSVD, NMF):
                found.append(Run(self.matrix, rank, limits, contender, self.init, seed, keep))
        return found

    def settings(self, positives: int, guessed: bool) -> dict[str, str]:
        """Return the arguments as text."""
        m, n = self.matrix.shape
        limits = [f"{self.limits.max_time:g} s"] if self.limits.max_time is not None else []
        limits += [f"{self.limits.max_iter} iterations"] if self.limits.max_iter is not None else []
        seeds = f"seeds {self.seeds[0]} to {self.seeds[-1]}" if len(self.seeds) > 1 else f"seed {self.seeds[0]}"
        rows = "not images"
        if self.pixels is not None:
            rows = f"{self.pixels[0]} × {self.pixels[1]} pixels{', guessed from the data' * guessed}"
        return {
            "matrix": self.matrix.name,
            "shape": f"{m} × {n}",
            "zeros": f"{1 - positives / (m * n):.1%}",
            "rows": rows,
            "ranks": ", ".join(map(str, self.ranks)),
            "algorithms": ", ".join(contender.label for contender in self.contenders[:-2]),
            "baselines": "TSVD, max(0, X_r); NMF of scikit-learn, coordinate descent from NNDSVDa, which is timed",
            "each run": " or ".join(limits),
            "initialization": f"{self.init}, the same for all algorithms, not timed; {seeds}",
            "computed in": f"float64; the library's algorithms in {usable_cores()} threads; BLAS in one thread for all",
        }

    def summaries(self) -> dict[str, str]:
        """Return what each label stands for."""
        known = {name: algorithm.summary for name, algorithm in ALGORITHMS.items()}
        names = {contender.label: str(contender.settings.get("algorithm")) for contender in self.contenders}
        found = {label: known.get(name, "a registered method") for label, name in names.items()}
        return found | {NMF.label: "scikit-learn's nonnegative matrix factorization, X ≈ WH with W, H ≥ 0"}

    def comparison(self, runner: Runner, planned: Sequence[Run], settings: Mapping[str, str]) -> Comparison:
        """Return the comparison object."""
        runs: list[dict[str, Any]] = []
        remarks: dict[str, dict[str, list[str]]] = {}
        name, results, to_come = self.matrix.name, runner.results, []
        for run in planned:
            label, rank, record, remark = run.contender.label, run.rank, results.get(run), ""
            if record is not None:
                facts = {"algorithm": label, "rank": rank, "seed": run.seed, "factors": results.factors_file(run)}
                runs.append(facts | {key: record[key] for key in _KEPT})
                remark = _remark(record)
            elif run.key in runner.failed:
                remark = f"could not be run: {runner.failed[run.key]}"
            elif runner.interrupted:
                to_come.append((rank, label))
            if remark:
                remarks.setdefault(remark, {}).setdefault(label, []).append(str(rank))
        reason = runner.missing.get(name, "").removeprefix(f"{name}: ")
        if reason and not runs:
            raise InputError(reason)
        notes = []
        for remark, by_label in remarks.items():
            where = [f"{label} at rank {' and '.join(dict.fromkeys(ranks))}" for label, ranks in by_label.items()]
            notes.append(f"{', '.join(where)} {remark}.")
        notes += [f"The rest could not be run: {reason}"] if reason else []
        notes += [f"It was interrupted: {len(to_come)} of {len(planned)} runs are missing."] if to_come else []
        initial = {run["seed"]: run["start_error"] for run in runs if run["rank"] == self.ranks[-1]}
        if len(initial) > 1 and max(initial.values()) <= 1.001 * min(initial.values()):
            notes.append(f"The {self.init} initializations of different seeds are nearly the same; use random ones.")
        labels = tuple(contender.label for contender in self.contenders)
        shape, folder = self.matrix.shape, results.folder
        return Comparison(name, shape, self.ranks, labels, runs, settings, notes, to_come, self.pixels, folder)


_KEPT = ("error", "n_iter", "time", "start_error", "start_time", "status", "curve", "settings")


def _remark(record: Mapping[str, Any]) -> str:
    """Return what is to be noted about a finished run, if anything."""
    if not record["n_iter"]:
        return f"finished no iteration: {record['status'].rstrip('.')}"
    settled = settling_time(record)
    if record["status"] == Status.MAX_TIME.message and settled is not None and settled > 0.9 * record["time"]:
        return "still improved by more than 1 % in the last tenth of the time"
    return ""


def _check_integer(name: str, value: Any, least: int, most: float = np.inf) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        limits = f"of at least {least}" if most == np.inf else f"between {least} and min(m, n) = {most}"
        raise InputError(f"{name} must be an integer {limits}; got {value!r}.")
    return int(value)


def _check_ranks(ranks: Any, shape: tuple[int, int]) -> tuple[int, ...]:
    several = list(ranks) if isinstance(ranks, Iterable) and not isinstance(ranks, str | bytes) else [ranks]
    if not several:
        raise InputError("ranks must be one or several integers; got none.")
    return tuple(sorted({_check_integer("ranks", rank, 1, min(shape)) for rank in several}))


def _check_algorithms(algorithms: Any) -> tuple[Contender, ...]:
    """Return the requested contenders without the baselines, which always take part."""
    known = {name: built_in(name) for name in ALGORITHMS if name != TSVD.settings["algorithm"]}
    known |= {contender.label: contender for contender in registered()}
    if algorithms is None:
        return tuple(known.values())
    if isinstance(algorithms, str | Algorithm | Contender) or not isinstance(algorithms, Iterable):
        algorithms = [algorithms]
    by_name = {alias.lower(): one for name, one in known.items() for alias in (name, shown_name(name))}
    by_name["auto"] = known[AUTO]
    found: dict[str, Contender] = {}
    for given in algorithms:
        text = given.strip().lower() if isinstance(given, str) else None
        if isinstance(given, TSVD_SETTINGS) or text in ("tsvd", "nmf"):
            continue
        made = isinstance(given, Algorithm) or inspect.isfunction(given)
        contender = built_in(given) if made else by_name.get(text) if text else given
        if not isinstance(contender, Contender):
            raise InputError(f"algorithms must be among {', '.join(known)}; got {given!r}.")
        label = contender.label
        if label in (TSVD.label, NMF.label):
            raise InputError(f"algorithms must not have the name of a baseline; got {label!r}.")
        if found.setdefault(label, contender).settings != contender.settings:
            advice = "Use comparison.built_in(algorithm, label) for one of them."
            raise InputError(f"algorithms must have different labels; got two called {label!r}. {advice}")
    if not found:
        besides = "at least one besides the baselines TSVD and NMF, which always take part"
        raise InputError(f"algorithms must contain {besides}; got {algorithms!r}.")
    return tuple(found.values())
