"""Safe forks: a fork waits for lazy imports and for locks that other threads hold.

The child of a fork has the locks of all threads but only one thread. A lock that another thread held, including that of
an import, would stay locked in the child forever.
"""

import concurrent.futures.thread  # noqa: F401 (see the end of this file)
import logging  # noqa: F401
import os
import threading
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

_LONGEST_IMPORT = 60.0
_CHANGED = threading.Condition()
_IMPORTING: list[int] = []
"""The threads that are importing, once for each import."""
_LOCKS: list[tuple[Any, Callable[[], object]]] = []
_HELD: list[tuple[Any, Callable[[], object]]] = []
"""The locks that the current fork holds."""


def imported(name: str) -> ModuleType:
    """Import a module; a fork by another thread waits for it."""
    thread = threading.get_ident()
    with _CHANGED:
        _IMPORTING.append(thread)
    try:
        return import_module(name)
    finally:
        with _CHANGED:
            _IMPORTING.remove(thread)
            _CHANGED.notify_all()


def fork_lock(in_child: Callable[[], object] = lambda: None) -> Any:
    """Return a reentrant lock that no other thread holds during a fork.

    Parameters
    ----------
    in_child : callable, optional
        Called in the child of a fork, before the lock is released there.
    """
    lock = threading.RLock()
    _LOCKS.append((lock, in_child))
    return lock


def _before_fork() -> None:
    """Wait for the imports of other threads, block new ones, and acquire the locks."""
    _CHANGED.acquire()
    _CHANGED.wait_for(lambda: set(_IMPORTING) <= {threading.get_ident()}, _LONGEST_IMPORT)
    _HELD[:] = _LOCKS
    for lock, _ in _HELD:
        lock.acquire()


def _after_fork(in_child: bool = False) -> None:
    for lock, call in reversed(_HELD):
        try:
            if in_child:
                call()
        finally:
            lock.release()
    _HELD.clear()
    _CHANGED.release()


# Functions to be called before a fork are called in reverse order. Those of the modules imported above acquire locks
# that imports need, and must be registered first.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=lambda: _after_fork(True))
