"""Makes the runs of a plan that are not there yet, matrix by matrix and start by start, and says how long it will take.

Runs that several experiments share are made once. A data set that cannot be had, or a contender
that fails, is noted, and the others go on.
"""

import logging
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from relunmd.comparison.plan import Run
from relunmd.comparison.plan_display import Display
from relunmd.comparison.result_file import Results
from relunmd.comparison.timed_run import Arena, Start
from relunmd.errors import DatasetError, InputError, RelunmdError

__all__ = ["Outcome", "carry_out"]

log = logging.getLogger("relunmd")


@dataclass
class Outcome:
    """What could not be run: sentences by matrix name, and by the key of a run; and whether it was interrupted."""

    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def carry_out(runs: Iterable[Run], results: Results, display: Display, outcome: Outcome | None = None) -> Outcome:
    """Make every run that `results` do not have; what becomes of it is noted in `outcome`."""
    outcome = Outcome() if outcome is None else outcome
    todo = _grouped([run for run in runs if not results.has(run)])
    display.plan([run for starts in todo.values() for group in starts.values() for run in group])
    for name, starts in todo.items():
        matrix = next(iter(starts.values()))[0].case.matrix
        display.say(f"{name}: loading")
        try:
            arena = Arena(matrix.load())
            for (rank, init, seed), group in starts.items():
                display.say(f"{name}, rank {rank}: the {init} start, seed {seed}")
                begin = time.perf_counter()
                start = arena.start(rank, init, seed)
                display.started(group[0], time.perf_counter() - begin)
                for run in group:
                    _one(arena, run, start, results, display, outcome)
        except (DatasetError, InputError, MemoryError) as reason:
            outcome.missing[name] = f"{name}: {reason}"
            display.skip([r for group in starts.values() for r in group if not results.has(r)], f"{name}: {reason}")
    return outcome


def _one(arena: Arena, run: Run, start: Start, results: Results, display: Display, outcome: Outcome) -> None:
    begin = time.perf_counter()
    keeps = run.case.keep_factors or run.case.measure is not None
    what = f"{run.case.matrix.name}, rank {run.case.rank}, seed {run.case.seed}: {run.contender.label}"
    display.say(what)
    try:
        course = arena.run(run.contender, start, run.case.limits, keeps, display.tell)
        measured = {}
        if run.case.measure is not None and course.best is not None:
            measured = run.case.measure(arena.X, *course.best)
    except Exception as reason:  # A contender may be anybody's code, and the others shall run on.
        log.exception("%s failed", what)
        why = f"{type(reason).__name__}: {reason}{_where(reason)}"
        outcome.failed[run.key] = why
        display.skip([run], f"{what} failed: {why}")
        return
    record = results.add(run, start, course, measured)
    display.finished(run, record, time.perf_counter() - begin)


def _where(reason: BaseException) -> str:
    """In which line of whose file it came up, unless it is a refusal of ours."""
    if isinstance(reason, RelunmdError):
        return ""
    last = traceback.extract_tb(reason.__traceback__)[-1]
    return f" ({Path(last.filename).name}, line {last.lineno})"


def _grouped(runs: list[Run]) -> dict[str, dict[tuple[int, str, int], list[Run]]]:
    """Runs by matrix and by start, each once, in the order in which they first come up."""
    groups: dict[str, dict[tuple[int, str, int], list[Run]]] = {}
    seen: set[str] = set()
    for run in runs:
        if run.key not in seen:
            seen.add(run.key)
            case = run.case
            groups.setdefault(case.matrix.name, {}).setdefault((case.rank, case.init, case.seed), []).append(run)
    return groups
