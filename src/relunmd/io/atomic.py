"""Files that are whole or not there: written beside their place, seen onto the disk and renamed."""

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

__all__ = ["check_path", "remove_partials", "write_beside", "write_folder_beside", "writing"]

_PARTIAL = ".partial"


def check_path(name: str, path: Any) -> Path:
    """An argument as the absolute path of a file; of that itself where it is a link, which a rename would replace."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(f"{name} must be the path of a file. Got {path!r}.")
    try:
        place = Path(os.fsdecode(path)).absolute()
        place = place.resolve() if place.is_symlink() else place
        if "\0" in str(place):
            raise ValueError("a null byte")
    except (OSError, ValueError, RuntimeError) as reason:  # Too long a name, a loop of links.
        raise InputError(f"{name} must be the path of a file. Got {path!r}: {reason}.") from reason
    if place.name in ("", ".."):
        raise InputError(f"{name} must be the path of a file, not of a folder. Got {path!r}.")
    return place


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """What the file system refuses, as a sentence that names the file."""
    try:
        yield
    except RelunmdError:
        raise
    except OSError as reason:
        why = reason.strerror or reason
        raise FileError(f"{printable(place)} could not be written: {why}. What was there is as it was.") from reason


def write_beside(place: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file under another name and rename it once it is complete and on the disk.

    A failure leaves what was at `place` as it was, and nothing beside it; a kill may leave a file that
    `remove_partials` finds. Who may read what was there may read the new file. Raises FileError if there is something
    else than a regular file.
    """
    if place.exists() and not place.is_file():
        raise FileError(f"{printable(place)} could not be written: it exists and is {_kind(place)}; name a file.")
    beside = place.with_name(f"{_beginning(place)}{secrets.token_hex(6)}{_PARTIAL}")
    try:
        with beside.open("x+b") as out:
            if place.exists():
                with suppress(OSError):  # Not every file system knows of it.
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
    """The same for a folder: what was at `place` is put aside and removed once the new one is there.

    Between two renames there is neither; a kill just then leaves the old one beside, under a hidden name. Raises
    FileError if there is something else than a folder.
    """
    if place.exists() and not place.is_dir():
        raise FileError(f"{printable(place)} could not be written: it exists and is {_kind(place)}; name a folder.")
    beside = place.with_name(f"{_beginning(place)}{secrets.token_hex(6)}{_PARTIAL}")
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
    """Remove what a killed `write_beside` of this place left behind.

    Should another process be writing there just now, its rename fails, and that is all that happens to it.
    """
    for found in place.parent.glob(f"{_beginning(place)}*{_PARTIAL}"):
        found.unlink(missing_ok=True)


def _kind(place: Path) -> str:
    if place.is_dir():
        return "a folder"
    return "a file" if place.is_file() else "a device, a pipe or a socket"


def _beginning(place: Path) -> str:
    """How what is written beside a place is called: of the same length for any name, as file systems have a limit."""
    return f".relunmd-{zlib.crc32(os.fsencode(place.name)):08x}-"


def _sync_folder(folder: Path) -> None:
    """See the new name onto the disk too, where the system lets a folder be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:  # Some file systems have nothing to sync there.
        pass
    finally:
        os.close(descriptor)
