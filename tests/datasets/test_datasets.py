"""Data sets: matrices by formula, files found, downloaded and refused. No test uses the network."""

import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pooch
import pytest
import requests
import sklearn.datasets
from scipy import sparse
from scipy.io import savemat

from relunmd import datasets
from relunmd.datasets import image_sets, store, text_sets
from relunmd.errors import DatasetError, InputError
from relunmd.io.atomic import write_beside
from tests.conftest import needs_data


@pytest.fixture(autouse=True)
def nothing_to_be_found(monkeypatch, tmp_path):
    """Neither the user's data nor the network."""
    monkeypatch.delenv("RELUNMD_DATA", raising=False)
    monkeypatch.setenv("RELUNMD_CACHE", str(tmp_path / "cache"))

    def no_network(*args, **options):
        raise requests.ConnectionError("no network in tests")

    monkeypatch.setattr(requests, "get", no_network)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", no_network)


def idx(array):
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes())


def put_mnist(folder, count=200):
    random = np.random.default_rng(0)
    pictures, labels = random.integers(0, 256, (count, 28, 28)), random.integers(0, 10, count)
    (folder / "mnist").mkdir(parents=True)
    (folder / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(idx(pictures))
    (folder / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(idx(labels))
    return pictures.reshape(count, 784), labels


class TestGenerated:
    def test_synthetic_is_the_papers(self):
        random = np.random.default_rng(3)
        W, H = random.standard_normal((20, 4)), random.standard_normal((4, 30))
        np.testing.assert_array_equal(datasets.synthetic(20, 30, 4, 3), np.maximum(0, W @ H))

    @pytest.mark.parametrize("zeros", [0, 0.5, 0.9, 0.99])
    def test_planted_has_the_share_of_zeros_and_the_rank(self, zeros):
        X = datasets.planted(80, 60, 5, zeros, 1)
        assert (X == 0).mean() == pytest.approx(zeros, abs=1 / X.size)
        random = np.random.default_rng(1)
        Theta = random.standard_normal((80, 4)) @ random.standard_normal((4, 60))
        level = (Theta - X)[X > 0]
        np.testing.assert_allclose(level, level[0])  # One constant, so of rank 5 in all.

    @pytest.mark.parametrize(
        ("call", "word"),
        [
            (lambda: datasets.synthetic(0, 3, 1), "m must"),
            (lambda: datasets.synthetic(3, 3, 1.5), "rank must"),
            (lambda: datasets.planted(3, 3, 1, 0.5), "rank must"),
            (lambda: datasets.planted(3, 3, 2, 1.0), "zeros must"),
            (lambda: datasets.load("iris"), "name must be one of digits, mnist"),
            (lambda: datasets.mnist(0), "at least 1"),
            (lambda: datasets.mnist(every=0), "at least 1"),
        ],
    )
    def test_bad_arguments(self, call, word):
        with pytest.raises(InputError, match=word):
            call()


class TestMnist:
    def test_the_first_of_each_digit(self, tmp_path):
        pictures, labels = put_mnist(tmp_path)
        found = datasets.mnist(3, every=2, data=tmp_path)
        expected = []
        for digit in range(10):
            of_digit = [picture for picture, label in zip(pictures, labels, strict=True) if label == digit]
            expected += of_digit[:6][::2]
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == np.uint8

    def test_all(self, tmp_path, monkeypatch):
        pictures, _ = put_mnist(tmp_path)
        monkeypatch.setenv("RELUNMD_DATA", str(tmp_path))
        np.testing.assert_array_equal(datasets.mnist(), pictures)

    def test_too_many(self, tmp_path):
        _, labels = put_mnist(tmp_path)
        with pytest.raises(InputError, match=f"there are {np.bincount(labels).min()} images"):
            datasets.mnist(100, data=tmp_path)

    def test_uncompressed_in_one_folder(self, tmp_path):
        pictures, _ = put_mnist(tmp_path)
        for file in (tmp_path / "mnist").iterdir():
            (tmp_path / file.name[:-3]).write_bytes(gzip.decompress(file.read_bytes()))
            file.unlink()
        np.testing.assert_array_equal(datasets.mnist(data=tmp_path), pictures)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda raw: raw[:-20],
            lambda raw: b"",
            lambda raw: gzip.compress(b"abc"),
            lambda raw: raw[:3000] + bytes([raw[3000] ^ 255]) + raw[3001:],
        ],
    )
    def test_damaged(self, tmp_path, damage):
        put_mnist(tmp_path)
        path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(DatasetError, match="must be an IDX file"):
            datasets.mnist(data=tmp_path)

    def test_from_openml_once(self, monkeypatch):
        random = np.random.default_rng(0)
        table, labels = random.integers(0, 256, (70, 784)), random.integers(0, 10, 70).astype(str).astype(object)
        calls = []

        def fetch(name, **options):
            calls.append(name)
            return table.astype(np.float64), labels

        monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
        with pytest.raises(DatasetError, match="SHA-256"):
            datasets.mnist()
        assert not list(store.cache_folder().rglob("*.npz"))
        content = table.astype(np.uint8).tobytes() + labels.astype(np.uint8).tobytes()
        monkeypatch.setattr(image_sets, "_CONTENT", hashlib.sha256(content).hexdigest())
        for _ in range(2):
            np.testing.assert_array_equal(datasets.mnist(), table)
        assert calls == ["mnist_784"] * 2

    def test_what_cannot_be_kept_is_used_all_the_same(self, monkeypatch, caplog, tmp_path):
        table, labels = np.zeros((70, 784)), np.zeros(70)
        monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda name, **options: (table, labels))
        monkeypatch.setattr(image_sets, "_CONTENT", hashlib.sha256(bytes(70 * 785)).hexdigest())
        (tmp_path / "cache").write_text("a file where the folder should be")
        assert datasets.mnist().shape == (70, 784)
        assert "could not be saved" in caplog.text

    def test_a_damaged_copy_in_the_cache(self):
        place = store.cache_folder() / "mnist" / "openml.npz"
        place.parent.mkdir(parents=True)
        place.write_bytes(b"PK nonsense")
        with pytest.raises(DatasetError, match="Delete it"):
            datasets.mnist()

    def test_images_and_labels_must_belong_together(self, tmp_path):
        put_mnist(tmp_path)
        path = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
        path.write_bytes(idx(np.zeros(7)))
        with pytest.raises(DatasetError, match=r"got \(200, 28, 28\) and \(7,\)"):
            datasets.mnist(data=tmp_path)
        path.unlink()
        with pytest.raises(DatasetError, match="is in none of"):
            datasets.mnist(data=tmp_path, download=False)

    def test_nowhere(self):
        with pytest.raises(DatasetError, match=r"could not be downloaded .*no network.*RELUNMD_DATA"):
            datasets.mnist()
        with pytest.raises(DatasetError, match="is in none of"):
            datasets.mnist(download=False)


