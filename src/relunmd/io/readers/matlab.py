"""MATLAB files: versions 5 to 7, and 7.3, which is HDF5.

Of versions 5 to 7 SciPy lists the variables, and the numbers are read here: scipy.io.loadmat ends the process on an
unknown type of numbers (scipy pull request #25829, open), and decompresses without a limit (#25166).
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import io, sparse

from relunmd.errors import FileError
from relunmd.io.readers import hdf5
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.contents import Entry
from relunmd.io.sparse_groups import is_group, own_member

__all__ = ["VERSION_5", "VERSION_7_3", "matlab_5_entries", "matlab_7_3_entries", "read_variable"]

VERSION_5, VERSION_7_3 = b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file"
_HEADER, _COMPRESSED = 128, 15
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8", 16: "u1"}
"""The types that numbers and names are stored in."""
_SPARSE, _COMPLEX, _LOGICAL = 5, 0x800, 0x200
_DTYPES = {"double": "float64", "single": "float32", "logical": "bool", "sparse": "float64"} | {
    name: name for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
}
_OBJECTS = ("object", "opaque")
_OWN = "__function_workspace__"
"""What SciPy calls the variable without a name that MATLAB adds for its own use."""


def matlab_5_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """Describe the variables of a file of version 5 to 7."""

    def entry(index: int, name: str, shape: tuple[int, ...], kind: str) -> Entry:
        stored = "sparse, CSC" if kind == "sparse" else "array"
        dtype = _DTYPES.get(kind, kind)
        return Entry(name, shape, dtype, lambda: _load(place, index, name, shape, kind, bounds), stored)

    found = enumerate(io.whosmat(place))
    return [entry(index, *about) for index, about in found if about[0] != _OWN and about[2] not in _OBJECTS]


def _load(place: Path, index: int, name: str, shape: tuple[int, ...], kind: str, bounds: Bounds) -> Any:
    """Load a matrix of real numbers, the variable at `index` of the file."""
    if kind not in _DTYPES:
        raise FileError(f"{name!r} in {place} must be a matrix of real numbers. It is a {kind}.")
    elements = _elements(*_content(place, index, bounds))
    flags = int(next(elements)[0])
    next(elements), next(elements)  # The shape and the name.
    if flags & _COMPLEX:
        raise FileError(f"{name!r} in {place} must be a matrix of real numbers. It is complex.")
    if flags & 0xFF == _SPARSE:
        bounds.memory(8 * sum(shape), f"a matrix of {' × '.join(map(str, shape))}")
        indices, indptr, data = (next(elements) for _ in range(3))
        stored = int(indptr[-1]) if len(indptr) else 0
        if not 0 <= stored <= min(len(indices), len(data)):
            raise FileError(f"{name!r} in {place} is damaged: its columns do not fit its {len(data)} entries.")
        parts = [A.astype(A.dtype.newbyteorder("=")) for A in (data[:stored], indices[:stored], indptr)]
        return sparse.csc_array((parts[0].astype(bool) if flags & _LOGICAL else parts[0], *parts[1:]), shape=shape)
    A = next(elements)
    return (A.astype(bool) if flags & _LOGICAL else A).reshape(shape, order="F")


def _content(place: Path, index: int, bounds: Bounds) -> tuple[bytes, str]:
    """Return the bytes of a variable, decompressed, and the byte order."""
    with place.open("rb") as stream:
        order = "<" if stream.read(_HEADER)[126:128] == b"IM" else ">"
        for _ in range(index):
            stream.seek(struct.unpack(f"{order}4xI", stream.read(8))[0], 1)
        kind, size = struct.unpack(f"{order}II", stream.read(8))
        content = stream.read(min(size, bounds.stored))
    if kind == _COMPRESSED:
        decompressor = zlib.decompressobj()
        size = struct.unpack(f"{order}4xI", decompressor.decompress(content, 8))[0]
        bounds.memory(size, "a compressed variable")
        content = decompressor.decompress(decompressor.unconsumed_tail, size) if size else b""
    return content, order


def _elements(content: bytes, order: str) -> Iterator[NDArray[Any]]:
    """Yield the arrays that a variable consists of; ValueError if one is truncated or of an unknown type."""
    at = 0
    while True:
        if at + 8 > len(content):
            raise ValueError("a variable is truncated")
        kind, length = struct.unpack_from(f"{order}II", content, at)
        start = at + 8
        if kind >> 16:  # A small element has its length and type in four bytes, its content in the next four.
            kind, length, start = kind & 0xFFFF, kind >> 16, at + 4
        if kind not in _TYPES or start + length > len(content):
            raise ValueError(f"a variable has {length} bytes of type {kind} at byte {start} of {len(content)}")
        dtype = np.dtype(order + _TYPES[kind])
        yield np.frombuffer(memoryview(content)[start : start + length], dtype)
        at = start + -(-length // 8) * 8 if start == at + 8 else at + 8


def matlab_7_3_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """Describe the variables of a file of version 7.3, which stores every matrix transposed."""
    entries = []
    with hdf5.opened(place) as file:
        for name in file:
            member = own_member(file, name)
            if member is None or name.startswith("#") or "MATLAB_object_decode" in member.attrs:
                continue
            rows = member.attrs.get("MATLAB_sparse")
            if not is_group(member):
                kind = member.attrs.get("MATLAB_class", b"double")
                kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
                dtype = kind if kind in ("char", "cell", "struct") else member.dtype.name
                load = _loader_7_3(place, name, None, bounds)
                entries.append(Entry(name, tuple(member.shape[::-1]), dtype, load))
            elif rows is not None and own_member(member, "jc") is not None:
                shape = int(np.asarray(rows).ravel()[0]), int(member["jc"].shape[0]) - 1
                data = own_member(member, "data")
                dtype = "float64" if data is None else data.dtype.name
                entries.append(Entry(name, shape, dtype, _loader_7_3(place, name, shape, bounds), "sparse, CSC"))
    return entries


def _loader_7_3(place: Path, name: str, shape: tuple[int, int] | None, bounds: Bounds) -> Any:
    """Return a function that loads an array, or a sparse matrix if its shape is given."""

    def load() -> Any:
        with hdf5.opened(place) as file:
            if shape is None:
                return hdf5.whole(file[name], place, bounds).T
            bounds.memory(8 * sum(shape), f"a matrix of {shape[0]} × {shape[1]}")
            members = (own_member(file[name], part) for part in ("data", "ir", "jc"))
            parts = [np.zeros(0) if found is None else hdf5.whole(found, place, bounds) for found in members]
        return sparse.csc_array((parts[0], parts[1].astype(np.int64), parts[2].astype(np.int64)), shape=shape)

    return load


def read_variable(place: Path, name: str) -> Any:
    """Read a variable of a file of version 5 to 7."""
    bounds = Bounds(place, place.stat().st_size)
    for entry in matlab_5_entries(place, bounds):
        if entry.name == name:
            return entry.load()
    raise FileError(f"{place} has no variable {name!r}.")
