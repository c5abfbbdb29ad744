"""Scratch memory of a worker: allocated once, and reused for every tile."""

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class SumsPool:
    """Arrays for the sums of blocks, which are returned when they have been added to another.

    Such an array is as wide as X, and new memory, with a page fault for every 4 kB, costs more than clearing it.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[int, ...], list[Array]] = {}
        self._asked: set[tuple[int, ...]] = set()
        self._lock = threading.Lock()

    def take(self, shape: tuple[int, ...]) -> Array:
        """Return an array of zeros in float64."""
        with self._lock:
            self._asked.add(shape)
            free = self._free.setdefault(shape, [])
            array = free.pop() if free else None
        if array is None:
            return np.zeros(shape)
        array.fill(0)
        return array

    def give_back(self, share: Mapping[str, Any]) -> None:
        """Return arrays that are no longer used."""
        for value in share.values():
            if isinstance(value, np.ndarray) and value.dtype == np.float64 and value.flags.owndata:
                with self._lock:
                    if value.shape in self._free:
                        self._free[value.shape].append(value)

    def end_of_pass(self) -> None:
        """Free arrays that this pass did not use: initializations need other shapes than iterations."""
        self._free = {shape: free for shape, free in self._free.items() if shape in self._asked}
        self._asked = set()


class Scratch:
    """Arrays that are reused by name, and rows that sources keep for the worker."""

    def __init__(self, sums: SumsPool | None = None) -> None:
        self.sums = SumsPool() if sums is None else sums
        self._memory: dict[tuple[str, np.dtype[Any]], Array] = {}
        self._written: dict[tuple[str, np.dtype[Any]], Array] = {}
        self._beside: dict[str, Scratch] = {}
        self._transposed: tuple[Array, Array] | None = None
        self.rows: tuple[Any, Any] | None = None
        """The last request for rows of a sparse matrix, and the result."""
        self.kept: object = None
        """The rows that a source read last, a `Slab`."""

    def beside(self, name: str) -> "Scratch":
        """Return the scratch memory for a matrix that is read beside X."""
        return self._beside.setdefault(name, Scratch(self.sums))

    def transposed(self, H: Array) -> Array:
        """Return Hᵀ in C order; the last one is kept, since all strips of a pass need it."""
        if self._transposed is None or self._transposed[0] is not H:
            self._transposed = H, np.ascontiguousarray(H.T)
        return self._transposed[1]

    def take(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], value: float = 0) -> Array:
        """Return an uninitialized C-ordered array; the next call with this name may return the same memory."""
        size = math.prod(shape)
        memory = self._memory.get((name, dtype))
        if memory is None or memory.size < size:
            memory = self._memory[name, dtype] = np.full(size, value, dtype)
            self._written.pop((name, dtype), None)
        return memory[:size].reshape(shape)

    def filled(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], value: float) -> Array:
        """Return an array filled with a value. The caller reports with `written` which entries it has changed.

        A name must not be used for both `take` and `filled`, or with another value.
        """
        places = self._written.pop((name, dtype), None)
        if places is not None:
            self._memory[name, dtype][places] = value
        return self.take(name, shape, dtype, value)

    def written(self, name: str, dtype: np.dtype[Any], places: Array) -> None:
        """Record the flat indices at which the array from `filled` was changed."""
        self._written[name, dtype] = places
