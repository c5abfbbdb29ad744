"""A lock on a file for the time of a run: one process holds it, and others get an error that names the holder.

The operating system releases it when its process ends for any reason, so there are no stale locks. The lock is on a
hidden file beside the locked one, since that one is replaced whenever it is written.
"""

import logging
import os
import socket
import sys
import threading
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from relunmd._util import printable
from relunmd.errors import InputError

log = logging.getLogger("relunmd")

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""The target of a link that somebody else created must not be written to."""

if sys.platform == "win32":
    import msvcrt

    _BEYOND = 2**20
    """The byte that is locked: others cannot read a locked byte, and the file names its holder."""

    def _lock(descriptor: int, mode: int = msvcrt.LK_NBLCK) -> None:
        os.lseek(descriptor, _BEYOND, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, mode, 1)
        except PermissionError as reason:
            raise BlockingIOError(reason.errno, reason.strerror) from reason

    def _unlock(descriptor: int) -> None:
        _lock(descriptor, msvcrt.LK_UNLCK)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # Closing is not enough if a forked process has the descriptor too.


class LockedError(Exception):
    """The file is locked; the message names the holder."""


class FileLock:
    """A lock on a file, which need not exist.

    It can be acquired several times and must be released as often. If the file system does not support locks, a warning
    is logged and the lock is granted.

    Parameters
    ----------
    place : Path
        The file.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._path = place.with_name(f".relunmd-{zlib.crc32(os.fsencode(place.name)):08x}.lock")
        self._descriptor: int | None = None
        self._holds = 0
        self._guard = threading.Lock()
        _ALL.add(self)

    def acquire(self) -> None:
        """Acquire the lock; LockedError if another run has it."""
        with self._guard:
            if self._holds == 0:
                try:
                    while self._descriptor is None:
                        self._descriptor = self._locked()
                except OSError as reason:  # Some network file systems do not support locks.
                    log.warning("%s cannot be locked against other runs: %s", self._place, reason)
            self._holds += 1

    def release(self) -> None:
        with self._guard:
            self._holds -= 1
            if self._holds == 0 and self._descriptor is not None:
                if sys.platform == "win32":  # Open files cannot be removed.
                    self._close()
                with suppress(OSError):  # Another process has opened it, or the folder is read-only.
                    self._path.unlink()
                self._close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Context manager that holds the lock; InputError if another run has it."""
        try:
            self.acquire()
        except LockedError as reason:
            raise InputError(
                f"checkpoint must not be in use by another run. {self._place} is in use by {reason}. Wait until that "
                "run ends, or name another file."
            ) from reason
        try:
            yield
        finally:
            self.release()

    def _locked(self) -> int | None:
        """Return the descriptor of the locked file; None if its holder has removed it in the meantime."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
        except PermissionError:  # It belongs to another user; it can be locked without writing.
            descriptor = os.open(self._path, os.O_RDONLY | _NO_LINK)
        granted = False
        try:
            _lock(descriptor)
            with suppress(FileNotFoundError):
                granted = os.path.samestat(os.fstat(descriptor), self._path.stat())
            if granted:
                _write_holder(descriptor)
            return descriptor if granted else None
        except BlockingIOError:
            raise LockedError(_holder(descriptor)) from None
        finally:
            if not granted:
                os.close(descriptor)

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None  # A fork closes only what is still open.
            with suppress(OSError):
                _unlock(descriptor)
            os.close(descriptor)

    def leave_to_parent(self) -> None:
        """Close the file in a forked process; its parent keeps the lock."""
        descriptor, self._descriptor, self._guard = self._descriptor, None, threading.Lock()
        if descriptor is not None:
            os.close(descriptor)


_ALL: "weakref.WeakSet[FileLock]" = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: list(map(FileLock.leave_to_parent, _ALL)))


def _write_holder(descriptor: int) -> None:
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    with suppress(OSError):  # The disk may be full, or the file read-only.
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}".encode())


def _holder(descriptor: int) -> str:
    """Return who has the lock, as `_write_holder` wrote it."""
    with suppress(OSError):
        os.lseek(descriptor, 0, os.SEEK_SET)
        text = os.read(descriptor, 4096).decode("utf-8", "replace")
        if text.startswith("process "):
            return printable(text)
    return "another process"
