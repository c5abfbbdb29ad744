"""The one door to files: finds out what a file is, asks its reader what it holds, and picks X."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relunmd._util import printable
from relunmd.errors import FileError, InputError, RelunmdError
from relunmd.io.atomic import check_path
from relunmd.io.readers import (
    hdf5,
    idx,
    image_files,
    matlab,
    matrix_market,
    numpy_files,
    parquet,
    text_tables,
    zarr_stores,
)
from relunmd.io.readers.bounds import Bounds, is_packed, unpacked
from relunmd.io.readers.contents import Entry, chosen

__all__ = ["Opened", "open_matrix"]

_BEGINNING = 1 << 10
_SPREADSHEETS = (".xlsx", ".xls", ".ods")


@dataclass(frozen=True)
class _Format:
    """A kind of file: what it is called, how its names end, and its reader."""

    name: str
    suffixes: tuple[str, ...]
    entries: Callable[[Path, Bounds], list[Entry]] | None = None
    """None for those that need more than that."""
    packed: bool = False
    """Whether it may come packed by gzip."""
    usual: tuple[str, ...] = ()
    """What X is called in it."""


_NPY = _Format("NumPy array", (".npy",), numpy_files.npy_entries)
_NPZ = _Format("NumPy archive", (".npz",), numpy_files.npz_entries)
_MTX = _Format("Matrix Market", (".mtx",), matrix_market.matrix_market_entries, packed=True)
_MAT_5 = _Format("MATLAB, version 5 to 7", (".mat",), matlab.matlab_5_entries)
_MAT_7_3 = _Format("MATLAB, version 7.3", (".mat",), matlab.matlab_7_3_entries)
_TEXT = _Format("text table", (".csv", ".tsv", ".txt"), packed=True)
_PARQUET = _Format("Parquet", (".parquet", ".pq"), parquet.parquet_entries)
_HDF5 = _Format("HDF5", (".h5", ".hdf5", ".hdf"))
_H5AD = _Format("AnnData", (".h5ad",), usual=("X",))
_IDX = _Format("IDX", (".idx", "-ubyte"), idx.idx_entries, packed=True)
_ZARR = _Format("Zarr", (".zarr",), zarr_stores.zarr_entries)
_IMAGES = _Format("folder of images", (), image_files.image_entries)

_FORMATS = (_NPY, _NPZ, _MTX, _MAT_5, _MAT_7_3, _TEXT, _PARQUET, _HDF5, _H5AD, _IDX, _ZARR, _IMAGES)
_KNOWN = (
    ".npy, .npz, .mtx, .mat, .csv, .tsv, .parquet, .h5, .hdf5, .h5ad, .zarr, IDX (these four also as .gz: .mtx, .csv, "
    ".tsv, IDX), or a folder of grey images"
)


@dataclass(frozen=True)
class Opened:
    """A matrix that is open to be read.

    Attributes
    ----------
    place : of the file
    format : what kind of file it is, in words
    entry : which of its arrays X is
    entries : all of them
    X : an array, a memory map, a SciPy sparse matrix, an HDF5 dataset or Zarr array, or a group of these
    """

    place: Path
    format: str
    entry: Entry
    entries: tuple[Entry, ...]
    X: Any


@contextmanager
def open_matrix(path: str | os.PathLike[str], array: str | None = None, names: str | None = None) -> Iterator[Opened]:
    """Open a matrix file of any known kind.

    What a file is, is told by its content first and by its name second; gzip is seen through.

    Parameters
    ----------
    path : a file, a Zarr store, or a folder of grey images of one size
    array : the name of an array, where a file holds several; in HDF5 and Zarr with its groups, "layers/counts"
    names : of a text table, whether its first line names "columns", its first column "rows", "both" or "none"; if None
        it is found out (`Opened.entry.note` says what was left out)

    Yields
    ------
    Opened
        Whose X is for `relunmd.decompose`, `relunmd.fit_rows` and the estimator while the file is open.

    Raises
    ------
    FileError
        The file is not there, is of no known kind, or is damaged.
    InputError
        It holds several matrices and none was named, or has none of that name; the message lists them.
    MissingDependencyError
        An optional package is needed; the message says how to install it.

    Notes
    -----
    .npy, .h5, .hdf5, .h5ad (CSR) and .zarr stay on the disk and take no memory. The others are read into memory: sparse
    where they are stored so, and text and Parquet also where they are mostly zeros.

    Examples
    --------
    >>> import tempfile, numpy as np, relunmd
    >>> from relunmd.io.readers import open_matrix
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/X.npy", np.eye(10, dtype=np.float32))
    ...     with open_matrix(f"{folder}/X.npy") as opened:
    ...         d = relunmd.decompose(opened.X, rank=3, random_state=0)
    >>> opened.format, d.shape
    ('NumPy array', (10, 10))
    """
    if str(path) in ("-", "/dev/stdin"):
        raise InputError("A matrix must be in a file. Got the standard input; write it to a file first.")
    place = check_path("path", path)
    with ExitStack() as stack:
        with _told(place), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of what odd headers mean; what counts is said.
            form = _recognised(place)
            bounds = Bounds(place, _stored_bytes(place))
            entries = _entries(form, place, bounds, names, stack)
            entry = chosen(place, entries, array, form.usual)
            X = entry.load()
            if array is None and len(entries) > 1:
                entry = replace(entry, note=f"{entry.name!r} is taken, of {len(entries)} arrays")
        yield Opened(place, form.name, entry, tuple(entries), X)


def _entries(form: _Format, place: Path, bounds: Bounds, names: str | None, stack: ExitStack) -> list[Entry]:
    """What a file of that kind holds; it stays open as long as the stack where it is read later."""
    if names is not None and (form is not _TEXT or names not in text_tables.NAMES):
        allowed = f"one of {', '.join(text_tables.NAMES)}" if form is _TEXT else f"left out for a {form.name} file"
        raise InputError(f"names must be {allowed}. Got {names!r}.")
    if form is _TEXT:
        return text_tables.text_entries(place, bounds, names)
    if form.entries is None:
        return hdf5.hdf5_entries(place, bounds, stack)
    return form.entries(place, bounds)


@contextmanager
def _told(place: Path) -> Iterator[None]:
    """Whatever a file makes its reader raise, as one sentence that can be printed."""
    name = printable(place)
    try:
        yield
    except RelunmdError as reason:
        if str(reason).isprintable():
            raise
        raise type(reason)(printable(reason)) from reason
    except FileNotFoundError as reason:
        if place.exists():
            raise FileError(f"{name} is not complete: {_first_line(reason)}.") from reason
        raise FileError(f"There is no file {name}.") from reason
    except MemoryError as reason:
        raise FileError(f"{name} cannot be read: there is too little memory.") from reason
    except PermissionError as reason:
        raise FileError(f"{name} cannot be read: {_first_line(reason)}.") from reason
    except Exception as reason:
        raise FileError(f"{name} is damaged, or not what its name says: {_first_line(reason)}.") from reason


def _first_line(reason: Exception) -> str:
    """An exception's words in one line, which may have come from anywhere."""
    line = printable(" ".join((str(reason).splitlines() or [""])[0].split()))
    return f"{line[:300].rstrip('. :')}" if line else type(reason).__name__


