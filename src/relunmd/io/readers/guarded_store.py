"""A folder as a Zarr store that checks every file when it is read: its type, its size, its decompressed size."""

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
from relunmd.io.readers.chunk_sizes import decompressed_size

METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata", ".zattrs")
_MOST_METADATA, _MOST_METADATA_IN_ALL = 1 << 24, 1 << 26
_SLACK = 2**16
_INDEX_ENTRY = 16
_MISSING = 2**64 - 1
_MOST_REMEMBERED = 100_000
_EXIT_SECONDS = 5


@dataclass(frozen=True)
class ChunkPlan:
    """How the chunks of an array are stored.

    Attributes
    ----------
    size : int
        Bytes of a chunk, decompressed.
    compressor : dict or None
        Its configuration, with its name as ``"id"``.
    before, after : int
        Bytes of checksums around a compressed chunk.
    shard_chunks : int
        Number of chunks in a shard; 0 if each chunk has its own file.
    index_at_end : bool
        Where the index of a shard is.
    index_checksum : int
        Bytes of the checksum of the index.
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
        """The largest size of a file; compressed chunks may be slightly larger than their numbers."""
        return 2 * self.size * max(1, self.shard_chunks) + 2 * self.index_size + _SLACK

    def check(self, raw: memoryview, byte_range: ByteRequest | None) -> None:
        """Raise FileError if a file, or a part of it, holds a chunk that decompresses to more than a chunk."""
        at_end = self.index_at_end
        if self.shard_chunks and byte_range is None:
            if len(raw) >= self.index_size:  # Otherwise Zarr raises.
                start = len(raw) - self.index_size if at_end else 0
                index = np.frombuffer(raw, "<u8", 2 * self.shard_chunks, start).reshape(-1, 2)
                for first, length in index[(index != _MISSING).any(axis=1)].tolist():
                    self._check_chunk(raw[first : first + length])
        elif byte_range != (SuffixByteRequest(self.index_size) if at_end else RangeByteRequest(0, self.index_size)):
            self._check_chunk(raw)  # It is not the index.

    def _check_chunk(self, raw: memoryview) -> None:
        if self.compressor is not None:
            most = 2 * self.size + 2 * _SLACK
            found = decompressed_size(self.compressor, raw[self.before : len(raw) - self.after], most)
            if found > most:
                raise FileError(f"it decompresses to {found} bytes or more instead of {self.size}")


class GuardedStore(LocalStore):
    """A read-only store on the local file system that checks files when they are read.

    The type and size of a file are checked each time, since it may be replaced; its decompressed size is checked once.
    Metadata may have 16 MB per file and 64 MB in total. An array can be read once `plans` has its path.
    """

    def __init__(self, root: Path | str, *, read_only: bool = True) -> None:
        super().__init__(root, read_only=read_only)
        self.plans: dict[str, ChunkPlan] = {}
        self._metadata: dict[str, int] = {}
        self._checked: set[int] = set()

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        if not self._check_file(key):
            return None
        found = await super().get(key, prototype, byte_range)
        request = hash((key, byte_range))
        if found is None or request in self._checked:
            return found
        plan = self._plan(key)
        if plan is not None and plan.compressor is not None:
            await asyncio.to_thread(self._check, plan, key, found, byte_range)
        if len(self._checked) < _MOST_REMEMBERED:  # So that later passes take no longer.
            self._checked.add(request)
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
        """Return how the array of a chunk is stored; None for metadata."""
        folder, _, name = key.rpartition("/")
        if name in METADATA:
            return None
        while folder and folder not in self.plans:
            folder = folder.rpartition("/")[0]
        if folder not in self.plans:
            raise FileError(f"{printable(self.root / key)} must not be read before its array has been checked.")
        return self.plans[folder]

    def _check_file(self, key: str) -> bool:
        """Return whether there is a file. Raise FileError for devices, pipes and files that are too large."""
        place = self.root / key
        try:
            about = place.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        if stat.S_ISDIR(about.st_mode):
            return False
        if not stat.S_ISREG(about.st_mode):
            raise FileError(f"{printable(place)} must be a regular file. It is a device, a pipe or a socket.")
        plan = self._plan(key)
        if plan is None:
            self._metadata[key] = about.st_size
            if about.st_size > _MOST_METADATA or sum(self._metadata.values()) > _MOST_METADATA_IN_ALL:
                raise FileError(f"{printable(place)} has too much metadata for a Zarr array: {about.st_size} bytes.")
        elif about.st_size > plan.most_stored:
            raise FileError(f"{printable(place)} is damaged: it has {about.st_size} bytes for a chunk of {plan.size}.")
        return True

    def _check(self, plan: ChunkPlan, key: str, found: Buffer, byte_range: ByteRequest | None) -> None:
        try:
            plan.check(found.as_numpy_array().view(np.uint8).data, byte_range)
        except Exception as reason:  # A damaged chunk makes the decompressors raise various exceptions.
            raise FileError(f"{printable(self.root / key)} is damaged: {reason}.") from reason


@atexit.register
def _cancel_reads() -> None:
    """Cancel at exit what is left of a read that failed.

    Zarr does not wait for the other chunks of such a read and stops its event loop at exit; asyncio then prints a
    message for each of them. Functions run in the reverse order of their registration, so this runs before Zarr's.
    """
    loop = sync.loop[0]
    if loop is not None and loop.is_running():
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_tasks(), loop).result(_EXIT_SECONDS)


async def _cancel_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
