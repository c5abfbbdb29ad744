"""Small files that request much memory: `python -m tests.io.readers.hostile FOLDER` writes, opens and reads each.

Prints JSON: for each file the outcome, the message, the seconds, and the bytes by which the memory of the process grew.
Each is opened with a time limit: a reader that hangs gives an outcome, unless it hangs where no signal reaches it.
"""

import bz2
import gzip
import json
import lzma
import os
import re
import shutil
import signal
import sys
import time
import zlib
from pathlib import Path

import h5py
import numcodecs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from PIL import Image

from tests.io.readers.fuzz import Hang, _ring, trial

LONGEST = 10
_UNPACKED = 600 << 20
"""Bytes that bombs unpack to, far beyond what a small file may take."""
_LINES = 8 << 20
_BLOCK = 1 << 17
"""Bytes of the largest block in a zstd frame."""
BANNER = b"%%MatrixMarket matrix coordinate real general\n"


def _files(folder):
    """Write files; each is written when it is requested."""
    zeros = pa.table({"x": np.zeros(10_000_000, np.float32)})
    with pq.ParquetWriter(folder / "zeros.parquet", zeros.schema) as writer:
        for _ in range(20):
            writer.write_table(zeros)
    yield "zeros.parquet"
    zeros = pa.array(np.zeros(1_000_000))
    options = {"use_dictionary": False, "compression": "zstd", "data_page_size": 2**30}
    pq.write_table(pa.table({str(at): zeros for at in range(60)}), folder / "group.parquet", **options)
    yield "group.parquet"
    for name, content in {
        "comments.mtx": BANNER + b"%\n" * _LINES,
        "comments.mtx.gz": gzip.compress(BANNER + b"%\n" * _LINES),
        "comment.mtx": BANNER + b"%" + b"1 1 1 " * _LINES + b"\n",
        "body.mtx": BANNER + b"2 2 1\n" + b"%\n" * _LINES + b"1 1 1\n",
        "line.mtx": BANNER + b"2 2 1\n" + b"1 " * _LINES,
        "blank.csv.gz": gzip.compress(b"\n" * _LINES),
        "late.csv.gz": gzip.compress(b"1,2\n" + b" \n" * _LINES + b"3,4\n"),
        "comments.csv.gz": gzip.compress(b"#\n" * _LINES),
        "line.csv": b"1," * (30 << 20),
        "line.csv.gz": gzip.compress((b"1," * (7 << 20) + b"1\n") * 2),
        "wide.csv.gz": gzip.compress((b"1," * (4 << 20))[:-2] + b"\n" + (b"1," * (4 << 20))[:-2] + b"\n"),
    }.items():
        (folder / name).write_bytes(content)
        yield name


def _images(folder):
    for name, mode in (("grey", "L"), ("coloured", "RGB")):
        (folder / name).mkdir()
        Image.new(mode, (8191, 8191)).save(folder / name / "0.png", compress_level=1)
        for number in (1, 2):
            shutil.copy(folder / name / "0.png", folder / name / f"{number}.png")
        yield name
    (folder / "fifo").mkdir()
    os.mkfifo(folder / "fifo" / "0.png")
    yield "fifo"
    (folder / "device").mkdir()
    (folder / "device" / "0.png").symlink_to("/dev/zero")
    yield "device"


