"""MATLAB files: versions 5 to 7, and 7.3, which is HDF5.

Of versions 5 to 7 SciPy lists the variables, and the numbers are read here: scipy.io.loadmat ends the process on an
unknown type of numbers (scipy pull request #25829, open), and decompresses without a limit (#25166).
"""

import struct
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import io, sparse

from relunmd.errors import FileError
from relunmd.io.npy_format import Array
from relunmd.io.readers import hdf5
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.contents import Entry, choose
from relunmd.io.sparse_groups import is_group, own_member

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


class _Variable(NamedTuple):
    """A variable, and where its content is in the file."""

    name: str
    shape: tuple[int, ...]
    kind: str
    order: str
    compressed: bool
    at: int
    size: int


def matlab_5_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """Describe the variables of a file of version 5 to 7."""

    def entry(found: _Variable) -> Entry:
        stored = "sparse, CSC" if found.kind == "sparse" else "array"
        dtype = _DTYPES.get(found.kind, found.kind)
        return Entry(found.name, found.shape, dtype, lambda: _load(place, found, bounds), stored)

    variables = map(_Variable._make, (a + b for a, b in zip(io.whosmat(place), _contents(place, bounds), strict=False)))
    return [entry(found) for found in variables if found.name != _OWN and found.kind not in _OBJECTS]


def _contents(place: Path, bounds: Bounds) -> Iterator[tuple[str, bool, int, int]]:
    """Yield the byte order, whether it is compressed, the first byte and the length of each variable."""
    with place.open("rb") as stream:
        order = "<" if stream.read(_HEADER)[126:128] == b"IM" else ">"
        while tag := stream.read(8):
            kind, size = struct.unpack(f"{order}II", tag)
            at = stream.tell()
            if at + size > bounds.stored:
                raise FileError(f"{place} is truncated: a variable has {size} bytes from byte {at} of {bounds.stored}.")
            yield order, kind == _COMPRESSED, at, size
            stream.seek(at + size)


def _load(place: Path, variable: _Variable, bounds: Bounds) -> Any:
    """Load a matrix of real numbers."""
    name, shape = f"{variable.name!r} in {place}", variable.shape
    if variable.kind not in _DTYPES:
        raise FileError(f"{name} must be a matrix of real numbers. It is a {variable.kind}.")
    with place.open("rb") as stream:
        stream.seek(variable.at)
        content = stream.read(variable.size)
    if variable.compressed:
        decompressor = zlib.decompressobj()
        size = struct.unpack(f"{variable.order}4xI", decompressor.decompress(content, 8))[0]
        bounds.memory(size, f"the variable {variable.name!r}")
        content = decompressor.decompress(decompressor.unconsumed_tail, max(1, size))
    elements = _elements(content, variable.order)
    flags = int(next(elements)[0])
    next(elements), next(elements)  # The shape and the name.
    if flags & _COMPLEX:
        raise FileError(f"{name} must be a matrix of real numbers. It is complex.")
    if flags & 0xFF != _SPARSE:
        A = next(elements)
        return (A.astype(bool) if flags & _LOGICAL else A).reshape(shape, order="F")
    bounds.memory(8 * sum(shape), f"a matrix of {' × '.join(map(str, shape))}")
    indices, indptr, data = (A.astype(A.dtype.newbyteorder("=")) for A in islice(elements, 3))
    stored = int(indptr[-1]) if len(indptr) else 0
    if not 0 <= stored <= min(len(indices), len(data)):
        raise FileError(f"{name} is damaged: its columns do not fit its {len(data)} entries.")
    data = data.astype(bool) if flags & _LOGICAL else data
    return sparse.csc_array((data[:stored], indices[:stored], indptr), shape=shape)


def _elements(content: bytes, order: str) -> Iterator[Array]:
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
                load = partial(_load_7_3, place, name, None, bounds)
                entries.append(Entry(name, tuple(member.shape[::-1]), dtype, load))
            elif rows is not None and own_member(member, "jc") is not None:
                shape = int(np.asarray(rows).ravel()[0]), int(member["jc"].shape[0]) - 1
                data = own_member(member, "data")
                dtype = "float64" if data is None else data.dtype.name
                load = partial(_load_7_3, place, name, shape, bounds)
                entries.append(Entry(name, shape, dtype, load, "sparse, CSC"))
    return entries


def _load_7_3(place: Path, name: str, shape: tuple[int, int] | None, bounds: Bounds) -> Any:
    """Load an array, or a sparse matrix if its shape is given."""
    with hdf5.opened(place) as file:
        if shape is None:
            return hdf5.whole(file[name], place, bounds).T
        bounds.memory(8 * sum(shape), f"a matrix of {shape[0]} × {shape[1]}")
        members = (own_member(file[name], part) for part in ("data", "ir", "jc"))
        parts = [np.zeros(0) if found is None else hdf5.whole(found, place, bounds) for found in members]
    return sparse.csc_array((parts[0], parts[1].astype(np.int64), parts[2].astype(np.int64)), shape=shape)


def read_variable(place: Path, name: str) -> Any:
    """Read a variable of a file of version 5 to 7."""
    return choose(place, matlab_5_entries(place, Bounds(place, place.stat().st_size)), name).load()
