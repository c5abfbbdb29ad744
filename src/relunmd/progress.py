"""A line on the terminal while a run goes on."""

from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from relunmd.solve import Limits
from relunmd.solve import Progress as Step

__all__ = ["ProgressLine"]


class ProgressLine:
    """Shows iteration, the best error, passes and time; a callback that never stops the run."""

    def __init__(self, algorithm: str, limits: Limits) -> None:
        self._display = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed} iterations, {task.fields[passes]} passes"),
            TextColumn("error {task.fields[error]}"),
            TimeElapsedColumn(),
        )
        self._best = float("inf")
        self._task = self._display.add_task(algorithm, total=limits.max_iter, passes=0, error="–")

    def __enter__(self) -> "ProgressLine":
        self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.stop()

    def __call__(self, step: Step) -> bool:
        self._best = min(self._best, step.error)
        self._display.update(self._task, completed=step.iteration, passes=step.passes, error=f"{self._best:.6f}")
        return False