def _stores(folder):
    zarr.create_array(folder / "tiny.zarr", shape=(30_000, 30_000), chunks=(1, 1), dtype="u1")
    yield "tiny.zarr"
    zarr.create_array(folder / "shards.zarr", shape=(30_000, 30_000), chunks=(1, 1), shards=(3_000, 3_000), dtype="u1")
    yield "shards.zarr"
    with h5py.File(folder / "tiny.h5", "w") as file:
        file.create_dataset("X", (30_000, 30_000), "u1", chunks=(1, 1))
    yield "tiny.h5"
    deflated = _many(zlib.compressobj(9), bytes(2**20))
    for name, chunk, filters in (("twice.h5", zlib.compress(deflated), 2), ("chunk.h5", deflated * 20, 1)):
        with h5py.File(folder / name, "w") as file:
            about = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            about.set_chunk((8, 8))
            for _ in range(filters):
                about.set_deflate(9)
            space = h5py.h5s.create_simple((2**10, 2**10))
            X = h5py.h5d.create(file.id, b"X", h5py.h5t.IEEE_F64LE, space, about)
            X.write_direct_chunk((0, 0), chunk)
        yield name
    with h5py.File(folder / "deflate.h5", "w") as file:  # As many bytes are stored as a chunk may have.
        X = file.create_dataset("X", (512, 256), "f8", chunks=(512, 256), compression="gzip")
        X.id.write_direct_chunk((0, 0), _many(zlib.compressobj(9), bytes(2**20), 600))
    yield "deflate.h5"
    for name, change in (("fifo.zarr", os.mkfifo), ("zero.zarr", lambda chunk: chunk.symlink_to("/dev/zero"))):
        chunk = _store(folder / name)
        chunk.unlink()
        change(chunk)
        yield name
    zarr.open_group(str(folder / "inner.zarr"), mode="w").create_array("X", data=np.ones((4, 4)))
    (folder / "inner.zarr" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    (folder / "inner.zarr" / "X" / "zarr.json").unlink()
    os.mkfifo(folder / "inner.zarr" / "X" / "zarr.json")
    yield "inner.zarr"
    zarr.open_group(str(folder / "large.zarr"), mode="w").create_array("X", data=np.ones((4, 4)))
    about = json.loads((folder / "large.zarr" / "X" / "zarr.json").read_text())
    about["attributes"] = {"a": []}
    lists = f"[{'[],' * 6_000_000}[]]"
    (folder / "large.zarr" / "X" / "zarr.json").write_text(json.dumps(about).replace("[]", lists, 1))
    yield "large.zarr"


def _store(place, compressors="auto", shards=None):
    """A store of one array, and the file of its only chunk."""
    options = {} if compressors == "auto" else {"compressors": compressors}
    zarr.create_array(place, data=np.ones((512, 512)), chunks=(512, 512), shards=shards, **options)
    return place / "c" / "0" / "0"


def _old_store(place, compressor, filters=None):
    """The same in format 2."""
    options = {"zarr_format": 2, "compressors": compressor, "filters": filters}
    zarr.create_array(place, data=np.ones((512, 512)), chunks=(512, 512), **options)
    return place / "0.0"


def _bombs(folder):
    """Chunks that unpack to much more than they are."""
    zeros = np.zeros(_UNPACKED, np.uint8)
    packed = numcodecs.Zstd(level=1).encode(zeros)
    unsized = frame([_BLOCK] * 4_801)
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    for name, codec, content in (
        ("zstd", ZstdCodec(), packed),
        ("unsized", ZstdCodec(), unsized),
        ("frames", ZstdCodec(), frame([128]) + unsized),
        ("blosc", BloscCodec(), numcodecs.Blosc("zstd", 1).encode(zeros)),
    ):
        _store(folder / f"{name}.zarr", codec).write_bytes(content)
        yield f"{name}.zarr"
    del zeros
    few = bytes(2**20)
    deflated = _many(zlib.compressobj(9), few)
    gzipped = _many(zlib.compressobj(9, wbits=31), few)
    _store(folder / "gzip.zarr", GzipCodec()).write_bytes(gzipped)
    yield "gzip.zarr"
    for name, codec, content in (
        ("old zlib", numcodecs.Zlib(), deflated),
        ("old gzip", numcodecs.GZip(), gzipped),
        ("old bz2", numcodecs.BZ2(), _many(bz2.BZ2Compressor(1), few)),
        ("old lzma", numcodecs.LZMA(), _many(lzma.LZMACompressor(preset=0), few)),
        ("old lz4", numcodecs.LZ4(), (2**31 - 2**20).to_bytes(4, "little") + bytes(1000)),
        ("old zstd", numcodecs.Zstd(), packed),
    ):
        _old_store(folder / f"{name}.zarr", codec).write_bytes(content)
        yield f"{name}.zarr"
    _old_store(folder / "twice.zarr", numcodecs.Zlib(), [numcodecs.Zlib()]).write_bytes(zlib.compress(deflated))
    yield "twice.zarr"
    chunk = _store(folder / "shard.zarr", ZstdCodec(), shards=(512, 512))
    chunk.write_bytes(_shard(packed))
    yield "shard.zarr"


def frame(lengths, size=None):
    """A zstd frame of zeros, in blocks of one repeated byte; its header says a size, or none."""
    start = bytes([0x28, 0xB5, 0x2F, 0xFD, 0x00 if size is None else 0x80, 0x58])
    start += b"" if size is None else size.to_bytes(4, "little")
    last = len(lengths) - 1
    blocks = ((length << 3 | 1 << 1 | (at == last)).to_bytes(3, "little") + b"\0" for at, length in enumerate(lengths))
    return start + b"".join(blocks)


def _shard(content):
    """A shard with one chunk."""
    import google_crc32c

    index = (0).to_bytes(8, "little") + len(content).to_bytes(8, "little")
    return bytes(content) + index + google_crc32c.value(index).to_bytes(4, "little")


def _many(packer, part, count=64):
    return b"".join([*(packer.compress(part) for _ in range(count)), packer.flush()])


def _links(folder):
    """Groups whose shape is elsewhere, or too large."""
    with h5py.File(folder / "other.h5", "w") as other:
        other["shape"] = np.array([2, 2])
    with h5py.File(folder / "shape.h5", "w") as file:
        group = file.create_group("X")
        group["data"], group["indices"], group["indptr"] = np.ones(2), np.arange(2), np.arange(3)
        group["shape"] = h5py.ExternalLink("other.h5", "/shape")
    yield "shape.h5"
    os.mkfifo(folder / "fifo.h5")
    with h5py.File(folder / "pipe.h5", "w") as file:
        group = file.create_group("X")
        group["data"], group["indices"], group["indptr"] = np.ones(2), np.arange(2), np.arange(3)
        group["shape"] = group["barcodes"] = h5py.ExternalLink(str(folder / "fifo.h5"), "/shape")
    yield "pipe.h5"
    store = folder / "shape.zarr"
    group = zarr.open_group(str(store), mode="w").create_group("S")
    parts = {"data": np.ones(2), "indices": np.arange(2), "indptr": np.arange(3), "shape": np.array([2, 2])}
    for name, values in parts.items():
        group.create_array(name, data=values)
    (store / "S" / "shape" / "c" / "0").write_bytes(numcodecs.Zstd(1).encode(np.zeros(_UNPACKED, np.uint8)))
    yield "shape.zarr"


def _bytes_at_most():
    """Return the peak memory of the process since the last call."""
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    Path("/proc/self/clear_refs").write_text("5")
    return int(found) * 1024


def _now():
    (found,) = re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) * 1024


def main(folder):
    signal.signal(signal.SIGALRM, _ring)
    told = {}
    for make in (_files, _images, _stores, _bombs, _links):
        for name in make(folder):
            _bytes_at_most()
            before, begin = _now(), time.perf_counter()
            signal.alarm(LONGEST)
            try:
                word, sentence = trial(folder / name)
            except Hang:
                word, sentence = "hang", ""
            except BaseException as reason:
                word, sentence = type(reason).__name__, f"not ours: {reason}"
            finally:
                signal.alarm(0)
            seconds = time.perf_counter() - begin
            told[name] = [word, sentence, seconds, _bytes_at_most() - before]
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)  # A thread of a reader may hang.


if __name__ == "__main__":
    main(Path(sys.argv[1]))
