"""What is shown while a run goes on: two lines redrawn on a terminal, a line now and then elsewhere.

The display never ends a run: whatever fails while it is drawn (a closed pipe, a full disk, a terminal that is gone)
switches it off, with a warning in the log.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from relunmd.loop.callback import Progress as Step
from relunmd.loop.criteria import WINDOW, Limits
from relunmd.memory import human_bytes

__all__ = ["ProgressDisplay", "RaisingConsole", "curve"]

log = logging.getLogger("relunmd")

_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
_WIDTH = 16
_RECENT = 20
"""Iterations from which the speed is told."""
_COMPILING_AFTER = 3.0
_FIRST_LINE, _LONGEST_SILENCE = 1.0, 60.0
"""Seconds until the first plain line after the start's; the silence between two doubles up to the longest."""


class RaisingConsole(Console):
    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError instead of ending the process and redirecting stdout, as rich does."""
        raise


class _Live(Live):
    """Calls `failed` with what goes wrong while drawing, also in the thread that redraws."""

    def __init__(self, failed: Callable[[Exception], None], *given: Any, **options: Any) -> None:
        self._failed = failed
        super().__init__(*given, **options)

    def refresh(self) -> None:
        try:
            super().refresh()
        except Exception as reason:
            if self._refresh_thread is None:  # Starting or stopping: the caller handles it.
                raise
            self._failed(reason)


class ProgressDisplay:
    """Error and its fall, speed, time and what is left, with a small curve; a callback that never stops the run.

    It is a context manager, so that it can be seen before the first iteration, and leaves nothing on the terminal.
    """

    def __init__(self, title: str, limits: Limits, console: Console | None = None) -> None:
        self._title = title
        self._limits = limits
        self._console = console if console is not None else RaisingConsole()
        self._off = False
        self._live: Live | None = None
        self._begun = time.perf_counter()
        self._best: list[float] = []
        self._course: list[float] = []
        """The best error up to each iteration of the present start, and that of this start alone."""
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT)
        self._iteration = self._starts = 0
        self._there: list[str] = []
        self._seconds, self._told = 0.0, self._begun
        self._silence, self._next_line = _FIRST_LINE, 0.0
        self._said = False

    def __enter__(self) -> "ProgressDisplay":
        self._begun = self._told = time.perf_counter()
        if self._console.is_jupyter or (self._console.is_terminal and not self._console.is_dumb_terminal):
            self._draw(self._go_live)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._draw(self._live.stop)
            self._live = None
        elif self._best and not self._said and not self._off:
            self._draw(self._say)

    def _go_live(self) -> None:
        self._live = _Live(
            self._switch_off,
            get_renderable=self._lines,
            console=self._console,
            transient=True,
            refresh_per_second=8,
            screen=False,
        )
        self._live.start(refresh=True)

    def _draw(self, draw: Callable[[], None]) -> None:
        try:
            draw()
        except (Exception, SystemExit) as reason:  # rich itself ends the process by a broken pipe.
            self._switch_off(reason)

    def _switch_off(self, reason: BaseException) -> None:
        if self._off:
            return
        self._off = True
        self._console.quiet = True
        if self._live is not None:
            with suppress(Exception):  # It may not have started yet.
                self._live.stop()  # sys.stdout and sys.stderr are the user's again.
        log.warning("The progress display is switched off: %s", reason or type(reason).__name__)

    def __call__(self, step: Step) -> bool:
        if step.iteration == 0 or not self._best:
            self._starts += 1
            self._course = []
        self._course.append(min(step.error, self._course[-1] if self._course else math.inf))
        self._recent.append((step.time, step.passes))
        self._iteration, self._seconds, self._told = step.iteration, step.time, time.perf_counter()
        if step.workers is not None and step.bytes_moved is not None:
            self._there = [f"{step.workers} worker{'s' * (step.workers != 1)}, {human_bytes(step.bytes_moved)} moved"]
        self._best.append(step.best_error)  # Last: from here on the thread that draws looks at all of it.
        if self._off:
            return False
        if self._live is None and self._told - self._begun >= self._next_line:
            self._next_line = self._told - self._begun + self._silence
            self._silence = min(2 * self._silence, _LONGEST_SILENCE)
            self._draw(self._say)
        else:
            self._said = False
        return False

    def _say(self) -> None:
        line = f"{self._title}: {', '.join([*self._error(), *self._facts()])}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._said = True

    def _lines(self) -> Text:
        plain = self._console.options.ascii_only
        if not self._best:
            passed = time.perf_counter() - self._begun
            hint = " (the first run on a machine compiles for about 12 s)" if passed > _COMPILING_AFTER else ""
            what = f"{self._title}: looking at X and making a start{hint}"
            text = Text(f"{what}, {_clock(passed)}", no_wrap=True, overflow="ellipsis")
        else:
            text = Text(no_wrap=True, overflow="ellipsis")
            text.append(self._title, style="bold")
            text.append(f"  {', '.join(self._error())}  ")
            text.append(curve(self._best, _WIDTH, plain), style="cyan")
            text.append("\n" + (" | " if plain else " · ").join(self._facts()))
        return text

    def _error(self) -> list[str]:
        """The best error, and by what share it has fallen: what `tol` is compared with."""
        best = self._best[-1]
        told = [f"error {best:.6f}" if best >= 1e-3 else f"error {best:.3e}"]
        course = self._course
        if len(course) > WINDOW:
            before = course[-1 - WINDOW]
            fall = (before - course[-1]) / before if before > 0 else 0.0
            told.append(f"fell by {fall:.1e} in {WINDOW} iterations")
        return told

    def _facts(self) -> list[str]:
        """What there is to say besides, in less than 80 letters."""
        iteration = f"iteration {self._iteration}"
        told = [f"start {self._starts}, {iteration}" if self._starts > 1 else iteration]
        first, last = self._recent[0], self._recent[-1]
        if last[0] > first[0]:
            speed = (last[1] - first[1]) / (last[0] - first[0])
            told.append(f"{speed:.0f} passes/s" if speed >= 100 else f"{speed:.3g} passes/s")
        seconds = self._seconds + time.perf_counter() - self._told
        told += [*self._there, f"{_clock(seconds)} elapsed"]
        left = self._left(seconds)
        return [*told, f"{left} left"] if left else told

    def _left(self, seconds: float) -> str:
        words = []
        if self._limits.max_iter is not None:
            words.append(f"{max(0, self._limits.max_iter - self._iteration)} iterations")
        if self._limits.max_time is not None:
            words.append(_clock(math.ceil(max(0.0, self._limits.max_time - seconds))))
        return " or ".join(words)


def curve(errors: Sequence[float], width: int, plain: bool = False) -> str:
    """Errors as a row of bars of logarithmic height, the last `width` of them or as many means.

    >>> curve([1.0, 0.1, 0.01, 0.001], 4)
    '█▆▃▁'
    """
    bars = _PLAIN_BARS if plain else _BARS
    length = len(errors)
    count = min(width, length)
    shown = [errors[(i + 1) * length // count - 1] for i in range(count)]
    heights = [math.log(max(error, 1e-300)) for error in shown]
    low, high = min(heights), max(heights)
    if high == low:
        return bars[0] * count
    return "".join(bars[round((height - low) / (high - low) * (len(bars) - 1))] for height in heights)


def _clock(seconds: float) -> str:
    """Seconds as people read them.

    >>> _clock(3671)
    '1:01:11'
    """
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
