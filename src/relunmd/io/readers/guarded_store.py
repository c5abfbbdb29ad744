"""A folder as a Zarr store in which every file is checked when it is read: its kind, its size, what it unpacks to."""

import asyncio
import atexit
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from zarr.abc.store import ByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core import sync
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore

from relunmd._util import printable
from relunmd.errors import FileError
from relunmd.io.readers.chunk_sizes import HEADERS, unpacked_size

__all__ = ["METADATA", "ChunkPlan", "GuardedStore"]

METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata", ".zattrs")
_MOST_METADATA, _MOST_METADATA_IN_ALL = 1 << 24, 1 << 26
_SLACK = 2**16
_INDEX_ENTRY = 16
_MISSING = 2**64 - 1
_MOST_REMEMBERED = 100_000
_LONGEST_EXIT = 5
"""Seconds."""


@dataclass(frozen=True)
class ChunkPlan:
    """How the chunks of an array are stored.

    Attributes
    ----------
    size : bytes of a chunk, decompressed
    compressor : its name, as ``"id"``, and configuration; None if chunks are not compressed
    before, after : bytes of checksums around a compressed chunk
    shard_chunks : number of chunks in a shard; 0 if each chunk has a file of its own
    index_at_end, index_checksum : where the index of a shard is, and bytes of its checksum
    """

    size: int
    compressor: dict[str, Any] | None
    before: int = 0
    after: int = 0
    shard_chunks: int = 0
    index_at_end: bool = True
    index_checksum: int = 0

    @property
    def index_size(self) -> int:
        return _INDEX_ENTRY * self.shard_chunks + self.index_checksum

    @property
    def most_stored(self) -> int:
        """Bytes of a file. A packed chunk may be larger than it is, but not by much."""
        return 2 * self.size * max(1, self.shard_chunks) + 2 * self.index_size + _SLACK

    @property
    def most_unpacked(self) -> int:
        return 2 * self.size + 2 * _SLACK

    def check(self, raw: memoryview, byte_range: ByteRequest | None) -> None:
        """Raise FileError if a file, or a part of it, holds a chunk that unpacks to more than a chunk."""
        if self.compressor is None or self._is_index(byte_range):
            return
        if self.shard_chunks and byte_range is None:
            for start, length in self._index(raw):
                self._check_chunk(raw[start : start + length])
        else:
            self._check_chunk(raw)

    def _is_index(self, byte_range: ByteRequest | None) -> bool:
        if self.index_at_end:
            return isinstance(byte_range, SuffixByteRequest)
        return byte_range == RangeByteRequest(0, self.index_size)

    def _index(self, raw: memoryview) -> list[list[int]]:
        """The first byte and the length of each chunk that a shard holds."""
        if len(raw) < self.index_size:
            return []  # Zarr raises.
        start = len(raw) - self.index_size if self.index_at_end else 0
        index = np.frombuffer(raw, "<u8", 2 * self.shard_chunks, start).reshape(-1, 2)
        found: list[list[int]] = index[(index != _MISSING).any(axis=1)].tolist()
        return found

    def _check_chunk(self, raw: memoryview) -> None:
        if self.compressor is None:
            return
        found = unpacked_size(self.compressor, raw[self.before : len(raw) - self.after], self.most_unpacked)
        if found > self.most_unpacked:
            raise FileError(f"it unpacks to {found} bytes or more, and a chunk has {self.size}")


class GuardedStore(LocalStore):
    """A read-only store on the local file system, whose files are checked when they are read.

    Their kind and size are checked each time, as a file may be replaced; what they unpack to is checked once.
    Metadata may have 16 MB a file and 64 MB in all. Chunks are read once their array has a plan, by the array's path.
    """

    def __init__(self, root: Path | str, *, read_only: bool = True) -> None:
        super().__init__(root, read_only=read_only)
        self.plans: dict[str, ChunkPlan] = {}
        self._metadata: dict[str, int] = {}
        self._metadata_bytes = 0
        self._checked: set[int] = set()

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        if not self._check_file(key):
            return None
        found = await super().get(key, prototype, byte_range)
        asked = hash((key, byte_range))
        if found is None or asked in self._checked:
            return found
        plan = self._plan(key)
        if plan is not None and plan.compressor is not None:
            if plan.compressor["id"] in HEADERS and not (plan.shard_chunks and byte_range is None):
                self._check(plan, key, found, byte_range)
            else:
                await asyncio.to_thread(self._check, plan, key, found, byte_range)
        if len(self._checked) < _MOST_REMEMBERED:  # So that later passes take no longer.
            self._checked.add(asked)
        return found

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        if not self._check_file(key):
            return None
        found = super().get_sync(key, prototype=prototype, byte_range=byte_range)
        plan = self._plan(key)
        if found is not None and plan is not None:
            self._check(plan, key, found, byte_range)
        return found

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    def _plan(self, key: str) -> ChunkPlan | None:
        """How the array is stored whose chunk this is; None for metadata."""
        folder, _, name = key.rpartition("/")
        if name in METADATA:
            return None
        while folder and folder not in self.plans:
            folder = folder.rpartition("/")[0]
        if folder not in self.plans:
            raise FileError(f"{printable(self.root / key)} must not be read before its array has been checked.")
        return self.plans[folder]

    def _check_file(self, key: str) -> bool:
        """Whether there is a file. Raise FileError for devices, pipes and files that are too large."""
        place = self.root / key
        try:
            about = place.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        if stat.S_ISDIR(about.st_mode):
            return False  # Nothing is stored under this key.
        if not stat.S_ISREG(about.st_mode):
            raise FileError(f"{printable(place)} must be a regular file. It is a device, a pipe or a socket.")
        plan = self._plan(key)
        if plan is not None and about.st_size > plan.most_stored:
            raise FileError(f"{printable(place)} is damaged: it has {about.st_size} bytes for a chunk of {plan.size}.")
        if plan is None:
            self._metadata_bytes += about.st_size - self._metadata.get(key, 0)
            self._metadata[key] = about.st_size
            if about.st_size > _MOST_METADATA or self._metadata_bytes > _MOST_METADATA_IN_ALL:
                raise FileError(
                    f"{printable(place)} must describe a Zarr array or group in few bytes. It has {about.st_size}."
                )
        return True

    def _check(self, plan: ChunkPlan, key: str, found: Buffer, byte_range: ByteRequest | None) -> None:
        try:
            plan.check(found.as_numpy_array().view(np.uint8).data, byte_range)
        except Exception as reason:  # A damaged chunk makes the decompressors raise all sorts of things.
            raise FileError(f"{printable(self.root / key)} is damaged: {reason}.") from reason


@atexit.register
def _cancel_reads() -> None:
    """Cancel at exit what is left of a read that failed.

    Zarr does not wait for the other chunks of such a read, and stops its event loop at exit; asyncio then prints a
    message for each of them. Functions run in the reverse order of their registration, so this one runs before Zarr's.
    """
    loop = sync.loop[0]
    if loop is not None and loop.is_running():
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_tasks(), loop).result(_LONGEST_EXIT)


async def _cancel_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
