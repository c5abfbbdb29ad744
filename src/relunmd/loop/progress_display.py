"""Progress on rich: text redrawn on a terminal, a line now and then elsewhere.

`LiveDisplay` is the mechanism, `ProgressDisplay` shows one run of `decompose`; comparisons derive theirs from the same
class. A display never ends a run: if its output cannot be written (a closed pipe, a full disk), it is disabled with a
warning in the log.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from typing import IO, Any, Self, cast

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from relunmd.loop.callback import Progress as Step
from relunmd.loop.criteria import WINDOW, Limits
from relunmd.memory import human_bytes

log = logging.getLogger("relunmd")

_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
_WIDTH = 16
_RECENT = 20
"""Iterations over which the speed is averaged."""
_COMPILING_AFTER = 3.0
FIRST_LINE, LONGEST_SILENCE = 1.0, 60.0
"""Seconds between the first two plain lines; the interval doubles up to the longest."""


class _Stream:
    """A text stream that drops what cannot be written, and keeps the first failure.

    rich raises errors of the stream in its refresh thread, and ends the process on a broken pipe.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.failure: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        return self._attempt("write", text) or len(text)

    def flush(self) -> None:
        self._attempt("flush")

    def _attempt(self, method: str, *args: str) -> Any:
        if self.failure is None:
            try:
                return getattr(self.stream, method)(*args)
            except Exception as reason:
                self.failure = reason
        return None


