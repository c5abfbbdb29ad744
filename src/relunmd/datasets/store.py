"""Where files of data are found, and how they come there.

A file that a user has put into place is taken as it is. What is downloaded must have the hash
noted here; it is written beside its place and renamed, so a broken download leaves nothing behind.
"""

import hashlib
import logging
import os
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO

from relunmd.errors import DatasetError
from relunmd.io.atomic import write_beside

__all__ = ["RemoteFile", "cache_folder", "find", "find_in", "folders", "get"]

log = logging.getLogger("relunmd")

VARIABLE = "RELUNMD_DATA"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class RemoteFile:
    """A file by its place within the data folder, where it comes from, and its SHA-256."""

    path: str
    source: str
    sha256: str
    url: str | None = None


def cache_folder() -> Path:
    """Where downloads are kept: RELUNMD_CACHE, or relunmd in the user's folder for caches."""
    if given := os.environ.get("RELUNMD_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "relunmd"


def folders(data: str | os.PathLike[str] | None) -> list[Path]:
    """The folders that are looked through, in order."""
    named = [data, os.environ.get(VARIABLE)]
    return [Path(folder) for folder in named if folder] + [cache_folder()]


def find(path: str, data: str | os.PathLike[str] | None = None) -> Path | None:
    """The file at that place in the first folder that has it, with or without its subfolder."""
    return next((place for folder in folders(data) if (place := find_in(folder, path)) is not None), None)


def find_in(folder: Path, path: str) -> Path | None:
    """The file at that place in this folder, with or without its subfolder."""
    return next((place for place in (folder / path, folder / Path(path).name) if place.is_file()), None)


def get(file: RemoteFile, data: str | os.PathLike[str] | None = None, download: bool = True) -> Path:
    """The file, downloaded if need be; DatasetError says how to get it otherwise."""
    place = find(file.path, data)
    if place is not None:
        return place
    how = f"Get {Path(file.path).name} from {file.source}, put it into a folder as {file.path}, and name that folder"
    how = f"{how} in {VARIABLE} (or as `data`)."
    if file.url is None or not download:
        raise DatasetError(f"{file.path} is in none of {_listed(folders(data))}. {how}")
    try:
        return _download(file, cache_folder() / file.path)
    except (OSError, HTTPException) as reason:
        raise DatasetError(
            f"{file.path} is in none of {_listed(folders(data))} and could not be downloaded ({reason}). {how}"
        ) from reason


def _listed(places: list[Path]) -> str:
    return ", ".join(str(place) for place in places)


def _download(file: RemoteFile, place: Path) -> Path:
    if file.url is None or not file.url.startswith("https://"):
        raise DatasetError(f"{file.path} must come from an https address. Got {file.url!r}.")
    log.info("Downloading %s", file.url)
    digest = hashlib.sha256()

    def write(out: IO[bytes]) -> None:
        with urllib.request.urlopen(file.url, timeout=30) as answer:  # type: ignore[arg-type]  # noqa: S310
            while chunk := answer.read(_CHUNK):
                digest.update(chunk)
                out.write(chunk)
        if digest.hexdigest() != file.sha256:
            raise OSError(f"what came from {file.url} has SHA-256 {digest.hexdigest()} and not {file.sha256}")

    place.parent.mkdir(parents=True, exist_ok=True)
    write_beside(place, write)
    return place
