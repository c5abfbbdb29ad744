"""HDF5 files (.h5, .hdf5, .h5ad): datasets, which stay in the file, and sparse matrices stored as groups.

Links to other files and datasets with their numbers in other files are not followed.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from relunmd._util import need
from relunmd.errors import FileError
from relunmd.io.npy_format import Array
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.chunk_sizes import decompressed_size
from relunmd.io.readers.contents import Entry
from relunmd.io.readers.stored_files import check_sizes, stored_entry
from relunmd.io.sparse_groups import CSR, is_group, own_member

log = logging.getLogger("relunmd")
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_LARGEST_USER_BLOCK = 2**30
_SLACK = 2**16
"""Compressed chunks may be larger than their numbers, at most by this and by a factor of two."""
_MOST_MEMBERS, _DEEPEST = 10_000, 16
_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
_NOT_COMPRESSORS = {_SHUFFLE, _FLETCHER32, 5, 6}
"""HDF5's numbers of filters that do not compress: shuffle, Fletcher32, N-bit, scale-offset."""
_OUTER_FILTERS = {_SHUFFLE, _FLETCHER32}
"""Filters that keep the size of a chunk except for a checksum, so that its stored size bounds its decompressed size."""
_CHECKSUM_BYTES = 4
_DEFLATE_RATIO = 1032
"""The largest number of bytes that a byte of deflate decompresses to."""


def opened(place: Path) -> Any:
    """Open a file for reading."""
    return need("h5py", f"{place} is an HDF5 file; it needs", "files").File(place, "r")


def has_signature(place: Path) -> bool:
    """Return whether a file is HDF5, perhaps after a user block of 512, 1024, 2048 … bytes."""
    with place.open("rb") as stream:
        size, at = place.stat().st_size, 0
        while at < size and at < _LARGEST_USER_BLOCK:
            stream.seek(at)
            if stream.read(8) == _SIGNATURE:
                return True
            at = max(512, 2 * at)
    return False


def hdf5_entries(place: Path, bounds: Bounds, stack: ExitStack) -> list[Entry]:
    """Describe the arrays and sparse matrices; `stack` closes the file."""
    file = stack.enter_context(opened(place))
    return [stored_entry(place, name, member, bounds, _check) for name, member in _members(file, "", 0, set())]


def _members(group: Any, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield datasets and groups that hold a sparse matrix, with their paths."""
    import h5py

    for name in group:
        member = own_member(group, name)
        if member is None:
            continue
        if not is_group(member) or all(own_member(member, part) is not None for part in CSR):
            yield f"{path}{name}", member
            continue
        address = h5py.h5o.get_info(member.id).addr
        if address not in seen and depth < _DEEPEST and len(seen) < _MOST_MEMBERS:  # Groups may contain themselves.
            seen.add(address)
            yield from _members(member, f"{path}{name}/", depth + 1, seen)


def _check(dataset: Any, place: Path, bounds: Bounds) -> None:
    """Raise FileError for numbers in other files, and for sizes that are out of proportion to the file."""
    name = f"{dataset.name!r} in {place}"
    if getattr(dataset, "is_virtual", False) or getattr(dataset, "external", None):
        raise FileError(f"{name} has its numbers in other files; copy them into one file first.")
    check_sizes(dataset, place, bounds)
    chunks = dataset.chunks or dataset.shape
    count = prod(-(-side // chunk) * chunk for side, chunk in zip(dataset.shape, chunks, strict=True) if chunk)
    size, stored = count * dataset.dtype.itemsize, dataset.id.get_storage_size()
    if stored > 2 * size + _SLACK:
        raise FileError(f"{name} is damaged: {stored} bytes are stored for {size} bytes of numbers.")
    about = dataset.id.get_create_plist()
    filters = [about.get_filter(number)[0] for number in range(about.get_nfilters())]
    compressors = [number for number in filters if number not in _NOT_COMPRESSORS]
    if not compressors:
        return
    if len(compressors) > 1 or len(set(filters)) < len(filters):
        raise FileError(f"{name} must be compressed once, by one compressor. Got filters {filters}.")
    if not set(filters[filters.index(compressors[0]) + 1 :]) <= _OUTER_FILTERS:
        raise FileError(f"{name} must be compressed after its other filters. Got filters {filters}.")
    _check_chunks(dataset, name, filters, bounds)


def _check_chunks(dataset: Any, name: str, filters: list[int], bounds: Bounds) -> None:
    """Raise FileError for chunks that may decompress to much more than a chunk: HDF5 does not limit it."""
    if not hasattr(dataset.id, "chunk_iter"):
        log.info("The chunks of %s are not checked: this needs h5py with HDF5 1.12.3 or later", name)
        return
    size = prod(dataset.chunks) * dataset.dtype.itemsize
    ratio, most_memory = _DEFLATE_RATIO if _DEFLATE in filters else 0, bounds.most_memory
    doubtful: list[tuple[int, ...]] = []
    largest = 0

    def visit(chunk: Any) -> None:
        nonlocal largest
        largest = max(largest, chunk.size)
        if ratio * chunk.size > most_memory:
            doubtful.append(chunk.chunk_offset)

    dataset.id.chunk_iter(visit)  # Reads the index only.
    if largest > 2 * size + _SLACK:
        raise FileError(f"{name} is damaged: {largest} bytes are stored for a chunk of {size}.")
    for offset in doubtful:
        _check_deflated(dataset, name, filters, offset, size)


def _check_deflated(dataset: Any, name: str, filters: list[int], offset: tuple[int, ...], size: int) -> None:
    """Raise FileError for a chunk that decompresses to much more than a chunk; it is decompressed up to that size."""
    mask, raw = dataset.id.read_direct_chunk(offset)
    applied = [number for at, number in enumerate(filters) if not mask >> at & 1]
    if _DEFLATE not in applied:
        return
    outer = applied[applied.index(_DEFLATE) + 1 :]
    if _SHUFFLE in outer:
        raise FileError(f"{name} must be shuffled before it is deflated. Got filters {filters}.")
    most = 2 * size + _SLACK
    found = decompressed_size({"id": "zlib"}, raw[: len(raw) - _CHECKSUM_BYTES * (_FLETCHER32 in outer)], most)
    if found > most:
        sizes = f"{found} bytes or more instead of {size}"
        raise FileError(f"{name} is damaged: the chunk at {offset} decompresses to {sizes}.")


def whole(dataset: Any, place: Path, bounds: Bounds) -> Array:
    """Read a whole dataset into memory."""
    _check(dataset, place, bounds)
    bounds.memory(prod(dataset.shape) * np.dtype(dataset.dtype).itemsize, f"{dataset.name!r}")
    return np.asarray(dataset[...])
