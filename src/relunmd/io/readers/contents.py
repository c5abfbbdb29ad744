"""What a reader returns: the arrays of a file by name, and rows assembled from blocks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from relunmd.errors import FileError, InputError
from relunmd.io.npy_format import Array

_SHOWN = 20
_SPARSE_BELOW = 0.25
"""Below this share of nonzeros a sparse matrix takes less memory than an array, approximately."""
_INDEX = 4


@dataclass(frozen=True)
class Entry:
    """An array in a file, of which only the description has been read.

    Attributes
    ----------
    name : str
        "" if the file holds one array without a name.
    shape : tuple of int
    dtype : str
        The name of the dtype, or of the kind of object for anything but numbers.
    load : callable
        Returns the array: an ndarray, a memory map, a sparse matrix, or a stored array or group.
    stored : str
        "array", or how else it is stored.
    lazy : bool
        Whether `load` leaves the numbers in the file.
    note : str
        What was assumed or left out, for the user to read.
    columns : tuple of str or None
        The names of the columns, if the file has them.
    pixels : (int, int) or None
        Height and width of the images in the rows, if the file has them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], Any]
    stored: str = "array"
    lazy: bool = False
    note: str = ""
    columns: tuple[str, ...] | None = None
    pixels: tuple[int, int] | None = None

    @property
    def is_matrix(self) -> bool:
        numeric = self.dtype.startswith(("bool", "int", "uint", "float"))
        return len(self.shape) == 2 and min(self.shape) > 0 and numeric

    def __str__(self) -> str:
        size = " × ".join(str(side) for side in self.shape) or "a single value"
        return f"{self.name!r} ({size}, {self.dtype}{'' if self.stored == 'array' else f', {self.stored}'})"


def _listing(entries: Sequence[Entry]) -> str:
    shown = ", ".join(str(entry) for entry in entries[:_SHOWN])
    return f"{shown} and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else shown


def choose(place: Path, entries: Sequence[Entry], name: str | None, default: str | None = None) -> Entry:
    """Return the array of the given name, else the format's default, else the only matrix.

    An array that is the only choice is returned even if it is not a matrix: the caller reports what is wrong with it.
    """
    if not entries:
        raise FileError(f"{place} must hold a matrix. It holds no array.")
    if name is not None and [entry.name for entry in entries] == [""]:
        raise InputError(f"{place} holds one matrix without a name; omit the name {name!r}.")
    wanted = default if name is None else name
    if wanted is not None:
        found = [entry for entry in entries if entry.name.strip("/") == wanted.strip("/")]
        if found:
            return found[0]
        remedy = "; choose an array with array=NAME" if name is None else ""
        raise InputError(f"{place} has no array {wanted!r}{remedy}. It holds {_listing(entries)}.")
    candidates = [entry for entry in entries if entry.is_matrix] or entries
    if len(candidates) == 1:
        return candidates[0]
    if not candidates[0].is_matrix:
        raise FileError(f"{place} must hold a matrix of numbers with two dimensions. It holds {_listing(entries)}.")
    raise InputError(f"{place} holds several matrices; choose one with array=NAME. It holds {_listing(candidates)}.")


class RowBlocks:
    """Blocks of rows, assembled as a sparse matrix if all of them are mostly zeros, and as an array otherwise.

    Examples
    --------
    >>> rows = RowBlocks()
    >>> rows.add(np.eye(8))
    >>> rows.add(np.eye(8))
    >>> X = rows.assemble()
    >>> X.shape, X.nnz
    ((16, 8), 16)
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._sparse = True
        self._sparse_bytes = self._dense_bytes = 0
        self.height = 0

    def add(self, block: Array) -> None:
        nonzeros = int(np.count_nonzero(block))
        needed = (block.itemsize + _INDEX) * nonzeros + _INDEX * (len(block) + 1)
        few = nonzeros < _SPARSE_BELOW * block.size and needed < block.nbytes
        self._parts.append(sparse.csr_array(block) if few else block)
        self._sparse = self._sparse and few
        self._sparse_bytes += needed
        self._dense_bytes += block.nbytes
        self.height += len(block)

    @property
    def nbytes(self) -> int:
        """The memory for assembling the rows: sparse blocks are copied at once, others one by one."""
        return 2 * self._sparse_bytes if self._sparse else self._dense_bytes

    def assemble(self) -> Any:
        """Return all rows, a csr_array or an ndarray. The blocks are released."""
        parts, self._parts = self._parts, []
        if self._sparse or len(parts) == 1:
            return sparse.vstack(parts, format="csr") if len(parts) > 1 else parts[0]
        X, at = np.empty((self.height, parts[0].shape[1]), np.result_type(*{part.dtype for part in parts})), 0
        while parts:
            part = parts.pop(0)
            X[at : at + part.shape[0]] = part.toarray() if sparse.issparse(part) else part
            at += part.shape[0]
        return X
