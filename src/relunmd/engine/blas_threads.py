"""Cores that may be used, and BLAS with one thread while passes run.

Small products over two BLAS threads ran two to five times slower than two workers with one BLAS thread each.
"""

import os
import threading
from contextlib import ExitStack

from threadpoolctl import OpenBLASController, ThreadpoolController

from relunmd.forks import fork_lock


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _OneBlasThread:
    """Context manager: BLAS has one thread while anybody is inside; the last to leave restores the setting."""

    def __init__(self) -> None:
        self._lock = fork_lock(self._after_fork)
        self._inside: list[int] = []
        """The thread of each user inside."""
        self._limit = ExitStack()
        self._controller: ThreadpoolController | None = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._controller = self._controller or ThreadpoolController()
                self._take_control()
                self._limit.enter_context(self._controller.limit(limits=1, user_api="blas"))
            self._inside.append(threading.get_ident())

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._inside.remove(threading.get_ident())
            if not self._inside:
                self._take_control()
                self._limit.close()

    @staticmethod
    def _take_control() -> None:
        """From 3.8 on, threadpoolctl lets one thread set OpenBLAS's limit, which is the process's: make it this one."""
        if hasattr(OpenBLASController, "clear_controlling_thread"):
            OpenBLASController.clear_controlling_thread(force=True)

    def _after_fork(self) -> None:
        """In the child of a fork: of those inside, only the thread that forked is left."""
        left = [thread for thread in self._inside if thread == threading.get_ident()]
        if self._inside and not left:
            self._take_control()
            self._limit.close()
        self._inside = left


one_blas_thread = _OneBlasThread()
