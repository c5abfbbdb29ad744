"""A lock on a file for the time of a run: one process has it, and the others are told which.

The kernel releases it when its process ends, however that ends, so there are no stale locks. It is held on a hidden
file beside the one that is locked, since that one is replaced whenever it is written.
"""

import json
import logging
import os
import socket
import sys
import threading
import weakref
import zlib
from contextlib import suppress
from datetime import datetime
from pathlib import Path

__all__ = ["FileLock", "LockedError"]

log = logging.getLogger("relunmd")

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""A link that somebody put there must not have its target written to."""

if sys.platform == "win32":
    import msvcrt

    _BEYOND = 2**20
    """The byte that is locked: others cannot read a locked one, and the file says who holds it."""

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _BEYOND, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as reason:
            raise BlockingIOError(reason.errno, reason.strerror) from reason

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _BEYOND, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # Closing is not enough if a forked process has the descriptor too.


class LockedError(Exception):
    """The file is locked; the message says by whom."""


class FileLock:
    """A lock on `place`, which need not exist. It may be acquired again by who has it, and is released as often.

    Where files cannot be locked that is logged, and the lock is granted.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._path = place.with_name(f".relunmd-{zlib.crc32(os.fsencode(place.name)):08x}.lock")
        self._descriptor: int | None = None
        self._holds = 0
        self._guard = threading.Lock()
        _ALL.add(self)

    def acquire(self) -> None:
        """Take the lock; LockedError if another one has it."""
        with self._guard:
            if self._holds == 0:
                self._descriptor = self._taken()
            self._holds += 1

    def release(self) -> None:
        with self._guard:
            self._holds -= 1
            if self._holds == 0 and self._descriptor is not None:
                if sys.platform == "win32":  # Which does not remove open files.
                    self._close()
                with suppress(OSError):  # Another one has opened it, or the folder is read-only: it locks nothing.
                    self._path.unlink()
                self._close()

    def _taken(self) -> int | None:
        """The descriptor of the locked file, or None if it cannot be locked here."""
        while True:
            try:
                descriptor = self._opened()
            except OSError as reason:
                log.warning("%s cannot be locked against other runs: %s", self._place, reason)
                return None
            try:
                _lock(descriptor)
                if self._is_at_its_place(descriptor):
                    _describe(descriptor)
                    return descriptor
                os.close(descriptor)  # The one who had it has removed it meanwhile.
            except BlockingIOError:
                holder = _holder(descriptor)
                os.close(descriptor)
                raise LockedError(holder) from None
            except OSError as reason:  # Some network file systems have no locks.
                os.close(descriptor)
                log.warning("%s cannot be locked against other runs: %s", self._place, reason)
                return None

    def _opened(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
        except PermissionError:  # Of another user; to lock it, or to see that it is locked, reading is enough.
            return os.open(self._path, os.O_RDONLY | _NO_LINK)

    def _is_at_its_place(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None  # A fork closes only what is still open.
            with suppress(OSError):
                _unlock(descriptor)
            os.close(descriptor)

    def leave_to_parent(self) -> None:
        """In a forked process: the lock is that of the process that took it."""
        descriptor, self._descriptor, self._guard = self._descriptor, None, threading.Lock()
        if descriptor is not None:
            os.close(descriptor)


_ALL: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_ALL):
        lock.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _describe(descriptor: int) -> None:
    """Write who has the lock."""
    about = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
    }
    with suppress(OSError):  # A full disk: the lock holds all the same.
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps(about).encode())


def _holder(descriptor: int) -> str:
    """Who has the lock, in words."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        about = json.loads(os.read(descriptor, 4096))
        words = f"process {about['pid']} on {about['host']} since {about['since']}"
        return "".join(letter if letter.isprintable() else "?" for letter in words)
    except (OSError, ValueError, KeyError, TypeError):  # It is just writing that.
        return "another process"
