"""Zarr stores: arrays, which stay in their folder, and sparse matrices stored as groups.

Only codecs that unpack numbers are let through; one of Zarr's can unpickle, which would execute what a file says.
"""

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from relunmd.errors import FileError
from relunmd.optional import need
from relunmd.readers.bounds import Bounds
from relunmd.readers.contents import Entry
from relunmd.readers.stored import CSR, check_sizes, is_group, stored_entry

__all__ = ["is_zarr", "zarr_entries"]

_MARKS = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")
_METADATA = {*_MARKS, ".zattrs"}
_MOST_METADATA = 1 << 24
_SLACK = 2**16
_INDEX = 32
"""Bytes that a shard has for each chunk besides its content, at most."""
_CODECS = {
    "adler32", "astype", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta", "fixedscaleoffset",
    "fletcher32", "gzip", "lz4", "lzma", "packbits", "quantize", "sharding_indexed", "shuffle", "transpose", "zlib",
    "zstd",
}  # fmt: skip
_DEEPEST = 8


def is_zarr(place: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return any((place / mark).is_file() for mark in _MARKS)


def zarr_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """The arrays and sparse matrices of a store."""
    zarr = need("zarr", f"{place} is a Zarr store; it needs", "files")
    for mark in _MARKS:
        file = place / mark
        if file.is_file() and file.stat().st_size > _MOST_METADATA:
            raise FileError(f"{file} must describe a Zarr store. It has {file.stat().st_size} bytes.")
    store: Any = zarr.open(str(place), mode="r")
    if not is_group(store):
        return [stored_entry(place, "", store, bounds, _check)]
    return [stored_entry(place, name, member, bounds, _check) for name, member in _members(store, "", 0)]


def _members(group: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, member in sorted(group.members()):
        place = f"{path}{name}"
        if not is_group(member) or all(part in member for part in CSR):
            yield place, member
        elif depth < _DEEPEST:
            yield from _members(member, f"{place}/", depth + 1)


def _check(array: Any, place: Path, bounds: Bounds) -> None:
    _check_codecs(array, place)
    check_sizes(array, place, bounds)
    # Packed, a chunk may be somewhat larger than it is, but a small one that is large unpacks to much more.
    stored_together = prod(getattr(array, "shards", None) or array.chunks)
    index = _INDEX * (stored_together // prod(array.chunks))
    size = stored_together * np.dtype(array.dtype).itemsize
    for file in (place / str(array.path)).rglob("*"):
        if file.is_file() and file.name not in _METADATA and file.stat().st_size > 2 * size + index + _SLACK:
            raise FileError(f"{file} is damaged: it has {file.stat().st_size} bytes for a chunk of {size}.")


def _check_codecs(array: Any, place: Path) -> None:
    about = array.metadata.to_dict()
    wanted = [about.get("compressor"), *(about.get("filters") or ()), *(about.get("codecs") or ())]
    for codec in _flat(wanted):
        name = str(codec.get("id", codec.get("name", ""))).removeprefix("numcodecs.")
        if name not in _CODECS:
            raise FileError(f"{array.name!r} in {place} must be packed by one of the usual codecs. Got {name!r}.")


def _flat(codecs: Any) -> Iterator[Any]:
    """The codecs, and those within them."""
    for codec in codecs:
        found = codec if isinstance(codec, dict) or codec is None else _as_dictionary(codec)
        if found is None:
            continue
        yield found
        inner = found.get("configuration")
        if isinstance(inner, dict):
            yield from _flat([*(inner.get("codecs") or ()), *(inner.get("index_codecs") or ())])


def _as_dictionary(codec: Any) -> dict[str, Any]:
    described: dict[str, Any] = codec.get_config() if hasattr(codec, "get_config") else codec.to_dict()
    return described
