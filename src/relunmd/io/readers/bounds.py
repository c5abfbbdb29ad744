"""How much a file may make us take: so that a few bytes that promise, or unpack to, gigabytes are refused.

A file may ask for 256 MB, or for a hundred times its own size if that is more, and never for more than there is.
What is read piece by piece may be a thousand times its size: it costs time and no memory. An array may have 65 536
chunks, or as many as its file has bytes.
"""

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from relunmd import memory
from relunmd._util import printable
from relunmd.errors import FileError
from relunmd.memory import human_bytes

__all__ = ["Bounds", "check_regular", "is_packed", "text_length", "unpacked"]

_GZIP = b"\x1f\x8b"
_FREE, _TIMES = 2**28, 100
_FREE_PIECEMEAL, _TIMES_PIECEMEAL = 2**30, 1000
_FREE_TEXT = 2**26
_FREE_PIECES, _BYTES_A_PIECE = 2**16, 2**11


class Bounds:
    """What the file at a place may ask for.

    >>> Bounds(Path("X.npy"), 1000).memory(10**6, "its array")
    >>> Bounds(Path("X.npy"), 1000).memory(10**12, "its array")
    Traceback (most recent call last):
    relunmd.errors.FileError: X.npy has 1 kB and its array would take 1 TB: it is damaged, or made to do harm. ...
    """

    def __init__(self, place: Path, stored: int) -> None:
        self.place = place
        self.stored = stored

    @property
    def most_memory(self) -> int:
        """The most bytes that `memory` lets the file take at once."""
        available = memory.available_bytes()
        return self._most if available is None else max(_FREE, min(self._most, available))

    @property
    def _most(self) -> int:
        return max(_FREE, _TIMES * self.stored)

    def memory(self, needed: int, what: str) -> None:
        """Refuse to take so many bytes at once if the file is too small for that, or the memory."""
        if needed > self._most:
            raise self._absurd(needed, what)
        if needed > _FREE:
            memory.require(needed, f"{what[0].upper()}{what[1:]} in {self.place}", _REMEDY)

    def piecemeal(self, size: int, what: str) -> None:
        """Refuse what has so many bytes in all, though few at a time are taken, if the file is too small for that."""
        if size > max(_FREE_PIECEMEAL, _TIMES_PIECEMEAL * self.stored):
            raise self._absurd(size, what)

    def pieces(self, count: int, at_once: int, what: str) -> None:
        """Refuse so many chunks, some of which are read at once, if few of them can be stored."""
        if count > max(_FREE_PIECES, self.stored):
            raise FileError(
                f"{self.place} has {human_bytes(self.stored)} and {what} has {count} chunks, which cannot all be "
                "stored: it is damaged, or made to do harm. If it is neither, store it in larger chunks."
            )
        self.memory(_BYTES_A_PIECE * at_once, f"reading {at_once} chunks of {what}")

    def text(self, times: int = _TIMES) -> int:
        """How many bytes of text a packed file may unpack to."""
        return max(_FREE_TEXT, times * self.stored)

    def _absurd(self, needed: int, what: str) -> FileError:
        return FileError(
            f"{self.place} has {human_bytes(self.stored)} and {what} would take {human_bytes(needed)}: it is damaged, "
            "or made to do harm. If it is neither, unpack it first, or store it in another form."
        )


_REMEDY = "As .npy, .h5 or .zarr it would be read a part at a time."


class _Unpacking(io.RawIOBase):
    """The content of a gzip file, up to a limit."""

    def __init__(self, packed: gzip.GzipFile, place: Path, most: int) -> None:
        self._packed = packed
        self._place = place
        self._left = most
        self._most = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._packed.read(min(len(buffer), 1 << 20))
        self._left -= len(part)
        if self._left < 0:
            raise FileError(
                f"{self._place} unpacks to more than {human_bytes(self._most)}, a hundred times its size or so: it may "
                "be made to do harm. If you trust it, unpack it first."
            )
        buffer[: len(part)] = part
        return len(part)


def check_regular(place: Path) -> None:
    """Raise FileError if there is no regular file: opening a pipe may block, and reading a device may never end."""
    if not place.is_file():
        raise FileError(
            f"{printable(place)} must be a regular file. It is missing, a folder, a device, a pipe or a socket."
        )


def is_packed(place: Path) -> bool:
    """Whether a file is gzip's."""
    with place.open("rb") as raw:
        return raw.read(2) == _GZIP


def text_length(place: Path, most: int) -> int:
    """How many bytes of text a file has, unpacked; FileError if these are more than it may have. Reads it once."""
    if not is_packed(place):
        return place.stat().st_size
    with unpacked(place, most) as stream:
        length = 0
        while part := stream.read(1 << 20):
            length += len(part)
        return length


@contextmanager
def unpacked(place: Path, most: int) -> Iterator[IO[bytes]]:
    """A file's content, unpacked if it is gzip's, of which at most so many bytes are given then."""
    with place.open("rb") as raw:
        if is_packed(place):
            with gzip.GzipFile(fileobj=raw) as inner, io.BufferedReader(_Unpacking(inner, place, most), 1 << 20) as out:
                yield out
        else:
            yield raw
