"""Find data files in folders, and download missing ones with pooch.

A file that a user has put into a folder is used as it is. A downloaded file must have the SHA-256 given here; pooch
writes it atomically, so a failed download leaves nothing behind.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from relunmd.errors import DatasetError

log = logging.getLogger("relunmd")
Folder = str | os.PathLike[str] | None
Content = TypeVar("Content")
VARIABLE = "RELUNMD_DATA"
_SECONDS = 30


@dataclass(frozen=True)
class RemoteFile:
    """A data file.

    Attributes
    ----------
    path : str
        Its path within a data folder.
    source : str
        Where it comes from, for error messages.
    sha256 : str
    url : str or None
        None if it cannot be downloaded.
    """

    path: str
    source: str
    sha256: str
    url: str | None = None


def cache_folder() -> Path:
    """Return the folder for downloads: RELUNMD_CACHE, or relunmd in the user's cache folder."""
    if given := os.environ.get("RELUNMD_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "relunmd"


def folders(data: Folder) -> list[Path]:
    """Return the folders that are searched, in order: `data`, RELUNMD_DATA and the cache."""
    return [Path(folder) for folder in (data, os.environ.get(VARIABLE), cache_folder()) if folder]


def find(path: str, data: Folder = None) -> Path | None:
    """Return the file in the first folder that has it, with or without its subfolder; None if no folder has it."""
    return next((place for folder in folders(data) if (place := find_in(folder, path)) is not None), None)


def find_in(folder: Path, path: str) -> Path | None:
    """Return the file in this folder, with or without its subfolder; None if it is missing."""
    return next((place for place in (folder / path, folder / Path(path).name) if place.is_file()), None)


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Raise a DatasetError that says what a file must be, since readers raise various exceptions on damaged files."""
    try:
        yield
    except Exception as reason:
        raise DatasetError(f"{path} must be {what}: {reason}") from reason


def get(file: RemoteFile, data: Folder = None, download: bool = True) -> Path:
    """Return the path of a file, downloaded if necessary; the message of a DatasetError says how to get it."""
    place, url = find(file.path, data), file.url
    if place is not None:
        return place
    remedy = f"Get {Path(file.path).name} from {file.source}, save it as {file.path} in a folder"
    call = None if url is None or not download else lambda: _download(url, file.sha256, cache_folder() / file.path)
    return downloaded(file.path, data, call, remedy)


def downloaded(what: str, data: Folder, download: Callable[[], Content] | None, remedy: str) -> Content:
    """Return what `download` returns; raise a DatasetError with a remedy if it fails or is None."""
    missing = f"{what} is in none of {', '.join(map(str, folders(data)))}"
    remedy = f"{remedy}, and pass that folder as {VARIABLE} (or as `data`)."
    if download is None:
        raise DatasetError(f"{missing}. {remedy}")
    try:
        return download()
    except Exception as reason:
        raise DatasetError(f"{missing} and could not be downloaded ({reason}). {remedy}") from reason


def _download(url: str, sha256: str, target: Path) -> Path:
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)  # It prints.
    log.info("Downloading %s", url)
    try:
        downloader = pooch.HTTPDownloader(timeout=_SECONDS)
        return Path(pooch.retrieve(url, f"sha256:{sha256}", target.name, target.parent, downloader=downloader))
    finally:
        logger.setLevel(level)
