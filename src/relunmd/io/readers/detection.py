"""Open a matrix file: detect its format, describe the arrays in it, and choose X."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from scipy.sparse import issparse

from relunmd._util import printable
from relunmd.errors import FileError, InputError, RelunmdError
from relunmd.io.atomic import check_path
from relunmd.io.readers import hdf5, idx, images, matlab, matrix_market, numpy_files, parquet, text_tables, zarr_stores
from relunmd.io.readers.bounds import Bounds, is_gzip, opened
from relunmd.io.readers.contents import Entry, choose

_BEGINNING = 1 << 10
_MOST_COUNTED = 1000
_SPREADSHEETS = (".xlsx", ".xls", ".ods")


@dataclass(frozen=True)
class _Format:
    """A file format.

    Attributes
    ----------
    name : str
    suffixes : tuple of str
    entries : callable
        The reader; it takes further arguments for text tables and HDF5.
    signatures : tuple of bytes
        What such files begin with.
    gzip : bool
        Whether files may be compressed by gzip.
    default : str or None
        The name of X in such files.
    """

    name: str
    suffixes: tuple[str, ...]
    entries: Callable[..., list[Entry]]
    signatures: tuple[bytes, ...] = ()
    gzip: bool = False
    default: str | None = None


_NPY = _Format("NumPy array", (".npy",), numpy_files.npy_entries, (b"\x93NUMPY",))
_NPZ = _Format("NumPy archive", (".npz",), numpy_files.npz_entries, (b"PK\x03\x04", b"PK\x05\x06"))
_MTX = _Format("Matrix Market", (".mtx",), matrix_market.matrix_market_entries, gzip=True)
_MAT_5 = _Format("MATLAB, version 5 to 7", (".mat",), matlab.matlab_5_entries, (b"MATLAB 5.0 MAT-file",))
_MAT_7_3 = _Format("MATLAB, version 7.3", (".mat",), matlab.matlab_7_3_entries, (b"MATLAB 7.3 MAT-file",))
_TEXT = _Format("text table", (".csv", ".tsv", ".txt"), text_tables.text_entries, gzip=True)
_PARQUET = _Format("Parquet", (".parquet", ".pq"), parquet.parquet_entries, (b"PAR1",))
_HDF5 = _Format("HDF5", (".h5", ".hdf5", ".hdf"), hdf5.hdf5_entries)
_H5AD = _Format("AnnData", (".h5ad",), hdf5.hdf5_entries, default="X")
_IDX = _Format("IDX", (".idx", "-ubyte"), idx.idx_entries, gzip=True)
_ZARR = _Format("Zarr", (".zarr",), zarr_stores.zarr_entries)
_IMAGES = _Format("folder of images", (), images.image_entries)

_FORMATS = (_NPY, _NPZ, _MTX, _MAT_5, _MAT_7_3, _TEXT, _PARQUET, _HDF5, _H5AD, _IDX, _ZARR, _IMAGES)
_KNOWN = ".npy, .npz, .mtx(.gz), .mat, .csv(.gz), .tsv(.gz), .parquet, .h5, .hdf5, .h5ad, .zarr, IDX, folders of images"


@dataclass(frozen=True)
class Opened:
    """Hold an open matrix file.

    Attributes
    ----------
    place : Path
        The file or folder.
    format : str
        The name of the file format.
    entry : Entry
        The array that X is.
    entries : tuple of Entry
        All arrays in the file.
    X : ndarray, memmap, sparse matrix, HDF5 dataset, Zarr array or group
        The matrix, in a form that `decompose` accepts.

    Examples
    --------
    >>> import tempfile, numpy as np, relunmd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/data.npz", counts=np.eye(10), labels=np.arange(10))
    ...     with relunmd.open_matrix(f"{folder}/data.npz") as opened:
    ...         print(opened.format, opened.entry.name, opened.X.shape, len(opened.entries))
    NumPy archive counts (10, 10) 2
    """

    place: Path
    format: str
    entry: Entry
    entries: tuple[Entry, ...]
    X: Any


@contextmanager
def open_matrix(path: str | os.PathLike[str], array: str | None = None, names: str | None = None) -> Iterator[Opened]:
    """Open a matrix file of any supported format.

    The format is detected from the content first, then from the extension; gzip compression is detected too.

    Parameters
    ----------
    path : str or path-like
        A file, a Zarr store, or a folder of gray images of one size.
    array : str, default=None
        Name of the array to use if the file holds several.
    names : {"none", "columns", "rows", "both"}, default=None
        Only for text tables: whether the first line (columns) and the first column (rows) are names, which are left
        out. By default this is guessed, logged at level INFO, and described in ``Opened.entry.note``.

    Yields
    ------
    Opened
        The matrix ``X``, the file format, and the arrays in the file. What can stay in the file (.npy, HDF5, Zarr) is
        read while it is used, so the file stays open until the end of the ``with`` block.

    Raises
    ------
    FileError
        If the file is missing, damaged, or its size is out of proportion to what it claims to hold.
    InputError
        If an argument is invalid, or the file holds several matrices and `array` is not given.

    Examples
    --------
    >>> import tempfile, numpy as np, relunmd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/X.npy", np.eye(10, dtype=np.float32))
    ...     with relunmd.open_matrix(f"{folder}/X.npy") as opened:
    ...         d = relunmd.decompose(opened.X, rank=3, random_state=0)
    >>> opened.format, d.shape
    ('NumPy array', (10, 10))
    """
    if str(path) in ("-", "/dev/stdin"):
        raise InputError("A matrix must be in a file. Got the standard input; write it to a file first.")
    place = check_path("path", path)
    with ExitStack() as stack:
        with _file_errors(place), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # About unusual headers.
            form = _detect(place)
            if names is not None and (form is not _TEXT or names not in text_tables.NAMES):
                one_of = f"one of {', '.join(text_tables.NAMES)}"
                allowed = one_of if form is _TEXT else f"omitted for a {form.name} file"
                raise InputError(f"names must be {allowed}. Got {names!r}.")
            further = {_TEXT: (names,), _HDF5: (stack,), _H5AD: (stack,)}.get(form, ())
            entries = form.entries(place, _bounds(place), *further)
            entry = choose(place, entries, array, form.default)
            X = entry.load()
            if issparse(X) and entry.stored == "array":  # SciPy does not list which logical MATLAB matrices are sparse.
                entry = replace(entry, stored=f"sparse, {X.format.upper()}")
            if array is None and len(entries) > 1:
                entry = replace(entry, note=f"{entry.name!r} is used, one of {len(entries)} arrays")
        yield Opened(place, form.name, entry, tuple(entries), X)


@contextmanager
def _file_errors(place: Path) -> Iterator[None]:
    """Raise a FileError with one printable sentence for any exception of a reader."""
    name = printable(place)
    try:
        yield
    except RelunmdError as reason:
        text = printable(reason)
        if text == str(reason):
            raise
        raise type(reason)(text) from reason
    except FileNotFoundError as reason:
        if place.exists():
            raise FileError(f"{name} is incomplete: {_first_line(reason)}.") from reason
        raise FileError(f"There is no file {name}.") from reason
    except (PermissionError, MemoryError) as reason:
        why = _first_line(reason) if str(reason) else "there is too little memory"
        raise FileError(f"{name} cannot be read: {why}.") from reason
    except Exception as reason:
        raise FileError(f"{name} is damaged, or its extension is wrong: {_first_line(reason)}.") from reason


def _first_line(reason: Exception) -> str:
    line = printable(" ".join((str(reason).splitlines() or [""])[0].split()))
    return line[:300].rstrip(". :") or type(reason).__name__


def _bounds(place: Path) -> Bounds:
    """Return the limits for a file or folder; of a folder at most a thousand files are counted."""
    if not place.is_dir():
        return Bounds(place, place.stat().st_size)
    sizes = list(islice(_file_sizes(place), _MOST_COUNTED))
    return Bounds(place, sum(sizes), complete=len(sizes) < _MOST_COUNTED)


def _file_sizes(folder: str | Path) -> Iterator[int]:
    """Yield the sizes of files in a folder and in its subfolders, listing no more than what is consumed."""
    with os.scandir(folder) as found:
        for file in found:
            if file.is_dir(follow_symlinks=False):
                yield from _file_sizes(file.path)
            elif file.is_file():
                yield file.stat().st_size


def _detect(place: Path) -> _Format:
    """Return the format of a file or folder."""
    if place.is_dir():
        return _detect_folder(place)
    if not place.is_file():
        place.stat()  # Raises FileNotFoundError.
        raise FileError(f"{place} must be a file or a folder. It is a device, a pipe or a socket.")
    if place.stat().st_size == 0:
        raise FileError(f"{place} is empty.")
    name = place.name.lower()
    if name.endswith(_SPREADSHEETS):
        raise FileError(f"{place} is a spreadsheet; save it as .csv first.")
    compressed = is_gzip(place)
    with opened(place) as stream:
        beginning = stream.read(_BEGINNING)
    name = name.removesuffix(".gz")
    named = next((form for form in _FORMATS if name.endswith(form.suffixes)), None)
    found = _detect_content(place, beginning, named)
    if found is None:
        if named is None:
            raise FileError(f"{place} must be one of {_KNOWN}. Neither its name nor its content is.")
        raise FileError(f"{place} must be a {named.name} file by its name. It begins with {beginning[:12]!r}.")
    if compressed and not found.gzip:
        raise FileError(f"{place} is a {found.name} file compressed by gzip; decompress it first.")
    return found


def _detect_content(place: Path, beginning: bytes, named: _Format | None) -> _Format | None:
    for form in _FORMATS:
        if beginning.startswith(form.signatures):
            return form
    if beginning.lower().startswith(matrix_market.BANNER):
        return _MTX
    if hdf5.has_signature(place):
        return _H5AD if named is _H5AD else _HDF5
    if idx.looks_like_idx(beginning):
        return _IDX
    # The first 116 bytes of a MATLAB file are free text; zeros among the first four mean version 4.
    if named is _MAT_5 and beginning[124:128] in (b"\x00\x01IM", b"\x01\x00MI") and 0 not in beginning[:4]:
        return _MAT_5
    if named is _TEXT or (named is None and text_tables.looks_like_table(beginning)):
        return _TEXT if text_tables.looks_like_text(beginning) else None
    return None


def _detect_folder(place: Path) -> _Format:
    if zarr_stores.is_zarr(place):
        return _ZARR
    if images.image_files(place):
        return _IMAGES
    if place.suffix == ".zarr":
        raise FileError(f"{place} must be a Zarr store. It has no zarr.json, .zarray or .zgroup.")
    raise InputError(f"{place} is a folder without a Zarr store or images. Name a file, or one of {_KNOWN}.")
