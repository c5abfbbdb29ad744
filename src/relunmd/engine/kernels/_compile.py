"""Compilation of the kernels: once for each float type, cached on disk, before any time is measured.

The cache is in numba's usual folders, in a subfolder named after this file and the options below: numba recompiles a
function when its own file changes, but not when shared code does (numba issue 1833). Cached code is unpickled (numba
pull request 10839), so a folder where another user can put files is not used; every process then compiles again.

The annotations of a kernel are its types, so that each kernel has exactly one signature for each float type (two if it
takes the user's data unconverted). Tiles of X are always passed as read-only views.

Sums may be reassociated, which allows LLVM to use vector registers, in an order that depends on the shape alone. NaN
and infinity keep their meaning, since they indicate failures.
"""

import functools
import hashlib
import inspect
import json
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar, cast, get_args

import numba
import numpy as np
from numba import types
from numba.misc.appdirs import AppDirs
from numpy.typing import NDArray

from relunmd.forks import fork_lock

log = logging.getLogger("relunmd")

P = ParamSpec("P")
T = TypeVar("T")
Array = NDArray[Any]


class _Kind(NamedTuple):
    """The element type of a C-ordered array: a numba type, "float" for the float type, or one of those below."""

    element: Any
    ndim: int = 2
    readonly: bool = False


DataTile = Annotated[Array, _Kind("float", readonly=True)]
"""A tile of X."""
DataOrBytes = Annotated[Array, _Kind("float or bytes", readonly=True)]
"""A tile of X, or of images as bytes, which are converted entry by entry."""
BytesTile = Annotated[Array, _Kind(types.uint8, readonly=True)]
"""A tile of a mask."""
WrittenBytes = Annotated[Array, _Kind(types.uint8)]
Tile = Annotated[Array, _Kind("float")]
Sums = Annotated[Array, _Kind(types.float64)]
Float32Tile = Annotated[Array, _Kind(types.float32)]
Float32Panels = Annotated[Array, _Kind(types.float32, 3)]
BitsTile = Annotated[Array, _Kind("bits")]
"""A tile viewed as integers of the same size."""
DataValues = Annotated[Array, _Kind("float", 1, readonly=True)]
DataColumns = Annotated[Array, _Kind("int32 or int64", 1, readonly=True)]
"""Column indices of a CSR matrix."""
Values = Annotated[Array, _Kind("float", 1)]
Columns = Annotated[Array, _Kind(types.int32, 1)]
Indices = Annotated[Array, _Kind(types.int64, 1)]
ShortIndices = Annotated[Array, _Kind(types.int16, 1)]
"""Rows of a tile, which sort in linear time."""
Places = Annotated[Array, _Kind(types.int64, readonly=True)]
"""Column indices of the entries of a tile."""


class CsrRows(NamedTuple):
    """Rows of the user's CSR matrix: row i has values[starts[i]:starts[i + 1]] in these columns, which are sorted."""

    values: DataValues
    columns: DataColumns
    starts: Indices


class Nonzeros(NamedTuple):
    """The nonzeros of a tile in CSR format; columns are counted from the first column of the tile."""

    values: Values
    columns: Columns
    starts: Indices


_CONFIG: Any = numba.config
_REGISTERED: list[Any] = []
_READY: set[np.dtype[Any]] = set()
_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract"}}
SAMPLED = 8
"""Every eighth row is sampled to decide whether a tile is mostly zero."""
_COMPILING = fork_lock()
"""Held during a compilation: a child forked then would wait forever for locks of numba and LLVM."""


def helper(function: Callable[P, T]) -> Callable[P, T]:
    """Compile a function that kernels of the same file call, and cache it with them.

    It is inlined by numba, so that constants are propagated; inlining by LLVM took a quarter longer in float32.
    """
    return cast("Callable[P, T]", numba.njit(inline="always", **_OPTIONS)(function))


@helper
def longest(starts: Indices) -> int:
    """Return the length of the longest row of a CSR matrix."""
    most = 0
    for i in range(len(starts) - 1):
        most = max(most, starts[i + 1] - starts[i])
    return most


@helper
def solve(gram: Array, metric: Array, weight: float, floor: float, y: Array) -> float:
    """y ← (gram + weight·metric + floor·I)⁻¹ y. Return −yᵀ(…)⁻¹y. The Cholesky factor overwrites `gram`."""
    rank = len(y)
    for a in range(rank):
        La = gram[a]
        for b in range(a + 1):
            Lb = gram[b]
            v = La[b] + weight * metric[a, b]
            for q in range(b):
                v -= La[q] * Lb[q]
            if b < a:
                La[b] = v / Lb[b]
            else:
                La[a] = np.sqrt(max(v, 0.0) + floor)
    slope = 0.0
    for a in range(rank):
        La, v = gram[a], y[a]
        for q in range(a):
            v -= La[q] * y[q]
        y[a] = v / La[a]
        slope -= y[a] * y[a]
    for a in range(rank - 1, -1, -1):
        La = gram[a]
        v = y[a] / La[a]
        y[a] = v
        for q in range(a):
            y[q] -= La[q] * v
    return slope


