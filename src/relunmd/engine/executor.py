"""Runs a function over the blocks of X in threads, and adds up what it returns.

This and the cluster's executor, which has the same form, are the only places where work is spread. While it is open,
BLAS has one thread in each worker (and the caller's setting back afterwards): small products over two BLAS threads ran
two to five times slower than two workers with one each. What the blocks return is added along a fixed binary tree, so
the sum has the same bits for any number of threads.

While it is open the first Ctrl-C only sets a mark, and is raised between blocks, when no worker is busy:
Python's own way, an exception between any two instructions, can strike inside a lock of the thread
pool and hang the process. The second Ctrl-C of a run is raised at once, wherever the run is: the user wants to leave,
and waiting has not helped. What is raised then leaves `solve` too; the best so far is lost, a checkpoint is not.
"""

import itertools
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import OpenBLASController, ThreadpoolController

from relunmd.engine.matrix import Matrix, Scratch, SumsPool
from relunmd.errors import InputError
from relunmd.forks import fork_lock

__all__ = [
    "BlockFunction",
    "Executor",
    "Rows",
    "RowsLostError",
    "Sums",
    "Team",
    "ThreadExecutor",
    "Tree",
    "Wanted",
    "one_blas_thread",
    "tree_sum",
    "usable_cores",
]

Array = NDArray[Any]
Rows = dict[str, Array]
Sums = dict[str, Any]
Wanted = Array | int | tuple[int, np.dtype[Any]]
"""An array of m rows that a pass is to write: one to write over, or a number of columns (and a dtype) for a new one."""


