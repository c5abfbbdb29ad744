"""One .npz file with arrays and JSON about them: the form of models and of checkpoints.

NumPy opens it too. The JSON (the member "metadata", bytes) is written last and names every member with its checksum:
a file of which a part is missing, changed, exchanged or added is told apart from a whole one. Nothing is unpickled,
arrays take no more memory than the file has bytes, and the JSON is bounded.
"""

import json
import platform
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import FileError, RelunmdError
from relunmd.io.atomic import write_beside

__all__ = ["amount", "count", "damage_told", "kind_of", "plain", "read_archive", "versions", "write_archive"]

Array = NDArray[Any]
Metadata = dict[str, Any]

_METADATA = "metadata"
_MOST_METADATA, _MOST_A_MEMBER = 1 << 20, 1 << 8
"""Bytes of JSON, and how many more for each member that it names; parsed they may take thirty times as much."""
_CHUNK = 1 << 20
"""Bytes written at a time: 4 MiB took 1.5 times as much of the processors as one, 128 KiB 1.2 times."""
_WHEN = (1980, 1, 1, 0, 0, 0)
"""The same content gives the same bytes."""


def versions() -> dict[str, str]:
    """The versions that results depend on."""
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
    """A setting as JSON has it; what JSON has no form for is described.

    >>> import numpy as np
    >>> plain({"a": np.float64(0.5), "b": (1, None)})
    {'a': 0.5, 'b': [1, None]}
    """
    if isinstance(value, np.generic):  # First, since np.float64 is a float too.
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return repr(value)


def count(value: Any, what: str) -> int:
    """A number from metadata that counts something; an exception if it is none."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{what}: {value!r}")
    return value


def amount(value: Any, what: str) -> float:
    """A finite number of at least zero from metadata; an exception if it is none."""
    if type(value) not in (int, float) or not 0 <= float(value) < np.inf:
        raise ValueError(f"{what}: {value!r}")
    return float(value)


def write_archive(place: Path, kind: str, number: int, metadata: Metadata, arrays: Mapping[str, Array]) -> None:
    """Write arrays and what is said about them; complete or not at all.

    Parameters
    ----------
    kind, number : what the file is ("model"), and which version of its form
    arrays : by name; one that goes by several names is written once
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
            about = {
                "format": f"relunmd {kind}",
                "version": number,
                "versions": versions(),
                **metadata,
                "same": same,
                "members": {_array_name(info): info.CRC for info in members.infolist()},
            }
            text = json.dumps(about, ensure_ascii=False).encode()
            _write_member(members, _METADATA, np.frombuffer(text, np.uint8))

    write_beside(place, write)


def _write_member(members: zipfile.ZipFile, name: str, array: Any) -> None:
    """As np.savez does, without a copy; an array of Dask's a chunk of rows at a time."""
    if isinstance(array, np.ndarray):
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            array = np.ascontiguousarray(array)
        header, pieces = np.lib.format.header_data_from_array_1_0(array), iter([array])
    else:
        header = {"descr": np.dtype(array.dtype).str, "fortran_order": False, "shape": tuple(array.shape)}
        pieces = (np.ascontiguousarray(array.blocks[i].compute()) for i in range(array.numblocks[0]))
    with members.open(zipfile.ZipInfo(f"{name}.npy", _WHEN), "w", force_zip64=True) as out:
        np.lib.format.write_array_header_1_0(out, header)
        for piece in pieces:
            if piece.nbytes == 0:
                continue
            content = (piece if piece.flags.c_contiguous else piece.T).reshape(-1).view(np.uint8).data
            for start in range(0, len(content), _CHUNK):
                out.write(content[start : start + _CHUNK])