class LiveDisplay:
    """Base of displays: a context manager that redraws `render()` on a terminal and leaves nothing behind.

    Parameters
    ----------
    console : rich.console.Console, default=None
        Where to show progress; standard output by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = Console() if console is None else console
        self.live: Live | None = None
        self.disabled = False
        self._stream = _Stream(self.console.file)

    def __enter__(self) -> Self:
        self._stream = _Stream(self.console.file)
        self.console.file = cast("IO[str]", self._stream)
        if self.console.is_jupyter or (self.console.is_terminal and not self.console.is_dumb_terminal):
            self.live = Live(get_renderable=self.render, console=self.console, transient=True, refresh_per_second=8)
            self.live.start(refresh=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()
        self.check()
        self.console.file = self._stream.stream

    def render(self) -> RenderableType:
        """Return what a terminal shows."""
        raise NotImplementedError

    def print(self, line: str) -> None:
        """Print a line that stays."""
        if not self.disabled:
            self.console.print(Text(line), soft_wrap=True)
            self.check()

    def check(self) -> None:
        """Disable the display if writing has failed."""
        reason = self._stream.failure
        if reason is not None and not self.disabled:
            self.disabled = True
            self._stop()
            log.warning("Progress is no longer shown: %s", str(reason) or type(reason).__name__)

    def _stop(self) -> None:
        if self.live is not None:
            self.live.stop()


class ProgressDisplay(LiveDisplay):
    """Error, speed, elapsed and remaining time of a run, with a small curve; a callback that never stops the run.

    Parameters
    ----------
    title : str
        Text in front, such as ``"qn, rank 16"``.
    limits : Limits
        The stopping criteria, from which the remaining iterations and time follow.
    console : rich.console.Console, default=None
        Where to show progress; standard output by default.
    """

    def __init__(self, title: str, limits: Limits, console: Console | None = None) -> None:
        super().__init__(console)
        self._title, self._limits = title, limits
        self._begun = self._seen = time.perf_counter()
        self._best: list[float] = []
        self._current: list[float] = []
        """Best error up to each iteration, of all initializations and of the current one."""
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT)
        self._iteration = self._initializations = 0
        self._cluster: list[str] = []
        self._seconds, self._interval, self._next_line = 0.0, FIRST_LINE, 0.0
        self._line_is_due = False

    def __exit__(self, *exception: object) -> None:
        if self.live is None and self._line_is_due:
            self._print_line()
        super().__exit__(*exception)

    def __call__(self, step: Step) -> bool:
        """Show an iteration."""
        if step.iteration == 0 or not self._best:
            self._initializations += 1
            self._current = []
        self._current.append(min([step.error, *self._current[-1:]]))
        self._recent.append((step.time, step.passes))
        self._iteration, self._seconds, self._seen = step.iteration, step.time, time.perf_counter()
        if step.workers is not None and step.bytes_moved is not None:
            plural = "s" * (step.workers != 1)
            self._cluster = [f"{step.workers} worker{plural}, {human_bytes(step.bytes_moved)} moved"]
        self._best.append(step.best_error)  # Last: the refresh thread reads the rest once there is an error.
        self._line_is_due = True
        self.check()
        if self.live is None and self._seen - self._begun >= self._next_line:
            self._next_line = self._seen - self._begun + self._interval
            self._interval = min(2 * self._interval, LONGEST_SILENCE)
            self._print_line()
        return False

    def _print_line(self) -> None:
        self._line_is_due = False
        self.print(f"{self._title}: {', '.join([*self._error(), *self._facts()])}")

    def render(self) -> Text:
        """Return two lines: error and curve, then speed and times."""
        plain = self.console.options.ascii_only
        text = Text(no_wrap=True, overflow="ellipsis")
        if not self._best:
            passed = time.perf_counter() - self._begun
            hint = " (the first run on a machine compiles for about 12 s)" if passed > _COMPILING_AFTER else ""
            return text.append(f"{self._title}: reading X and initializing{hint}, {_clock(passed)}")
        text.append(self._title, style="bold").append(f"  {', '.join(self._error())}  ")
        text.append(curve(self._best, _WIDTH, plain), style="cyan")
        return text.append("\n" + (" | " if plain else " · ").join(self._facts()))

    def _error(self) -> list[str]:
        """Return the best error, and its relative decrease, which is compared with `tol`."""
        best = self._best[-1]
        shown = [f"error {best:.6f}" if best >= 1e-3 else f"error {best:.3e}"]
        if len(self._current) > WINDOW:
            before = self._current[-1 - WINDOW]
            decrease = (before - self._current[-1]) / before if before > 0 else 0.0
            shown.append(f"decreased by {decrease:.1e} in {WINDOW} iterations")
        return shown

    def _facts(self) -> list[str]:
        """Return iteration, speed and times."""
        several = f"initialization {self._initializations}, " if self._initializations > 1 else ""
        facts = [f"{several}iteration {self._iteration}"]
        first, last = self._recent[0], self._recent[-1]
        if last[0] > first[0]:
            speed = (last[1] - first[1]) / (last[0] - first[0])
            facts.append(f"{speed:.0f} passes/s" if speed >= 100 else f"{speed:.3g} passes/s")
        seconds, left = self._seconds + time.perf_counter() - self._seen, []
        if self._limits.max_iter is not None:
            left.append(f"{max(0, self._limits.max_iter - self._iteration)} iterations")
        if self._limits.max_time is not None:
            left.append(_clock(math.ceil(max(0.0, self._limits.max_time - seconds))))
        return [*facts, *self._cluster, f"{_clock(seconds)} elapsed", *([f"{' or '.join(left)} left"] if left else [])]


def curve(errors: Sequence[float], width: int, plain: bool = False) -> str:
    """Return errors as at most `width` bars of logarithmic height.

    >>> curve([1.0, 0.1, 0.01, 0.001], 4)
    '█▆▃▁'
    """
    bars = _PLAIN_BARS if plain else _BARS
    count = min(width, len(errors))
    shown = [errors[(i + 1) * len(errors) // count - 1] for i in range(count)]
    heights = [math.log(max(error, 1e-300)) for error in shown]
    low, high = min(heights), max(heights)
    return "".join(bars[round((height - low) / (high - low or 1) * (len(bars) - 1))] for height in heights)


def _clock(seconds: float) -> str:
    """Return seconds as H:MM:SS or M:SS.

    >>> _clock(3671)
    '1:01:11'
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