BlockFunction = Callable[..., Sums]
"""The one form in which an algorithm looks at X: ``function(x, rows, out, **shared)``.

It reads the block's tiles of X, the block's rows of the arrays it asked for and small shared
things; it writes its rows of the new arrays and returns its share of the sums (numbers,
arrays and lists by name). It changes nothing else, so a pass that fails or is interrupted has not touched
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
        self._lock = fork_lock(self._after_fork)
        self._inside: list[int] = []
        """The thread of each that is inside."""
        self._limit = ExitStack()
        self._controller: ThreadpoolController | None = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                if self._controller is None:
                    self._controller = ThreadpoolController()
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


class _CtrlC:
    """Turns the first Ctrl-C into a mark while it is open, in the main thread and unless the user handles it.

    Further ones go to the handler that was there before, which is restored: Python's raises KeyboardInterrupt at once.
    (A handler with an attribute `deferrable`, as the command's, is replaced too, and decides itself what to do.)
    """

    def __init__(self) -> None:
        self.pressed = False
        self.presses = 0
        """Of this run, those included that have been acted on."""
        self.insisted = False
        """Whether a second one was raised at once."""
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
        self.presses += 1
        original = self._original
        if self.presses > 1 and original is not None:
            self.insisted = not getattr(original, "deferrable", False)
            self.__exit__()
            original(number, frame)

    def take(self) -> bool:
        """Whether it was pressed since it was asked last."""
        pressed, self.pressed = self.pressed, False
        return pressed


class RowsLostError(Exception):
    """Rows of arrays are gone with the worker that had them; what was agreed on last is to be restored."""


class Tree:
    """Adds n shares along a fixed binary tree, each pair as soon as both are there.

    A node is a run of shares, start to stop, and its children are its halves: who has the first or the last half of
    all shares, or a quarter, as workers of a cluster do, has one node.
    """

    def __init__(self, count: int, done: Callable[[Sums], None]) -> None:
        self.nodes: dict[tuple[int, int], Sums] = {}
        """Sums that wait for their sibling, by the run of shares they are of; in the end the whole alone."""
        self._count = count
        self._done = done
        self._lock = threading.Lock()

    def add(self, share: Sums, start: int, stop: int | None = None) -> None:
        """Take a block's share, or the sum of those below a node."""
        node = start, start + 1 if stop is None else stop
        above = self._above(node)
        while above:
            parent = above.pop()
            middle = sum(parent) // 2
            sibling = (middle, parent[1]) if node[1] == middle else (parent[0], middle)
            with self._lock:
                other = self.nodes.pop(sibling, None)
                if other is None:
                    self.nodes[node] = share
                    return
            for name, value in other.items():
                share[name] += value  # In place: a share is its block's alone, and may be as large as H.
            self._done(other)
            node = parent
        self.nodes[node] = share

    def _above(self, node: tuple[int, int]) -> list[tuple[int, int]]:
        """The nodes that a node is below, the whole first."""
        path, (start, stop) = [], (0, self._count)
        while (start, stop) != node:
            path.append((start, stop))
            middle = (start + stop) // 2
            start, stop = (start, middle) if node[1] <= middle else (middle, stop)
        return path

    @property
    def total(self) -> Sums:
        """What all shares add up to."""
        (whole,) = self.nodes.values()
        return whole


def tree_sum(shares: list[Sums]) -> Sums:
    """The sum of the shares, added in the order that every pass uses.

    >>> tree_sum([{"a": 1.0}, {"a": 2.0}, {"a": 4.0}])
    {'a': 7.0}
    """
    tree = Tree(len(shares), SumsPool().give_back)
    for index, share in enumerate(shares):
        tree.add({name: copy(value) for name, value in share.items()}, index)
    return tree.total


class Team:
    """Threads, each with its scratch memory; the one that asks is the first of them."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self.sums = SumsPool()
        self._scratch = [Scratch(self.sums) for _ in range(n_threads)]
        self._pool = ThreadPoolExecutor(n_threads - 1, thread_name_prefix="relunmd") if n_threads > 1 else None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def spread(self, one: Callable[[int, Scratch], None], count: int, ended: Callable[[], bool]) -> None:
        """Call one(i, scratch) for every i < count, threads taking the next i as they come free, until `ended`."""
        counter = itertools.count()
        stop = threading.Event()

        def work(scratch: Scratch) -> None:
            try:
                while not (stop.is_set() or ended()) and (index := next(counter)) < count:
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


class Executor(ABC):
    """Runs functions over the blocks of a matrix, wherever these are; used as a context manager.

    Arrays of m rows are where the rows of X are: in memory, or in pieces on a cluster's workers. Who has one may hand
    it to `run`, ask for its shape and dtype, make one like it and do arithmetic; nothing else works everywhere.
    """

    def __init__(self) -> None:
        self.passes = 0
        self.deadline: float | None = None
        """When the run's time limit passes, as time.perf_counter() has it; on a cluster frozen workers are then given
        less time."""
        self._open = ExitStack()
        self._ctrl_c = _CtrlC()

    def __enter__(self) -> Self:
        self._ctrl_c = _CtrlC()  # What was pressed in an earlier run does not count.
        self._open.enter_context(self._ctrl_c)  # First in and last out: everything else is closed under it too.
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    @contextmanager
    def users_code(self) -> Iterator[None]:
        """Ctrl-C as Python has it, for the time of a callback, which may take as long as it likes."""
        self._ctrl_c.__exit__()
        try:
            yield
        except KeyboardInterrupt:
            self._ctrl_c.presses += 1
            self._ctrl_c.insisted |= self._ctrl_c.presses > 1
            raise
        finally:
            self._ctrl_c.__enter__()

    @property
    def insisted(self) -> bool:
        """Whether the KeyboardInterrupt of this run is that of a second Ctrl-C, which nothing may hold up."""
        return self._ctrl_c.insisted

    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed when no pass was there to end by it; it is forgotten then."""
        return self._ctrl_c.take()

    def run(
        self,
        matrix: Matrix,
        function: BlockFunction,
        rows: Mapping[str, Array] | None = None,
        out: Mapping[str, Wanted] | None = None,
        **shared: Any,
    ) -> tuple[Rows, Sums]:
        """One pass: call `function` on every block.

        Parameters
        ----------
        rows : arrays of m rows that the function reads
        out : arrays of m rows that it writes
        shared : small things every block sees

        Returns
        -------
        The arrays written, by name, and the sums over all blocks.
        """
        found = self._each(matrix, function, rows or {}, out or {}, shared)
        self.passes += 1
        return found

    def over_rows(
        self,
        matrix: Matrix,
        function: BlockFunction,
        rows: Mapping[str, Array] | None = None,
        out: Mapping[str, Wanted] | None = None,
        **shared: Any,
    ) -> tuple[Rows, Sums]:
        """The same for a function that does not look at X: no pass."""
        return self._each(matrix, function, rows or {}, out or {}, shared)

    @abstractmethod
    def _each(
        self,
        matrix: Matrix,
        function: BlockFunction,
        rows: Mapping[str, Array],
        out: Mapping[str, Wanted],
        shared: Mapping[str, Any],
    ) -> tuple[Rows, Sums]: ...

    @abstractmethod
    def normal_rows(self, matrix: Matrix, n_columns: int, random: np.random.Generator) -> Array:
        """m rows of standard normal numbers."""

    @abstractmethod
    def placed(self, matrix: Matrix, A: Any) -> Array:
        """An array of m rows that the user has, where the rows of X are."""

    @abstractmethod
    def handed_over(self, A: Array) -> Any:
        """An array of m rows in the form in which the user gets it."""

    def facts(self) -> dict[str, int]:
        """What progress can tell of where the work is done."""
        return {}

    @property
    def keep_due(self) -> bool:
        """Whether arrays of m rows should be kept now, against the loss of a worker."""
        return False

    def keep(self, arrays: Mapping[str, Array]) -> None:  # noqa: B027
        """From now on `restore` brings these arrays back as they are, until others are kept."""

    def restore(self) -> bool:
        """After RowsLostError: bring back what was kept. Returns whether it could be."""
        return False

    def write_rows(self, arrays: Mapping[str, Array], place: Path) -> dict[str, Any] | None:
        """Write those of these arrays that are not in memory beside a file; returns what `read_rows` needs."""
        return None

    def read_rows(self, matrix: Matrix, about: Mapping[str, Any] | None, place: Path) -> dict[str, Array]:
        """The arrays that `write_rows` wrote."""
        if about is not None:
            raise InputError("checkpoint is of a run on a cluster: its rows lie beside it. Got X on one machine.")
        return {}


class ThreadExecutor(Executor):
    """Threads over the blocks of a matrix on this machine."""

    def __init__(self, n_threads: int) -> None:
        super().__init__()
        self.n_threads = n_threads
        self._team: Team | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        self._open.enter_context(one_blas_thread)
        self._team = Team(self.n_threads)
        self._open.callback(self._team.close)
        return self

    def _each(
        self,
        matrix: Matrix,
        function: BlockFunction,
        rows: Mapping[str, Array],
        out: Mapping[str, Wanted],
        shared: Mapping[str, Any],
    ) -> tuple[Rows, Sums]:
        team = self._team
        if team is None:
            raise RuntimeError("An executor works within its with statement only.")
        made = {name: _made(matrix.shape[0], wanted, matrix.dtype) for name, wanted in out.items()}
        blocks = matrix.layout.blocks
        tree = Tree(len(blocks), team.sums.give_back)

        def one(index: int, scratch: Scratch) -> None:
            block = matrix.block(index, scratch)
            share = function(
                block,
                {name: array[block.rows] for name, array in rows.items()},
                {name: array[block.rows] for name, array in made.items()},
                **shared,
            )
            tree.add(share, index)

        team.spread(one, len(blocks), lambda: self._ctrl_c.pressed)
        if self._ctrl_c.take():
            raise KeyboardInterrupt
        team.sums.end_of_pass()
        return made, tree.total

    def normal_rows(self, matrix: Matrix, n_columns: int, random: np.random.Generator) -> Array:
        return random.standard_normal((matrix.shape[0], n_columns)).astype(matrix.dtype)

    def placed(self, matrix: Matrix, A: Any) -> Array:
        found: Array = A
        return found

    def handed_over(self, A: Array) -> Any:
        return A


def _made(n_rows: int, wanted: Wanted, dtype: np.dtype[Any]) -> Array:
    """An array of m rows to be written."""
    if isinstance(wanted, int):
        return np.empty((n_rows, wanted), dtype)
    return np.empty((n_rows, wanted[0]), wanted[1]) if isinstance(wanted, tuple) else wanted