@contextmanager
def damage_told(place: Path, kind: str, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turns whatever goes wrong while a file is parsed into a FileError.

    A damaged or hostile file can make the libraries that read it raise anything. Exceptions of the types in `but` have
    nothing to do with the file and are raised as they are.
    """
    passed_on: tuple[type[Exception], ...] = (RelunmdError, *but)
    try:
        yield
    except passed_on:
        raise
    except FileNotFoundError as reason:
        raise FileError(f"There is no {kind} at {place}.") from reason
    except (OSError, MemoryError) as reason:
        raise FileError(f"The {kind} {place} cannot be read: {reason or 'there is too little memory'}.") from reason
    except Exception as reason:
        raise FileError(
            f"{place} must be a {kind} as relunmd writes it. It is damaged, or something else: "
            f"{type(reason).__name__}: {reason}."
        ) from reason


def kind_of(place: Path) -> str | None:
    """What `write_archive` wrote there, "model" or "checkpoint"; None for a file of another kind, or a damaged one."""
    try:
        if not place.is_file():  # A pipe would never end.
            return None
        with place.open("rb") as raw, zipfile.ZipFile(raw) as members:
            about = members.getinfo(f"{_METADATA}.npy")
            if about.file_size > _MOST_METADATA + _MOST_A_MEMBER * len(members.infolist()):
                return None
            found = _read_metadata(members, about).get("format")
    except Exception:  # Whoever reads it says what is wrong with it.
        return None
    return found.removeprefix("relunmd ") if found in ("relunmd model", "relunmd checkpoint") else None


def read_archive(place: Path, kind: str, newest: int) -> tuple[Metadata, dict[str, Array]]:
    """What `write_archive` wrote: the metadata and the arrays; FileError for anything else."""
    if place.exists() and not place.is_file():
        raise _foreign(place, kind, "it is no file")
    with damage_told(place, kind), place.open("rb") as raw:
        size = raw.seek(0, 2)
        if not zipfile.is_zipfile(raw):
            raise _foreign(place, kind, "it is no .npz file, or only the beginning of one")
        with zipfile.ZipFile(raw) as members:
            infos = {_array_name(info): info for info in members.infolist()}
            if len(infos) != len(members.infolist()) or sum(info.file_size for info in infos.values()) > size:
                raise _foreign(place, kind, "its members contradict each other")
            if _METADATA not in infos:
                raise _foreign(place, kind, f"it has no member {_METADATA!r}")
            about = infos.pop(_METADATA)
            if about.file_size > _MOST_METADATA + _MOST_A_MEMBER * len(infos):
                raise _foreign(place, kind, f"it has {about.file_size} bytes of metadata")
            metadata = _read_metadata(members, about)
            _check_version(place, kind, newest, metadata)
            if {name: info.CRC for name, info in infos.items()} != metadata["members"]:
                raise _foreign(place, kind, "some of its members are missing, changed or exchanged")
            arrays = {name: _read_member(members, info) for name, info in infos.items()}
            arrays |= {name: arrays[other] for name, other in metadata["same"].items()}
    return metadata, arrays


def _foreign(place: Path, kind: str, why: str) -> FileError:
    return FileError(f"{place} must be a {kind} as relunmd writes it, and {why}.")


def _check_version(place: Path, kind: str, newest: int, metadata: Metadata) -> None:
    found = metadata.get("format")
    if found != f"relunmd {kind}":
        other = f"a {found}" if isinstance(found, str) and found.startswith("relunmd ") else "something else"
        raise _foreign(place, kind, f"it is {other}")
    number = metadata["version"]
    if type(number) is not int or number < 1:
        raise _foreign(place, kind, f"it says that it has version {number!r}")
    if number > newest:
        raise FileError(
            f"{place} is a {kind} of version {number}; this relunmd ({versions()['relunmd']}) reads them up to version "
            f"{newest}. Relunmd {metadata['versions']['relunmd']}, which wrote it, or a later one reads it."
        )


def _array_name(info: zipfile.ZipInfo) -> str:
    return info.filename.removesuffix(".npy")


def _read_metadata(members: zipfile.ZipFile, info: zipfile.ZipInfo) -> Metadata:
    about = json.loads(_read_member(members, info).tobytes())
    if not isinstance(about, dict):
        raise TypeError("the metadata is no JSON object")
    return about


def _read_member(members: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """The array in a member, its size having been checked before it is allocated."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"the member {info.filename} is compressed")
    with members.open(info) as content:
        if np.lib.format.read_magic(content) != (1, 0):
            raise ValueError(f"the member {info.filename} is no array of NumPy's first format")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(content)
        if dtype.kind not in "biuf" or not dtype.isnative:
            raise ValueError(f"the member {info.filename} has dtype {dtype}")
        size = prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or size != info.file_size - content.tell():
            raise ValueError(f"the member {info.filename} has not the size of its shape {shape}")
        raw = np.empty(size, np.uint8)
        filled = 0
        while chunk := content.read(_CHUNK):  # The checksum is looked at when the last byte has been read.
            raw[filled : filled + len(chunk)] = np.frombuffer(chunk, np.uint8)
            filled += len(chunk)
        if filled != size:
            raise EOFError(f"the member {info.filename} ends too early")
    array = raw.view(dtype)
    return array.reshape(shape[::-1]).T if by_columns else array.reshape(shape)
