"""Storage that changes, shrinks or is incomplete while it is in use: an error or a word, never a wrong result."""

import os
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import relunmd
from relunmd.algorithm import ALGORITHMS
from relunmd.engine.matrix import Scratch, StoredArray, StoredCsr
from relunmd.engine.matrix import stored as stored_module
from relunmd.engine.matrix.dense import DenseSource
from relunmd.engine.matrix.mapped import FileStamp
from relunmd.engine.matrix.read_check import ReadCheck, row_sums
from relunmd.engine.problem_setup import check_matrix
from relunmd.errors import FileError

X = np.maximum(0, np.random.default_rng(0).standard_normal((600, 40)) - 0.5)
ALL = slice(0, len(X))


def as_zarr(folder, A=X):
    array = zarr.create_array(str(folder / "X.zarr"), shape=A.shape, chunks=(100, 40), dtype=A.dtype)
    array[:] = A
    return zarr.open(str(folder / "X.zarr"), mode="r")


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64, np.longdouble, bool])
@pytest.mark.parametrize("width", [1, 7, 8])
def test_every_changed_entry_is_seen(dtype, width):
    A = np.arange(5 * width).reshape(5, width).astype(dtype)
    before = row_sums(A)
    assert before.shape == (5,)
    B = A.copy()
    B[3, width - 1] = not B[3, width - 1] if dtype is bool else B[3, width - 1] + 1
    np.testing.assert_array_equal(np.flatnonzero(row_sums(B) != before), [3])
    np.testing.assert_array_equal(row_sums(np.asfortranarray(A)), before)


@given(st.integers(0, 2**32), st.floats(0, 0.5))
def test_sums_of_sparse_rows_do_not_depend_on_where_they_are_cut(seed, density):
    A = sparse.random_array((9, 6), density=density, format="csr", random_state=np.random.default_rng(seed))
    whole = row_sums(A)
    np.testing.assert_array_equal(np.concatenate([row_sums(A[:4]), row_sums(A[4:])]), whole)
    if A.nnz:
        moved = A.copy()
        moved.indices = moved.indices.copy()
        moved.indices[0] = (moved.indices[0] + 1) % 6
        row = int(np.flatnonzero(np.diff(A.indptr))[0])
        np.testing.assert_array_equal(np.flatnonzero(row_sums(moved) != whole), [row])


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("width", [24, 29])
def test_exchanged_entries_are_seen(dtype, width):
    A = (np.random.default_rng(0).random((50, width)) < 0.3).astype(dtype)
    A[:, 3], A[:, 11] = 0, 1
    before = row_sums(A)
    for B in (A[:, ::-1], np.roll(A, 8, axis=1)):
        # Of zeros and ones in float64 there are 2048 sums: a row may have the same one.
        assert (row_sums(B) != before).sum() >= (B != A).any(axis=1).sum() - 1
    B = A.copy()
    B[:, [3, 11]] = A[:, [11, 3]]
    assert (row_sums(B) != before).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.longdouble])
def test_exchanged_entries_of_sparse_rows_are_seen(dtype):
    values, columns = np.array([0, 1, 2, 4, 0, 1, 2, 4], dtype), np.array([0, 2, 4, 2060, 0, 2, 4, 2060])
    A = sparse.csr_array((values, columns, [0, 4, 8]), shape=(2, 3000))
    for i in range(4, 8):
        for k in range(4, i):
            B = A.copy()
            B.data[[i, k]] = B.data[[k, i]]
            np.testing.assert_array_equal(row_sums(B) != row_sums(A), [False, True])


def test_rows_may_be_cut_elsewhere_when_they_are_read_again():
    check = ReadCheck(len(X))
    check.verify(slice(0, 300), X[:300])
    check.verify(slice(100, 600), X[100:])
    Y = X.copy()
    Y[450, 3] += 1
    with pytest.raises(FileError, match="row 450 has other entries than when it was validated"):
        check.verify(slice(400, 500), Y[400:500])
    check.verify(ALL, X)


def spoil_zarr(folder):
    shutil.rmtree(folder / "X.zarr" / "c")


def spoil_npy(folder):
    os.truncate(folder / "X.npy", 5000)


def overwrite_npy(folder):
    again = np.load(folder / "X.npy", mmap_mode="r+")
    again[5] += 1
    again.flush()
    os.utime(folder / "X.npy", ns=(1, 1))  # Where the clock of the file system is coarse.


