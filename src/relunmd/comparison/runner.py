"""Makes the runs that are missing, matrix by matrix and initialization by initialization, and then the report.

A run that several experiments share is made once. A data set that is missing, or a contender that fails, is noted, and
the other runs are made.
"""

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from relunmd.comparison.comparison_display import ComparisonDisplay
from relunmd.comparison.report import Report, write_report
from relunmd.comparison.result_file import Results
from relunmd.comparison.run_plan import Run
from relunmd.comparison.timed_run import Evaluator, InitialFactors
from relunmd.errors import DatasetError, InputError, RelunmdError

__all__ = ["Outcome", "make_report", "run_missing"]

log = logging.getLogger("relunmd")
_Groups = dict[str, dict[tuple[int, str, int], list[Run]]]


@dataclass
class Outcome:
    """Reasons why something could not be run, by matrix name and by key of a run, and whether it was interrupted."""

    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def make_report(
    runs: Sequence[Run], results: Results, display: ComparisonDisplay | None, report: Callable[[Outcome], Report]
) -> Path:
    """Make the runs that are missing, write the report of all of them, and return the path of the page.

    Ctrl-C ends the runs, and is raised again once the report of the finished ones has been written.
    """
    outcome, interrupt = Outcome(), None
    with display or ComparisonDisplay() as shown:
        if find_spec("matplotlib") is None:
            shown.print("Only charts are drawn: other pictures need matplotlib (pip install 'relunmd[plot]').")
        try:
            run_missing(runs, results, shown, outcome)
        except KeyboardInterrupt as reason:
            if not any(results.get(run) for run in runs):
                raise
            outcome.interrupted, interrupt = True, reason
        shown.now("the report")
        page = write_report(report(outcome), results.folder)
        if display is None:
            shown.print(f"Report: {page}")
    if interrupt is not None:
        raise interrupt
    return page


def run_missing(runs: Sequence[Run], results: Results, display: ComparisonDisplay, outcome: Outcome) -> None:
    """Make every run that `results` lack; what could not be run is noted in `outcome`."""
    groups: _Groups = {}
    missing = {run.key: run for run in runs if not results.has(run)}.values()
    for run in missing:
        case = run.case
        groups.setdefault(case.matrix.name, {}).setdefault((case.rank, case.init, case.seed), []).append(run)
    expected = sum(group[0].case.expected_initialization for by in groups.values() for group in by.values())
    display.plan(len(missing), expected + sum(run.case.expected_seconds for run in missing))
    for name, by_initialization in groups.items():
        everything = [run for group in by_initialization.values() for run in group]
        display.now(f"{name}: loading")
        try:
            evaluator = Evaluator(everything[0].case.matrix.load())
            for (rank, init, seed), group in by_initialization.items():
                display.now(f"{name}, rank {rank}: {init} initialization, seed {seed}")
                initial = evaluator.initialize(rank, init, seed)
                display.advance(group[0].case.expected_initialization, 0)
                for run in group:
                    _make(run, evaluator, initial, results, display, outcome)
        except (DatasetError, InputError, MemoryError) as reason:
            outcome.missing[name] = f"{name}: {reason}"
            skipped = [run for run in everything if not results.has(run)]
            display.advance(sum(run.case.expected_seconds for run in skipped), len(skipped))
            display.print(f"{name}: {reason}")


def _make(
    run: Run,
    evaluator: Evaluator,
    initial: InitialFactors,
    results: Results,
    display: ComparisonDisplay,
    outcome: Outcome,
) -> None:
    case, label = run.case, run.contender.label
    what = f"{case.matrix.name}, rank {case.rank}, seed {case.seed}: {label}"
    display.now(what)
    try:
        trajectory = evaluator.run(run.contender, initial, case.limits, case.keep_factors, display.iteration)
    except Exception as reason:  # A contender may be anybody's code; the others still run.
        log.exception("%s failed", what)
        outcome.failed[run.key] = why = f"{type(reason).__name__}: {reason}{_location(reason)}"
        display.advance(case.expected_seconds)
        display.print(f"{what} failed: {why}")
        return
    record = results.add(run, initial, trajectory)
    count = record["n_iter"]
    result = f"{record['error']:.3e} after {count} iteration{'s' * (count != 1)} in {record['time']:.2f} s"
    if count == 0 and case.limits.max_iter != 0:
        result = "no iteration within its limits"
    place = f"{case.matrix.name}, r={case.rank}, {case.init} initialization {case.seed}"
    display.finish(case.expected_seconds, f"{place}: {label} {result}")


def _location(reason: BaseException) -> str:
    """Return file and line of an error, unless it is one of this library's messages."""
    if isinstance(reason, RelunmdError):
        return ""
    last = traceback.extract_tb(reason.__traceback__)[-1]
    return f" ({Path(last.filename).name}, line {last.lineno})"
