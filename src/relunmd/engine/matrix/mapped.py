"""Memory maps: the file of an array, whether it has changed, and reading its rows from the file.

Reading a memory map beyond the end of its file kills the process. A file may be truncated at any time, so that no check
in advance prevents it; reading from the file only returns fewer bytes.
"""

import mmap
import os
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np

from relunmd.engine.matrix.scratch import Array
from relunmd.errors import FileError


def is_mapped(X: object) -> bool:
    """Return whether an array is in a memory map."""
    while isinstance(X, np.ndarray):
        X = X.base
    return isinstance(X, mmap.mmap)


def mapped_path(X: object) -> Path | None:
    """Return the file that an array is mapped from; None if np.memmap does not record it."""
    while isinstance(X, np.ndarray):
        path = getattr(X, "filename", None)
        if path is not None:
            return Path(path)
        X = X.base
    return None


class FileStamp:
    """The size and modification time of a file that is mapped into memory.

    If `MappedRows` cannot be used, they are checked before reading.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._stamp = path, path.stat()

    @classmethod
    def of(cls, *arrays: object) -> "list[FileStamp]":
        """Return the stamps of the files that arrays are mapped from, except of missing files."""
        found = []
        for path in filter(None, map(mapped_path, arrays)):
            with suppress(OSError):
                found.append(cls(path))
        return found

    def verify(self) -> None:
        """Raise FileError if the file was truncated or modified."""
        try:
            now = self._path.stat()
        except OSError:  # A removed file remains mapped.
            return
        then = self._stamp
        if now.st_ino != then.st_ino or now.st_dev != then.st_dev:  # The file was replaced.
            return
        if now.st_size < then.st_size:
            sizes = f"{then.st_size} to {now.st_size} bytes"
            raise FileError(f"{self._path} was truncated while X was read from it: {sizes}.")
        if now.st_mtime_ns != then.st_mtime_ns:
            raise FileError(f"{self._path} was written to while X was read from it.")


class MappedRows:
    """Reads rows of a two-dimensional C-ordered array from the file that it is mapped from."""

    def __init__(self, descriptor: int, offset: int, row_bytes: int) -> None:
        self._descriptor, self._offset, self._row_bytes = descriptor, offset, row_bytes
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def of(cls, X: Array) -> "MappedRows | None":
        """Return a reader; None if the rows are not contiguous or the file may differ from the map.

        It differs if the map is copy-on-write or the file was replaced, which only Linux reports (/proc/self/maps).
        """
        path = mapped_path(X)
        place = _shared_mapping(X) if path is not None and X.flags.c_contiguous and X.size else None
        if path is None or place is None:
            return None
        inode, offset = place
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        if os.fstat(descriptor).st_ino != inode:
            os.close(descriptor)
            return None
        return cls(descriptor, offset, X.shape[1] * X.itemsize)

    def read(self, first: int, out: Array) -> bool:
        """Fill `out` with the rows from `first`. Return False if the file ends before."""
        left = out.reshape(-1).view(np.uint8).data
        at = self._offset + first * self._row_bytes
        while len(left):
            try:
                count = os.preadv(self._descriptor, [left], at)
            except OSError as reason:
                raise FileError(f"Rows of X from {first} could not be read from their file: {reason}.") from reason
            if count == 0:
                return False
            left, at = left[count:], at + count
        return True


def _shared_mapping(X: Array) -> tuple[int, int] | None:
    """Return the inode and the offset that X is mapped from; None if the map is private or unknown."""
    first = X.__array_interface__["data"][0]
    try:
        lines = Path("/proc/self/maps").read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        span, access, offset, _, inode = line.split(maxsplit=5)[:5]
        start, stop = (int(side, 16) for side in span.split(b"-"))
        if start <= first and first + X.nbytes <= stop:
            return (int(inode), int(offset, 16) + first - start) if access.endswith(b"s") else None
    return None
