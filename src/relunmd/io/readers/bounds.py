"""Limits on the memory that a file may request, so that a small file cannot claim or decompress to gigabytes.

A file may take 256 MB, or a hundred times its own size if that is more, and never more than the available memory.
An array that is read in pieces may be a thousand times as large as its file, since that takes time but no memory.
"""

import gzip
from pathlib import Path
from typing import IO

from relunmd import memory
from relunmd._util import printable
from relunmd.errors import FileError
from relunmd.memory import human_bytes

_FREE, _TIMES = 2**28, 100
_FREE_PIECEMEAL, _TIMES_PIECEMEAL = 2**30, 1000
_FREE_TEXT = 2**26
_FREE_PIECES, _BYTES_A_PIECE = 2**16, 2**11
_SUSPICIOUS = "the file is damaged or malicious. If you trust it, decompress it or use larger chunks or another format."
_REMEDY = "Convert it to .npy, .h5 or .zarr, which are read in parts."


class Bounds:
    """The limits for one file or folder.

    Parameters
    ----------
    place : Path
        The file or folder.
    stored : int
        Its size in bytes.
    complete : bool, default=True
        False if `stored` counts only some of the files of a folder; then only memory is limited.

    Examples
    --------
    >>> Bounds(Path("X.npy"), 1000).memory(10**6, "its array")
    >>> Bounds(Path("X.npy"), 1000).memory(10**12, "its array")
    Traceback (most recent call last):
    relunmd.errors.FileError: X.npy has 1 kB, but its array would take 1 TB: the file is damaged or malicious. ...
    """

    def __init__(self, place: Path, stored: int, complete: bool = True) -> None:
        self.place = place
        self.stored = stored
        self._complete = complete

    @property
    def most_memory(self) -> int:
        """The largest number of bytes that `memory` accepts."""
        available = memory.available_bytes()
        return self._most if available is None else max(_FREE, min(self._most, available))

    @property
    def _most(self) -> int:
        return max(_FREE, _TIMES * self.stored)

    def memory(self, needed: int, what: str) -> None:
        """Raise FileError if `needed` bytes are out of proportion to the file, InsufficientMemoryError if too many."""
        self._check(needed, self._most, f"{what} would take {human_bytes(needed)}")
        if needed > _FREE:
            memory.require(needed, f"{what[0].upper()}{what[1:]} in {self.place}", _REMEDY)

    def piecemeal(self, size: int, what: str) -> None:
        """Raise FileError if an array that is read in pieces is out of proportion to the file."""
        if self._complete:
            most = max(_FREE_PIECEMEAL, _TIMES_PIECEMEAL * self.stored)
            self._check(size, most, f"{what} would take {human_bytes(size)}")

    def pieces(self, count: int, at_once: int, what: str) -> None:
        """Raise FileError if an array has more chunks than the file can store, or too many are read at once."""
        if self._complete:
            self._check(count, max(_FREE_PIECES, self.stored), f"{what} has {count} chunks")
        self.memory(_BYTES_A_PIECE * at_once, f"reading {at_once} chunks of {what}")

    def text(self, times: int = _TIMES) -> int:
        """Return the number of bytes that a compressed text file may decompress to."""
        return max(_FREE_TEXT, times * self.stored)

    def _check(self, claimed: int, most: int, claim: str) -> None:
        if claimed > most:
            raise FileError(f"{self.place} has {human_bytes(self.stored)}, but {claim}: {_SUSPICIOUS}")


def check_regular(place: Path) -> None:
    """Raise FileError unless there is a regular file: opening a pipe may block, reading a device may never end."""
    if not place.is_file():
        raise FileError(
            f"{printable(place)} must be a regular file. It is missing, a folder, a device, a pipe or a socket."
        )


def is_gzip(place: Path) -> bool:
    """Return whether a file is compressed by gzip."""
    with place.open("rb") as raw:
        return raw.read(2) == b"\x1f\x8b"


def opened(place: Path) -> IO[bytes]:
    """Open a file, decompressed if it is compressed by gzip."""
    return gzip.open(place) if is_gzip(place) else place.open("rb")  # type: ignore[return-value]


def text_length(place: Path, most: int) -> int:
    """Return the number of bytes of a text file, decompressed; FileError if it is above `most`.

    Decompressing takes a tenth of the time of parsing, so a file that is too large is rejected early.
    """
    if not is_gzip(place):
        return place.stat().st_size
    length = 0
    with opened(place) as stream:
        while part := stream.read(1 << 20):
            length += len(part)
            if length > most:
                raise FileError(f"{place} decompresses to more than {human_bytes(most)}: {_SUSPICIOUS}")
    return length