CASES = {
    "zarr chunks removed": (as_zarr, spoil_zarr, "X changed while it was in use"),
    "npy truncated": (
        lambda folder: np.save(folder / "X.npy", X) or np.load(folder / "X.npy", mmap_mode="r"),
        spoil_npy,
        "was truncated",
    ),
    "npy overwritten": (
        lambda folder: np.save(folder / "X.npy", X) or np.load(folder / "X.npy", mmap_mode="r"),
        overwrite_npy,
        "was written to",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_sources_notice(tmp_path, case):
    make, spoil, words = CASES[case]
    A = make(tmp_path)
    source = StoredArray(A) if isinstance(A, zarr.Array) else DenseSource(A)
    source.part(ALL, len(X), Scratch())
    spoil(tmp_path)
    with pytest.raises(FileError, match=words):
        source.part(ALL, len(X), Scratch())


def test_a_stored_sparse_matrix_notices_too(tmp_path):
    A = sparse.csr_array(X)
    with h5py.File(tmp_path / "X.h5", "w") as file:
        for name in ("data", "indices", "indptr"):
            file[name] = getattr(A, name)
        file.attrs["shape"] = A.shape
        source = StoredCsr(file)
        source.part(ALL, len(X), Scratch())
        file["data"][7] = 100.0
        with pytest.raises(FileError, match="X changed while it was in use"):
            source.part(ALL, len(X), Scratch())


@pytest.mark.parametrize("name", ["data", "indices", "indptr"])
@pytest.mark.parametrize("spoil", ["truncate", "overwrite"])
def test_a_sparse_matrix_of_memory_maps_notices_too(tmp_path, name, spoil):
    A, parts = sparse.csr_array(X), []
    for part in ("data", "indices", "indptr"):
        np.save(tmp_path / f"{part}.npy", getattr(A, part))
        parts.append(np.load(tmp_path / f"{part}.npy", mmap_mode="r"))
    source = check_matrix(sparse.csr_array(tuple(parts), shape=A.shape))
    assert not source.in_memory
    source.part(ALL, len(X), Scratch())
    if spoil == "truncate":
        os.truncate(tmp_path / f"{name}.npy", 200)
    else:
        os.utime(tmp_path / f"{name}.npy", ns=(1, 1))
    for attempt in (lambda: source.part(ALL, len(X), Scratch()), lambda: source.read(ALL)):
        with pytest.raises(FileError, match=f"{name}.npy was {'truncated' if spoil == 'truncate' else 'written to'}"):
            attempt()


def test_a_file_that_another_one_replaced_is_still_mapped(tmp_path):
    np.save(tmp_path / "X.npy", X)
    source = DenseSource(np.load(tmp_path / "X.npy", mmap_mode="r"))
    np.save(tmp_path / "other.npy", X + 1)
    (tmp_path / "other.npy").replace(tmp_path / "X.npy")
    source.part(ALL, len(X), Scratch())
    (tmp_path / "X.npy").unlink()
    np.testing.assert_array_equal(source.part(ALL, len(X), Scratch())[0].read(ALL), X)


def test_a_mapped_file_that_is_truncated_after_the_check_is_an_error(tmp_path, monkeypatch):
    np.save(tmp_path / "X.npy", X)
    source = DenseSource(np.load(tmp_path / "X.npy", mmap_mode="r")[100:])
    monkeypatch.setattr(FileStamp, "verify", lambda stamp: None)  # As if the file were truncated right after it.
    os.truncate(tmp_path / "X.npy", 128 + 120 * X[0].nbytes + 5)
    np.testing.assert_array_equal(source.read(slice(0, 20)), X[100:120])
    for attempt in (lambda: source.part(slice(10, 40), 500, Scratch()), lambda: source.read(slice(15, 40))):
        with pytest.raises(FileError, match="The file of X ends before row 39"):
            attempt()


def test_a_run_on_a_mapped_file_that_is_truncated_is_not_killed(tmp_path):
    A = np.maximum(0, np.random.default_rng(0).standard_normal((20_000, 100)))
    np.save(tmp_path / "X.npy", A)
    code = """
import os, sys, relunmd, numpy as np
from relunmd.engine.matrix.mapped import FileStamp
verify, calls = FileStamp.verify, iter(range(10**9))
def truncating(stamp):
    verify(stamp)
    if next(calls) == 300:
        os.truncate("X.npy", 4096)
FileStamp.verify = truncating
d = relunmd.decompose(np.load("X.npy", mmap_mode="r"), 3, random_state=0, init="random", max_iter=200, tol=0)
print(d.status.name)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "READ_FAILED\n"), done.stderr


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_mapped_arrays_are_read_as_they_are_in_memory(tmp_path, mode):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode=mode)
    if mode != "r":
        mapped[3] = 7
    wanted = np.array(mapped)
    for rows in (ALL, slice(20, 600)):
        for A, B in ((mapped, wanted), (mapped[:, ::2], wanted[:, ::2]), (mapped.T, wanted.T)):
            source = check_matrix(A[rows])
            np.testing.assert_array_equal(source.read(slice(1, 4)), B[rows][1:4])
            part, first = source.part(slice(1, 4), 40, Scratch())
            np.testing.assert_array_equal(part.read(slice(1 - first, 4 - first)), B[rows][1:4])


def test_a_file_that_was_replaced_before_is_not_read(tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    np.save(tmp_path / "other.npy", X + 1)
    (tmp_path / "other.npy").replace(tmp_path / "X.npy")
    np.testing.assert_array_equal(DenseSource(mapped).read(ALL), X)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_gives_the_same_bits_for_a_map(tmp_path, algorithm):
    np.save(tmp_path / "X.npy", X)
    options = {"algorithm": algorithm, "random_state": 0, "max_iter": 3}
    mapped = relunmd.decompose(np.load(tmp_path / "X.npy", mmap_mode="r"), 3, **options)
    wanted = relunmd.decompose(X, 3, **options)
    np.testing.assert_array_equal(mapped.W, wanted.W)
    np.testing.assert_array_equal(mapped.H, wanted.H)


def test_a_sparse_matrix_that_lacks_chunks_is_reported(tmp_path, caplog):
    A = sparse.csr_array(X)
    group = zarr.create_group(str(tmp_path / "X.zarr"), attributes={"shape": list(A.shape)})
    for name in ("data", "indices", "indptr"):
        member = getattr(A, name)
        group.create_array(name, shape=member.shape, chunks=(1000,), dtype=member.dtype)[:] = member
    with caplog.at_level("WARNING", "relunmd"):
        StoredCsr(group)
        assert caplog.messages == []
        (tmp_path / "X.zarr" / "data" / "c" / "1").unlink()
        StoredCsr(zarr.open(str(tmp_path / "X.zarr"), mode="r"))
    assert [message.partition(" are")[0] for message in caplog.messages] == [
        f"1 of {-(-A.nnz // 1000)} chunks of the Zarr array '/data'"
    ]


def test_a_store_that_lacks_chunks_is_reported(tmp_path, caplog):
    with caplog.at_level("WARNING", "relunmd"):
        whole = relunmd.decompose(as_zarr(tmp_path), 2, max_iter=1)
        assert caplog.messages == []
        (tmp_path / "X.zarr" / "c" / "0" / "0").unlink()
        (tmp_path / "X.zarr" / "c" / "4" / "0").unlink()
        part = relunmd.decompose(zarr.open(str(tmp_path / "X.zarr"), mode="r"), 2, max_iter=1)
    (message,) = caplog.messages
    assert message.startswith("2 of 6 chunks of the Zarr array '/' are not stored and read as its fill value, 0.0.")
    assert part.fingerprint.nonzeros < whole.fingerprint.nonzeros
    memory = zarr.create_array(zarr.storage.MemoryStore(), shape=X.shape, chunks=(100, 40), dtype=X.dtype)
    memory[:100] = X[:100]
    with caplog.at_level("WARNING", "relunmd"):
        StoredArray(memory)
    assert caplog.messages[-1].startswith("5 of 6 chunks")


class Vanishing(zarr.storage.LocalStore):
    """A store whose last chunks are removed when the first one has been read."""

    async def get(self, key, *args, **options):
        found = await super().get(key, *args, **options)
        if key == "c/0/0":
            for index in range(2, 6):
                shutil.rmtree(self.root / "c" / str(index), ignore_errors=True)
        return found


def test_chunks_that_vanish_during_the_first_pass_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_module, "_SLAB_BYTES", 100 * 40 * 8)
    as_zarr(tmp_path)
    vanishing = zarr.open_array(Vanishing(tmp_path / "X.zarr", read_only=True), mode="r")
    with pytest.raises(FileError, match=r"the Zarr array '/' had 6 of 6 chunks in its store and now has 2"):
        relunmd.decompose(vanishing, 2, max_iter=1, n_jobs=1)


def test_chunks_of_a_sparse_matrix_that_vanish_are_noticed(tmp_path):
    A = sparse.csr_array(X)
    group = zarr.create_group(str(tmp_path / "X.zarr"), attributes={"shape": list(A.shape)})
    for name in ("data", "indices", "indptr"):
        member = getattr(A, name)
        group.create_array(name, shape=member.shape, chunks=(1000,), dtype=member.dtype)[:] = member
    source = StoredCsr(group)
    source.validated()
    (tmp_path / "X.zarr" / "data" / "c" / "1").unlink()
    with pytest.raises(FileError, match="the Zarr array '/data' had"):
        source.validated()
