"""Malicious files are refused, within the limits that `relunmd.io.readers.bounds` documents."""

import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import h5py
import numcodecs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from PIL import Image
from scipy import sparse
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype

import relunmd
from relunmd.errors import FileError
from relunmd.inspection import inspect_matrix
from relunmd.io.readers import bounds, chunk_sizes, guarded_store, hdf5, open_matrix, parquet, text_tables, zarr_stores
from relunmd.io.readers.contents import RowBlocks
from tests.io.readers.hostile import frame

ROOT = Path(__file__).parents[3]
_MOST_BYTES = 300 << 20
REFUSALS = {
    "zeros.parquet": "its table of shape .* would take",
    "group.parquet": "a row group would take",
    "comments.mtx": "at most 1048576 bytes of comments",
    "comments.mtx.gz": "at most 1048576 bytes of comments",
    "comment.mtx": "at most 1048576 bytes of comments",
    "body.mtx": "at most 1048576 bytes of comments",
    "line.mtx": "lines of at most 65536 bytes",
    "blank.csv.gz": "at most 1048576 bytes of comments and empty lines",
    "late.csv.gz": "at most 1048576 bytes of comments and empty lines",
    "comments.csv.gz": "at most 1048576 bytes of comments and empty lines",
    "line.csv": "a line of more than 8388608 bytes",
    "line.csv.gz": "a line of more than 8388608 bytes",
    "wide.csv.gz": "its first lines would take",
    "grey": "decoding 0.png of 8191 × 8191 pixels would take",
    "coloured": "decoding 0.png of 8191 × 8191 pixels would take",
    "fifo": "must be a regular file",
    "device": "must be a regular file",
    "tiny.zarr": "has 900000000 chunks",
    "shards.zarr": "has 900000000 chunks",
    "tiny.h5": "has 900000000 chunks",
    "twice.h5": "must be compressed once",
    "chunk.h5": "bytes are stored for a chunk of 512",
    "deflate.h5": "decompresses to 2162689 bytes or more instead of 1048576",
    "fifo.zarr": "must be a regular file",
    "zero.zarr": "must be a regular file",
    "inner.zarr": "must be a regular file",
    "large.zarr": "too much metadata",
    "zstd.zarr": "decompresses to 629145600 bytes",
    "unsized.zarr": "decompresses to 629276672 bytes",
    "frames.zarr": "decompresses to 629276800 bytes",
    "blosc.zarr": "decompresses to 629145600 bytes",
    "gzip.zarr": "decompresses to 4325377 bytes or more",
    "old zlib.zarr": "decompresses to 4325377 bytes or more",
    "old gzip.zarr": "decompresses to 4325377 bytes or more",
    "old bz2.zarr": "decompresses to 4325377 bytes or more",
    "old lzma.zarr": "decompresses to 4325377 bytes or more",
    "old lz4.zarr": "decompresses to 2146435072 bytes",
    "old zstd.zarr": "decompresses to 629145600 bytes",
    "twice.zarr": "must be compressed once",
    "shard.zarr": "decompresses to 629145600 bytes",
    "shape.h5": "must have its number of rows and columns",
    "pipe.h5": "must have its number of rows and columns",
    "shape.zarr": "decompresses to 629145600 bytes",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    command = [sys.executable, "-m", "tests.io.readers.hostile", str(tmp_path_factory.mktemp("hostile"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.xdist_group("hostile")  # Or every process of pytest-xdist makes and reads the files.
class TestSmallFilesThatAskForMuch:
    def test_all_of_them_are_tried(self, outcomes):
        assert outcomes.keys() == REFUSALS.keys()

    @pytest.mark.parametrize("name", REFUSALS)
    def test_is_refused_in_time_and_within_memory(self, outcomes, name):
        word, sentence, _, taken = outcomes[name]
        assert word == "FileError", sentence
        assert re.search(REFUSALS[name], sentence)
        assert taken < _MOST_BYTES


class TestHonestFilesAreRead:
    """What is checked must not be refused by mistake."""

    def test_a_table_of_zeros_that_is_packed_well(self, tmp_path, monkeypatch):
        monkeypatch.setattr(bounds, "_FREE", 4 << 20)
        monkeypatch.setattr(parquet, "_BATCH_BYTES", 1 << 16)
        random = np.random.default_rng(0)
        X = np.where(random.random((100_000, 40)) < 0.001, random.random((100_000, 40)), 0).astype(np.float32)
        pq.write_table(pa.table({str(j): X[:, j] for j in range(40)}), tmp_path / "a.parquet", compression="zstd")
        assert X.nbytes > 2 * max(4 << 20, 100 * (tmp_path / "a.parquet").stat().st_size // 10)
        with open_matrix(tmp_path / "a.parquet") as opened:
            assert sparse.issparse(opened.X)
            np.testing.assert_array_equal(opened.X.toarray(), X)

    @pytest.mark.parametrize("dense", [True, False])
    def test_blocks_of_both_kinds(self, dense):
        random = np.random.default_rng(0)
        X = (random.random((50, 30)) < 0.1) * random.random((50, 30))
        X[20:30] = 1 if dense else X[20:30]
        rows = RowBlocks()
        for start in range(0, 50, 10):
            rows.add(X[start : start + 10])
        expected = X.nbytes if dense else 2 * (sum(A.nbytes for A in _csr(X)) + 4 * 4)
        assert rows.nbytes == expected
        found = rows.assemble()
        assert sparse.issparse(found) != dense
        np.testing.assert_array_equal(found if dense else found.toarray(), X)

    def test_a_narrow_table_is_not_sparse(self):
        rows = RowBlocks()
        rows.add(np.zeros((1000, 1), np.float32))
        assert rows.nbytes == 4000
        assert isinstance(rows.assemble(), np.ndarray)

    def test_comments_and_empty_lines_in_matrix_market(self, tmp_path):
        place = tmp_path / "a.mtx"
        place.write_text(
            "%%MatrixMarket matrix coordinate real general\n% a\n\n%\n2 2 2\n\n \n1 1 5\r\n% b\n\n\n  2 2 6"
        )
        with open_matrix(place) as opened:
            np.testing.assert_array_equal(opened.X.toarray(), [[5, 0], [0, 6]])

    @pytest.mark.parametrize("above", ["", "\ufeff", "\n\n", "# a\n\n  \n# b\n", "\r\n# a\r\n"])
    @pytest.mark.parametrize("size", [1, 20, 1 << 20])
    def test_comments_and_empty_lines_in_text(self, tmp_path, monkeypatch, above, size):
        monkeypatch.setattr(text_tables, "_BLOCK_BYTES", size)
        place = tmp_path / "a.csv"
        place.write_text(f"{above}x,y\n\n \n1,2\n\n\n3,4", encoding="utf-8", newline="")
        with open_matrix(place) as opened:
            np.testing.assert_array_equal(opened.X, [[1, 2], [3, 4]])
            assert opened.entry.columns == ("x", "y")

    def test_the_line_of_a_wrong_cell(self, tmp_path):
        place = tmp_path / "a.csv"
        place.write_text("# a\n\n1,2\n\n\n\n3,x\n")
        with pytest.raises(FileError, match="Line 7, cell 2 has 'x'"):
            open_matrix(place).__enter__()

    @pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "LA", "1"])
    def test_images_in_every_mode(self, tmp_path, mode):
        A = np.where(np.arange(12).reshape(3, 4) % 2, 255, 0).astype(np.uint8)
        Image.fromarray(A).convert(mode).save(tmp_path / "0.png")
        with open_matrix(tmp_path) as opened:
            np.testing.assert_array_equal(opened.X, A.reshape(1, 12))

    @pytest.mark.parametrize("color", [(1, 1, 2, 255), (1, 2, 1, 255), (1, 1, 1, 254)])
    def test_colors_are_refused(self, tmp_path, color):
        Image.new("RGBA", (3, 3), color).save(tmp_path / "0.png")
        with pytest.raises(FileError, match="must be gray"):
            open_matrix(tmp_path).__enter__()


def _csr(X):
    S = sparse.csr_array(X)
    return S.data, S.indices, S.indptr


_OLD = {
    "none": None,
    "zstd": numcodecs.Zstd(),
    "blosc": numcodecs.Blosc(),
    "lz4": numcodecs.LZ4(),
    "zlib": numcodecs.Zlib(),
    "gzip": numcodecs.GZip(),
    "bz2": numcodecs.BZ2(),
    "lzma": numcodecs.LZMA(),
}
_SKIPPABLE = bytes([0x5F, 0x2A, 0x4D, 0x18, 5, 0, 0, 0]) + b"other"
_FRAMES = {
    "without a size": frame([1000]),
    "with a size": frame([1000], 1000),
    "two without": frame([1000]) + frame([131072] * 5),
    "two with": frame([1000], 1000) + frame([131072] * 5, 5 * 131072),
    "with, without": frame([1000], 1000) + frame([131072] * 5),
    "without, with": frame([1000]) + frame([131072] * 5, 5 * 131072),
    "checksum": numcodecs.Zstd(checksum=True).encode(bytes(1000)) + numcodecs.Zstd().encode(bytes(3000)),
    "skippable": _SKIPPABLE + frame([1000]) + _SKIPPABLE + frame([2000], 2000) + _SKIPPABLE,
}
_NEW = {
    "none": None,
    "zstd": ZstdCodec(),
    "blosc": BloscCodec(),
    "gzip": GzipCodec(),
    "checksum": [ZstdCodec(), Crc32cCodec()],
    "packed checksum": [GzipCodec(), Crc32cCodec()],
}


class TestZarr:
    X = np.random.default_rng(0).integers(0, 5, (60, 40)).astype(np.float64)

    def read(self, place):
        with open_matrix(place) as opened:
            return opened.X[:]

    @pytest.mark.parametrize("codec", _OLD)
    def test_every_compressor_of_format_2(self, tmp_path, codec):
        place = tmp_path / "a.zarr"
        zarr.create_array(place, data=self.X, chunks=(25, 25), zarr_format=2, compressors=_OLD[codec])
        np.testing.assert_array_equal(self.read(place), self.X)

    @pytest.mark.parametrize("shards", [None, (50, 40)])
    @pytest.mark.parametrize("codec", _NEW)
    def test_every_compressor_of_format_3(self, tmp_path, codec, shards):
        place = tmp_path / "a.zarr"
        zarr.create_array(place, data=self.X, chunks=(25, 20), shards=shards, compressors=_NEW[codec])
        np.testing.assert_array_equal(self.read(place), self.X)
        with open_matrix(place) as opened:  # A part of a shard is read by byte ranges.
            np.testing.assert_array_equal(opened.X[3:5, 2:4], self.X[3:5, 2:4])

    def test_filters(self, tmp_path):
        place = tmp_path / "a.zarr"
        filters = [numcodecs.Delta("f8"), numcodecs.AsType("f4", "f8")]
        zarr.create_array(place, data=self.X, chunks=(60, 40), zarr_format=2, filters=filters)
        np.testing.assert_array_equal(self.read(place), self.X)

    def test_a_chunk_of_unknown_size(self, tmp_path):
        """As tensorstore writes zstd: blocks, and no size in the header."""
        place = tmp_path / "a.zarr"
        zarr.create_array(place, data=np.zeros((512, 64)), chunks=(512, 64), compressors=ZstdCodec(), fill_value=1)
        (place / "c" / "0").mkdir(parents=True, exist_ok=True)
        (place / "c" / "0" / "0").write_bytes(frame([131072, 131072]))
        np.testing.assert_array_equal(self.read(place), np.zeros((512, 64)))

    @pytest.mark.parametrize("name", _FRAMES)
    def test_all_frames_of_zstd_are_added_up(self, name):
        raw = _FRAMES[name]
        for content in (raw, memoryview(raw)):
            assert chunk_sizes.decompressed_size({"id": "zstd"}, content, 0) == len(numcodecs.Zstd().decode(raw))

    def test_a_content_size_of_zstd_that_is_too_small(self):
        """It is not trusted where numcodecs runs through the blocks, which it does if another frame has none."""
        raw = frame([1000]) + frame([131072] * 5, 1000)
        assert chunk_sizes.decompressed_size({"id": "zstd"}, raw, 0) == 1000 + 5 * 131072

    def test_what_is_not_a_frame_of_zstd(self):
        for raw in (b"", frame([1000]) + b"abcdefgh", frame([1000]) + frame([])[:4]):
            with pytest.raises(ValueError, match="not in zstd format"):
                chunk_sizes.decompressed_size({"id": "zstd"}, raw, 0)

    def test_a_chunk_in_two_frames(self, tmp_path):
        place = tmp_path / "a.zarr"
        zarr.create_array(place, data=self.X, chunks=(60, 40), compressors=ZstdCodec())
        raw, pack = self.X.tobytes(), numcodecs.Zstd().encode
        (place / "c" / "0" / "0").write_bytes(pack(raw[:5000]) + _SKIPPABLE + pack(raw[5000:]))
        np.testing.assert_array_equal(self.read(place), self.X)

    def test_a_link_to_a_file_is_followed(self, tmp_path):
        place = tmp_path / "a.zarr"
        zarr.create_array(place, data=self.X, chunks=(60, 40))
        (place / "c" / "0" / "0").rename(tmp_path / "elsewhere")
        (place / "c" / "0" / "0").symlink_to(tmp_path / "elsewhere")
        np.testing.assert_array_equal(self.read(place), self.X)

    def test_links_between_groups(self, tmp_path, monkeypatch):
        """Each group is visited once, though links lead from every group to all of them."""
        place = tmp_path / "a.zarr"
        root = zarr.open_group(str(place), mode="w")
        for folder in (root, root.create_group("inner")):
            folder.create_array("X", data=self.X)
            for number in range(2):
                (place / folder.path / f"a link to root {number}").symlink_to(place)
                (place / folder.path / f"a link to inner {number}").symlink_to(place / "inner")
        monkeypatch.setattr(zarr_stores, "_DEEPEST", 2)  # So that a failure ends soon.
        visited = []
        members = zarr.Group.members
        monkeypatch.setattr(zarr.Group, "members", lambda group: visited.append(group.path) or members(group))
        with open_matrix(place, array="X") as opened:
            np.testing.assert_array_equal(opened.X[:], self.X)
            assert [entry.name for entry in opened.entries] == ["X", "inner/X"]
        assert visited == ["", "inner"]

    def test_a_chunk_is_unpacked_for_its_size_once(self, tmp_path, monkeypatch):
        place = tmp_path / "a.zarr"
        zarr.create_array(place, data=self.X, chunks=(30, 40), compressors=GzipCodec())
        seen = []
        monkeypatch.setattr(guarded_store, "decompressed_size", lambda *given: seen.append(given) or 0)
        with open_matrix(place) as opened:
            for _ in range(3):
                opened.X[:]
        assert len(seen) == 2

    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_a_chunk_that_is_replaced(self, tmp_path, codec):
        """Its kind and size are checked each time; a pipe would never end."""
        place = tmp_path / "a.zarr"
        zarr.create_array(place, data=self.X, chunks=(60, 40), compressors=_NEW[codec])
        chunk = place / "c" / "0" / "0"
        with open_matrix(place) as opened:
            np.testing.assert_array_equal(opened.X[:], self.X)
            chunk.write_bytes(bytes(10**6))
            with pytest.raises(FileError, match="has 1000000 bytes for a chunk of 19200"):
                opened.X[:]
            chunk.unlink()
            os.mkfifo(chunk)
            with pytest.raises(FileError, match="must be a regular file"):
                opened.X[:]

    @pytest.mark.parametrize("content", [b"not zstd", frame([1000])], ids=["store", "Zarr"])
    def test_nothing_is_printed_at_exit_after_a_damaged_chunk(self, tmp_path, content):
        """Neither if the check of the store raises nor if Zarr does; other chunks are being read then."""
        zarr.create_array(tmp_path / "a.zarr", data=np.ones((400, 400)), chunks=(20, 20))
        (tmp_path / "a.zarr" / "c" / "0" / "0").write_bytes(content)
        program = (
            "import sys; from relunmd.io.readers import open_matrix\n"
            "with open_matrix('a.zarr') as opened:\n"
            "    try: opened.X[:]\n"
            "    except Exception: sys.exit(3)"
        )
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (3, "")

    def test_metadata_that_is_read_again_counts_once(self, tmp_path):
        zarr.create_array(tmp_path / "a.zarr", data=self.X, chunks=(60, 40))
        store = guarded_store.GuardedStore(tmp_path / "a.zarr")
        for _ in range(3):
            zarr.open(store=store, mode="r")
            store.get_sync("zarr.json", prototype=default_buffer_prototype())
        assert sum(store._metadata.values()) == (tmp_path / "a.zarr" / "zarr.json").stat().st_size

    def test_no_file_is_looked_at_before_it_is_read(self, tmp_path, monkeypatch):
        place = tmp_path / "a.zarr"
        zarr.create_array(place, data=self.X, chunks=(10, 10))
        asked = []
        check = guarded_store.GuardedStore._check_file
        monkeypatch.setattr(
            guarded_store.GuardedStore, "_check_file", lambda store, key: asked.append(key) or check(store, key)
        )
        with open_matrix(place) as opened:
            assert not [key for key in asked if key.startswith("c/")]
            opened.X[:10, :10]
            assert [key for key in asked if key.startswith("c/")] == ["c/0/0"]

    def test_an_array_that_was_not_checked_is_not_read(self, tmp_path):
        place = tmp_path / "a.zarr"
        zarr.create_array(place, data=self.X, chunks=(60, 40))
        with pytest.raises(FileError, match="before its array has been checked"):
            zarr.open(store=guarded_store.GuardedStore(place), mode="r")[:]

    def test_a_codec_whose_numbers_are_words(self, tmp_path):
        """As one million letters each."""
        place = tmp_path / "a.zarr"
        filters = [numcodecs.AsType("u1", "f8")]
        zarr.create_array(place, data=self.X, chunks=(60, 40), zarr_format=2, filters=filters)
        about = json.loads((place / ".zarray").read_text())
        about["filters"][0]["decode_dtype"] = "<U1000000"
        (place / ".zarray").write_text(json.dumps(about))
        with pytest.raises(FileError, match="must hold real numbers"):
            open_matrix(place).__enter__()

    def test_many_streams_in_a_chunk(self):
        raw = zlib.compress(b"") * 2000
        with pytest.raises(ValueError, match="more than 1000 compressed streams"):
            chunk_sizes.decompressed_size({"id": "zlib"}, raw, 100)

    def test_metadata_in_all(self, tmp_path, monkeypatch):
        monkeypatch.setattr(guarded_store, "_MOST_METADATA_IN_ALL", 4000)
        group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
        for number in range(10):
            group.create_array(str(number), data=self.X)
        with pytest.raises(FileError, match="too much metadata"):
            open_matrix(tmp_path / "a.zarr").__enter__()

    def test_a_fit_of_a_sparse_group(self, tmp_path):
        S = sparse.random_array((60, 40), density=0.2, format="csr", random_state=0)
        group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w").create_group("S")
        for name in ("data", "indices", "indptr"):
            group.create_array(name, data=getattr(S, name))
        group.create_array("shape", data=np.array(S.shape))
        with open_matrix(tmp_path / "a.zarr") as opened:
            assert inspect_matrix(opened.X).nonzeros == S.nnz
            found = relunmd.decompose(opened.X, 3, random_state=0, max_iter=5)
        assert found.error == relunmd.decompose(S, 3, random_state=0, max_iter=5).error


class TestNamesOfFiles:
    NAME = "\x1b[2J\x07a"

    def test_control_characters_are_shown_escaped(self, tmp_path):
        missing = tmp_path / f"{self.NAME}.npy"
        with pytest.raises(FileError) as caught:
            open_matrix(missing).__enter__()
        assert str(caught.value).isprintable()
        assert "\\x1b[2J\\x07a.npy" in str(caught.value)
        for name, content in ((".npy", b"nothing"), (".csv", b"1,2\n3,x\n"), (".mtx", b"%%MatrixMarket matrix\n")):
            (tmp_path / f"{self.NAME}{name}").write_bytes(content)
            with pytest.raises(FileError) as caught:
                open_matrix(tmp_path / f"{self.NAME}{name}").__enter__()
            assert str(caught.value).isprintable()

    def test_in_a_store(self, tmp_path):
        place = tmp_path / f"{self.NAME}.zarr"
        zarr.create_array(place, data=np.eye(4), chunks=(4, 4))
        (place / "c" / "0" / "0").unlink()
        os.mkfifo(place / "c" / "0" / "0")
        with open_matrix(place) as opened, pytest.raises(FileError) as caught:
            inspect_matrix(opened.X)
        assert str(caught.value).isprintable()


class TestHDF5:
    X = np.random.default_rng(0).integers(0, 5, (60, 40))

    def write(self, place, **options):
        with h5py.File(place, "w") as file:
            file.create_dataset("X", data=self.X, chunks=(7, 40), **options)

    @pytest.mark.parametrize("unpacked", [False, True])
    @pytest.mark.parametrize(
        "options",
        [
            {"compression": "gzip"},
            {"compression": "lzf", "shuffle": True},
            {"compression": "gzip", "shuffle": True, "fletcher32": True},
            {"compression": "gzip", "scaleoffset": 4},
            {"fletcher32": True},
            {},
        ],
    )
    def test_filters(self, tmp_path, monkeypatch, options, unpacked):
        if unpacked:
            monkeypatch.setattr(bounds.Bounds, "most_memory", 0)
        self.write(tmp_path / "a.h5", **options)
        with open_matrix(tmp_path / "a.h5") as opened:
            np.testing.assert_array_equal(opened.X[:], self.X)

    @pytest.mark.parametrize("skipped", [0b010, 0b110, 0b111])
    def test_a_chunk_that_is_not_deflated(self, tmp_path, monkeypatch, skipped):
        monkeypatch.setattr(bounds.Bounds, "most_memory", 0)
        self.write(tmp_path / "a.h5", compression="gzip", shuffle=True, fletcher32=True)
        with h5py.File(tmp_path / "a.h5", "a") as file:
            file["X"].id.write_direct_chunk((0, 0), np.zeros((7, 40), int).tobytes() + bytes(4), skipped)
        with open_matrix(tmp_path / "a.h5") as opened:
            assert opened.X.shape == (60, 40)

    @pytest.mark.parametrize("skipped", [0, 0b001, 0b100])
    def test_a_chunk_that_unpacks_to_more(self, tmp_path, monkeypatch, skipped):
        monkeypatch.setattr(bounds.Bounds, "most_memory", 0)
        self.write(tmp_path / "a.h5", compression="gzip", shuffle=True, fletcher32=True)
        checksum = b"" if skipped == 0b100 else b"sums"
        with h5py.File(tmp_path / "a.h5", "a") as file:
            file["X"].id.write_direct_chunk((7, 0), zlib.compress(bytes(2**20)) + checksum, skipped)
        with pytest.raises(FileError, match=r"the chunk at \(7, 0\) decompresses to 70017 bytes or more"):
            open_matrix(tmp_path / "a.h5").__enter__()

    def test_the_order_of_filters(self, tmp_path, monkeypatch):
        about = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        about.set_chunk((8, 8))
        about.set_deflate(9)
        about.set_shuffle()
        with h5py.File(tmp_path / "a.h5", "w") as file:
            space = h5py.h5s.create_simple((8, 8))
            h5py.Dataset(h5py.h5d.create(file.id, b"X", h5py.h5t.IEEE_F64LE, space, about))[:] = np.eye(8)
        with open_matrix(tmp_path / "a.h5") as opened:
            np.testing.assert_array_equal(opened.X[:], np.eye(8))
        monkeypatch.setattr(bounds.Bounds, "most_memory", 0)
        with pytest.raises(FileError, match="must be shuffled before it is deflated"):
            open_matrix(tmp_path / "a.h5").__enter__()
        about.set_scaleoffset(h5py.h5z.SO_FLOAT_DSCALE, 2)
        with h5py.File(tmp_path / "a.h5", "w") as file:
            h5py.h5d.create(file.id, b"X", h5py.h5t.IEEE_F64LE, space, about)
        with pytest.raises(FileError, match="must be compressed after its other filters"):
            open_matrix(tmp_path / "a.h5").__enter__()

    def test_only_chunks_that_may_take_too_much_are_unpacked(self, tmp_path, monkeypatch):
        seen = []
        monkeypatch.setattr(hdf5, "decompressed_size", lambda *given: seen.append(given) or 0)
        self.write(tmp_path / "a.h5", compression="gzip")
        with open_matrix(tmp_path / "a.h5"):
            assert not seen
        monkeypatch.setattr(bounds.Bounds, "most_memory", 0)
        with open_matrix(tmp_path / "a.h5"):
            assert len(seen) == 9

    def test_the_most_memory(self, monkeypatch):
        stored = 2**30
        for available, expected in ((None, 100 * stored), (2**60, 100 * stored), (2**33, 2**33), (0, 2**28)):
            monkeypatch.setattr(bounds.memory, "available_bytes", lambda available=available: available)
            assert bounds.Bounds(Path("a.h5"), stored).most_memory == expected


def test_a_link_in_a_group_that_is_handed_over(tmp_path):
    """The user's own HDF5 group: what says its shape is not looked for in another file either."""
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["shape"] = np.array([2, 2])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("X")
        group["data"], group["indices"], group["indptr"] = np.ones(2), np.arange(2), np.arange(3)
        group["shape"] = h5py.ExternalLink("other.h5", "/shape")
        with pytest.raises(relunmd.InputError, match=r"must have an attribute .shape."):
            relunmd.decompose(group, 1)
