"""IDX files, as MNIST comes: two zero bytes, a type, the number of dimensions, the dimensions, the data."""

import struct
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import FileError
from relunmd.io.readers.bounds import Bounds, unpacked
from relunmd.io.readers.contents import Entry

__all__ = ["idx_entries", "looks_like_idx", "read_idx"]

Array = NDArray[Any]
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_MOST_DIMENSIONS = 8


def looks_like_idx(beginning: bytes) -> bool:
    """Whether a file that begins so may be one."""
    return len(beginning) >= 8 and beginning[:2] == b"\0\0" and beginning[2] in _TYPES and 0 < beginning[3] <= 8


def idx_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """The array; its images are flattened to rows."""
    with unpacked(place, bounds.text()) as stream:
        shape, dtype = _header(place, stream)
    rows = (shape[0], prod(shape[1:])) if len(shape) > 1 else shape
    pixels = (shape[1], shape[2]) if len(shape) == 3 else None
    return [Entry("", rows, str(dtype.newbyteorder("=")), lambda: _flat(read_idx(place, bounds)), pixels=pixels)]


def _flat(A: Array) -> Array:
    return A.reshape(len(A), prod(A.shape[1:])) if A.ndim > 1 else A


def read_idx(place: Path, bounds: Bounds) -> Array:
    """The array with all of its dimensions."""
    with unpacked(place, bounds.text()) as stream:
        shape, dtype = _header(place, stream)
        size = prod(shape) * dtype.itemsize
        bounds.memory(size, "its array")
        raw = np.empty(size, np.uint8)
        filled = 0
        while filled < size and (chunk := stream.read(min(1 << 20, size - filled))):
            raw[filled : filled + len(chunk)] = np.frombuffer(chunk, np.uint8)
            filled += len(chunk)
        if filled < size or stream.read(1):
            raise FileError(
                f"{place} must have the {size} bytes of its shape {shape} after its header. It has "
                f"{filled if filled < size else 'more'}."
            )
    return raw.view(dtype).reshape(shape)


def _header(place: Path, stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    beginning = stream.read(4)
    if len(beginning) < 4 or beginning[:2] != b"\0\0" or beginning[2] not in _TYPES:
        raise FileError(f"{place} must be an IDX file, as MNIST comes. It begins with {beginning.hex(' ')}.")
    dimensions = beginning[3]
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise FileError(f"{place} must be an IDX file of 1 to {_MOST_DIMENSIONS} dimensions. It has {dimensions}.")
    sides = stream.read(4 * dimensions)
    if len(sides) < 4 * dimensions:
        raise FileError(f"{place} must be an IDX file, as MNIST comes. It ends within its header.")
    return struct.unpack(f">{dimensions}I", sides), np.dtype(_TYPES[beginning[2]])
