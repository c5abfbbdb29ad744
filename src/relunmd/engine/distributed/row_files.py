"""Files with the rows of a checkpoint: one file per part of X, written by the worker that owns it.

They are in a folder beside the checkpoint, ``run.npz.rows/<12 hexadecimal digits>/part-000000.npz``.
"""

import logging
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from relunmd.errors import FileError
from relunmd.io.archive import read_archive, write_archive

log = logging.getLogger("relunmd")
_KIND, _VERSION = "rows", 1
_FOLDER = re.compile("[0-9a-f]{12}")
_FILE = re.compile(r"part-[0-9]{6,}\.npz|\.relunmd-[0-9a-f]{8}-[0-9a-f]{12}\.partial")


def new_folder(checkpoint: Path) -> str:
    """Return the name of a new folder, relative to that of the checkpoint."""
    return f"{checkpoint.name}.rows/{secrets.token_hex(6)}"


def _part_file(folder: str, part: int) -> Path:
    return Path(folder) / f"part-{part:06d}.npz"


def write_part(folder: str, part: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the rows of one part."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_archive(_part_file(folder, part), _KIND, _VERSION, {"part": part}, arrays)


def read_part(folder: str, part: int) -> dict[str, NDArray[Any]]:
    """Return the rows of one part; raise FileError if the file is damaged or contains another part."""
    place = _part_file(folder, part)
    about, arrays = read_archive(place, _KIND, _VERSION)
    if about["part"] != part:
        raise FileError(f"{place} must contain part {part} of a checkpoint; got part {about['part']}.")
    return arrays


def remove_other_rows(place: Path, about: Mapping[str, Any] | None) -> None:
    """Remove the rows of earlier checkpoints.

    Only folders with a name and files as written by this module are removed. Symbolic links are not followed.

    Parameters
    ----------
    place : Path
        The checkpoint.
    about : mapping or None
        What `ClusterExecutor.write_rows` returned for the rows to keep.
    """
    home = place.with_name(f"{place.name}.rows")
    current = Path(about["folder"]).name if about else None
    if home.is_symlink():
        log.warning("%s is a symbolic link; rows of earlier checkpoints in it are not removed", home)
        return
    try:
        for folder in home.iterdir():
            if folder.name != current and _is_row_folder(folder):
                shutil.rmtree(folder)
    except OSError as reason:
        log.warning("Rows of earlier checkpoints in %s could not be removed: %s", home, reason)


def _is_row_folder(folder: Path) -> bool:
    """Return whether the name and all files of a folder are as written by this module."""
    if not _FOLDER.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
        return False
    return all(_FILE.fullmatch(file.name) and file.is_file() and not file.is_symlink() for file in folder.iterdir())
