"""What HDF5 files and Zarr stores have in common: arrays in chunks, and sparse matrices as groups of three arrays."""

import logging
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from relunmd._util import printable
from relunmd.errors import FileError
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.contents import Entry
from relunmd.io.sparse_groups import CSR, SHAPES, is_group, own_member, stored_form, stored_shape

log = logging.getLogger("relunmd")
Check = Callable[[Any, Path, Bounds], None]
"""Raises FileError for an array that must not be read."""
_READ_AT_ONCE = 2**25
"""Bytes of rows that a pass reads at once (relunmd.engine.matrix.stored)."""


def check_sizes(stored: Any, place: Path, bounds: Bounds) -> None:
    """Raise FileError if the size of an array or of its chunks is out of proportion to the file."""
    dtype, name = np.dtype(stored.dtype), f"{stored.name!r}"
    if not stored.shape:
        raise FileError(f"{name} in {place} must be a matrix. It is a single value or empty.")
    if dtype.kind not in "biuf":
        raise FileError(f"{name} in {place} must hold real numbers. Got dtype {dtype}.")
    bounds.piecemeal(prod(stored.shape) * dtype.itemsize, f"{name} of shape {tuple(stored.shape)}")
    if stored.chunks:
        size = prod(stored.chunks) * dtype.itemsize
        bounds.memory(size, f"a chunk of {name} of shape {tuple(stored.chunks)}")
        count = prod(-(-side // chunk) for side, chunk in zip(stored.shape, stored.chunks, strict=True) if chunk)
        bounds.pieces(count, min(count, _READ_AT_ONCE // max(1, size)), name)


def stored_entry(place: Path, name: str, member: Any, bounds: Bounds, check: Check) -> Entry:
    """Describe an array, which stays in its file, or a sparse matrix."""
    if is_group(member):
        return _stored_sparse(place, name, member, bounds, check)

    def load() -> Any:
        check(member, place, bounds)
        return member

    return Entry(name, tuple(member.shape or ()), np.dtype(member.dtype).name, load, lazy=True)


def _stored_sparse(place: Path, name: str, group: Any, bounds: Bounds, check: Check) -> Entry:
    """Describe a group with data, indices and indptr: CSR stays in its file, CSC is read into memory."""
    parts = {part: group[part] for part in CSR}
    for source in SHAPES:
        if source not in group.attrs and (member := own_member(group, source)) is not None and not is_group(member):
            check(member, place, bounds)  # stored_shape reads it.
    shape = stored_shape(group)
    length = int(getattr(parts["indptr"], "shape", (0,))[0])
    if shape is None or shape[0] == shape[1]:
        by_columns = stored_form(group).startswith("csc")
    else:
        by_columns = length == shape[1] + 1

    def load() -> Any:
        if shape is None:
            raise FileError(f"{name!r} in {place} must have its number of rows and columns in an attribute 'shape'.")
        for part, member in parts.items():
            if len(getattr(member, "shape", ())) != 1:
                raise FileError(f"{name}/{part} in {place} must be an array of one dimension.")
            check(member, place, bounds)
            if part != "data" and np.dtype(member.dtype).kind not in "iu":
                raise FileError(f"{name}/{part} in {place} must hold integers. Got dtype {member.dtype}.")
        bounds.memory(8 * (sum(shape) + length), f"a matrix of {shape[0]} × {shape[1]}")
        if not by_columns:
            return group
        log.info("%r in %s is stored by columns and is read into memory", name, printable(place))
        bounds.memory(16 * int(parts["data"].shape[0]), f"{name!r}")
        data, indices, indptr = (np.asarray(parts[part][:]) for part in CSR)
        return sparse.csc_array((data, indices.astype(np.int64), indptr.astype(np.int64)), shape=shape)

    dtype = "group" if is_group(parts["data"]) else np.dtype(parts["data"].dtype).name
    return Entry(name, shape or (), dtype, load, f"sparse, {'CSC' if by_columns else 'CSR'}", lazy=not by_columns)
