"""How kernels are compiled: once for each float type, cached on disk, before any clock starts.

The cache is in numba's usual folders, in a subfolder named after this file and the options below: numba recompiles a
function when its own file changes, not when what it shares with others does. Cached code is unpickled, so a folder
where another user can put files is not used; every process then compiles again.

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

import functools
import hashlib
import json
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.misc.appdirs import AppDirs

from relunmd.forks import fork_lock

__all__ = ["SAMPLED", "helper", "kernel", "warm_up"]

log = logging.getLogger("relunmd")

P = ParamSpec("P")
T = TypeVar("T")

_CONFIG: Any = numba.config
_REGISTERED: list[tuple[Any, str]] = []
_READY: set[np.dtype[Any]] = set()
_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract"}}
SAMPLED = 8
"""Whether a tile is mostly zero is first asked of each eighth row."""
_COMPILING = fork_lock()
"""A child forked during a compilation would wait forever for locks of numba and LLVM: the fork waits instead."""


def helper(function: Callable[P, T]) -> Callable[P, T]:
    """A function that kernels of the same file call: compiled into them, and kept with them.

    Inlined by numba, so that what a kernel passes as a constant is one; left to LLVM it cost a quarter in float32.
    """
    return cast("Callable[P, T]", numba.njit(inline="always", **_OPTIONS)(function))


def kernel(letters: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Register a function as a kernel whose arguments are of the kinds that `letters` names."""

    def register(function: Callable[P, T]) -> Callable[P, T]:
        compiled = _compiler(function)
        _REGISTERED.append((compiled, letters))
        return cast("Callable[P, T]", compiled)

    return register


def _compiler(function: Callable[..., Any]) -> Any:
    """The function as numba compiles it, with a cache if there is a safe folder for one."""
    folder = _cache_folder(_stamp())
    if folder is None:
        return numba.njit(**_OPTIONS)(function)
    configured, _CONFIG.CACHE_DIR = _CONFIG.CACHE_DIR, str(folder)
    try:
        compiled: Any = numba.njit(cache=True, **_OPTIONS)(function)
        stats = getattr(compiled, "stats", None)  # There is none with NUMBA_DISABLE_JIT.
        if stats is not None and folder not in Path(stats.cache_path).parents:
            raise RuntimeError(f"numba uses {stats.cache_path} instead of {folder}")
    except RuntimeError as reason:
        log.info("Compiled code is not cached, every process compiles again: %s", reason)
        return numba.njit(**_OPTIONS)(function)
    finally:
        _CONFIG.CACHE_DIR = configured
    return compiled


def _stamp() -> str | None:
    """Changes with everything that kernels of all files share; None if this file cannot be read."""
    options = json.dumps([_OPTIONS, SAMPLED], default=sorted, sort_keys=True)
    try:
        return hashlib.sha256(Path(__file__).read_bytes() + options.encode()).hexdigest()[:16]
    except OSError:  # In a zip file.
        return None


@functools.cache
def _cache_folder(stamp: str | None) -> Path | None:
    """Where compiled code is cached; None if there is no folder that is safe to load it from."""
    refused = "this file cannot be read" if stamp is None else "no folder is writable"
    for base, chosen in _bases() if stamp is not None else ():
        folder = base / f"relunmd-{stamp}"
        if not base.is_absolute():
            refused = f"{base} is not an absolute path"
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        if chosen or _private(folder):
            return folder
        refused = f"other users can write to {folder}"
    log.info("Compiled code is not cached, every process compiles again: %s; NUMBA_CACHE_DIR can name one", refused)
    return None


def _bases() -> Iterator[tuple[Path, bool]]:
    """The folders that numba would take, and whether the user or the installation vouches for them."""
    if _CONFIG.CACHE_DIR:
        yield Path(_CONFIG.CACHE_DIR), True
    yield Path(__file__).parent / "__pycache__", True  # Who can write there can change the code itself.
    yield Path(AppDirs("numba", appauthor=False).user_cache_dir), False  # type: ignore[no-untyped-call]


def _private(folder: Path) -> bool:
    """Whether no other user can put a file into `folder`, or another folder in its place."""
    if not hasattr(os, "getuid"):
        return True
    real = folder.resolve()
    own, *above = (place.stat() for place in (real, *real.parents))
    if own.st_uid != os.getuid() or own.st_mode & stat.S_IWOTH:
        return False
    return all(
        one.st_uid in (0, os.getuid()) and (not one.st_mode & stat.S_IWOTH or one.st_mode & stat.S_ISVTX)
        for one in above
    )


def warm_up(dtype: np.dtype[Any]) -> None:
    """Compile every kernel for `dtype`, or load it from the cache of an earlier process."""
    if _CONFIG.DISABLE_JIT:
        return
    with _COMPILING:
        if dtype not in _READY:
            _compile_all(dtype)
            _READY.add(dtype)


def _compile_all(dtype: np.dtype[Any]) -> None:
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
