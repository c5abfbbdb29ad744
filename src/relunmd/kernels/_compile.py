"""How kernels are compiled: once for each float type, cached on disk, before any clock starts.

Every kernel declares its arguments by a word of letters, so that it has exactly one signature
a float type: "r" an array that is only read, "w" an array that is written (or scratch), "s" a
float64 scalar. Tiles of X are always passed as read-only views, whatever the caller's array is.

Sums may be reassociated (that is what lets LLVM use vector registers), in an order that depends
on the shape alone; NaN and infinity keep their meaning, since they are how a failure is noticed.
"""

import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np

__all__ = ["kernel", "warm_up"]

log = logging.getLogger("relunmd")

P = ParamSpec("P")
T = TypeVar("T")

_REGISTERED: list[tuple[Any, str]] = []
_READY: set[np.dtype[Any]] = set()


def kernel(letters: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Register a function as a kernel whose arguments are of the kinds that `letters` names."""

    def register(function: Callable[P, T]) -> Callable[P, T]:
        compiled: Any
        options: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract"}}
        try:
            compiled = numba.njit(cache=True, **options)(function)
        except RuntimeError as reason:  # Nowhere to write to: a read-only installation without a home.
            log.info("Compiled code cannot be kept and is made anew by every process: %s", reason)
            compiled = numba.njit(**options)(function)
        _REGISTERED.append((compiled, letters))
        return cast("Callable[P, T]", compiled)

    return register


def warm_up(dtype: np.dtype[Any]) -> None:
    """Compile every kernel for `dtype`, or load it from the cache of an earlier process."""
    if dtype in _READY:
        return
    element = numba.from_dtype(dtype)
    kinds = {
        "r": numba.types.Array(element, 2, "C", readonly=True),
        "w": numba.types.Array(element, 2, "C"),
        "s": numba.types.float64,
    }
    for compiled, letters in _REGISTERED:
        compiled.compile(tuple(kinds[letter] for letter in letters))
    _READY.add(dtype)
