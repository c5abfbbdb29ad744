"""Atomic files and folders: written under another name, flushed to the disk and renamed."""

import os
import secrets
import shutil
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from relunmd._util import printable
from relunmd.errors import FileError, InputError, RelunmdError

_PARTIAL = ".partial"


def check_path(name: str, path: Any) -> Path:
    """Return an argument as an absolute path of a file, with a link resolved, since a rename would replace the link.

    Raises
    ------
    InputError
        If it is not a path, or cannot be the path of a file.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(f"{name} must be the path of a file. Got {path!r}.")
    try:
        place = Path(os.fsdecode(path)).absolute()
        place = place.resolve() if place.is_symlink() else place
        if "\0" in str(place):
            raise ValueError("it has a null byte")
    except (OSError, ValueError, RuntimeError) as reason:  # A name that is too long, a loop of links.
        raise InputError(f"{name} must be the path of a file. Got {path!r}: {reason}.") from reason
    if place.name in ("", ".."):
        raise InputError(f"{name} must be the path of a file, not of a folder. Got {path!r}.")
    return place


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Raise a FileError that names the file if the file system raises an error."""
    try:
        yield
    except RelunmdError:
        raise
    except OSError as reason:
        why = reason.strerror or reason
        raise FileError(f"{printable(place)} could not be written: {why}. It is unchanged.") from reason


def write_beside(place: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically.

    If writing fails, the file is unchanged and nothing is left behind; if the process is killed, a partial file may be
    left, which `remove_partials` removes. The permissions of an existing file are kept.

    Parameters
    ----------
    place : Path
        The file.
    write : callable
        Called with a binary file to write to.

    Raises
    ------
    FileError
        If the path exists and is not a regular file.
    """
    _check_kind(place, place.is_file(), "file")
    beside = place.with_name(f"{_prefix(place)}{secrets.token_hex(6)}{_PARTIAL}")
    try:
        with beside.open("x+b") as out:
            if place.exists():
                with suppress(OSError):  # Not every file system supports it.
                    beside.chmod(stat.S_IMODE(place.stat().st_mode))
            write(out)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(place)
        _sync_folder(place.parent)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_folder_beside(place: Path, write: Callable[[Path], object]) -> None:
    """Write a folder; an existing one is moved aside and removed once the new one is in place.

    Between the two renames neither exists; if the process is killed then, the old one is left under a hidden name.

    Parameters
    ----------
    place : Path
        The folder.
    write : callable
        Called with the path of an empty folder to fill.

    Raises
    ------
    FileError
        If the path exists and is not a folder.
    """
    _check_kind(place, place.is_dir(), "folder")
    beside = place.with_name(f"{_prefix(place)}{secrets.token_hex(6)}{_PARTIAL}")
    aside = beside.with_suffix(".old")
    try:
        beside.mkdir()
        write(beside)
        if place.exists():
            place.rename(aside)
        beside.rename(place)
        _sync_folder(place.parent)
    except BaseException:
        if aside.exists() and not place.exists():
            aside.rename(place)
        shutil.rmtree(beside, ignore_errors=True)
        raise
    if aside.is_dir():
        shutil.rmtree(aside)


def remove_partials(place: Path) -> None:
    """Remove what a killed `write_beside` of this file left behind.

    If another process is writing the file at this moment, its rename fails, without further effect.
    """
    for found in place.parent.glob(f"{_prefix(place)}*{_PARTIAL}"):
        found.unlink(missing_ok=True)


def _check_kind(place: Path, suitable: bool, wanted: str) -> None:
    if place.exists() and not suitable:
        kind = "a folder" if place.is_dir() else "a file" if place.is_file() else "a device, a pipe or a socket"
        raise FileError(f"{printable(place)} could not be written: it exists and is {kind}; name a {wanted}.")


def _prefix(place: Path) -> str:
    """Return the beginning of the names of partial files, of constant length, since file systems limit names."""
    return f".relunmd-{zlib.crc32(os.fsencode(place.name)):08x}-"


def _sync_folder(folder: Path) -> None:
    """Flush the new name to the disk too, if the system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
