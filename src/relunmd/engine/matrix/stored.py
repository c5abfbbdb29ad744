"""Matrices in HDF5 and Zarr: arrays, and CSR as a group of data, indices and indptr.

Each worker reads its rows in slabs of about 32 MB, or of the rows of one chunk if these are more (up to 256 MB); the
file is never read as a whole. CSC is detected by the attributes of the group or by the length of indptr; a square CSC
matrix without attributes is taken for Xᵀ.
"""

import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
from scipy import sparse

from relunmd._util import library_of
from relunmd.engine.matrix.csr import CsrSource, for_scipy
from relunmd.engine.matrix.dense import DenseSource
from relunmd.engine.matrix.read_check import ReadCheck
from relunmd.engine.matrix.scratch import Array, Scratch
from relunmd.engine.matrix.source import InMemory, Slab, Source
from relunmd.errors import FileError, InputError, RelunmdError
from relunmd.io.sparse_groups import stored_form, stored_shape

log = logging.getLogger("relunmd")
_SLAB_BYTES, _MOST_SLAB_BYTES = 2**25, 2**28
_MOST_LISTED = 4096
"""Zarr arrays with more chunks are not searched for missing ones (zarr's listing takes quadratic time)."""


def is_stored_array(X: object) -> bool:
    """Return whether X is an HDF5 dataset or a Zarr array, without importing these libraries."""
    return _is_open(X) and hasattr(X, "shape")


def is_stored_group(X: object) -> bool:
    """Return whether X is an HDF5 or Zarr group."""
    return _is_open(X) and not hasattr(X, "shape") and hasattr(X, "attrs")


