"""The size that a compressed chunk decompresses to, found without decompressing all of it.

Zarr and numcodecs do not limit it: numcodecs allocates what the header of a zstd, Blosc or LZ4 chunk claims, and gzip,
zlib, bz2 and lzma are decompressed to the end. So 66 kB can take 2 GB before Zarr compares the size with that of the
chunk. Here headers are read, and formats without a header are decompressed up to a limit.
"""

import bz2
import lzma
import zlib
from collections.abc import Mapping
from typing import Any

Raw = bytes | memoryview
COMPRESSORS = {"blosc", "lz4", "zstd", "bz2", "gzip", "lzma", "zlib"}
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
"""The last three bytes of the magic number of a skippable frame; the first is 0x50 to 0x5F."""
_ZSTD_BLOCK = 1 << 17
_MOST_STREAMS = 1000
_MOST_LZMA_MEMORY = 2**28


def decompressed_size(codec: Mapping[str, Any], raw: Raw, most: int) -> int:
    """Return the number of bytes that a chunk decompresses to, or an upper bound.

    Parameters
    ----------
    codec : dict
        The compressor's configuration, with its name as ``"id"``.
    raw : bytes or memoryview
        The chunk.
    most : int
        A size above this need not be exact.

    Examples
    --------
    >>> decompressed_size({"id": "zlib"}, zlib.compress(bytes(5000)), 10_000)
    5000
    >>> decompressed_size({"id": "zlib"}, zlib.compress(bytes(5000)), 100)
    101
    """
    name = codec["id"]
    if name == "zstd":
        return _zstd(raw)
    if name in ("blosc", "lz4"):  # Their chunks begin with their size.
        return int.from_bytes(raw[:4] if name == "lz4" else raw[4:8], "little")
    size = 0
    for _ in range(_MOST_STREAMS):  # One stream may follow another.
        decompressor = _decompressor(codec)
        size += len(decompressor.decompress(raw, most + 1 - size))
        raw = decompressor.unused_data.lstrip(b"\0")
        if not decompressor.eof or size > most or not raw:  # The codec reports a truncated stream.
            return size
    raise ValueError(f"a chunk has more than {_MOST_STREAMS} compressed streams")


def _decompressor(codec: Mapping[str, Any]) -> Any:
    if codec["id"] == "bz2":
        return bz2.BZ2Decompressor()
    if codec["id"] == "lzma":
        form = codec.get("format", lzma.FORMAT_XZ)
        limit = None if form == lzma.FORMAT_RAW else _MOST_LZMA_MEMORY
        return lzma.LZMADecompressor(form, limit, codec.get("filters"))
    return zlib.decompressobj(31 if codec["id"] == "gzip" else 15)


def _zstd(raw: Raw) -> int:
    """Return the sum over all frames, since numcodecs decompresses all of them.

    If every frame has a content size, numcodecs allocates their sum. Otherwise it decompresses block by block, so a
    content size that is smaller than what the blocks can hold is not used.
    """
    declared, most, complete, at = 0, 0, True, 0
    while at < len(raw) or not at:  # An empty chunk is invalid too.
        if raw[at + 1 : at + 4] == _ZSTD_SKIPPABLE and raw[at] >> 4 == 5:
            at += 8 + int.from_bytes(raw[at + 4 : at + 8], "little")
            continue
        content, blocks, at = _zstd_frame(raw, at)
        complete = complete and content is not None
        declared += content or 0
        most += max(content or 0, blocks)
    return declared if complete else most


def _zstd_frame(raw: Raw, at: int) -> tuple[int | None, int, int]:
    """Return the content size of a frame or None, the most that its blocks can hold, and where the next frame begins.

    RFC 8878, 3.1.1: a header, blocks of which one is marked as the last, and an optional checksum.
    """
    if raw[at : at + 4] != _ZSTD or len(raw) < at + 6:
        raise ValueError("a chunk is not in zstd format")
    descriptor = raw[at + 4]
    single = descriptor >> 5 & 1
    at += 6 - single + (0, 1, 2, 4)[descriptor & 3]
    width = (single, 2, 4, 8)[descriptor >> 6]
    content = int.from_bytes(raw[at : at + width], "little") + (256 if width == 2 else 0) if width else None
    at += width
    size, last = 0, False
    while not last and at + 3 <= len(raw):
        header = int.from_bytes(raw[at : at + 3], "little")
        last, kind, length = bool(header & 1), header >> 1 & 3, header >> 3
        size += _ZSTD_BLOCK if kind == 2 else length
        at += 3 + (1 if kind == 1 else length)
    return content, size, at + 4 * (descriptor >> 2 & 1) if last else len(raw)
