"""Matrices in HDF5 and Zarr: arrays, and CSR as a group of data, indices and indptr.

Rows are read in slabs of some 32 MB, or of the rows that are stored in one chunk if these are more (up to
256 MB), by the worker that looks at them; the file is never read as a whole. Only CSR can be told from
CSC by the group's attributes or a shape that is not square; a square CSC matrix without them is taken for Xᵀ.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from relunmd._util import library_of
from relunmd.engine.matrix.csr import CsrSource, for_scipy
from relunmd.engine.matrix.dense import DenseSource
from relunmd.engine.matrix.read_check import ReadCheck
from relunmd.engine.matrix.scratch import Scratch
from relunmd.engine.matrix.source import InMemory, Slab, Source
from relunmd.errors import FileError, InputError, RelunmdError
from relunmd.io.sparse_groups import stored_form, stored_shape

__all__ = [
    "StoredArray",
    "StoredCsr",
    "is_stored_array",
    "is_stored_group",
]

Array = NDArray[Any]
log = logging.getLogger("relunmd")
_SLAB_BYTES, _MOST_SLAB_BYTES = 2**25, 2**28
_ZARR_METADATA = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
_MOST_LISTED = 10_000


def is_stored_array(X: object) -> bool:
    """Whether X is an HDF5 dataset or a Zarr array. (Neither library is imported for that.)"""
    return _is_open(X) and hasattr(X, "shape")


def is_stored_group(X: object) -> bool:
    """Whether X is a group of HDF5 or Zarr."""
    return _is_open(X) and not hasattr(X, "shape") and hasattr(X, "attrs")


def _is_open(X: object) -> bool:
    library = library_of(X)
    if library == "h5py" and not X:
        raise InputError("X must be in an open file. Got an object of an HDF5 file that has been closed.")
    return library in ("h5py", "zarr")


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """What a damaged file makes the libraries raise, which can be anything, as a sentence."""
    try:
        yield
    except RelunmdError:
        raise
    except Exception as reason:
        line = " ".join(str(reason).split())
        raise FileError(f"{what} could not be read from its file: {type(reason).__name__}: {line}.") from reason


class _Stored(Source):
    """What is read in slabs of rows, the last of which stays with the worker."""

    in_memory = False
    _check: ReadCheck
    _chunks: tuple["_Chunks", ...] = ()

    def validated(self) -> None:
        for chunks in self._chunks:
            chunks.verify()

    def part(self, rows: slice, stop: int, scratch: Scratch) -> tuple[InMemory, int]:
        slab = scratch.kept
        if not (isinstance(slab, Slab) and slab.has(self, rows)):
            height = rows.stop - rows.start
            tiles = -(-self._slab_rows(rows.start) // height)  # Whole ones, so that no row is read twice.
            until = min(stop, rows.start + max(1, tiles) * height)
            slab = scratch.kept = None  # Its memory is free for the next, unless a tile of it is still in use.
            slab = scratch.kept = Slab(self, rows.start, until, self._in_memory(slice(rows.start, until)))
        return slab.part, slab.start

    def _slab_rows(self, start: int) -> int:
        raise NotImplementedError

    def read(self, rows: slice) -> Any:
        with _reading(f"Rows {rows.start} to {rows.stop - 1} of X"):
            return self._read(rows)

    def _in_memory(self, rows: slice) -> InMemory:
        part = self.read(rows)
        self._check.verify(rows, part)
        return CsrSource(part) if self.sparse else DenseSource(part)

    def _read(self, rows: slice) -> Any:
        raise NotImplementedError


class StoredArray(_Stored):
    """An h5py.Dataset or zarr.Array of two dimensions."""

    def __init__(self, X: Any) -> None:
        self._X = X
        self.shape = int(X.shape[0]), int(X.shape[1])
        self.dtype = np.dtype(X.dtype)
        self._check = ReadCheck(self.shape[0])
        self._chunks = (_Chunks(X),)
        chunks = getattr(X, "chunks", None)
        chunk_rows = int(chunks[0]) if chunks else 1
        if chunk_rows * self.shape[1] * self.dtype.itemsize <= _MOST_SLAB_BYTES and 8 * chunk_rows <= self.shape[0]:
            self.chunk_rows = chunk_rows
        elif chunk_rows > 1:
            log.info(
                "X is stored in chunks of %d rows: each is read many times in a pass, or X has few of them", chunk_rows
            )

    def _slab_rows(self, start: int) -> int:
        wanted = _SLAB_BYTES // (self.shape[1] * self.dtype.itemsize)
        return max(1, self.chunk_rows, wanted // self.chunk_rows * self.chunk_rows)

    def _read(self, rows: slice) -> Array:
        return np.asarray(self._X[rows])


class _Chunks:
    """The chunks that a Zarr array has in its store; those that are missing read as the fill value, wanted or not."""

    def __init__(self, X: Any) -> None:
        self._X = X
        self._expected = 0
        if library_of(X) == "zarr" and is_stored_array(X) and X.shape:
            pieces = getattr(X, "shards", None) or X.chunks
            self._expected = prod(-(-side // piece) for side, piece in zip(X.shape, pieces, strict=True))
        self._stored = self._count()
        if self._stored is not None and self._stored < self._expected:
            log.warning(
                "%d of %d chunks of the Zarr array %r are not stored and read as its fill value, %s. If X is complete, "
                "they hold nothing else.",
                self._expected - self._stored,
                self._expected,
                X.name or X.path or "/",
                X.fill_value,
            )

    def _count(self) -> int | None:
        return _stored_chunks(self._X, self._expected) if self._expected else None

    def verify(self) -> None:
        """Raise FileError if chunks were removed or added since."""
        name = self._X.name or self._X.path or "/"
        with _reading(f"The Zarr array {name!r}"):
            now = self._count()
        if now != self._stored:
            raise FileError(
                f"X changed while it was validated: the Zarr array {name!r} had {self._stored} of {self._expected} "
                f"chunks in its store and now has {now}. Were chunks removed or written?"
            )


def _stored_chunks(X: Any, expected: int) -> int | None:
    """How many chunks a Zarr array has in its store; None if that would take long to find out."""
    folder = getattr(X.store, "root", None)
    if isinstance(folder, Path):
        files = (folder / str(X.path)).rglob("*")
        return sum(file.is_file() and file.name not in _ZARR_METADATA for file in files)
    return int(X.nchunks_initialized) if expected <= _MOST_LISTED and not getattr(X, "shards", None) else None


class StoredCsr(_Stored):
    """A group with the members data, indices and indptr, and its shape in an attribute (as in .h5ad files)."""

    sparse = True

    def __init__(self, group: Any) -> None:
        missing = [name for name in ("data", "indices", "indptr") if name not in group]
        if missing:
            raise InputError(
                f"X must be an array, or a group with CSR's members data, indices and indptr. Got the group "
                f"{group.name!r} without {', '.join(missing)}."
            )
        shape = stored_shape(group)
        if shape is None:
            raise InputError(
                f"The group {group.name!r} must say how many rows and columns X has. Got no attribute 'shape' of two "
                "numbers; give it one."
            )
        self.shape = shape
        square = self.shape[0] == self.shape[1]
        form = stored_form(group) if square else "csr"  # Otherwise told by the length of indptr.
        if not form.startswith("csr"):
            raise InputError(f"X must be stored by rows, as CSR. Got the group {group.name!r} stored as {form}.")
        self._check = ReadCheck(self.shape[0])
        self._data, self._indices = group["data"], group["indices"]
        self._chunks = tuple(_Chunks(member) for member in (self._data, self._indices, group["indptr"]))
        for name, member in (("data", self._data), ("indices", self._indices)):
            if getattr(member, "ndim", 0) != 1:
                raise InputError(
                    f"{name} of the group {group.name!r} must be an array of one dimension. Got {member!r}."
                )
        self.dtype = np.dtype(self._data.dtype)
        with _reading(f"indptr of the group {group.name!r}"):
            self._indptr = np.asarray(group["indptr"][:]).astype(np.int64)
        if len(self._indptr) == self.shape[1] + 1 != self.shape[0] + 1:
            raise InputError(
                f"X must be stored by rows, as CSR. Got the group {group.name!r} of shape {self.shape}, "
                f"whose indptr is {len(self._indptr)} long: it is stored by columns, as CSC."
            )
        ends = self._indptr[[0, -1]].tolist() if len(self._indptr) else []
        stored = int(self._data.shape[0])
        if (
            len(self._indptr) != self.shape[0] + 1
            or ends != [0, stored]
            or int(self._indices.shape[0]) != stored
            or (np.diff(self._indptr) < 0).any()
        ):
            raise InputError(
                f"indptr of the group {group.name!r} must have {self.shape[0] + 1} numbers that rise from 0 to "
                f"{stored}, the length of data and of indices. Got {len(self._indptr)} with the ends {ends}, "
                f"and {int(self._indices.shape[0])} indices."
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
                f"indices of a CSR matrix must be from 0 to {self.shape[1] - 1}. Got {indices.min()} to "
                f"{indices.max()} in rows {rows.start} to {rows.stop - 1}."
            )
        starts = self._indptr[rows.start : rows.stop + 1] - first
        values = for_scipy(np.asarray(self._data[first:last]))
        parts = values, indices.astype(index_type), starts.astype(index_type)
        return sparse.csr_array(parts, shape=(rows.stop - rows.start, self.shape[1]))