def _stored_bytes(place: Path) -> int:
    if not place.is_dir():
        return place.stat().st_size
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def _recognised(place: Path) -> _Format:
    """What kind of file it is."""
    if place.is_dir():
        return _folder(place)
    if not place.is_file():
        place.stat()  # Raises if it is not there.
        raise FileError(f"{place} must be a file or a folder. It is a device, a pipe or a socket.")
    if place.stat().st_size == 0:
        raise FileError(f"{place} is empty.")
    name = place.name.lower()
    if name.endswith(_SPREADSHEETS):
        raise FileError(f"{place} is a spreadsheet; save it as .csv first.")
    packed = is_packed(place)
    with unpacked(place, 1 << 22) as stream:
        beginning = stream.read(_BEGINNING)
    found = _by_content(place, beginning, name.removesuffix(".gz") if packed else name)
    if found is None:
        by_name = next((form for form in _FORMATS if name.removesuffix(".gz").endswith(form.suffixes or "\0")), None)
        if by_name is None:
            raise FileError(f"{place} must be one of {_KNOWN}. Neither its name nor its content is of these.")
        raise FileError(
            f"{place} must be a {by_name.name} file by its name. Its content is not: it begins with {beginning[:12]!r}."
        )
    if packed and not found.packed:
        raise FileError(f"{place} is a {found.name} file packed by gzip; unpack it first.")
    return found


def _by_content(place: Path, beginning: bytes, name: str) -> _Format | None:
    signs = (
        (b"\x93NUMPY", _NPY),
        (b"PK\x03\x04", _NPZ),
        (b"PK\x05\x06", _NPZ),
        (matlab.VERSION_7_3, _MAT_7_3),
        (matlab.VERSION_5, _MAT_5),
        (b"PAR1", _PARQUET),
        (hdf5.SIGNATURE, _H5AD if name.endswith(".h5ad") else _HDF5),
    )
    for sign, form in signs:
        if beginning.startswith(sign):
            return form
    if beginning[: len(matrix_market.BANNER)].lower() == matrix_market.BANNER.lower():
        return _MTX
    if hdf5.has_signature(place):
        return _H5AD if name.endswith(".h5ad") else _HDF5
    if idx.looks_like_idx(beginning):
        return _IDX
    if name.endswith(".mat") and beginning[124:128] in (b"\x00\x01IM", b"\x01\x00MI"):
        return _MAT_5  # Its first 116 bytes may say anything.
    named = next((form for form in _FORMATS if name.endswith(form.suffixes or "\0")), None)
    if named is _TEXT or (named is None and text_tables.looks_like_table(beginning)):
        return _TEXT if text_tables.looks_like_text(beginning) else None
    return None


def _folder(place: Path) -> _Format:
    if zarr_stores.is_zarr(place):
        return _ZARR
    if image_files.image_files(place):
        return _IMAGES
    if place.suffix == ".zarr":
        raise FileError(f"{place} must be a Zarr store. It has no zarr.json, .zarray or .zgroup.")
    raise InputError(
        f"{place} is a folder that is no Zarr store and has no images in it. Name a file, or one of {_KNOWN}."
    )
