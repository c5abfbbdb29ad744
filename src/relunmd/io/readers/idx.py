"""IDX files, the format of MNIST: two zero bytes, a type, the number of dimensions, the dimensions, the data."""

import struct
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from relunmd.errors import FileError
from relunmd.io.npy_format import Array, read_bytes
from relunmd.io.readers.bounds import Bounds, opened
from relunmd.io.readers.contents import Entry

_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def looks_like_idx(beginning: bytes) -> bool:
    """Return whether these are the first bytes of an IDX file."""
    return len(beginning) >= 4 and beginning[:2] == b"\0\0" and beginning[2] in _TYPES and 0 < beginning[3] <= 8


def idx_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """Describe the array, with each image flattened to a row."""
    with opened(place) as stream:
        shape, dtype = _header(place, stream)
    rows = (shape[0], prod(shape[1:])) if len(shape) > 1 else shape
    pixels = (shape[1], shape[2]) if len(shape) == 3 else None
    return [Entry("", rows, str(dtype.newbyteorder("=")), lambda: read_idx(place, bounds).reshape(rows), pixels=pixels)]


def read_idx(place: Path, bounds: Bounds) -> Array:
    """Read the array with all of its dimensions."""
    with opened(place) as stream:
        shape, dtype = _header(place, stream)
        size = prod(shape) * dtype.itemsize
        bounds.memory(size, "its array")
        return read_bytes(stream, size).view(dtype).reshape(shape)


def _header(place: Path, stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    beginning = stream.read(4)
    sides = stream.read(4 * beginning[3]) if looks_like_idx(beginning) else b""
    if not sides or len(sides) < 4 * beginning[3]:
        raise FileError(f"{place} must be an IDX file. It begins with {beginning.hex(' ')} and {len(sides)} bytes.")
    return struct.unpack(f">{beginning[3]}I", sides), np.dtype(_TYPES[beginning[2]])
