"""Matrices are written completely or not at all, and read back."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from relunmd.errors import FileError, InputError, MissingDependencyError
from relunmd.io.readers import open_matrix
from relunmd.io.writers import SUFFIXES, Parts, check_suffix, write_matrix
from tests.io.readers.samples import matrix
from tests.io.readers.test_readers import dense

DENSE_ONLY = (".npy", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def parts(X, is_sparse):
    """X in three parts."""
    cut = [X[:7], X[7:8], X[8:]]
    return Parts(X.shape, X.dtype, is_sparse, iter([sparse.csr_array(part) for part in cut] if is_sparse else cut))


KINDS = [(dtype, is_sparse) for dtype in ("f8", "f4", "u1", "i8", "?") for is_sparse in (False, True)] + [
    (">f4", False)
]


@pytest.mark.parametrize(("dtype", "is_sparse"), KINDS)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_comes_back(tmp_path, suffix, is_sparse, dtype):
    X = (matrix() / (3 if "f" in dtype else 1)).astype(dtype)
    place = tmp_path / f"X{suffix}"
    write_matrix(place, parts(X, is_sparse))
    with open_matrix(place) as opened:
        np.testing.assert_array_equal(dense(opened.X).astype(X.dtype), X)  # Text has no float32.
        if is_sparse and suffix not in DENSE_ONLY:
            assert opened.entry.stored.startswith("sparse")
    assert [file.name for file in tmp_path.iterdir()] == [place.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_was_there_is_replaced_or_as_it_was(tmp_path, suffix):
    place = tmp_path / f"X{suffix}"
    write_matrix(place, parts(matrix(), False))

    def failing():
        yield matrix()[:7]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_matrix(place, Parts((30, 20), np.dtype(np.uint8), False, failing()))
    with open_matrix(place) as opened:
        np.testing.assert_array_equal(dense(opened.X), matrix())
    write_matrix(place, parts(matrix(seed=1), False))
    with open_matrix(place) as opened:
        np.testing.assert_array_equal(dense(opened.X), matrix(seed=1))
    assert [file.name for file in tmp_path.iterdir()] == [place.name]


def test_a_name_that_says_nothing(tmp_path):
    with pytest.raises(InputError, match=r"must end in one of \.npy, \.npz"):
        check_suffix(tmp_path / "W.doc")


def test_a_package_that_is_missing_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"\.parquet needs pyarrow"):
        check_suffix(tmp_path / "W.parquet")


def test_an_array_without_rows_of_zeros_and_one_row(tmp_path):
    for shape in ((1, 1), (1, 5), (5, 1)):
        X = np.ones(shape)
        for suffix in SUFFIXES:
            write_matrix(tmp_path / f"X{suffix}", Parts.of(X))
            with open_matrix(tmp_path / f"X{suffix}") as opened:
                np.testing.assert_array_equal(dense(opened.X), X)


@pytest.mark.parametrize("dtype", [">f4", "f2", "g", "u1"])
def test_without_zeros(tmp_path, dtype):
    X = (matrix() / 4).astype(dtype)
    write_matrix(tmp_path / "X.npz", parts(X, False).without_zeros())
    with open_matrix(tmp_path / "X.npz") as opened:
        assert sparse.issparse(opened.X)
        np.testing.assert_array_equal(opened.X.toarray(), X)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_hdf5_is_not_asked_to_fill_a_disk(tmp_path, monkeypatch, is_sparse):
    """It crashes: so the room is looked at before every part."""
    room = iter([10**9, 10**6])
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=next(room)))
    with pytest.raises(FileError, match="No space left on device"):
        write_matrix(tmp_path / "X.h5", parts(matrix(), is_sparse))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if suffix not in (".zarr", ".h5", ".hdf5")])
def test_a_full_disk_gives_a_sentence_and_leaves_nothing(tmp_path, suffix):
    """In a process of its own, whose files may not grow."""
    program = (
        "import resource, signal, sys, numpy as np\n"
        "from pathlib import Path\n"
        "from relunmd.io.writers import Parts, write_matrix\n"
        "from relunmd.errors import FileError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30000, resource.RLIM_INFINITY))\n"
        "try: write_matrix(Path(sys.argv[1]), Parts.of(np.random.default_rng(0).random((400, 300))))\n"
        "except FileError as reason: print(reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / f"X{suffix}")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "could not be written" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_renamed_is_put_back(tmp_path, monkeypatch):
    place = tmp_path / "X.zarr"
    write_matrix(place, parts(matrix(), False))
    rename = Path.rename

    def failing(path, target):
        if path.name.endswith(".partial"):
            raise OSError("not now")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(FileError, match="not now"):
        write_matrix(place, parts(matrix(seed=1), False))
    assert [file.name for file in tmp_path.iterdir()] == ["X.zarr"]
    with open_matrix(place) as opened:
        np.testing.assert_array_equal(dense(opened.X), matrix())


def test_who_may_read_what_was_there_may_read_the_new_one(tmp_path):
    place = tmp_path / "X.npy"
    write_matrix(place, parts(matrix(), False))
    place.chmod(0o640)
    write_matrix(place, parts(matrix(), False))
    assert place.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(np.float64).max, reason="Long doubles are doubles here.")
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("suffix", [".npz", ".h5", ".zarr"])
def test_long_doubles_beyond_float64(tmp_path, suffix, is_sparse):
    X = matrix().astype(np.longdouble)
    X[3, 3] = np.longdouble("1e4000")
    with pytest.raises(InputError, match=r"must fit into float64 to be written. Got .* with entries beyond 1.8e\+308"):
        write_matrix(tmp_path / f"X{suffix}", parts(X, is_sparse))
    assert list(tmp_path.iterdir()) == []
