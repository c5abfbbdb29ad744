"""Zarr stores: arrays, which stay in their folder, and sparse matrices stored as groups.

Only codecs that decode numbers are accepted: one of Zarr's unpickles, which executes code. Opening a store reads its
metadata; chunks are checked when they are read (`guarded_store`).
"""

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from relunmd._util import need
from relunmd.errors import FileError
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.chunk_sizes import COMPRESSORS
from relunmd.io.readers.contents import Entry
from relunmd.io.readers.stored_files import check_sizes, stored_entry
from relunmd.io.sparse_groups import CSR, is_group

_MARKS = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")
_CHECKSUMS = {"adler32": "start", "crc32": "start", "crc32c": "end", "fletcher32": "end"}
"""Codecs that add four bytes to a chunk, and where they do by default."""
_CODECS = COMPRESSORS | _CHECKSUMS.keys() | {
    "astype", "bitround", "bytes", "delta", "fixedscaleoffset", "packbits", "quantize", "sharding_indexed", "shuffle",
    "transpose",
}  # fmt: skip
_DTYPES = ("dtype", "astype", "encode_dtype", "decode_dtype")
_INDEX_CODECS: tuple[list[str], ...] = (["bytes"], ["bytes", "crc32c"])
_DEEPEST = 8


def is_zarr(place: Path) -> bool:
    """Return whether a folder is a Zarr store."""
    return any((place / mark).is_file() for mark in _MARKS)


def zarr_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """Describe the arrays and sparse matrices of a store."""
    zarr = need("zarr", f"{place} is a Zarr store; it needs", "files")
    from relunmd.io.readers.guarded_store import GuardedStore

    store: Any = zarr.open(store=GuardedStore(place), mode="r")
    members = _members(store, "", 0, set()) if is_group(store) else [("", store)]
    return [stored_entry(place, name, member, bounds, _check) for name, member in members]


def _members(group: Any, path: str, depth: int, seen: set[tuple[int, int]]) -> Iterator[tuple[str, Any]]:
    """Yield arrays and groups that hold a sparse matrix, with their paths; each folder is visited once."""
    folder = group.store.root / group.path
    about = folder.stat()
    if (about.st_dev, about.st_ino) in seen:  # Links may lead to the folder that they are in.
        return
    seen.add((about.st_dev, about.st_ino))
    # Links come last, so that a folder is found by its own name.
    for name, member in sorted(group.members(), key=lambda found: ((folder / found[0]).is_symlink(), found[0])):
        if not is_group(member) or all(part in member for part in CSR):
            yield f"{path}{name}", member
        elif depth < _DEEPEST:
            yield from _members(member, f"{path}{name}/", depth + 1, seen)


def _check(array: Any, place: Path, bounds: Bounds) -> None:
    """Raise FileError for unusual codecs and for sizes that are out of proportion to the store."""
    codecs = _check_codecs(array, place)
    check_sizes(array, place, bounds)
    array.store.plans[str(array.path)] = _plan(array, place, codecs)


def _check_codecs(array: Any, place: Path) -> list[dict[str, Any]]:
    """Return the configurations of the codecs, with their names as "id", in the order of encoding."""
    about = array.metadata.to_dict()
    codecs = [*(about.get("filters") or ()), about.get("compressor"), *(about.get("codecs") or ())]
    return [_configuration(codec, array, place) for codec in codecs if codec is not None]


def _configuration(codec: Any, array: Any, place: Path) -> dict[str, Any]:
    if not isinstance(codec, dict):
        codec = codec.get_config() if hasattr(codec, "get_config") else codec.to_dict()
    name = str(codec.get("id", codec.get("name", ""))).removeprefix("numcodecs.")
    if name not in _CODECS:
        raise FileError(f"{array.name!r} in {place} must use supported codecs only. Got {name!r}.")
    configuration = codec.get("configuration", codec)
    found = {**(configuration if isinstance(configuration, dict) else {}), "id": name}
    for key in ("codecs", "index_codecs"):
        if key in found:
            found[key] = [_configuration(inner, array, place) for inner in found[key]]
    for key in _DTYPES:
        if found.get(key) is not None and np.dtype(found[key]).kind not in "biuf":
            raise FileError(f"{array.name!r} in {place} must hold real numbers. Its codec {name!r} gives {found[key]}.")
    return found


def _plan(array: Any, place: Path, codecs: list[dict[str, Any]]) -> Any:
    """Return how the chunks of an array are stored, a ChunkPlan; FileError if they are compressed more than once."""
    from relunmd.io.readers.guarded_store import ChunkPlan

    names = [codec["id"] for codec in codecs]
    sharded = "sharding_indexed" in names
    sharding: dict[str, Any] = codecs[-1] if sharded else {}
    inner = sharding.get("codecs", []) if sharded else codecs
    index = [codec["id"] for codec in sharding.get("index_codecs", ())]
    compressors = [at for at, codec in enumerate(inner) if codec["id"] in COMPRESSORS]
    outer = inner[compressors[0] + 1 :] if compressors else []
    if (
        len(compressors) > 1
        or not {codec["id"] for codec in outer} <= _CHECKSUMS.keys()
        or (sharded and (names.index("sharding_indexed") < len(names) - 1 or index not in _INDEX_CODECS))
        or any(codec["id"] == "sharding_indexed" for codec in inner)
    ):
        listed = ", ".join([*names, *(codec["id"] for codec in inner if sharded)])
        raise FileError(f"{array.name!r} in {place} must be compressed once, by one compressor. Got codecs {listed}.")
    checksums = [codec.get("location") or _CHECKSUMS[codec["id"]] for codec in outer]
    dtypes = [array.dtype, *(codec[key] for codec in inner for key in _DTYPES if codec.get(key) is not None)]
    return ChunkPlan(
        size=prod(array.chunks) * max(np.dtype(dtype).itemsize for dtype in dtypes),
        compressor=inner[compressors[0]] if compressors else None,
        before=4 * checksums.count("start"),
        after=4 * checksums.count("end"),
        shard_chunks=prod(array.shards) // prod(array.chunks) if sharded else 0,
        index_at_end=sharding.get("index_location", "end") == "end",
        index_checksum=4 * ("crc32c" in index),
    )
