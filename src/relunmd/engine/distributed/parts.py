"""What the user has on Dask, as parts: some rows of X each, which a worker can get by itself."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from relunmd._util import need
from relunmd.engine.matrix import CsrSource, DenseSource
from relunmd.engine.matrix.source import InMemory, refuse_masked
from relunmd.errors import FileError, InputError

__all__ = ["Computed", "PartFacts", "changed", "common", "in_memory"]


@dataclass(frozen=True)
class PartFacts:
    """What is known of a part once it has been looked at."""

    n_rows: int
    n_columns: int
    dtype: np.dtype[Any]
    sparse: bool
    nbytes: int
    held: bool
    """Whether the worker keeps it in memory; otherwise it is recomputed, or read, in every pass."""
    checksum: int
    """The sum of its `row_sums`, the same wherever and whenever it is read; 0 if it does not come from a file."""


class Computed:
    """A part that is the result of Dask's tasks, made within the task that needs it: the scheduler never hears of it.

    It travels as bytes. Dask would find its own graph in anything else, and have its scheduler make it.
    """

    def __init__(self, delayed: Any) -> None:
        graph = dict(delayed.__dask_graph__()), delayed.key
        self._bytes: bytes = need("distributed.protocol.pickle", "X on Dask needs", "dask").dumps(graph)

    @property
    def nbytes(self) -> int:
        """What it takes to send it."""
        return len(self._bytes)

    def load(self) -> Any:
        graph, key = need("distributed.protocol.pickle", "X on Dask needs", "dask").loads(self._bytes)
        return need("dask", "X on Dask needs", "dask").get(graph, key)


def changed(part: int) -> FileError:
    """The error for a part that is not what it was when X was validated."""
    return FileError(
        f"X changed while it was in use: part {part} has other entries than when it was validated. Was its file "
        "overwritten?"
    )


def in_memory(part: Any) -> InMemory:
    """Rows as a source of tiles; InputError for what are none."""
    if sparse.issparse(part):
        rows: Any = part
    else:
        refuse_masked(part)
        rows = np.asarray(part)
    if rows.ndim != 2:
        raise InputError(f"Every part of X must be two-dimensional. Got one of shape {rows.shape}.")
    if rows.shape[1] == 0:
        raise InputError(f"Every part of X must have columns. Got one of shape {rows.shape}.")
    if np.dtype(rows.dtype).kind not in "biuf":
        raise InputError(f"X must hold real numbers. Got a part of dtype {rows.dtype}.")
    if not sparse.issparse(part):
        return DenseSource(rows)
    try:
        return CsrSource(rows)
    except ValueError as reason:
        raise InputError(f"X must be a consistent sparse matrix. Got one of which SciPy says: {reason}.") from reason


def common(facts: Iterable[PartFacts]) -> tuple[int, np.dtype[Any], bool]:
    """The number of columns, the dtype and whether zeros are not stored, of all parts together."""
    known = list(facts)
    widths = sorted({part.n_columns for part in known})
    if len(widths) > 1:
        raise InputError(f"All parts of X must have the same number of columns. Got {widths[0]} and {widths[-1]}.")
    return widths[0], np.result_type(*{part.dtype for part in known}), all(part.sparse for part in known)