class TestFiles:
    CONTENT = b"some bytes" * 1000
    FILE = store.RemoteFile(
        "folder/file.bin", "a place", hashlib.sha256(CONTENT).hexdigest(), "https://example.org/file.bin"
    )

    @pytest.fixture
    def served(self, monkeypatch):
        asked = []

        def download(self, url, output_file, pooch):
            asked.append(url)
            Path(output_file).write_bytes(TestFiles.CONTENT)

        monkeypatch.setattr(pooch.HTTPDownloader, "__call__", download)
        return asked

    def test_downloaded_once_into_the_cache(self, served):
        for _ in range(2):
            path = store.get(self.FILE)
            assert path == store.cache_folder() / "folder" / "file.bin"
            assert path.read_bytes() == self.CONTENT
        assert served == [self.FILE.url]
        assert [p.name for p in path.parent.iterdir()] == ["file.bin"]

    def test_a_wrong_hash_leaves_nothing_behind(self, served):
        with pytest.raises(DatasetError, match=r"hash .* does not match"):
            store.get(replace(self.FILE, sha256="0" * 64))
        assert not list((store.cache_folder() / "folder").iterdir())

    def test_given_folder_then_variable_then_cache(self, tmp_path, monkeypatch, served):
        monkeypatch.setenv("RELUNMD_DATA", str(tmp_path / "named"))
        for folder in ("given", "named"):
            (tmp_path / folder / "folder").mkdir(parents=True)
            (tmp_path / folder / "folder" / "file.bin").write_bytes(folder.encode())
        assert store.get(self.FILE, tmp_path / "given").read_bytes() == b"given"
        assert store.get(self.FILE).read_bytes() == b"named"
        assert not served

    def test_files_can_be_read_by_others(self, tmp_path):
        (tmp_path / "usual").write_bytes(b"")
        write_beside(tmp_path / "ours", lambda out: out.write(b"x"))
        assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode

    def test_a_connection_that_breaks(self, monkeypatch):
        class Broken:
            headers = {}

            def raise_for_status(self):
                pass

            def iter_content(self, chunk_size):
                yield b"some"
                raise requests.exceptions.ChunkedEncodingError("IncompleteRead")

            def close(self):
                pass

        monkeypatch.setattr(requests, "get", lambda url, **options: Broken())
        with pytest.raises(DatasetError, match="IncompleteRead"):
            store.get(self.FILE)
        assert not list((store.cache_folder() / "folder").iterdir())

    def test_nothing_is_printed(self, served, capfd, caplog):
        with caplog.at_level("INFO", "relunmd"):
            store.get(self.FILE)
        assert not "".join(capfd.readouterr())
        assert f"Downloading {self.FILE.url}" in caplog.text

    def test_nowhere(self):
        with pytest.raises(DatasetError, match=r"could not be downloaded .*Get file.bin from a place"):
            store.get(self.FILE)
        with pytest.raises(DatasetError, match="is in none of"):
            store.get(self.FILE, download=False)

    def test_an_interrupted_write_leaves_the_old_file(self, tmp_path):
        place = tmp_path / "file"
        place.write_bytes(b"old")

        def write(out):
            out.write(b"new")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_beside(place, write)
        assert place.read_bytes() == b"old"
        assert [p.name for p in tmp_path.iterdir()] == ["file"]

    def test_sources_are_https_with_a_hash(self):
        for file in (image_sets.CBCL, text_sets.KOS, text_sets.CLASSIC, text_sets.NEWSGROUPS):
            assert len(file.sha256) == 64
            assert file.url is None or file.url.startswith("https://")


