"""Files that are whole or not there: written beside their place, seen onto the disk and renamed."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from relunmd.errors import FileError, InputError

__all__ = ["check_path", "remove_partials", "write_beside", "writing"]

_PARTIAL = ".partial"


def check_path(name: str, path: Any) -> Path:
    """An argument as the path of a file: of the file itself where it is a link, which a rename would replace."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(f"{name} must be the path of a file. Got {path!r}.")
    place = Path(os.fsdecode(path))
    return place.resolve() if place.is_symlink() else place


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """What the file system refuses, as a sentence that names the file."""
    try:
        yield
    except OSError as reason:
        raise FileError(f"{place} could not be written: {reason}. What was there is as it was.") from reason


def write_beside(place: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file under another name and rename it once it is complete and on the disk.

    A failure leaves what was at `place` as it was, and nothing beside it; a kill may leave a file that
    `remove_partials` finds.
    """
    beside = place.with_name(f".{place.name}.{secrets.token_hex(6)}{_PARTIAL}")
    try:
        with beside.open("xb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(place)
        _sync_folder(place.parent)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def remove_partials(place: Path) -> None:
    """Remove what a killed `write_beside` of this place left behind.

    Should another process be writing there just now, its rename fails, and that is all that happens to it.
    """
    ours, name_length = f".{place.name}.", len(f".{place.name}.") + 12 + len(_PARTIAL)
    for found in place.parent.iterdir():
        if found.name.startswith(ours) and found.name.endswith(_PARTIAL) and len(found.name) == name_length:
            found.unlink(missing_ok=True)


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
