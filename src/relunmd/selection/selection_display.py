"""Progress of `select_rank` over all its fits."""

import time

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from relunmd.loop.progress_display import FIRST_LINE, LONGEST_SILENCE, LiveDisplay
from relunmd.selection.rank_selection import FoldFit


class SelectionDisplay(LiveDisplay):
    """A bar on a terminal, elsewhere a line now and then; a callback that never ends the search.

    Parameters
    ----------
    n_settings : int
        Number of pairs of rank and ridge.
    n_folds : int
        Number of folds. Fits of settings that are dropped are skipped, so there are at most n_settings·n_folds.
    console : rich.console.Console, default=None
        Where to show progress; standard output by default.
    """

    def __init__(self, n_settings: int, n_folds: int, console: Console | None = None) -> None:
        super().__init__(console)
        self._n_settings, self._n_folds = n_settings, n_folds
        self._fits: list[FoldFit] = []
        self._begun = time.perf_counter()
        self._interval, self._next_line = FIRST_LINE, 0.0

    def __call__(self, fit: FoldFit) -> bool:
        """Show a fit."""
        self._fits.append(fit)
        self.check()
        passed = time.perf_counter() - self._begun
        if self.live is None and passed >= self._next_line:
            self._next_line, self._interval = passed + self._interval, min(2 * self._interval, LONGEST_SILENCE)
            self.print(self._text())
        return False

    def _text(self) -> str:
        if not self._fits:
            return "reading X"
        last = self._fits[-1]
        best = min((fit for fit in self._fits if fit.fold == last.fold), key=lambda fit: fit.error)
        ridge = f", ridge {last.ridge:g}" if last.ridge else ""
        return (
            f"fold {last.fold + 1} of {self._n_folds}, rank {last.rank}{ridge}: held-out error {last.error:.4f}; "
            f"best of this fold: rank {best.rank}, {best.error:.4f}; {len(self._fits)} fits, "
            f"{time.perf_counter() - self._begun:.0f} s"
        )

    def render(self) -> Table:
        """Return a bar and the last fit."""
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=12)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        total, fold = self._n_settings * self._n_folds, self._fits[-1].fold if self._fits else 0
        done = fold * self._n_settings + sum(fit.fold == fold for fit in self._fits)
        table.add_row(ProgressBar(total=max(1, total), completed=min(done, total), width=12), Text(self._text()))
        return table
