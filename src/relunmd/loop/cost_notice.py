"""A message about what a long run costs, before most of it is spent."""

import logging

from relunmd.loop.callback import Progress
from relunmd.loop.criteria import Limits

log = logging.getLogger("relunmd")

_ITERATIONS = 3
"""Iterations that are timed."""
_USUAL = 100
"""Iterations that a run with the default `tol` makes, as a rule: 26 to 214 on the matrices of RESULTS.md."""
_LONG = 60.0


class CostNotice:
    """A callback that logs once how long a run may take, and how to limit it, if that is more than a minute."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._first: tuple[int, float] | None = None
        self._done = limits.max_time is not None

    def __call__(self, progress: Progress) -> None:
        if self._done:
            return
        if self._first is None:
            self._first = progress.iteration, progress.time
        count = progress.iteration - self._first[0]
        if count < _ITERATIONS:
            return
        self._done = True
        each = (progress.time - self._first[1]) / count
        most = self._limits.max_iter
        usual = min(_USUAL, _USUAL if most is None else most) * each
        if usual > _LONG:
            allowed = "sets no limit" if most is None else f"allows {_duration(most * each)}"
            log.warning(
                "An iteration takes %.2g s, %d of them %s, and max_iter=%s %s. Set max_time, increase tol, or decrease "
                "the rank to limit the run; Ctrl-C returns the best so far.",
                each,
                _USUAL,
                _duration(_USUAL * each),
                most,
                allowed,
            )


def _duration(seconds: float) -> str:
    """Return a time in the largest unit of which it has at least two.

    >>> _duration(90), _duration(600), _duration(10_000)
    ('90 s', '10 minutes', '2.8 hours')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.2g} hours"