class TestOthers:
    def test_kos(self, tmp_path):
        (tmp_path / "docword.kos.txt.gz").write_bytes(gzip.compress(b"2\n3\n3\n1 1 4\n1 3 5\n2 2 6\n"))
        counts = datasets.kos(tmp_path)
        assert isinstance(counts, sparse.csr_array)
        np.testing.assert_array_equal(counts.toarray(), [[4, 0, 5], [0, 6, 0]])

    @pytest.mark.parametrize("content", [b"", b"2\n3\n4\n1 1 4\n", b"2\n3\n1\n7 1 4\n", b"2\n3\n1\na b c\n"])
    def test_kos_damaged(self, tmp_path, content):
        (tmp_path / "docword.kos.txt.gz").write_bytes(gzip.compress(content))
        with pytest.raises(DatasetError, match="bag of words"):
            datasets.kos(tmp_path)

    def test_classic_and_cbcl(self, tmp_path):
        savemat(tmp_path / "classic.mat", {"X": sparse.csc_matrix(np.eye(3))})
        savemat(tmp_path / "CBCL.mat", {"X": np.ones((361, 2))})
        np.testing.assert_array_equal(datasets.classic(tmp_path).toarray(), np.eye(3))
        with pytest.raises(DatasetError, match=r"shape \(361, 2429\)"):
            datasets.cbcl(tmp_path)
        savemat(tmp_path / "CBCL.mat", {"Y": np.ones(3)})
        with pytest.raises(DatasetError, match="variable X"):
            datasets.cbcl(tmp_path)
        (tmp_path / "CBCL.mat").write_bytes(b"nonsense")
        with pytest.raises(DatasetError, match="MATLAB file"):
            datasets.cbcl(tmp_path)

    def test_newsgroups(self, tmp_path):
        with pytest.raises(DatasetError, match="Get 20news_counts_mindf5"):
            datasets.newsgroups(tmp_path)
        sparse.save_npz(tmp_path / "20news_counts_mindf5.npz", sparse.csr_matrix(np.eye(4, dtype=np.int32)))
        np.testing.assert_array_equal(datasets.newsgroups(tmp_path).toarray(), np.eye(4))
        (tmp_path / "20news_counts_mindf5.npz").write_bytes(b"PK nonsense")
        with pytest.raises(DatasetError, match="save_npz"):
            datasets.newsgroups(tmp_path)


@needs_data
@pytest.mark.parametrize(
    ("name", "shape", "share"),
    [
        ("mnist", (60000, 784), 0.191),
        ("cbcl", (361, 2429), 1),
        ("kos", (3430, 6906), 0.0149),
        ("classic", (7094, 41681), 0.00076),
        ("20newsgroups", (18846, 30295), 0.0030),
    ],
)
def test_the_real_ones(name, shape, share, data_folder):
    X = datasets.load(name, data=data_folder)
    assert X.shape == shape
    stored = X.count_nonzero() if sparse.issparse(X) else np.count_nonzero(X)
    assert stored / (shape[0] * shape[1]) == pytest.approx(share, rel=0.01)
