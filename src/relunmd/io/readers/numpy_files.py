"""NumPy's files: .npy, which stays on the disk, and .npz with arrays or one of SciPy's sparse matrices."""

import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import FileError
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.contents import Entry

__all__ = ["npy_entries", "npz_entries"]

Array = NDArray[Any]
_CHUNK = 1 << 20
_SPARSE = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


class _Header(NamedTuple):
    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def plain(self) -> bool:
        return self.dtype.kind in "biuf"


def _header(stream: IO[bytes]) -> _Header:
    """An array's description; ValueError if it is none."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        header = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        header = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"version {version} of the format is for tables of named columns, and not for matrices")
    found = _Header(*header)
    if min(found.shape, default=0) < 0:
        raise ValueError(f"its shape is {found.shape}")
    return found


def npy_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """The array of a .npy file, as a memory map."""
    with place.open("rb") as stream:
        header = _header(stream)
        offset = stream.tell()
    if header.plain and header.nbytes > bounds.stored - offset:
        raise FileError(
            f"{place} is cut short: its header says {header.shape} of {header.dtype}, {header.nbytes} bytes, and "
            f"{bounds.stored - offset} follow."
        )

    def load() -> Array:
        if not header.plain:
            raise FileError(f"{place} must hold numbers. Got dtype {header.dtype}.")
        if header.nbytes == 0:
            return np.empty(header.shape, header.dtype)
        order = "F" if header.by_columns else "C"
        return np.memmap(place, header.dtype, "r", offset, header.shape, order)  # type: ignore[call-overload, no-any-return]

    return [Entry("", header.shape, header.dtype.name, load, lazy=True)]


def npz_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """The arrays of a .npz file, or the sparse matrix whose parts they are."""
    with zipfile.ZipFile(place) as members:
        infos = {info.filename.removesuffix(".npy"): info for info in members.infolist() if not info.is_dir()}
        headers = {}
        for name, info in infos.items():
            with members.open(info) as content:
                if info.filename.endswith(".npy"):
                    headers[name] = _header(content)
    if not headers:
        raise FileError(f"{place} must be a .npz file, with arrays in it. It is a ZIP file with {len(infos)} others.")
    if "metadata" in headers and {"W", "H"} <= headers.keys():
        raise FileError(f"{place} is a model that relunmd wrote, and not a matrix.")
    if "metadata" in headers and any(name.startswith("0.state.") for name in headers):
        raise FileError(f"{place} is a checkpoint that relunmd wrote, and not a matrix.")

    def load(name: str) -> Array:
        return _member(place, infos[name], headers[name], bounds)

    if {"format", "shape", "data"} <= headers.keys():
        return [_sparse_entry(place, headers, load, bounds)]
    return [
        Entry(name, header.shape, header.dtype.name, lambda name=name: load(name))  # type: ignore[misc]
        for name, header in headers.items()
    ]


def _member(place: Path, info: zipfile.ZipInfo, header: _Header, bounds: Bounds) -> Array:
    """An array, its size having been looked at before it is allocated."""
    if header.dtype.kind not in "biufSU":
        raise FileError(f"{info.filename} in {place} must hold numbers. Got dtype {header.dtype}.")
    bounds.memory(header.nbytes, f"the array {info.filename}")
    with zipfile.ZipFile(place) as members, members.open(info) as content:
        _header(content)
        raw = np.empty(header.nbytes, np.uint8)
        filled = 0
        while chunk := content.read(_CHUNK):
            if filled + len(chunk) > header.nbytes:
                break
            raw[filled : filled + len(chunk)] = np.frombuffer(chunk, np.uint8)
            filled += len(chunk)
        if chunk or filled < header.nbytes:
            raise FileError(
                f"{info.filename} in {place} must have the {header.nbytes} bytes of its shape {header.shape}. It has "
                f"{'more' if chunk else filled}."
            )
    array = raw.view(header.dtype)
    return array.reshape(header.shape[::-1]).T if header.by_columns else array.reshape(header.shape)


def _sparse_entry(place: Path, headers: Mapping[str, _Header], load: Any, bounds: Bounds) -> Entry:
    """The matrix that scipy.sparse.save_npz wrote."""
    for name in ("format", "shape"):
        bounds.memory(1000 * headers[name].nbytes, f"the member {name}")  # A few bytes each.
    form = load("format").item()
    form = form.decode("ascii") if isinstance(form, bytes) else str(form)
    shape = tuple(int(side) for side in load("shape"))
    if form not in _SPARSE or len(shape) != 2:
        raise FileError(f"{place} must hold a sparse matrix with two dimensions. Got the form {form!r}, shape {shape}.")
    missing = [name for name in _SPARSE[form] if name not in headers]
    if missing:
        raise FileError(f"{place} must hold a sparse matrix of form {form!r}. It lacks {', '.join(missing)}.")

    def whole() -> Any:
        from scipy import sparse

        bounds.memory(8 * sum(shape), f"a matrix of {shape[0]} × {shape[1]}")
        parts = [load(name) for name in _SPARSE[form]]
        if form == "dia" and (np.abs(parts[1].astype(np.float64)) >= max(shape)).any():
            raise FileError(f"{place} must have diagonals within its shape {shape}. It has others.")
        if form == "coo":
            return sparse.coo_array((parts[0], (parts[1], parts[2])), shape=shape)
        return getattr(sparse, f"{form}_array")(tuple(parts), shape=shape)

    return Entry("", shape, headers["data"].dtype.name, whole, stored=f"sparse, {form.upper()}")
