"""Runs a function over the blocks of X in threads, and adds up what it returns.

This is the only place where work is spread. While it is open, BLAS has one thread in each
worker (and the caller's setting back afterwards): small products over two BLAS threads ran two
to five times slower than two workers with one each. What the blocks return is added along a
fixed binary tree, so the sum has the same bits for any number of threads.

Ctrl-C only sets a mark while it is open, and is raised between blocks, when no worker is busy:
Python's own way, an exception between any two instructions, can strike inside a lock of the thread
pool and hang the process.
"""

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from relunmd.matrix import Matrix, Scratch, SumsPool

__all__ = ["BlockFunction", "Rows", "Sums", "ThreadExecutor", "tree_sum", "usable_cores"]

Array = NDArray[Any]
Rows = dict[str, Array]
Sums = dict[str, Any]


BlockFunction = Callable[..., Sums]
"""The one form in which an algorithm looks at X: ``function(x, rows, out, **shared)``.

It reads the block's tiles of X, the block's rows of the arrays it asked for and small shared
things; it writes its rows of the new arrays and returns its share of the sums (numbers and
arrays by name). It changes nothing else, so a pass that fails or is interrupted has not touched
the state it started from. It is a function of a module, so that it can be sent elsewhere.
"""


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _OneBlasThread:
    """BLAS at one thread while anybody is inside, and the caller's setting back after the last has left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit = ExitStack()
        self._controller: ThreadpoolController | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                if self._controller is None:
                    self._controller = ThreadpoolController()
                self._limit.enter_context(self._controller.limit(limits=1, user_api="blas"))
            self._inside += 1

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.close()


_one_blas_thread = _OneBlasThread()


class _CtrlC:
    """Turns Ctrl-C into a mark while it is open, in the main thread and unless the user handles it.

    (A handler that has an attribute `deferrable` may be passed over.)
    """

    def __init__(self) -> None:
        self.pressed = False
        self._original: Any = None

    def __enter__(self) -> "_CtrlC":
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

    def take(self) -> bool:
        """Whether it was pressed since it was asked last."""
        pressed, self.pressed = self.pressed, False
        return pressed


class _Tree:
    """Adds n shares along a fixed binary tree, each pair as soon as both are there."""

    def __init__(self, count: int, done: Callable[[Sums], None]) -> None:
        self._count = count
        self._done = done
        self._waiting: dict[tuple[int, int], Sums] = {}
        self._lock = threading.Lock()
        self.total: Sums = {}

    def add(self, index: int, share: Sums) -> None:
        level, count = 0, self._count
        while count > 1:
            sibling = index ^ 1
            if sibling < count:
                with self._lock:
                    other = self._waiting.pop((level, sibling), None)
                    if other is None:
                        self._waiting[level, index] = share
                        return
                for name, value in other.items():
                    share[name] += value  # In place: a share is its block's alone, and may be as large as H.
                self._done(other)
            index, count, level = index // 2, (count + 1) // 2, level + 1
        self.total = share


def tree_sum(shares: list[Sums]) -> Sums:
    """The sum of the shares, added in the order that every pass uses.

    >>> tree_sum([{"a": 1.0}, {"a": 2.0}, {"a": 4.0}])
    {'a': 7.0}
    """
    tree = _Tree(len(shares), SumsPool().give_back)
    for index, share in enumerate(shares):
        tree.add(index, {name: copy(value) for name, value in share.items()})
    return tree.total


class ThreadExecutor:
    """Threads over the blocks of a matrix; used as a context manager."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self.passes = 0
        self._open = ExitStack()
        self._ctrl_c = _CtrlC()
        self._sums = SumsPool()
        self._scratch = [Scratch(self._sums) for _ in range(n_threads)]
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> "ThreadExecutor":
        self._open.enter_context(self._ctrl_c)  # First in and last out: the pool is closed under it too.
        self._open.enter_context(_one_blas_thread)
        if self.n_threads > 1:
            # This thread is the first worker.
            self._pool = self._open.enter_context(ThreadPoolExecutor(self.n_threads - 1, thread_name_prefix="relunmd"))
        return self

    def __exit__(self, *failure: object) -> None:
        self._pool = None
        self._open.close()

    @contextmanager
    def users_code(self) -> Iterator[None]:
        """Ctrl-C as Python has it, for the time of a callback, which may take as long as it likes."""
        self._ctrl_c.__exit__()
        try:
            yield
        finally:
            self._ctrl_c.__enter__()

    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed when no pass was there to end by it; it is forgotten then."""
        return self._ctrl_c.take()

    def run(
        self,
        matrix: Matrix,
        function: BlockFunction,
        rows: Mapping[str, Array] | None = None,
        out: Mapping[str, Array | int] | None = None,
        **shared: Any,
    ) -> tuple[Rows, Sums]:
        """One pass: call `function` on every block.

        Parameters
        ----------
        rows : arrays of m rows that the function reads
        out : arrays of m rows that it writes; a number of columns stands for a new array
        shared : small things every block sees

        Returns
        -------
        The arrays written, by name, and the sums over all blocks.
        """
        given = dict(rows or {})
        made = {
            name: np.empty((matrix.shape[0], wanted), matrix.dtype) if isinstance(wanted, int) else wanted
            for name, wanted in (out or {}).items()
        }
        blocks = matrix.layout.blocks
        tree = _Tree(len(blocks), self._sums.give_back)

        def one(index: int, scratch: Scratch) -> None:
            block = matrix.block(index, scratch)
            share = function(
                block,
                {name: array[block.rows] for name, array in given.items()},
                {name: array[block.rows] for name, array in made.items()},
                **shared,
            )
            tree.add(index, share)

        self._spread(one, len(blocks))
        self._sums.end_of_pass()
        self.passes += 1
        return made, tree.total

    def _spread(self, one: Callable[[int, Scratch], None], count: int) -> None:
        """Call one(i, scratch) for every i < count, the workers taking the next i as they come free."""
        counter = itertools.count()
        stop = threading.Event()

        def work(scratch: Scratch) -> None:
            try:
                while not (stop.is_set() or self._ctrl_c.pressed) and (index := next(counter)) < count:
                    one(index, scratch)
            except BaseException:
                stop.set()
                raise

        helpers: list[Future[None]] = []
        try:
            if self._pool is not None:
                helpers += [self._pool.submit(work, s) for s in self._scratch[1 : min(count, self.n_threads)]]
            work(self._scratch[0])
        finally:
            # Also when a block failed: nobody may still be writing when the caller goes on.
            wait(helpers)
        for helper in helpers:
            helper.result()
        if self._ctrl_c.take():
            raise KeyboardInterrupt
