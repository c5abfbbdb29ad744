"""Arrays of m rows whose rows are on the workers: the driver has a number, a shape and a dtype.

Algorithms pass such arrays from pass to pass, and sometimes create one like another, sum its squares or multiply it by
a number. NumPy's protocols make that work wherever the rows are. Everything else is refused, above all conversion to an
array of the driver.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike

from relunmd.engine.distributed.parts import Array
from relunmd.engine.executor import Sums
from relunmd.engine.matrix import Block, Matrix


class RowsOnWorkers(NDArrayOperatorsMixin):
    """An array of m rows on the workers, which release it when this object is deleted.

    Attributes
    ----------
    number : int
        The number by which the workers know the array.
    spec : tuple
        Its number, number of columns and dtype.
    """

    ndim = 2

    def __init__(self, executor: Any, matrix: Matrix, number: int, n_columns: int, dtype: np.dtype[Any]) -> None:
        self.number, self.dtype = number, dtype
        self.shape = matrix.shape[0], n_columns
        self.spec = number, n_columns, dtype
        self._matrix = matrix
        self._executor = executor

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"RowsOnWorkers(shape={self.shape}, dtype={self.dtype})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise TypeError(f"{self!r} cannot be converted to an array: its rows stay on the workers.")

    def astype(self, dtype: DTypeLike) -> "RowsOnWorkers":
        """Return the array in another dtype; itself if it has that dtype."""
        wanted = np.dtype(dtype)
        return self if wanted == self.dtype else self._new(_copy_block, {"A": self}, (self.shape[1], wanted))

    def all(self) -> bool:
        """Return whether every entry is true."""
        return not np.sum(self == 0)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        known = all(isinstance(x, RowsOnWorkers | int | float | np.number) for x in inputs)
        if method != "__call__" or set(options) - {"dtype"} or not known:
            return NotImplemented
        samples = [np.empty((0, x.shape[1]), x.dtype) if isinstance(x, RowsOnWorkers) else x for x in inputs]
        like = ufunc(*samples, **options)
        rows = {str(place): x for place, x in enumerate(inputs) if isinstance(x, RowsOnWorkers)}
        others = {str(place): x for place, x in enumerate(inputs) if str(place) not in rows}
        given = {"ufunc": ufunc, "others": others, "options": options}
        return self._new(_ufunc_block, rows, (like.shape[1], like.dtype), **given)

    def __array_function__(self, function: Any, types: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if function is np.sum and given == (self,) and not named:
            return self._executor.over_rows(self._matrix, _sum_block, {"A": self})[1]["sum"]
        if function in (np.zeros_like, np.empty_like):
            dtype = np.dtype(given[1] if len(given) > 1 else named.get("dtype") or self.dtype)
            if function is np.empty_like:
                return self._executor.new_rows(self._matrix, (self.shape[1], dtype))
            return self._new(_copy_block, {}, (self.shape[1], dtype))
        return NotImplemented

    def _new(self, function: Any, rows: Any, wanted: tuple[int, np.dtype[Any]], **shared: Any) -> "RowsOnWorkers":
        out, _ = self._executor.over_rows(self._matrix, function, rows, {"new": wanted}, **shared)
        return out.new  # type: ignore[no-any-return]


def _ufunc_block(x: Block, rows: Any, out: Any, *, ufunc: np.ufunc, others: Any, options: Any) -> Sums:
    given = {**vars(rows), **others}
    ufunc(*(given[str(place)] for place in range(len(given))), out=out.new, **options)
    return {}


def _copy_block(x: Block, rows: Any, out: Any) -> Sums:
    out.new[:] = getattr(rows, "A", 0)
    return {}


def _sum_block(x: Block, rows: Any, out: Any) -> Sums:
    return {"sum": float(np.sum(rows.A, dtype=np.float64))}
