"""Errors that a task on a worker reports as its result.

Dask writes a traceback to the worker's log for every exception that a task raises. Expected errors are therefore
returned as a `Refusal` and raised in the calling process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from relunmd.errors import RelunmdError


class WorkersLostError(Exception):
    """Workers are gone, do not answer, or were restarted and no longer have what they had."""


@dataclass(frozen=True)
class Refusal:
    """The result of a task that raised an expected error."""

    reason: Exception


def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a task that returns expected errors, and errors among its arguments, as a Refusal."""

    @wraps(function)
    def task(*given: Any) -> Any:
        for argument in given:
            if isinstance(argument, Refusal):
                return argument
        try:
            return function(*given)
        except (RelunmdError, WorkersLostError) as reason:
            return Refusal(reason)

    return task
