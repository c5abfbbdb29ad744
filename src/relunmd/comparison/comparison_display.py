"""Progress of a comparison: the current run, the finished runs, and an estimate of the remaining time."""

import time

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from relunmd._util import printable
from relunmd.loop.progress_display import LiveDisplay


class ComparisonDisplay(LiveDisplay):
    """A bar on a terminal, and a line for every finished run.

    Parameters
    ----------
    console : rich.console.Console, default=None
        Where to show progress; standard output by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._task = self._iteration = ""
        self._total = self._finished = 0
        self._expected = self._expected_so_far = 0.0
        self._begun = time.perf_counter()

    def plan(self, n_runs: int, seconds: float) -> None:
        """Announce the number of runs and their expected time in all."""
        self._total, self._finished, self._expected, self._expected_so_far = n_runs, 0, seconds, 0.0
        self._begun = time.perf_counter()
        self.print(f"{n_runs} runs to make, about {self.left()}" if n_runs else "Every run has been made already.")

    def now(self, task: str) -> None:
        """Show what is being done."""
        self._task, self._iteration = printable(task), ""

    def iteration(self, number: int, error: float) -> None:
        """Show an iteration of the current run."""
        self._iteration = f"{number}: {error:.3g}, "

    def advance(self, seconds: float, n_runs: int = 1) -> None:
        """Count finished runs, and the time that was expected for them."""
        self._finished += n_runs
        self._expected_so_far += seconds
        self._iteration = ""
        self.check()

    def finish(self, seconds: float, line: str) -> None:
        """Count a finished run and print its result."""
        self.advance(seconds)
        self.print(f"[{self._finished}/{self._total}] {line}; {self.left()} left")

    def left(self) -> str:
        """Return the expected remaining time, corrected by the pace so far."""
        done = self._expected_so_far
        pace = (time.perf_counter() - self._begun) / done if done > 1 else 1.0
        seconds = max(0.0, self._expected - done) * pace
        return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

    def print(self, line: str) -> None:
        """Print a line that stays, without control characters."""
        super().print(printable(line))

    def render(self) -> Table:
        """Return the bar, counts, remaining time and current run."""
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=12)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(total=max(1, self._total), completed=self._finished, width=12)
        table.add_row(bar, f"{self._finished}/{self._total}, {self.left()} left", Text(self._iteration + self._task))
        return table