def _is_open(X: object) -> bool:
    library = library_of(X)
    if library == "h5py" and not X:
        raise InputError("X must be in an open file; got an object of an HDF5 file that has been closed.")
    return library in ("h5py", "zarr")


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raise FileError for any exception that a library raises for a damaged file."""
    try:
        yield
    except RelunmdError:
        raise
    except Exception as reason:
        line = " ".join(str(reason).split())
        raise FileError(f"{what} could not be read from its file: {type(reason).__name__}: {line}.") from reason


class _Stored(Source):
    """A source that is read in slabs of rows; each worker keeps the last one."""

    in_memory = False

    def __init__(self, shape: tuple[int, int], dtype: Any, members: Sequence[Any]) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._check = ReadCheck(shape[0])
        self._zarr = [(X, X.name or X.path or "/", *_count_chunks(X)) for X in members if library_of(X) == "zarr"]
        for X, name, stored, expected in self._zarr:
            if stored < expected:
                missing = f"{expected - stored} of {expected} chunks of the Zarr array {name!r} are not stored"
                log.warning(
                    "%s and read as its fill value, %s. This is correct if they hold nothing else.",
                    missing,
                    X.fill_value,
                )

    def validated(self) -> None:
        for X, name, stored, expected in self._zarr:
            with _reading(f"The Zarr array {name!r}"):
                now = _count_chunks(X)[0]
            if now != stored:
                raise FileError(
                    f"X changed while it was validated: the Zarr array {name!r} had {stored} of {expected} chunks in "
                    f"its store and now has {now}. Were chunks removed or written?"
                )

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple[InMemory, int]:
        slab = Slab.find(scratch, self, rows)
        if slab is None:
            height = rows.stop - rows.start
            tiles = -(-self._slab_rows(rows.start) // height)  # Whole tiles, so that no row is read twice.
            until = min(stop, rows.start + max(1, tiles) * height)
            scratch.kept = None  # Frees its memory for the next slab.
            part = self.read(slice(rows.start, until))
            self._check.verify(slice(rows.start, until), part)
            source = CsrSource(part, self.stored_only) if self.sparse else DenseSource(part)
            slab = scratch.kept = Slab(self, rows.start, until, source)
        return slab.part, slab.start

    def read(self, rows: slice) -> Any:
        with _reading(f"Rows {rows.start} to {rows.stop - 1} of X"):
            return self._read(rows)

    @abstractmethod
    def _slab_rows(self, start: int) -> int:
        """Return the number of rows of a slab that begins with row `start`."""

    @abstractmethod
    def _read(self, rows: slice) -> Any:
        """Read rows; any exception means that the file is damaged."""


def _count_chunks(X: Any) -> tuple[int, int]:
    """Return the number of stored chunks (or shards) of a Zarr array, and the number of a complete one."""
    if not is_stored_array(X) or not 0 < X.nchunks <= _MOST_LISTED:
        return 0, 0
    pieces = X.shards or X.chunks
    expected = prod(-(-side // piece) for side, piece in zip(X.shape, pieces, strict=True))
    return X.nchunks_initialized * prod(X.chunks) // prod(pieces), expected


class StoredArray(_Stored):
    """A two-dimensional h5py.Dataset or zarr.Array."""

    def __init__(self, X: Any) -> None:
        self._X = X
        super().__init__((int(X.shape[0]), int(X.shape[1])), X.dtype, [X])
        chunk_rows = int(X.chunks[0]) if getattr(X, "chunks", None) else 1
        if chunk_rows * self.shape[1] * self.dtype.itemsize <= _MOST_SLAB_BYTES and 8 * chunk_rows <= self.shape[0]:
            self.chunk_rows = chunk_rows
        elif chunk_rows > 1:
            log.info("X is stored in chunks of %d rows, which may be read several times in a pass", chunk_rows)

    def _slab_rows(self, start: int) -> int:
        wanted = _SLAB_BYTES // (self.shape[1] * self.dtype.itemsize)
        return max(1, self.chunk_rows, wanted // self.chunk_rows * self.chunk_rows)

    def _read(self, rows: slice) -> Array:
        return np.asarray(self._X[rows])


class StoredCsr(_Stored):
    """A group with the members data, indices and indptr, and an attribute shape, as in .h5ad files."""

    sparse = True

    def __init__(self, group: Any) -> None:
        members = {name: group[name] for name in ("data", "indices", "indptr") if name in group}
        if len(members) < 3:
            found = f"the group {group.name!r} with {', '.join(members) or 'none of them'}"
            raise InputError(f"X must be an array, or a CSR group of data, indices and indptr; got {found}.")
        shape = stored_shape(group)
        if shape is None:
            raise InputError(f"The group {group.name!r} must have an attribute 'shape' (rows and columns); add it.")
        for name in ("data", "indices"):
            if getattr(members[name], "ndim", 0) != 1:
                about = f"{name} of the group {group.name!r}"
                raise InputError(f"{about} must be a one-dimensional array; got {members[name]!r}.")
        self._data, self._indices = members["data"], members["indices"]
        super().__init__(shape, self._data.dtype, list(members.values()))
        with _reading(f"indptr of the group {group.name!r}"):
            self._indptr = np.asarray(members["indptr"][:]).astype(np.int64)
        self._check_format(group)

    def _check_format(self, group: Any) -> None:
        """Raise InputError if the group is not in CSR format, or if indptr is inconsistent."""
        (m, n), length, name = self.shape, len(self._indptr), group.name
        form = stored_form(group) if m == n else "csc" if length == n + 1 else "csr"
        if not form.startswith("csr"):
            about = f"the group {name!r} of shape {self.shape} in {form} format"
            raise InputError(f"X must be stored in CSR format; got {about}.")
        ends = self._indptr[[0, -1]].tolist() if length else []
        stored, indices = int(self._data.shape[0]), int(self._indices.shape[0])
        if length != m + 1 or ends != [0, stored] or indices != stored or (np.diff(self._indptr) < 0).any():
            raise InputError(
                f"indptr of the group {name!r} must be {m + 1} nondecreasing numbers from 0 to {stored}, the "
                f"length of data and indices; got {length} numbers with ends {ends}, and {indices} indices."
            )

    def _slab_rows(self, start: int) -> int:
        width = self.dtype.itemsize + 8
        last = np.searchsorted(self._indptr, self._indptr[start] + _SLAB_BYTES // width, side="right")
        return int(last) - 1 - start

    def _read(self, rows: slice) -> Any:
        first, last = int(self._indptr[rows.start]), int(self._indptr[rows.stop])
        index_type = np.int32 if max(self.shape[1], last - first) < 2**31 else np.int64
        indices = np.asarray(self._indices[first:last])
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < self.shape[1]:
            raise InputError(
                f"indices of a CSR matrix must be from 0 to {self.shape[1] - 1}; got {indices.min()} to "
                f"{indices.max()} in rows {rows.start} to {rows.stop - 1}."
            )
        starts = self._indptr[rows.start : rows.stop + 1] - first
        values = for_scipy(np.asarray(self._data[first:last]))
        parts = values, indices.astype(index_type), starts.astype(index_type)
        return sparse.csr_array(parts, shape=(rows.stop - rows.start, self.shape[1]))
