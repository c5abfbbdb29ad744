"""NumPy files: .npy, which is memory-mapped, and .npz with arrays or with one of SciPy's sparse matrices."""

import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from relunmd.errors import FileError
from relunmd.io.archive import kind_of
from relunmd.io.npy_format import Array, NpyHeader, read_data, read_header
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.contents import Entry

_SPARSE = ("csr", "csc", "bsr", "coo", "dia")


def npy_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """Describe the array of a .npy file."""
    with place.open("rb") as stream:
        header = read_header(stream)
        offset = stream.tell()
    plain = header.dtype.kind in "biuf"
    if plain and header.nbytes > bounds.stored - offset:
        sizes = f"its header promises {header.nbytes} bytes, and {bounds.stored - offset} follow"
        raise FileError(f"{place} is truncated: {sizes}.")

    def load() -> Array:
        if not plain:
            raise FileError(f"{place} must hold numbers. Got dtype {header.dtype}.")
        if header.nbytes == 0:
            return np.empty(header.shape, header.dtype)
        order = "F" if header.fortran_order else "C"
        return np.memmap(place, header.dtype, "r", offset, header.shape, order)  # type: ignore[call-overload, no-any-return]

    return [Entry("", header.shape, header.dtype.name, load, lazy=True)]


def npz_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """Describe the arrays of a .npz file, or the sparse matrix that they form."""
    infos, headers = {}, {}
    with zipfile.ZipFile(place) as members:
        for info in members.infolist():
            if info.filename.endswith(".npy"):
                name = info.filename.removesuffix(".npy")
                with members.open(info) as content:
                    infos[name], headers[name] = info, read_header(content)
    if not headers:
        raise FileError(f"{place} must be a .npz file. It is a ZIP file without arrays.")
    kind = kind_of(place)
    if kind is not None:
        raise FileError(f"{place} is a {kind} that relunmd wrote, not a matrix.")

    def load(name: str) -> Array:
        header = headers[name]
        if header.dtype.kind not in "biufSU":
            raise FileError(f"{name!r} in {place} must hold numbers. Got dtype {header.dtype}.")
        bounds.memory(header.nbytes, f"the array {name!r}")
        with zipfile.ZipFile(place) as members, members.open(infos[name]) as content:
            read_header(content)
            return read_data(content, header)

    if {"format", "shape", "data"} <= headers.keys():
        return [_sparse_entry(place, headers, load, bounds)]
    return [Entry(name, header.shape, header.dtype.name, partial(load, name)) for name, header in headers.items()]


def _sparse_entry(place: Path, headers: Mapping[str, NpyHeader], load: Callable[[str], Array], bounds: Bounds) -> Entry:
    """Describe the matrix that scipy.sparse.save_npz wrote."""
    for name in ("format", "shape"):
        bounds.memory(1000 * headers[name].nbytes, f"the member {name!r}")  # It has a few bytes.
    form, shape = load("format").item(), tuple(int(side) for side in load("shape"))
    form = form.decode("ascii", "replace") if isinstance(form, bytes) else str(form)
    if form not in _SPARSE or len(shape) != 2:
        raise FileError(f"{place} must hold a sparse matrix of two dimensions. Got format {form!r} and shape {shape}.")

    def load_sparse() -> Any:
        bounds.memory(8 * sum(shape) + sum(header.nbytes for header in headers.values()), f"a matrix of shape {shape}")
        A = getattr(sparse, f"{form}_array")(sparse.load_npz(place))
        if form == "dia" and (np.abs(A.offsets.astype(np.float64)) >= max(shape)).any():
            raise FileError(f"{place} must have diagonals within its shape {shape}. It has others.")
        return A

    return Entry("", shape, headers["data"].dtype.name, load_sparse, stored=f"sparse, {form.upper()}")
