"""Progress over a whole plan: what runs now, what has come out, and how long the rest may take.

On a terminal a line that moves; elsewhere a line for every finished run. What cannot be shown (a closed pipe, a full
disk) switches it off, with a warning in the log, and never ends a comparison.
"""

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from relunmd.comparison.plan import Run
from relunmd.loop.progress_display import RaisingConsole
from relunmd.plot.chart import visible

__all__ = ["Display"]

log = logging.getLogger("relunmd")


class Display:
    """Shows a plan being carried out; used as a context manager."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self._console = RaisingConsole(quiet=quiet) if console is None else console
        self._off = False
        self._bar = Progress(
            BarColumn(bar_width=12, table_column=Column(min_width=12)),
            TextColumn("{task.completed}/{task.total}, {task.fields[left]} left", table_column=Column(min_width=21)),
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            expand=True,
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=0, left="?")
        self._what = ""
        self._total = self._count = 0
        self._to_come = self._guessed = self._taken = 0.0
        self._last_told = 0.0

    def __enter__(self) -> "Display":
        self._show(self._bar.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show(self._bar.stop)

    def _show(self, draw: Callable[[], object]) -> None:
        """Draw something, unless the display is off; switch it off if that fails."""
        if self._off:
            return
        try:
            draw()
        except Exception as reason:
            self._off = True
            log.warning("Progress cannot be shown any more: %s", reason or type(reason).__name__)

    def plan(self, runs: list[Run]) -> None:
        """The runs to come."""
        self._total = len(runs)
        starts = {(run.case.matrix.name, run.case.rank, run.case.init, run.case.seed): run for run in runs}
        self._to_come = sum(run.guess for run in runs) + sum(run.start_guess for run in starts.values())
        self._show(lambda: self._bar.update(self._task, total=self._total))
        self.print(f"{self._total} runs to make, about {self.left()}" if runs else "Every run has been made already.")

    def say(self, what: str) -> None:
        """What is being done now."""
        self._what = visible(what)
        self._update()

    def tell(self, iteration: int, error: float) -> None:
        """How the present run is doing."""
        now = time.perf_counter()
        if now - self._last_told > 0.2:
            self._last_told = now
            self._update(f"{iteration}: {error:.3g}, ")

    def started(self, run: Run, seconds: float) -> None:
        """A start has been made."""
        self._account(run.start_guess, seconds)

    def finished(self, run: Run, record: dict[str, Any], seconds: float) -> None:
        """A run has been made."""
        self._count += 1
        self._account(run.guess, seconds)
        case, unit = run.case, "iteration" if record["n_iter"] == 1 else "iterations"
        came_out = f"{record['error']:.3e} after {record['n_iter']} {unit} in {record['time']:.2f} s"
        if record["n_iter"] == 0 and case.limits.max_iter != 0:
            came_out = "no iteration within its limits"
        self.print(
            f"[{self._count}/{self._total}] {case.matrix.name}, r={case.rank}, {case.init} start {case.seed}: "
            f"{run.contender.label} {came_out}; {self.left()} left"
        )

    def skip(self, runs: list[Run], why: str) -> None:
        """Runs that cannot be made."""
        self._count += len(runs)
        self._to_come -= sum(run.guess for run in runs)
        self.print(why)

    def left(self) -> str:
        """The guessed time left, corrected by how the guesses have turned out so far."""
        pace = self._taken / self._guessed if self._guessed > 1 else 1.0
        seconds = max(0.0, self._to_come) * pace
        return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

    def print(self, line: str) -> None:
        """A line that stays."""
        self._show(lambda: self._console.print(Text(visible(line)), soft_wrap=True))

    def _account(self, guess: float, seconds: float) -> None:
        self._to_come -= guess
        self._guessed += guess
        self._taken += seconds
        self._update()

    def _update(self, more: str = "") -> None:
        what, left = more + self._what, self.left()
        self._show(lambda: self._bar.update(self._task, completed=self._count, description=what, left=left))
