"""One .npz file with arrays and JSON about them: the format of models and checkpoints.

NumPy opens it too. The JSON (the member "metadata", as bytes) is written last and lists every member with its checksum,
so that a missing, changed, exchanged or added member is detected. Nothing is unpickled, arrays take no more memory than
the file has bytes, and the size of the JSON is bounded.
"""

import json
import platform
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np

from relunmd.errors import FileError, RelunmdError
from relunmd.io.atomic import write_beside
from relunmd.io.npy_format import Array, read_data, read_header, write_array

Metadata = dict[str, Any]

_METADATA = "metadata"
_MOST_METADATA, _MOST_A_MEMBER = 1 << 20, 1 << 8
"""Bytes of JSON, and additional bytes for each listed member; parsed JSON may take thirty times as much memory."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""A constant date, so that the same content gives the same bytes."""


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("relunmd", "numpy", "scipy", "scikit-learn", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def plain(value: Any) -> Any:
    """Return a setting in types that JSON supports; other objects are replaced by their repr.

    >>> import numpy as np
    >>> plain({"a": np.float64(0.5), "b": (1, None)})
    {'a': 0.5, 'b': [1, None]}
    """
    if isinstance(value, np.generic | np.ndarray):  # First, since np.float64 is a float too.
        return plain(value.tolist())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return repr(value)


def count(value: Any, what: str) -> int:
    """Return a nonnegative integer from metadata; ValueError if it is anything else."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{what}: {value!r}")
    return value


def amount(value: Any, what: str) -> float:
    """Return a finite nonnegative number from metadata; ValueError if it is anything else."""
    if type(value) not in (int, float) or not 0 <= float(value) < np.inf:
        raise ValueError(f"{what}: {value!r}")
    return float(value)


def write_archive(place: Path, kind: str, number: int, metadata: Metadata, arrays: Mapping[str, Array]) -> None:
    """Write arrays and metadata to one file, atomically.

    Parameters
    ----------
    place : Path
        The file.
    kind : str
        What the file is, such as "model".
    number : int
        The version of this kind of file.
    metadata : dict
        Anything that JSON supports.
    arrays : dict of str to array
        NumPy or Dask arrays; an array with several names is written once.
    """

    def write(out: IO[bytes]) -> None:
        first_name: dict[int, str] = {}
        same = {}
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as members:
            for name, array in arrays.items():
                if first_name.setdefault(id(array), name) == name:
                    _write_member(members, name, array)
                else:
                    same[name] = first_name[id(array)]
            about = {"format": f"relunmd {kind}", "version": number, "versions": versions(), **metadata, "same": same}
            about["members"] = {_array_name(info): info.CRC for info in members.infolist()}
            text = json.dumps(about, ensure_ascii=False).encode()
            _write_member(members, _METADATA, np.frombuffer(text, np.uint8))

    write_beside(place, write)


def _write_member(members: zipfile.ZipFile, name: str, array: Any) -> None:
    """Write an array as np.savez does, without a copy; a Dask array is written one chunk of rows at a time."""
    in_memory = isinstance(array, np.ndarray)
    fortran_order = in_memory and bool(array.flags.fnc)
    blocks = [array] if in_memory else (array.blocks[i].compute() for i in range(array.numblocks[0]))
    parts = (block if fortran_order else np.ascontiguousarray(block) for block in blocks)
    with members.open(zipfile.ZipInfo(f"{name}.npy", _DATE), "w", force_zip64=True) as out:
        write_array(out, tuple(array.shape), np.dtype(array.dtype), parts, fortran_order)


@contextmanager
def file_errors(place: Path, kind: str, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raise a FileError for any exception while a file is parsed.

    A damaged or malicious file can make the libraries that read it raise anything. Exceptions of the types in `but` are
    unrelated to the file and are raised unchanged.
    """
    unchanged: tuple[type[Exception], ...] = (RelunmdError, *but)
    try:
        yield
    except unchanged:
        raise
    except FileNotFoundError as reason:
        raise FileError(f"There is no {kind} at {place}.") from reason
    except (OSError, MemoryError) as reason:
        raise FileError(f"The {kind} {place} cannot be read: {reason or 'there is too little memory'}.") from reason
    except Exception as reason:
        raise _invalid(place, kind, f"it is damaged, or something else: {type(reason).__name__}: {reason}") from reason


def kind_of(place: Path) -> str | None:
    """Return what `write_archive` wrote, "model" or "checkpoint"; None for any other file and for damaged ones."""
    try:
        if not place.is_file():  # Reading a pipe may block.
            return None
        with place.open("rb") as raw, zipfile.ZipFile(raw) as members:
            found = _read_metadata(members, {_array_name(info): info for info in members.infolist()}).get("format")
    except Exception:  # The caller reports what is wrong with the file.
        return None
    return found.removeprefix("relunmd ") if found in ("relunmd model", "relunmd checkpoint") else None


def read_archive(place: Path, kind: str, newest: int) -> tuple[Metadata, dict[str, Array]]:
    """Read a file of `write_archive`.

    Parameters
    ----------
    place : Path
        The file.
    kind : str
        What the file must be, such as "model".
    newest : int
        The newest supported version of this kind.

    Returns
    -------
    metadata : dict
    arrays : dict of str to ndarray

    Raises
    ------
    FileError
        If the file is missing, damaged, of another kind or of a later version.
    """
    if place.exists() and not place.is_file():
        raise _invalid(place, kind, "it is not a file")
    with file_errors(place, kind), place.open("rb") as raw:
        size = raw.seek(0, 2)
        if not zipfile.is_zipfile(raw):
            raise _invalid(place, kind, "it is not a .npz file, or it is truncated")
        with zipfile.ZipFile(raw) as members:
            infos = {_array_name(info): info for info in members.infolist()}
            if len(infos) != len(members.infolist()) or sum(info.file_size for info in infos.values()) > size:
                raise _invalid(place, kind, "its members contradict each other")
            if _METADATA not in infos:
                raise _invalid(place, kind, f"it has no member {_METADATA!r}")
            metadata = _read_metadata(members, infos)
            _check_version(place, kind, newest, metadata)
            del infos[_METADATA]
            if {name: info.CRC for name, info in infos.items()} != metadata["members"]:
                raise _invalid(place, kind, "some of its members are missing, changed or exchanged")
            arrays = {name: _read_member(members, info) for name, info in infos.items()}
            arrays |= {name: arrays[other] for name, other in metadata["same"].items()}
    return metadata, arrays


def _invalid(place: Path, kind: str, why: str) -> FileError:
    return FileError(f"{place} must be a {kind} as relunmd writes it, but {why}.")


def _check_version(place: Path, kind: str, newest: int, metadata: Metadata) -> None:
    found, number = metadata.get("format"), metadata.get("version")
    if found != f"relunmd {kind}":
        other = f"a {found}" if isinstance(found, str) and found.startswith("relunmd ") else "something else"
        raise _invalid(place, kind, f"it is {other}")
    if type(number) is not int or number < 1:
        raise _invalid(place, kind, f"its version is {number!r}")
    if number > newest:
        raise FileError(
            f"{place} is a {kind} of version {number}; this relunmd ({versions()['relunmd']}) reads versions up to "
            f"{newest}. Read it with relunmd {metadata['versions']['relunmd']}, which wrote it, or later."
        )


def _array_name(info: zipfile.ZipInfo) -> str:
    return info.filename.removesuffix(".npy")


def _read_metadata(members: zipfile.ZipFile, infos: Mapping[str, zipfile.ZipInfo]) -> Metadata:
    info = infos[_METADATA]
    if info.file_size > _MOST_METADATA + _MOST_A_MEMBER * len(infos):
        raise ValueError(f"it has {info.file_size} bytes of metadata")
    metadata = json.loads(_read_member(members, info).tobytes())
    if not isinstance(metadata, dict):
        raise TypeError("the metadata is not a JSON object")
    return metadata


def _read_member(members: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """Read an array; its size is checked before memory is allocated."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"the member {info.filename} is compressed")
    with members.open(info) as content:
        header = read_header(content)
        if header.dtype.kind not in "biuf" or not header.dtype.isnative:
            raise ValueError(f"the member {info.filename} has dtype {header.dtype}")
        if header.nbytes != info.file_size - content.tell():
            raise ValueError(f"the size of the member {info.filename} does not match its shape {header.shape}")
        return read_data(content, header)  # The checksum is verified with the last byte.
