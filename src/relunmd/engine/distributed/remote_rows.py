"""An array of m rows whose rows are on the workers, as the driver sees it: a number, a shape and a dtype.

Algorithms hand such arrays from pass to pass, and now and then make one like another, add up its squares or multiply it
by a number. That much NumPy's protocols let them do without knowing where the rows are; anything else is refused,
above all to become an array here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from relunmd.engine.executor import Sums
from relunmd.engine.matrix import Block, Matrix

if TYPE_CHECKING:
    from relunmd.engine.distributed.cluster_executor import ClusterExecutor

__all__ = ["RowsOnWorkers"]

Array = NDArray[Any]


class RowsOnWorkers(NDArrayOperatorsMixin):
    """`number` is what the workers know it by; they let go of it when this is gone."""

    ndim = 2

    def __init__(
        self, executor: "ClusterExecutor", matrix: Matrix, number: int, n_columns: int, dtype: np.dtype[Any]
    ) -> None:
        self.number = number
        self.shape = matrix.shape[0], n_columns
        self.dtype = dtype
        self.matrix = matrix
        self._executor = executor

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"RowsOnWorkers(shape={self.shape}, dtype={self.dtype})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise TypeError(f"The rows of {self!r} are on the workers, and are not to come here.")

    def astype(self, dtype: DTypeLike) -> "RowsOnWorkers":
        """The same in another dtype; itself if it has that already."""
        wanted = np.dtype(dtype)
        return self if wanted == self.dtype else self._made(np.positive, [self], {"dtype": wanted})

    def all(self) -> bool:
        """Whether every entry is true."""
        return not self._sums(_count_block, "found")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or set(options) - {"dtype"} or not all(map(_understood, inputs)):
            return NotImplemented
        return self._made(ufunc, list(inputs), options)

    def __array_function__(self, function: Any, types: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if function is np.sum and given == (self,) and not named:
            return self._sums(_sum_block, "found")
        if function in (np.zeros_like, np.empty_like):
            dtype = np.dtype(given[1] if len(given) > 1 else named.get("dtype") or self.dtype)
            like = self._executor.new_rows(self.matrix, self.shape[1], dtype)
            if function is np.zeros_like:
                new: Any = like
                self._executor.over_rows(self.matrix, _zero_block, {}, {"new": new})
            return like
        return NotImplemented

    def _made(self, ufunc: np.ufunc, inputs: list[Any], options: Mapping[str, Any]) -> "RowsOnWorkers":
        samples = [np.empty((0, x.shape[1]), x.dtype) if isinstance(x, RowsOnWorkers) else x for x in inputs]
        if ufunc is np.positive and options:  # A change of dtype may be one that NumPy calls unsafe.
            shape = self.shape[1], options["dtype"]
        else:
            like = ufunc(*samples, **options)
            shape = like.shape[1], like.dtype
        rows: dict[str, Any] = {str(place): x for place, x in enumerate(inputs) if isinstance(x, RowsOnWorkers)}
        others = {str(place): x for place, x in enumerate(inputs) if not isinstance(x, RowsOnWorkers)}
        out, _ = self._executor.over_rows(
            self.matrix, _ufunc_block, rows, {"new": shape}, ufunc=ufunc, others=others, options=dict(options)
        )
        new: RowsOnWorkers = out.new
        return new

    def _sums(self, function: Any, name: str) -> Any:
        return self._executor.over_rows(self.matrix, function, {"A": self})[1][name]  # type: ignore[dict-item]


def _understood(value: Any) -> bool:
    return isinstance(value, RowsOnWorkers | int | float | np.number)


def _ufunc_block(
    x: Block, rows: Any, out: Any, *, ufunc: np.ufunc, others: Mapping[str, Any], options: Mapping[str, Any]
) -> Sums:
    given = {**rows, **others}
    operands = [given[str(place)] for place in range(len(given))]
    if ufunc is np.positive and options:
        out.new[:] = operands[0]
    else:
        ufunc(*operands, out=out.new, **options)
    return {}


def _zero_block(x: Block, rows: Any, out: Any) -> Sums:
    out.new[:] = 0
    return {}


def _sum_block(x: Block, rows: Any, out: Any) -> Sums:
    return {"found": float(np.sum(rows.A, dtype=np.float64))}


def _count_block(x: Block, rows: Any, out: Any) -> Sums:
    return {"found": int(rows.A.size - np.count_nonzero(rows.A))}
