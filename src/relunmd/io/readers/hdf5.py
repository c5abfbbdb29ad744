"""HDF5 files (.h5, .hdf5, .h5ad): datasets, which stay in the file, and sparse matrices stored as groups.

What a file has elsewhere is not followed: links to other files, datasets whose numbers lie in others.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd._util import need
from relunmd.errors import FileError
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.chunk_sizes import unpacked_size
from relunmd.io.readers.contents import Entry
from relunmd.io.readers.stored_files import CSR, check_sizes, is_group, stored_entry

__all__ = ["SIGNATURE", "has_signature", "hdf5_entries", "opened", "own_member", "whole"]

log = logging.getLogger("relunmd")
SIGNATURE = b"\x89HDF\r\n\x1a\n"
_LARGEST_USER_BLOCK = 2**30
_SLACK = 2**16
"""Packed bytes may be more than the numbers they unpack to, by no more than this and as much again."""
_MOST_MEMBERS, _DEEPEST = 10_000, 16
_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
_HARMLESS_FILTERS = {_SHUFFLE, _FLETCHER32, 5, 6}
"""HDF5's numbers of filters that are no compressors: shuffle, Fletcher32, N-bit, scale-offset."""
_OUTER_FILTERS = {_SHUFFLE, _FLETCHER32}
"""Those that keep the size of a chunk, but for a checksum, so that its stored size bounds what it unpacks to."""
_CHECKSUM_BYTES = 4
_DEFLATE_RATIO = 1032
"""Bytes that a byte of deflate unpacks to at most."""


@contextmanager
def opened(place: Path) -> Iterator[Any]:
    """The file, to be read."""
    h5py = need("h5py", f"{place} is an HDF5 file; it needs", "files")
    with h5py.File(place, "r") as file:
        yield file


def has_signature(place: Path) -> bool:
    """Whether a file is HDF5's, perhaps after 512, 1024, 2048 … bytes of somebody else's."""
    with place.open("rb") as stream:
        size, at = place.stat().st_size, 0
        while at < size and at < _LARGEST_USER_BLOCK:
            stream.seek(at)
            if stream.read(8) == SIGNATURE:
                return True
            at = max(512, 2 * at)
    return False


def own_member(group: Any, name: str) -> Any | None:
    """A member that lies in this file; None for links elsewhere and for types."""
    import h5py

    if name not in group or not isinstance(group.get(name, getlink=True), h5py.HardLink):
        return None
    member = group[name]
    return member if isinstance(member, h5py.Dataset | h5py.Group) else None


def hdf5_entries(place: Path, bounds: Bounds, stack: ExitStack) -> list[Entry]:
    """The arrays and sparse matrices; the file stays open as long as the stack."""
    file = stack.enter_context(opened(place))
    return [stored_entry(place, name, member, bounds, check_dataset) for name, member in _members(file, "", 0, set())]


def _members(group: Any, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Datasets and groups that hold a sparse matrix, by their names in the file."""
    import h5py

    for name in group:
        member = own_member(group, name)
        if member is None:
            continue
        place = f"{path}{name}"
        if not is_group(member) or all(own_member(member, part) is not None for part in CSR):
            yield place, member
            continue
        address = h5py.h5o.get_info(member.id).addr
        if address not in seen and depth < _DEEPEST and len(seen) < _MOST_MEMBERS:  # Groups may hold themselves.
            seen.add(address)
            yield from _members(member, f"{place}/", depth + 1, seen)


def check_dataset(dataset: Any, place: Path, bounds: Bounds) -> None:
    """Refuse one that lies elsewhere, or whose size has nothing to do with that of the file."""
    if getattr(dataset, "is_virtual", False) or getattr(dataset, "external", None):
        raise FileError(f"{dataset.name!r} in {place} has its numbers in other files; copy them into one first.")
    check_sizes(dataset, place, bounds)
    chunks = dataset.chunks or dataset.shape
    whole = prod(-(-side // chunk) * chunk for side, chunk in zip(dataset.shape, chunks, strict=True) if chunk)
    size, packed = whole * dataset.dtype.itemsize, dataset.id.get_storage_size()
    if packed > 2 * size + _SLACK:
        raise FileError(
            f"{dataset.name!r} in {place} is damaged: {packed} bytes are stored for {size} bytes of numbers."
        )
    _check_filters(dataset, place, bounds)


def _check_filters(dataset: Any, place: Path, bounds: Bounds) -> None:
    """Refuse chunks that may unpack to much more than a chunk, as HDF5 has no limit: packed twice, or too large."""
    about = dataset.id.get_create_plist()
    filters = [about.get_filter(number)[0] for number in range(about.get_nfilters())]
    compressors = [number for number in filters if number not in _HARMLESS_FILTERS]
    if not compressors:
        return
    if len(compressors) > 1 or len(set(filters)) < len(filters):
        raise FileError(f"{dataset.name!r} in {place} must be packed once, by one compressor. Got filters {filters}.")
    if not set(filters[filters.index(compressors[0]) + 1 :]) <= _OUTER_FILTERS:
        raise FileError(f"{dataset.name!r} in {place} must be compressed after its other filters. Got {filters}.")
    if not hasattr(dataset.id, "chunk_iter"):  # It came with HDF5 1.12.3.
        log.info("The chunks of %r are not checked: h5py is built with HDF5 %s", dataset.name, _library_version())
        return
    size = prod(dataset.chunks) * dataset.dtype.itemsize
    ratio = _DEFLATE_RATIO if compressors == [_DEFLATE] else 0
    largest, most_memory, doubtful = 0, bounds.most_memory, []

    def look(chunk: Any) -> None:
        nonlocal largest
        largest = max(largest, chunk.size)
        if ratio * chunk.size > most_memory:
            doubtful.append(chunk.chunk_offset)

    dataset.id.chunk_iter(look)  # Through the index alone.
    if largest > 2 * size + _SLACK:
        raise FileError(f"{dataset.name!r} in {place} is damaged: {largest} bytes are stored for a chunk of {size}.")
    for offset in doubtful:
        _check_deflated(dataset, place, filters, offset)


def _check_deflated(dataset: Any, place: Path, filters: list[int], offset: tuple[int, ...]) -> None:
    """Refuse a chunk that unpacks to much more than a chunk; it is unpacked up to that size."""
    mask, raw = dataset.id.read_direct_chunk(offset)
    applied = [number for at, number in enumerate(filters) if not mask >> at & 1]
    if _DEFLATE not in applied:
        return
    outer = applied[applied.index(_DEFLATE) + 1 :]
    if _SHUFFLE in outer:
        raise FileError(f"{dataset.name!r} in {place} must be shuffled before it is deflated. Got filters {filters}.")
    size = prod(dataset.chunks) * dataset.dtype.itemsize
    most = 2 * size + _SLACK
    found = unpacked_size({"id": "zlib"}, raw[: len(raw) - _CHECKSUM_BYTES * (_FLETCHER32 in outer)], most)
    if found > most:
        raise FileError(
            f"{dataset.name!r} in {place} is damaged: the chunk at {offset} unpacks to {found} bytes or more, and a "
            f"chunk has {size}."
        )


def _library_version() -> str:
    import h5py

    return str(h5py.version.hdf5_version)


def whole(dataset: Any, place: Path, bounds: Bounds) -> NDArray[Any]:
    """All of a dataset, in memory."""
    check_dataset(dataset, place, bounds)
    bounds.memory(prod(dataset.shape) * np.dtype(dataset.dtype).itemsize, f"{dataset.name!r}")
    return np.asarray(dataset[...])
