"""Errors that a task on a worker reports as its result.

Dask writes a traceback to the worker's log for every exception that a task raises. Expected errors are therefore
returned by the task and raised in the calling process.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from relunmd.errors import RelunmdError


class WorkersLostError(Exception):
    """Workers are gone, do not answer, or were restarted and no longer have what they had."""


EXPECTED = RelunmdError, WorkersLostError


def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a task that returns expected errors, and errors among its arguments, instead of raising them."""

    @wraps(function)
    def task(*given: Any) -> Any:
        failed = [argument for argument in given if isinstance(argument, EXPECTED)]
        try:
            return failed[0] if failed else function(*given)
        except EXPECTED as reason:
            return reason

    return task
