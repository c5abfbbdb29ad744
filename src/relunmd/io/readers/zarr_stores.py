"""Zarr stores: arrays, which stay in their folder, and sparse matrices stored as groups.

Only codecs that unpack numbers are let through; one of Zarr's can unpickle, which would execute what a file says.
"""

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relunmd._util import need
from relunmd.errors import FileError
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.chunk_sizes import COMPRESSORS
from relunmd.io.readers.contents import Entry
from relunmd.io.readers.stored_files import CSR, check_sizes, is_group, stored_entry

if TYPE_CHECKING:
    from relunmd.io.readers.guarded_store import ChunkPlan

__all__ = ["is_zarr", "zarr_entries"]

_MARKS = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")
_CHECKSUMS = {"adler32": "start", "crc32": "start", "crc32c": "end", "fletcher32": "end"}
"""Codecs that add four bytes to a chunk, and where they do unless their configuration says otherwise."""
_CODECS = COMPRESSORS | _CHECKSUMS.keys() | {
    "astype", "bitround", "bytes", "delta", "fixedscaleoffset", "packbits", "quantize", "sharding_indexed", "shuffle",
    "transpose",
}  # fmt: skip
_DTYPES = ("dtype", "astype", "encode_dtype", "decode_dtype")
_INDEXES: dict[bool, list[list[str]]] = {False: [[]], True: [["bytes"], ["bytes", "crc32c"]]}
"""Codecs of the index of a shard."""
_DEEPEST = 8


def is_zarr(place: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return any((place / mark).is_file() for mark in _MARKS)


def zarr_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """The arrays and sparse matrices of a store."""
    zarr = need("zarr", f"{place} is a Zarr store; it needs", "files")
    from relunmd.io.readers.guarded_store import GuardedStore

    store: Any = zarr.open(store=GuardedStore(place), mode="r")
    if not is_group(store):
        return [stored_entry(place, "", store, bounds, _check)]
    return [stored_entry(place, name, member, bounds, _check) for name, member in _members(store, "", 0, set())]


def _members(group: Any, path: str, depth: int, seen: set[tuple[int, int]]) -> Iterator[tuple[str, Any]]:
    """Arrays and groups that hold a sparse matrix, by their names in the store; each folder is visited once."""
    folder = group.store.root / group.path
    about = folder.stat()
    if (about.st_dev, about.st_ino) in seen:  # Links may lead to the folder that they are in.
        return
    seen.add((about.st_dev, about.st_ino))
    # Links come last: a folder keeps its own name.
    for name, member in sorted(group.members(), key=lambda found: ((folder / found[0]).is_symlink(), found[0])):
        place = f"{path}{name}"
        if not is_group(member) or all(part in member for part in CSR):
            yield place, member
        elif depth < _DEEPEST:
            yield from _members(member, f"{place}/", depth + 1, seen)


def _check(array: Any, place: Path, bounds: Bounds) -> None:
    """Refuse an array whose size has nothing to do with that of the store, or that is packed in an unusual way."""
    codecs = _check_codecs(array, place)
    check_sizes(array, place, bounds)
    # Its chunks are checked one by one when they are read.
    array.store.plans[str(array.path)] = _plan(array, place, codecs)


def _check_codecs(array: Any, place: Path) -> list[dict[str, Any]]:
    """The codecs, each with its name as "id", in the order in which they pack a chunk."""
    about = array.metadata.to_dict()
    packing = [*(about.get("filters") or ()), about.get("compressor"), *(about.get("codecs") or ())]
    return [found for codec in packing if codec is not None for found in [_described(codec, array, place)]]


def _described(codec: Any, array: Any, place: Path) -> dict[str, Any]:
    if not isinstance(codec, dict):
        codec = codec.get_config() if hasattr(codec, "get_config") else codec.to_dict()
    name = str(codec.get("id", codec.get("name", ""))).removeprefix("numcodecs.")
    if name not in _CODECS:
        raise FileError(f"{array.name!r} in {place} must be packed by one of the usual codecs. Got {name!r}.")
    configuration = codec.get("configuration", codec)
    found = {**(configuration if isinstance(configuration, dict) else {}), "id": name}
    for key in ("codecs", "index_codecs"):
        if key in found:
            found[key] = [_described(inner, array, place) for inner in found[key]]
    for key in _DTYPES:
        if found.get(key) is not None and np.dtype(found[key]).kind not in "biuf":
            raise FileError(f"{array.name!r} in {place} must hold real numbers. Its codec {name!r} gives {found[key]}.")
    return found


def _plan(array: Any, place: Path, codecs: list[dict[str, Any]]) -> "ChunkPlan":
    """How the chunks of an array are stored; FileError if they are packed more than once."""
    from relunmd.io.readers.guarded_store import ChunkPlan

    shards = [codec for codec in codecs if codec["id"] == "sharding_indexed"]
    sharding: dict[str, Any] = shards[0] if shards else {"codecs": codecs, "index_codecs": []}
    inner, index = sharding["codecs"], [codec["id"] for codec in sharding["index_codecs"]]
    packed = [at for at, codec in enumerate(inner) if codec["id"] in COMPRESSORS]
    outer = [codec["id"] for codec in inner[packed[-1] + 1 :]] if packed else []
    nested = shards and (codecs[-1] is not sharding or any(codec["id"] == "sharding_indexed" for codec in inner))
    if len(packed) > 1 or not set(outer) <= _CHECKSUMS.keys() or nested or index not in _INDEXES[bool(shards)]:
        names = ", ".join(codec["id"] for codec in [*codecs, *(inner if shards else ())])
        raise FileError(f"{array.name!r} in {place} must be packed once, by one compressor. Got the codecs {names}.")
    checksums = (
        [codec.get("location") or _CHECKSUMS[codec["id"]] for codec in inner[packed[-1] + 1 :]] if packed else []
    )
    dtypes = [array.dtype, *(codec[key] for codec in inner for key in _DTYPES if codec.get(key) is not None)]
    return ChunkPlan(
        size=prod(array.chunks) * max(np.dtype(dtype).itemsize for dtype in dtypes),
        compressor=inner[packed[0]] if packed else None,
        before=4 * checksums.count("start"),
        after=4 * checksums.count("end"),
        shard_chunks=prod(array.shards) // prod(array.chunks) if shards else 0,
        index_at_end=sharding.get("index_location", "end") == "end",
        index_checksum=4 * ("crc32c" in index),
    )
