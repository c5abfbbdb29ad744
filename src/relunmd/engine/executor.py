"""Runs a function over the blocks of X in threads, and adds up what it returns.

This and the executor on a cluster are the only places where work is distributed. While an executor is open, BLAS has
one thread in each worker, and Ctrl-C is raised between blocks (`relunmd.engine.interrupts`).
"""

import itertools
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from relunmd.engine.blas_threads import one_blas_thread
from relunmd.engine.interrupts import InterruptFlag
from relunmd.engine.matrix import Array, Matrix, Scratch, SumsPool
from relunmd.engine.tree_sum import Sums as Sums
from relunmd.engine.tree_sum import Tree
from relunmd.errors import InputError

Rows = SimpleNamespace
"""Arrays of m rows by name, or the rows of a block of them; a tuple of arrays is an attribute too."""
Wanted = int | tuple[int, np.dtype[Any]] | Array
"""An array of m rows that a pass writes: its number of columns (and its dtype), or an array to write over."""
ReadRows = Mapping[str, Array | Sequence[Array]] | None
"""The arrays of m rows that a pass reads, by name."""
WrittenRows = Mapping[str, Wanted] | None
"""Those that it writes."""
Output = tuple[Rows, Sums]
"""The arrays of m rows that a pass wrote, and the sums over all blocks."""

BlockFunction = Callable[..., Sums]
"""How an algorithm sees X: ``function(x, rows, out, **shared)`` is called for every block of rows.

It reads the block's tiles of X, the block's rows of the arrays in `rows`, and small shared values. It writes its rows
of the arrays in `out` and returns its share of the sums (numbers, arrays and lists by name). It changes nothing else,
so an interrupted pass leaves the state it started from as it is. It is a function of a module: workers of a cluster
import it.
"""

_KEPT_PASSES = 8
"""Passes after which free memory that was not reused is released."""


class RowsLostError(Exception):
    """Rows of arrays were lost with the worker that had them; the last snapshot has to be restored."""


def grouped(arrays: Mapping[str, Any]) -> Rows:
    """The arrays as attributes; "s.0", "s.1", … become one tuple `s`."""
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        base, dot, _ = name.partition(".")
        found[base] = (*found.get(base, ()), array) if dot else array
    return Rows(**found)


