"""Available memory, which is checked before large allocations.

Linux reports it in two files, for the machine and for the container. Elsewhere the total is used if it is known.
"""

import logging
import os
from pathlib import Path

from relunmd.errors import InsufficientMemoryError

log = logging.getLogger("relunmd")

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_WARN_FROM = 10**9


def available_bytes() -> int | None:
    """Return the bytes that can be allocated without swapping, or None if unknown."""
    known = [found for found in (_machine_bytes(), _container_bytes()) if found is not None]
    return min(known, default=None)


def _machine_bytes() -> int | None:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf.
        return None


def _container_bytes() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((_CGROUP / "memory.current").read_text())
        # The page cache counts as used, but is freed when memory is needed.
        statistics = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return max(0, int(limit) - used + int(statistics.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None


def human_bytes(count: float) -> str:
    """Return a number of bytes with a unit.

    >>> human_bytes(4_567_890_000)
    '4.57 GB'
    """
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if count < 1000 or unit == "PB":
            break
        count /= 1000
    return f"{count:.3g} {unit}"


def require(needed: int, what: str, remedy: str, warn: bool = False) -> None:
    """Raise InsufficientMemoryError if `needed` bytes are not available.

    Parameters
    ----------
    needed : int
        Bytes to be allocated.
    what : str
        What needs them, for the message.
    remedy : str
        A sentence that says what to do.
    warn : bool, default=False
        Whether to log the amount if it is available.
    """
    available = available_bytes()
    if available is None:
        log.info("The available memory is unknown; %s takes %s", what, human_bytes(needed))
        return
    if needed > available:
        raise InsufficientMemoryError(
            f"{what} would take {human_bytes(needed)} of memory and {human_bytes(available)} is free. {remedy}"
        )
    if warn:
        level = logging.WARNING if needed > _WARN_FROM else logging.INFO
        sizes = human_bytes(needed), human_bytes(available)
        log.log(level, "%s takes %s of memory, of %s free. %s", what, *sizes, remedy)
