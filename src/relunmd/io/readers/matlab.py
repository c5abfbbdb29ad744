"""MATLAB's files: version 5 to 7, of which the arrays and sparse matrices alone are looked at, and 7.3, which is HDF5.

SciPy reads version 5 too. It makes whatever a file asks for, cells and objects of any size, before anything else can be
looked at; here the sizes come first.
"""

import struct
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import FileError
from relunmd.io.readers import hdf5
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.contents import Entry
from relunmd.io.readers.stored_files import is_group

__all__ = ["VERSION_5", "VERSION_7_3", "matlab_5_entries", "matlab_7_3_entries", "read_variable"]

Array = NDArray[Any]
VERSION_5, VERSION_7_3 = b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file"

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""The types that numbers are stored in."""
_CLASSES = {6: "float64", 7: "float32", 8: "int8", 9: "uint8", 10: "int16", 11: "uint16", 12: "int32", 13: "uint32",
            14: "int64", 15: "uint64"}  # fmt: skip
_OTHERS = {1: "cell", 2: "struct", 3: "object", 4: "char", 16: "function", 17: "opaque"}
_SPARSE = 5
_COMPLEX, _LOGICAL = 0x08, 0x02
_PEEK = 1 << 12
_MOST_VARIABLES = 10_000


@dataclass(frozen=True)
class _Variable:
    """A variable that has been found: what it is, and where its element lies in the file."""

    name: str
    kind: int
    flags: int
    shape: tuple[int, ...]
    at: int
    size: int
    compressed: bool


class _Elements:
    """Reads one data element after the other from bytes; ValueError where they end too early."""

    def __init__(self, content: Any, order: str) -> None:
        self._content = memoryview(content)
        self._order = order
        self._at = 0

    def tag(self) -> tuple[int, int]:
        """The type and length of the next element; its bytes follow."""
        first = self._number()
        if first >> 16:  # A small one: its length and type in four bytes, its content in the next four.
            return first & 0xFFFF, -(first >> 16)
        return first, self._number()

    def bytes(self) -> tuple[int, memoryview]:
        """The type and content of the next element."""
        kind, length = self.tag()
        small, length = length < 0, abs(length)
        if small and length > 4:
            raise ValueError(f"a small element of {length} bytes")
        part = self._content[self._at : self._at + length]
        if len(part) < length:
            raise ValueError("an element is cut short")
        self._at += 4 if small else -(-length // 8) * 8
        return kind, part

    def numbers(self) -> Array:
        kind, part = self.bytes()
        if kind not in _NUMBERS:
            raise ValueError(f"numbers of type {kind}")
        dtype = np.dtype(self._order + _NUMBERS[kind])
        if len(part) % dtype.itemsize:
            raise ValueError("an element is cut short")
        return np.frombuffer(part, dtype)

    def _number(self) -> int:
        if self._at + 4 > len(self._content):
            raise ValueError("an element is cut short")
        (found,) = struct.unpack_from(self._order + "I", self._content, self._at)
        self._at += 4
        return int(found)


def matlab_5_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """The variables of a file of version 5 to 7."""
    with place.open("rb") as stream:
        order = _byte_order(place, stream)
        variables = _variables(stream, order, bounds.stored)

    def entry(found: _Variable) -> Entry:
        dtype = "bool" if found.flags & _LOGICAL else _CLASSES.get(found.kind, _OTHERS.get(found.kind, "float64"))
        if found.flags & _COMPLEX:
            dtype = f"complex {dtype}"
        stored = "sparse, CSC" if found.kind == _SPARSE else "array"
        return Entry(found.name, found.shape, dtype, lambda: _load(place, order, found, bounds), stored)

    return [entry(found) for found in variables]


def _byte_order(place: Path, stream: IO[bytes]) -> str:
    header = stream.read(_HEADER)
    if len(header) < _HEADER or header[126:128] not in (b"IM", b"MI"):
        raise FileError(f"{place} must be a MATLAB file of version 5 or later. Its header is damaged.")
    return "<" if header[126:128] == b"IM" else ">"


def _variables(stream: IO[bytes], order: str, end: int) -> list[_Variable]:
    """What is in the file; only the beginning of each variable is read."""
    found: list[_Variable] = []
    at = _HEADER
    while at + 8 <= end and len(found) < _MOST_VARIABLES:
        stream.seek(at)
        kind, size = struct.unpack(order + "II", stream.read(8))
        if kind not in (_MATRIX, _COMPRESSED) or at + 8 + size > end:
            raise ValueError(f"an element of type {kind} and {size} bytes at byte {at}, of {end}")
        beginning = stream.read(min(size, _PEEK))
        if kind == _COMPRESSED:
            beginning = zlib.decompressobj().decompress(beginning, _PEEK)
            elements = _Elements(beginning, order)
            if elements.tag()[0] != _MATRIX:
                raise ValueError("something compressed that is no array")
        else:
            elements = _Elements(beginning, order)
        variable = _described(elements, at + 8, size, kind == _COMPRESSED)
        if variable.name and variable.kind not in (3, 17):  # What has no name is MATLAB's own.
            found.append(variable)
        at += 8 + size
    return found


def _described(elements: _Elements, at: int, size: int, compressed: bool) -> _Variable:
    flags = elements.numbers()
    shape = elements.numbers()
    name = bytes(elements.bytes()[1]).decode("latin-1")
    if len(flags) != 2 or not 2 <= len(shape) <= 32 or (shape < 0).any():
        raise ValueError("an array without a shape")
    word = int(flags[0])
    return _Variable(name, word & 0xFF, word >> 8 & 0xFF, tuple(shape.tolist()), at, size, compressed)


def _load(place: Path, order: str, variable: _Variable, bounds: Bounds) -> Any:
    """An array or a sparse matrix."""
    if variable.kind in _OTHERS or variable.flags & _COMPLEX:
        what = "complex numbers" if variable.flags & _COMPLEX else f"a {_OTHERS[variable.kind]}"
        raise FileError(f"{variable.name!r} in {place} must be a matrix of real numbers. It is {what}.")
    with place.open("rb") as stream:
        stream.seek(variable.at)
        if variable.compressed:
            elements = _decompressed(stream, variable, order, bounds)
        else:
            bounds.memory(variable.size, f"the variable {variable.name!r}")
            elements = _Elements(stream.read(variable.size), order)
    _described(elements, 0, 0, False)
    if variable.kind == _SPARSE:
        return _sparse(place, elements, variable, bounds)
    A = elements.numbers()
    if len(A) != prod(variable.shape):
        raise FileError(
            f"{variable.name!r} in {place} must have {prod(variable.shape)} numbers for its shape {variable.shape}. "
            f"It has {len(A)}."
        )
    A = A.view(np.bool_) if variable.flags & _LOGICAL and A.dtype.itemsize == 1 and (A <= 1).all() else A
    return A.reshape(variable.shape, order="F")


def _decompressed(stream: IO[bytes], variable: _Variable, order: str, bounds: Bounds) -> _Elements:
    """What a compressed element holds, which tells its size in its first bytes."""
    unpack = zlib.decompressobj()
    content, left = bytearray(), variable.size
    needed = 8
    while len(content) < needed and not unpack.eof and (left > 0 or unpack.unconsumed_tail):
        part = unpack.unconsumed_tail or stream.read(min(left, 1 << 18))
        left -= 0 if unpack.unconsumed_tail else len(part)
        content += unpack.decompress(part, 1 << 20)
        if needed == 8 and len(content) >= 8:
            needed = 8 + struct.unpack_from(order + "I", content, 4)[0]
            bounds.memory(needed, f"the variable {variable.name!r}")
        if not part:
            break
    if len(content) < needed:
        raise ValueError(f"the variable {variable.name!r} is cut short")
    elements = _Elements(content, order)
    elements.tag()
    return elements


def _sparse(place: Path, elements: _Elements, variable: _Variable, bounds: Bounds) -> Any:
    from scipy import sparse

    if len(variable.shape) != 2:
        raise FileError(f"{variable.name!r} in {place} must have two dimensions. Got {variable.shape}.")
    indices, indptr, data = elements.numbers(), elements.numbers(), elements.numbers()
    bounds.memory(8 * sum(variable.shape), f"a matrix of {variable.shape[0]} × {variable.shape[1]}")
    stored = int(indptr[-1]) if len(indptr) else 0
    if len(indptr) != variable.shape[1] + 1 or not 0 <= stored <= min(len(indices), len(data)):
        raise FileError(f"{variable.name!r} in {place} is damaged: its columns do not fit its {len(data)} entries.")
    native = [A.astype(A.dtype.newbyteorder("="), copy=False) for A in (data[:stored], indices[:stored], indptr)]
    native[0] = native[0].astype(bool) if variable.flags & _LOGICAL else native[0]
    return sparse.csc_array((native[0], native[1], native[2]), shape=variable.shape)


def matlab_7_3_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """The variables of a file of version 7.3, which is HDF5 and has every matrix the other way round."""
    with hdf5.opened(place) as file:
        entries = []
        for name in file:
            member = hdf5.own_member(file, name)
            if member is None or name.startswith("#") or "MATLAB_object_decode" in member.attrs:
                continue
            rows = member.attrs.get("MATLAB_sparse")
            if is_group(member):
                if rows is not None and hdf5.own_member(member, "jc") is not None:
                    entries.append(_sparse_entry_7_3(place, name, member, int(np.asarray(rows).ravel()[0]), bounds))
                continue
            kind = member.attrs.get("MATLAB_class", b"double")
            kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
            dtype = kind if kind in ("char", "cell", "struct") else member.dtype.name
            entries.append(Entry(name, tuple(member.shape[::-1]), dtype, _loader_7_3(place, name, bounds)))
        return entries


def _loader_7_3(place: Path, name: str, bounds: Bounds) -> Any:
    def load() -> Array:
        with hdf5.opened(place) as file:
            return hdf5.whole(file[name], place, bounds).T

    return load


def _sparse_entry_7_3(place: Path, name: str, group: Any, rows: int, bounds: Bounds) -> Entry:
    columns = int(group["jc"].shape[0]) - 1

    def load() -> Any:
        from scipy import sparse

        bounds.memory(8 * (rows + columns), f"a matrix of {rows} × {columns}")
        with hdf5.opened(place) as file:
            found = {part: hdf5.own_member(file[name], part) for part in ("jc", "data", "ir")}
            indptr = hdf5.whole(found["jc"], place, bounds)
            parts = [
                np.zeros(0) if found[part] is None else hdf5.whole(found[part], place, bounds)
                for part in ("data", "ir")
            ]
        return sparse.csc_array((parts[0], parts[1].astype(np.int64), indptr.astype(np.int64)), shape=(rows, columns))

    data = hdf5.own_member(group, "data")
    dtype = "float64" if data is None else data.dtype.name
    return Entry(name, (rows, columns), dtype, load, "sparse, CSC")


def read_variable(place: Path, name: str) -> Any:
    """A variable of a file of version 5 to 7."""
    bounds = Bounds(place, place.stat().st_size)
    for entry in matlab_5_entries(place, bounds):
        if entry.name == name:
            return entry.load()
    raise FileError(f"{place} has no variable {name!r}.")