class RowBuffers:
    """Memory for arrays of m rows, reused once nobody refers to them any more.

    New memory costs a page fault for every 4 kB: for arrays of the size of X as much time as the pass that writes them.
    """

    def __init__(self) -> None:
        self._slots: list[SimpleNamespace] = []
        self._passes = 0

    def take(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialized array."""
        for slot in self._slots:
            if slot.array.shape == shape and slot.array.dtype == dtype and _references(slot) == _UNSHARED:
                break
        else:
            slot = SimpleNamespace(array=np.empty(shape, dtype))
            self._slots.append(slot)
        slot.used = self._passes
        found: Array = slot.array
        return found

    def end_of_pass(self) -> None:
        """Release the memory of arrays that are no longer in use and were not reused for some passes."""
        self._passes += 1
        oldest = self._passes - _KEPT_PASSES
        self._slots = [slot for slot in self._slots if slot.used >= oldest or _references(slot) != _UNSHARED]


def _references(slot: SimpleNamespace) -> int:
    return sys.getrefcount(slot.array)


_UNSHARED = _references(SimpleNamespace(array=np.empty(0)))
"""The count for an array that only its slot refers to."""


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
            # Also when a block failed: no thread may still write after this call.
            wait(helpers)
        for helper in helpers:
            helper.result()


class Executor(ABC):
    """Runs functions over the blocks of a matrix, wherever these are; used as a context manager.

    Arrays of m rows are where the rows of X are: in memory, or in pieces on the workers of a cluster. They may be
    passed to `run`, have a shape and a dtype, and support arithmetic; nothing else works everywhere.
    """

    def __init__(self) -> None:
        self.passes = 0
        self.deadline: float | None = None
        """When max_time ends, by time.perf_counter(); a cluster gives frozen workers less time near it."""
        self._open = ExitStack()
        self._ctrl_c = InterruptFlag()

    def __enter__(self) -> Self:
        self._ctrl_c = InterruptFlag()  # A Ctrl-C of an earlier run does not count.
        self._open.enter_context(self._ctrl_c)  # First in and last out: everything else is closed under it too.
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    @contextmanager
    def users_code(self) -> Iterator[None]:
        """Python's own handling of Ctrl-C during a callback, which may take any time."""
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
        """Whether the KeyboardInterrupt of this run is that of a second Ctrl-C, which must not be delayed."""
        return self._ctrl_c.insisted

    def interrupted(self) -> bool:
        """Return whether Ctrl-C was pressed while no pass ran, and reset the flag."""
        return self._ctrl_c.take()

    def run(
        self, matrix: Matrix, function: BlockFunction, rows: ReadRows = None, out: WrittenRows = None, **shared: Any
    ) -> Output:
        """Call `function` on every block; one pass.

        Parameters
        ----------
        matrix : Matrix
        function : BlockFunction
        rows : mapping of str to arrays of m rows, or to sequences of such arrays
            What the function reads.
        out : mapping of str to Wanted
            The arrays of m rows that it writes.
        **shared
            Small values that every block sees.

        Returns
        -------
        rows : Rows
            The arrays that were written.
        sums : dict
            The sums over all blocks.
        """
        found = self.over_rows(matrix, function, rows, out, **shared)
        self.passes += 1
        return found

    def over_rows(
        self, matrix: Matrix, function: BlockFunction, rows: ReadRows = None, out: WrittenRows = None, **shared: Any
    ) -> Output:
        """Do the same for a function that does not read X: no pass."""
        flat: dict[str, Any] = {}
        for name, value in (rows or {}).items():
            several = isinstance(value, list | tuple)
            flat |= {f"{name}.{i}": x for i, x in enumerate(value)} if several else {name: value}
        made, sums = self._each(matrix, function, flat, out or {}, shared)
        return grouped(made), sums

    @abstractmethod
    def _each(
        self, matrix: Matrix, function: BlockFunction, rows: dict[str, Array], out: Mapping[str, Wanted], shared: Any
    ) -> tuple[dict[str, Array], Sums]: ...

    def each(self, function: Callable[[int], None], count: int) -> None:
        """Call `function` for every number below `count`: work of the driver, in threads where there are some."""
        for index in range(count):
            function(index)

    @abstractmethod
    def normal_rows(self, matrix: Matrix, n_columns: int, random: np.random.Generator) -> Array:
        """Return m rows of standard normal numbers."""

    @abstractmethod
    def placed(self, matrix: Matrix, A: Any) -> Array:
        """Bring an array of m rows of the user to where the rows of X are."""

    @abstractmethod
    def handed_over(self, A: Array) -> Any:
        """Return an array of m rows in the form in which the user gets it."""

    def facts(self) -> dict[str, int]:
        """What progress reports about the workers."""
        return {}

    @property
    def keep_due(self) -> bool:
        """Whether arrays of m rows should be kept now, against the loss of a worker."""
        return False

    def keep(self, arrays: Mapping[str, Array]) -> None:  # noqa: B027
        """Keep copies of these arrays, which `restore` brings back, until others are kept."""

    def restore(self) -> bool:
        """Bring back the arrays that were kept, after RowsLostError; return whether that was possible."""
        return False

    def write_rows(self, arrays: Mapping[str, Array], place: Path) -> dict[str, Any] | None:
        """Write those of these arrays that are not in memory beside a file; return what `read_rows` needs."""
        return None

    def read_rows(self, matrix: Matrix, about: Mapping[str, Any] | None, place: Path) -> dict[str, Array]:
        """Read the arrays that `write_rows` wrote."""
        if about is not None:
            raise InputError("checkpoint is of a run on a cluster; got X on one machine. Pass X on Dask or a new path.")
        return {}

    def remove_other_rows(self, place: Path, about: Mapping[str, Any] | None) -> None:  # noqa: B027
        """Remove what `write_rows` wrote beside a file for earlier checkpoints."""


class ThreadExecutor(Executor):
    """Runs functions over the blocks of a matrix on this machine, in threads."""

    def __init__(self, n_threads: int) -> None:
        super().__init__()
        self.n_threads = n_threads
        self._team: Team | None = None
        self._buffers = RowBuffers()

    def __enter__(self) -> Self:
        super().__enter__()
        self._open.enter_context(one_blas_thread)
        self._team, self._buffers = Team(self.n_threads), RowBuffers()
        self._open.callback(self._team.close)
        return self

    def _each(
        self, matrix: Matrix, function: BlockFunction, rows: dict[str, Array], out: Mapping[str, Wanted], shared: Any
    ) -> tuple[dict[str, Array], Sums]:
        team = self._team
        if team is None:
            raise RuntimeError("An executor works within its with statement only.")
        made: dict[str, Array] = {}
        for name, wanted in out.items():
            if isinstance(wanted, np.ndarray):
                made[name] = wanted
            else:
                columns, dtype = wanted if isinstance(wanted, tuple) else (wanted, matrix.dtype)
                made[name] = self._buffers.take((matrix.shape[0], columns), np.dtype(dtype))
        blocks = matrix.layout.blocks
        tree = Tree(len(blocks), team.sums.give_back)

        def one(index: int, scratch: Scratch) -> None:
            block = matrix.block(index, scratch)
            old, new = (grouped({name: a[block.rows] for name, a in arrays.items()}) for arrays in (rows, made))
            tree.add(function(block, old, new, **shared), index)

        team.spread(one, len(blocks), lambda: self._ctrl_c.pressed)
        if self._ctrl_c.take():
            raise KeyboardInterrupt
        team.sums.end_of_pass()
        self._buffers.end_of_pass()
        return made, tree.total

    def each(self, function: Callable[[int], None], count: int) -> None:
        if self._team is None or count == 1:
            super().each(function, count)
        else:
            self._team.spread(lambda index, _: function(index), count, lambda: False)

    def normal_rows(self, matrix: Matrix, n_columns: int, random: np.random.Generator) -> Array:
        return random.standard_normal((matrix.shape[0], n_columns)).astype(matrix.dtype)

    def placed(self, matrix: Matrix, A: Any) -> Array:
        return np.asarray(A)

    def handed_over(self, A: Array) -> Any:
        return A
