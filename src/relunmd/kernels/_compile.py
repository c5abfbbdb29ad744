"""How kernels are compiled: once for each float type, cached on disk, before any clock starts.

Every kernel declares its arguments by a word of letters, so that it has exactly one signature a
float type (and two where it is given what the user has as it is):

====  =======================================================================
 r    an array of two dimensions that is only read (a tile of X)
 x    the same, or such an array of bytes (images), which is converted entry by entry
 w    an array of two dimensions that is written, or is our own
 a    the same in float64, whatever the float type: sums
 f    the same in float32, whatever the float type: what need not be exact
 b    the same as integers: the bits of an array of the float type
 v u  one dimension: values that are only read, and such that are written
 i    one dimension, only read: the user's column numbers, int32 or int64
 j    one dimension, int32: our own column numbers
 p    one dimension, int64: where rows start, places
 s n  a float64, an int64
====  =======================================================================

Tiles of X are always passed as read-only views, whatever the caller's array is.

Sums may be reassociated (that is what lets LLVM use vector registers), in an order that depends
on the shape alone; NaN and infinity keep their meaning, since they are how a failure is noticed.
"""

import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba import types

__all__ = ["SAMPLED", "helper", "kernel", "warm_up"]

log = logging.getLogger("relunmd")

P = ParamSpec("P")
T = TypeVar("T")

_REGISTERED: list[tuple[Any, str]] = []
_READY: set[np.dtype[Any]] = set()
_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract"}}
SAMPLED = 8
"""Whether a tile is mostly zero is first asked of each eighth row. (Compiled code that was kept knows the old one.)"""


def helper(function: Callable[P, T]) -> Callable[P, T]:
    """A function that kernels of the same file call: compiled into them, and kept with them.

    Inlined by numba, so that what a kernel passes as a constant is one; left to LLVM it cost a quarter in float32.
    """
    return cast("Callable[P, T]", numba.njit(inline="always", **_OPTIONS)(function))


def kernel(letters: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Register a function as a kernel whose arguments are of the kinds that `letters` names."""

    def register(function: Callable[P, T]) -> Callable[P, T]:
        compiled: Any
        try:
            compiled = numba.njit(cache=True, **_OPTIONS)(function)
        except RuntimeError as reason:  # Nowhere to write to: a read-only installation without a home.
            log.info("Compiled code cannot be kept and is made anew by every process: %s", reason)
            compiled = numba.njit(**_OPTIONS)(function)
        _REGISTERED.append((compiled, letters))
        return cast("Callable[P, T]", compiled)

    return register


def warm_up(dtype: np.dtype[Any]) -> None:
    """Compile every kernel for `dtype`, or load it from the cache of an earlier process."""
    if dtype in _READY:
        return
    element = numba.from_dtype(dtype)
    kinds = {
        "r": types.Array(element, 2, "C", readonly=True),
        "w": types.Array(element, 2, "C"),
        "a": types.Array(types.float64, 2, "C"),
        "f": types.Array(types.float32, 2, "C"),
        "b": types.Array(types.Integer.from_bitwidth(element.bitwidth, signed=True), 2, "C"),
        "v": types.Array(element, 1, "C", readonly=True),
        "u": types.Array(element, 1, "C"),
        "j": types.Array(types.int32, 1, "C"),
        "p": types.Array(types.int64, 1, "C"),
        "s": types.float64,
        "n": types.int64,
    }
    for compiled, letters in _REGISTERED:
        for x, i in (
            (kinds["r"], types.Array(types.int32, 1, "C", readonly=True)),
            (types.Array(types.uint8, 2, "C", readonly=True), types.Array(types.int64, 1, "C", readonly=True)),
        ):
            compiled.compile(tuple((kinds | {"x": x, "i": i})[letter] for letter in letters))
    _READY.add(dtype)
