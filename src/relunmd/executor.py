"""Runs a function over the blocks of X in threads, and adds up what it returns.

This is the only place where work is spread. While it is open, BLAS has one thread in each
worker (and the caller's setting back afterwards): small products over two BLAS threads ran two
to five times slower than two workers with one each. What the blocks return is added along a
fixed binary tree, so the sum has the same bits for any number of threads.
"""

import itertools
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from relunmd.matrix import DenseMatrix, Scratch

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


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


class _Tree:
    """Adds n shares along a fixed binary tree, each pair as soon as both are there."""

    def __init__(self, count: int) -> None:
        self._count = count
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
                share = {name: share[name] + other[name] for name in share}
            index, count, level = index // 2, (count + 1) // 2, level + 1
        self.total = share


def tree_sum(shares: list[Sums]) -> Sums:
    """The sum of the shares, added in the order that every pass uses.

    >>> tree_sum([{"a": 1.0}, {"a": 2.0}, {"a": 4.0}])
    {'a': 7.0}
    """
    tree = _Tree(len(shares))
    for index, share in enumerate(shares):
        tree.add(index, share)
    return tree.total


class ThreadExecutor:
    """Threads over the blocks of a matrix in memory; used as a context manager."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self.passes = 0
        self._open = ExitStack()
        self._scratch = [Scratch() for _ in range(n_threads)]
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> "ThreadExecutor":
        self._open.enter_context(_thread_pools().limit(limits=1, user_api="blas"))
        if self.n_threads > 1:
            # This thread is the first worker.
            self._pool = self._open.enter_context(ThreadPoolExecutor(self.n_threads - 1, thread_name_prefix="relunmd"))
        return self

    def __exit__(self, *failure: object) -> None:
        self._pool = None
        self._open.close()

    def run(
        self,
        matrix: DenseMatrix,
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
        tree = _Tree(len(blocks))

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
        self.passes += 1
        return made, tree.total

    def _spread(self, one: Callable[[int, Scratch], None], count: int) -> None:
        """Call one(i, scratch) for every i < count, the workers taking the next i as they come free."""
        counter = itertools.count()
        stop = threading.Event()

        def work(scratch: Scratch) -> None:
            try:
                while not stop.is_set() and (index := next(counter)) < count:
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
            # Also on an interruption: nobody may still be writing when the caller goes on.
            _wait_for(helpers)
        for helper in helpers:
            helper.result()


def _wait_for(helpers: list[Future[None]]) -> None:
    """Wait until every helper has ended, even if Ctrl-C is pressed meanwhile (raised afterwards)."""
    interrupted: KeyboardInterrupt | None = None
    for helper in helpers:
        while not helper.done():
            try:
                helper.exception()
            except KeyboardInterrupt as pressed:
                interrupted = pressed
    if interrupted is not None:
        raise interrupted
