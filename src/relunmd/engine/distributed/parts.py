"""Parts of X: some rows each, which a worker loads or computes by itself."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from relunmd._util import need
from relunmd.engine.matrix import BundledRows, CsrSource, DenseSource
from relunmd.engine.matrix.source import InMemory, refuse_masked
from relunmd.errors import FileError, InputError

Array = NDArray[Any]


def dask_module(name: str = "distributed") -> Any:
    """Import a module of Dask; raise MissingDependencyError if it is not installed."""
    return need(name, "X on Dask needs", "dask")


@dataclass(frozen=True)
class PartFacts:
    """Properties of a part that a worker has loaded.

    Attributes
    ----------
    held : bool
        Whether the worker keeps the part in memory. Otherwise it is loaded in every pass.
    checksum : int
        The sum of its `row_sums`, which does not depend on the worker; 0 if the part does not come from a file.
    """

    n_rows: int
    n_columns: int
    dtype: np.dtype[Any]
    sparse: bool
    nbytes: int
    held: bool
    checksum: int


class ComputedPart:
    """A part that is the result of a Dask graph, computed within the task that needs it.

    The graph is sent as bytes: Dask would otherwise find it among the arguments and have its scheduler compute it.
    """

    def __init__(self, delayed: Any) -> None:
        graph = dict(delayed.__dask_graph__()), delayed.key
        self._bytes: bytes = dask_module("distributed.protocol.pickle").dumps(graph)
        self.nbytes = len(self._bytes)

    def load(self) -> Any:
        """Return the computed rows."""
        return dask_module("dask").get(*dask_module("distributed.protocol.pickle").loads(self._bytes))


def changed_error(part: int) -> FileError:
    """Return the error for a part that differs from what was validated."""
    return FileError(f"X changed during the run: part {part} has other entries than when it was validated.")


@dataclass(frozen=True)
class BundledPart:
    """A part of X with the same rows of the matrices beside it, by name."""

    X: Any
    beside: dict[str, Any]
    stored_only: bool


def bundled(X: Any, names: list[str], stored_only: bool, *beside: Any) -> BundledPart:
    """Return a bundle, within the task that has computed its members."""
    return BundledPart(X, dict(zip(names, beside, strict=True)), stored_only)


def in_memory(part: Any, stored_only: bool = False) -> InMemory:
    """Return the rows of a part as a source of tiles; raise InputError if it is not a matrix of real numbers."""
    if isinstance(part, BundledPart):
        rows = in_memory(part.X, part.stored_only)
        beside = {name: (in_memory(piece, part.stored_only), 0) for name, piece in part.beside.items()}
        wrong = {name: piece.shape for name, (piece, _) in beside.items() if piece.shape != rows.shape}
        for name, shape in wrong.items():
            raise InputError(f"{name} must have the same rows as X in every part; got {shape} beside {rows.shape}.")
        if part.stored_only and not rows.sparse:
            raise InputError(f"missing_values='unstored' needs a sparse X; got a part of type {type(part.X).__name__}.")
        return BundledRows(rows, 0, beside)
    if not sparse.issparse(part):
        refuse_masked(part)
        part = np.asarray(part)
    if part.ndim != 2 or part.shape[1] == 0:
        raise InputError(f"Every part of X must be two-dimensional and have columns; got a part of shape {part.shape}.")
    if np.dtype(part.dtype).kind not in "biuf":
        raise InputError(f"X must contain real numbers; got a part of dtype {part.dtype}.")
    try:
        return CsrSource(part, stored_only) if sparse.issparse(part) else DenseSource(part)
    except ValueError as reason:
        raise InputError(f"X must be a consistent sparse matrix. SciPy reports for a part: {reason}.") from reason


def part_bytes(rows: InMemory) -> int:
    """Return the memory that a part takes."""
    if isinstance(rows, BundledRows):
        return part_bytes(rows.X) + sum(part_bytes(piece) for piece, _ in rows.beside.values())
    if not isinstance(rows, CsrSource):
        return int(rows.read(slice(0, rows.shape[0])).nbytes)
    return int(rows.csr.data.nbytes + rows.csr.indices.nbytes + rows.csr.indptr.nbytes)
