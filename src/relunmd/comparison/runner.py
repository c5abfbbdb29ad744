"""Makes the runs that are missing, matrix by matrix and initialization by initialization, and then the report.

A run that several experiments share is made once. A data set that is missing, or a contender that fails, is noted, and
the other runs are made.
"""

import logging
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from relunmd.comparison.comparison_display import ComparisonDisplay
from relunmd.comparison.result_file import Results, Run
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
    missing : dict
        Why a matrix could not be used, by its name.
    failed : dict
        Why a run failed, by its key.
    interrupted : bool
        Whether the runs ended by Ctrl-C.
    """

    results: Results
    display: ComparisonDisplay
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    @contextmanager
    def made(self, runs: Sequence[Run]) -> Iterator[None]:
        """Make the runs that are missing; the report of all of them is written inside of the context.

        Ctrl-C ends the runs, and is raised again once the report of the finished ones has been written.
        """
        with self.display:
            for package, what in (("matplotlib", "charts and pictures"), ("jinja2", "report.html")):
                if find_spec(package) is None:
                    self.display.print(f"The report has no {what}: {package} is missing (pip install 'relunmd[plot]').")
            try:
                self.make(runs)
            except KeyboardInterrupt:
                if not any(map(self.results.get, runs)):
                    raise
                self.interrupted = True
            self.display.now("the report")
            yield
        if self.interrupted:
            raise KeyboardInterrupt

    def make(self, runs: Sequence[Run]) -> None:
        """Make the runs that are missing."""
        groups: dict[str, dict[tuple[int, str, int], list[Run]]] = {}
        todo = {run.key: run for run in runs if not self.results.has(run)}.values()
        for run in todo:
            groups.setdefault(run.matrix.name, {}).setdefault((run.rank, run.init, run.seed), []).append(run)
        expected = sum(group[0].expected_initialization for by in groups.values() for group in by.values())
        self.display.plan(len(todo), expected + sum(run.expected_seconds for run in todo))
        for name, by_initialization in groups.items():
            self.display.now(f"{name}: loading")
            try:
                evaluator = Evaluator(next(iter(by_initialization.values()))[0].matrix.load())
                for (rank, init, seed), group in by_initialization.items():
                    self.display.now(f"{name}, rank {rank}: {init} initialization, seed {seed}")
                    initial = evaluator.initialize(rank, init, seed)
                    self.display.advance(group[0].expected_initialization, 0)
                    for run in group:
                        self._make(run, evaluator, initial)
            except (DatasetError, InputError, MemoryError) as reason:
                self.missing[name] = f"{name}: {reason}"
                skipped = [run for group in by_initialization.values() for run in group if not self.results.has(run)]
                self.display.advance(sum(run.expected_seconds for run in skipped), len(skipped))
                self.display.print(self.missing[name])

    def _make(self, run: Run, evaluator: Evaluator, initial: InitialFactors) -> None:
        name, label = run.matrix.name, run.contender.label
        what = f"{name}, rank {run.rank}, seed {run.seed}: {label}"
        self.display.now(what)
        try:
            trajectory = evaluator.run(run.contender, initial, run.limits, run.keep_factors, self.display.iteration)
        except Exception as reason:  # A contender may be anybody's code; the others still run.
            log.exception("%s failed", what)
            last = traceback.extract_tb(reason.__traceback__)[-1]
            place = "" if isinstance(reason, RelunmdError) else f" ({Path(last.filename).name}, line {last.lineno})"
            self.failed[run.key] = why = f"{type(reason).__name__}: {reason}{place}"
            self.display.finish(run.expected_seconds, f"{what} failed: {why}")
            return
        record = self.results.add(run, initial, trajectory)
        count = record["n_iter"]
        result = f"{record['error']:.3e} after {count} iteration{'s' * (count != 1)} in {record['time']:.2f} s"
        if count == 0 and run.limits.max_iter != 0:
            result = "no iteration within its limits"
        place = f"{name}, r={run.rank}, {run.init} initialization {run.seed}"
        self.display.finish(run.expected_seconds, f"{place}: {label} {result}")