def kernel(function: Callable[P, T]) -> Callable[P, T]:
    """Register a function as a kernel, whose annotations are its types."""
    _REGISTERED.append(_jit(function))
    return cast("Callable[P, T]", _REGISTERED[-1])


def _jit(function: Callable[..., Any]) -> Any:
    """Return the function with just-in-time compilation, cached if there is a safe folder."""
    folder = _cache_folder(_stamp())
    if folder is None:
        return numba.njit(**_OPTIONS)(function)
    configured, _CONFIG.CACHE_DIR = _CONFIG.CACHE_DIR, str(folder)
    try:
        compiled: Any = numba.njit(cache=True, **_OPTIONS)(function)
        stats = getattr(compiled, "stats", None)  # Missing with NUMBA_DISABLE_JIT.
        if stats is not None and folder not in Path(stats.cache_path).parents:
            raise RuntimeError(f"numba uses {stats.cache_path} instead of {folder}")
    except RuntimeError as reason:
        log.info("Compiled code is not cached, every process compiles again: %s", reason)
        return numba.njit(**_OPTIONS)(function)
    finally:
        _CONFIG.CACHE_DIR = configured
    return compiled


def _stamp() -> str | None:
    """Return a hash of everything that the kernels of all files share; None if this file cannot be read."""
    options = json.dumps([_OPTIONS, SAMPLED], default=sorted, sort_keys=True)
    try:
        return hashlib.sha256(Path(__file__).read_bytes() + options.encode()).hexdigest()[:16]
    except OSError:  # In a zip file.
        return None


@functools.cache
def _cache_folder(stamp: str | None) -> Path | None:
    """Return the folder for compiled code; None if no folder is safe to load it from."""
    refused = "this file cannot be read" if stamp is None else "no folder is writable"
    for base, trusted in _bases() if stamp is not None else ():
        folder = base / f"relunmd-{stamp}"
        if not base.is_absolute():
            refused = f"{base} is not an absolute path"
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        if trusted or _private(folder):
            return folder
        refused = f"other users can write to {folder}"
    log.info("Compiled code is not cached, every process compiles again: %s; set NUMBA_CACHE_DIR", refused)
    return None


def _bases() -> Iterator[tuple[Path, bool]]:
    """Yield the folders that numba would use, and whether they are trusted without a check."""
    if _CONFIG.CACHE_DIR:
        yield Path(_CONFIG.CACHE_DIR), True
    yield Path(__file__).parent / "__pycache__", True  # Whoever can write there can change the code itself.
    yield Path(AppDirs("numba", appauthor=False).user_cache_dir), False  # type: ignore[no-untyped-call]


def _private(folder: Path) -> bool:
    """Return whether no other user can put a file into `folder`, or replace the folder."""
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
    """Compile all kernels for `dtype`, or load them from the cache."""
    if _CONFIG.DISABLE_JIT:
        return
    with _COMPILING:
        if dtype not in _READY:
            reported = False
            for compiled in _REGISTERED:
                for signature in _signatures(compiled, dtype):
                    missed = sum(compiled.stats.cache_misses.values())
                    compiled.compile(signature)
                    if not reported and sum(compiled.stats.cache_misses.values()) > missed:
                        log.warning("Compiling for %s, once on this machine: about a minute", dtype)
                        reported = True
            _READY.add(dtype)


def _signatures(compiled: Any, dtype: np.dtype[Any]) -> list[tuple[Any, ...]]:
    """Return the one or two signatures of a kernel for a float type."""
    element = numba.from_dtype(dtype)
    bits = types.Integer.from_bitwidth(element.bitwidth, signed=True)
    annotations = inspect.get_annotations(compiled.py_func)
    annotations.pop("return", None)
    choices = (
        {"float": element, "bits": bits, "float or bytes": element, "int32 or int64": types.int32},
        {"float": element, "bits": bits, "float or bytes": types.uint8, "int32 or int64": types.int64},
    )
    found = (tuple(_numba_type(kind, elements) for kind in annotations.values()) for elements in choices)
    return list(dict.fromkeys(found))


def _numba_type(annotation: Any, elements: dict[str, Any]) -> Any:
    """Return the numba type of an annotation: a number, an array, a tuple or a named tuple."""
    if annotation in (float, int):
        return types.float64 if annotation is float else types.int64
    if hasattr(annotation, "__metadata__"):
        kind = annotation.__metadata__[0]
        return types.Array(elements.get(kind.element, kind.element), kind.ndim, "C", readonly=kind.readonly)
    named = annotation if hasattr(annotation, "_fields") else None
    members = inspect.get_annotations(annotation).values() if named else get_args(annotation)
    return types.BaseTuple.from_types([_numba_type(m, elements) for m in members], named)  # type: ignore[no-untyped-call]
