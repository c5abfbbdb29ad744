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

log = logging.getLogger("relunmd")


@dataclass
class Runner:
    """Makes runs, adds them to the results, and keeps the reasons of those that could not be made.

    Attributes
    ----------
    results : Results
        The finished runs.
    display : ComparisonDisplay
        The progress display.
    announce : bool
        Whether to print the path of the report.
    missing : dict
        Why a matrix could not be used, by its name.
    failed : dict
        Why a run failed, by its key.
    interrupted : bool
        Whether the runs ended by Ctrl-C.
    """

    results: Results
    display: ComparisonDisplay
    announce: bool = False
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    def make_report(self, runs: Sequence[Run], report: Callable[[], Report]) -> Path:
        """Make the runs that are missing, write the report of all of them, and return the path of the page.

        Ctrl-C ends the runs, and is raised again once the report of the finished ones has been written.
        """
        interrupt = None
        with self.display:
            for package, what in (("matplotlib", "charts and pictures"), ("jinja2", "report.html")):
                if find_spec(package) is None:
                    self.display.print(f"The report has no {what}: {package} is missing (pip install 'relunmd[plot]').")
            try:
                self.make(runs)
            except KeyboardInterrupt as reason:
                if not any(map(self.results.get, runs)):
                    raise
                self.interrupted, interrupt = True, reason
            self.display.now("the report")
            page = write_report(report(), self.results.folder)
            if self.announce:
                self.display.print(f"Report: {page}")
        if interrupt is not None:
            raise interrupt
        return page

    def make(self, runs: Sequence[Run]) -> None:
        """Make the runs that are missing."""
        groups: dict[str, dict[tuple[int, str, int], list[Run]]] = {}
        todo = {run.key: run for run in runs if not self.results.has(run)}.values()
        for run in todo:
            case = run.case
            groups.setdefault(case.matrix.name, {}).setdefault((case.rank, case.init, case.seed), []).append(run)
        initializations = [group[0].case for by in groups.values() for group in by.values()]
        expected = sum(case.expected_initialization for case in initializations)
        self.display.plan(len(todo), expected + sum(run.case.expected_seconds for run in todo))
        for name, by_initialization in groups.items():
            self.display.now(f"{name}: loading")
            try:
                evaluator = Evaluator(next(iter(by_initialization.values()))[0].case.matrix.load())
                for (rank, init, seed), group in by_initialization.items():
                    self.display.now(f"{name}, rank {rank}: {init} initialization, seed {seed}")
                    initial = evaluator.initialize(rank, init, seed)
                    self.display.advance(group[0].case.expected_initialization, 0)
                    for run in group:
                        self._make(run, evaluator, initial)
            except (DatasetError, InputError, MemoryError) as reason:
                self.missing[name] = f"{name}: {reason}"
                skipped = [run for group in by_initialization.values() for run in group if not self.results.has(run)]
                self.display.advance(sum(run.case.expected_seconds for run in skipped), len(skipped))
                self.display.print(f"{name}: {reason}")

    def _make(self, run: Run, evaluator: Evaluator, initial: InitialFactors) -> None:
        case, label = run.case, run.contender.label
        what = f"{case.matrix.name}, rank {case.rank}, seed {case.seed}: {label}"
        self.display.now(what)
        try:
            trajectory = evaluator.run(run.contender, initial, case.limits, case.keep_factors, self.display.iteration)
        except Exception as reason:  # A contender may be anybody's code; the others still run.
            log.exception("%s failed", what)
            self.failed[run.key] = why = f"{type(reason).__name__}: {reason}{_location(reason)}"
            self.display.finish(case.expected_seconds, f"{what} failed: {why}")
            return
        record = self.results.add(run, initial, trajectory)
        count = record["n_iter"]
        result = f"{record['error']:.3e} after {count} iteration{'s' * (count != 1)} in {record['time']:.2f} s"
        if count == 0 and case.limits.max_iter != 0:
            result = "no iteration within its limits"
        place = f"{case.matrix.name}, r={case.rank}, {case.init} initialization {case.seed}"
        self.display.finish(case.expected_seconds, f"{place}: {label} {result}")


def _location(reason: BaseException) -> str:
    """Return file and line of an error, unless it is one of this library's messages."""
    if isinstance(reason, RelunmdError):
        return ""
    last = traceback.extract_tb(reason.__traceback__)[-1]
    return f" ({Path(last.filename).name}, line {last.lineno})"
