"""Ctrl-C during passes.

The first Ctrl-C only sets a flag and is raised between blocks, when no worker is busy: Python's KeyboardInterrupt can
occur between any two instructions, also inside a lock of the thread pool, and hang the process. The second Ctrl-C of a
run is raised at once; the best factors so far are lost then, a checkpoint is not.
"""

import signal
import threading
from typing import Any, Self


class InterruptFlag:
    """Turns the first Ctrl-C into a flag while it is open, in the main thread and unless the user handles SIGINT.

    Further ones go to the previous handler, which is restored: Python's raises KeyboardInterrupt at once. A handler
    with an attribute `deferrable`, as that of the command line, is replaced too and decides itself what to do.
    """

    def __init__(self) -> None:
        self.pressed = False
        self.presses = 0
        """Number of Ctrl-C in this run."""
        self.insisted = False
        """Whether a second Ctrl-C was raised at once."""
        self._original: Any = None

    def __enter__(self) -> Self:
        here = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGINT)
        if here and (handler is signal.default_int_handler or getattr(handler, "deferrable", False)):
            self._original = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *failure: object) -> None:
        if self._original is not None:
            signal.signal(signal.SIGINT, self._original)
            self._original = None

    def _press(self, number: int, frame: object) -> None:
        self.pressed = True
        self.presses += 1
        original = self._original
        if self.presses > 1 and original is not None:
            self.insisted = not getattr(original, "deferrable", False)
            self.__exit__()
            original(number, frame)

    def take(self) -> bool:
        """Return whether Ctrl-C was pressed since the last call."""
        pressed, self.pressed = self.pressed, False
        return pressed
