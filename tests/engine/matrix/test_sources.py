"""Whatever the user has gives the same tiles, and is left as it is."""

import h5py
import numpy as np
import pytest
import zarr
from scipy import sparse

from relunmd import InputError
from relunmd.engine.matrix import CsrSource, DenseSource, Matrix, Scratch, StoredArray, StoredCsr, SumsPool
from relunmd.engine.matrix import stored as stored_module
from relunmd.engine.problem_setup import check_matrix

M, N = 700, 9000  # Wide enough for several tiles in a row, and several blocks.


@pytest.fixture(scope="module")
def X():
    random = np.random.default_rng(0)
    return ((random.random((M, N)) < 0.01) * random.integers(1, 200, (M, N))).astype(np.float64)


def assembled(source, dtype=np.float64, scale=0.5):
    """The matrix put together from its strips' tiles, and from its tiles of whole rows."""
    matrix, scratch = Matrix(source, np.dtype(dtype), scale), Scratch()
    found = np.full((2, *source.shape), np.nan)
    for index in range(len(matrix.layout.blocks)):
        block = matrix.block(index, scratch)
        for at in block.strips:
            for tile in block.across(at):
                place = slice(block.rows.start + at.start, block.rows.start + at.stop)
                assert tile.X.dtype == dtype
                assert not tile.X.flags.writeable
                found[0][place, tile.columns] = tile.X * tile.scale
        for tile in block.tiles():
            place = slice(block.rows.start + tile.rows.start, block.rows.start + tile.rows.stop)
            found[1][place] = tile.X * tile.scale
    np.testing.assert_array_equal(found[0], found[1])
    return found[0]


def in_hdf5(X, folder, **options):
    return h5py.File(folder / "x.h5", "w").create_dataset("X", data=X, **options)


def in_zarr(X, folder, **options):
    array = zarr.create_array(store=str(folder / "x.zarr"), shape=X.shape, dtype=X.dtype, **options)
    array[:] = X
    return array


def memory_map(X, folder):
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


def stored_csr(X, group, index=np.int32, **attributes):
    A = sparse.csr_array(X)
    group["data"], group["indices"] = A.data, A.indices.astype(index)
    group["indptr"] = A.indptr.astype(index)
    group.attrs.update({"shape": A.shape} | attributes)
    return group


def hdf5_group(X, folder):
    return stored_csr(X, h5py.File(folder / "x.h5", "w").create_group("X"), np.int64, **{"encoding-type": "csr_matrix"})


def zarr_group(X, folder):
    A, group = sparse.csr_array(X), zarr.create_group(store=str(folder / "x.zarr"), attributes={"shape": X.shape})
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(A, name))
    return group


KINDS = {
    "float64": lambda X, folder: X,
    "float32": lambda X, folder: X.astype(np.float32),
    "bytes": lambda X, folder: X.astype(np.uint8),
    "int64": lambda X, folder: X.astype(np.int64),
    "fortran": lambda X, folder: np.asfortranarray(X),
    "fortran bytes": lambda X, folder: np.asfortranarray(X.astype(np.uint8)),
    "every second": lambda X, folder: np.repeat(X, 2, axis=1)[:, ::2],
    "big-endian": lambda X, folder: X.astype(">f8"),
    "memory map": memory_map,
    "memory map of bytes": lambda X, folder: memory_map(X.astype(np.uint8), folder),
    **{form: lambda X, folder, form=form: sparse.coo_array(X).asformat(form) for form in ("csr", "csc", "coo", "lil")},
    **{f"{form}_matrix": lambda X, folder, form=form: sparse.coo_matrix(X).asformat(form) for form in ("csr", "bsr")},
    "dok and dia": lambda X, folder: sparse.dia_array(sparse.dok_array(X[:60, :60])),
    "csr of int16": lambda X, folder: sparse.csr_array(X.astype(np.int16)),
    "hdf5": in_hdf5,
    "hdf5 in chunks": lambda X, folder: in_hdf5(X.astype(np.float32), folder, chunks=(37, 100), compression="gzip"),
    "zarr": lambda X, folder: in_zarr(X.astype(np.uint8), folder, chunks=(100, 5000)),
    "csr in hdf5": hdf5_group,
    "csr in zarr": zarr_group,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_kind_gives_the_same_tiles(X, tmp_path, monkeypatch, kind, dtype):
    monkeypatch.setattr(stored_module, "_SLAB_BYTES", 2**20)  # So that a block takes several.
    given = KINDS[kind](X, tmp_path)
    source = check_matrix(given)
    wanted = X[:60, :60] if kind == "dok and dia" else X
    assert source.shape == wanted.shape
    np.testing.assert_array_equal(assembled(source, dtype), wanted.astype(dtype) * 0.5)
    assert source.sparse == (sparse.issparse(given) or "csr in" in kind)
    assert source.in_memory == (not kind.startswith(("memory map", "hdf5", "zarr", "csr in")))


def test_booleans_are_not_converted_as_a_whole(X):
    source = check_matrix(X > 0)
    np.testing.assert_array_equal(assembled(source, scale=1.0), X > 0)
    assert np.shares_memory(source.X, source.X.base)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_messy_csr_is_put_in_order_in_a_copy(index):
    data, columns, rows = [2.0, 1.0, 3.0, 0.0, 5.0], [3, 1, 1, 0, 2], [0, 3, 4, 5]
    messy = sparse.csr_array((data, np.array(columns, index), np.array(rows, index)), shape=(3, 4))
    before = [part.copy() for part in (messy.data, messy.indices, messy.indptr)]
    np.testing.assert_array_equal(assembled(CsrSource(messy), scale=1.0), messy.toarray())
    for part, kept in zip((messy.data, messy.indices, messy.indptr), before, strict=True):
        np.testing.assert_array_equal(part, kept)


def test_orderly_csr_is_not_copied(X):
    A = sparse.csr_array(X)
    source = CsrSource(A)
    assert np.shares_memory(source.csr.data, A.data)
    assert np.shares_memory(source.csr.indices, A.indices)


def test_messy_csr_in_a_file_too(tmp_path):
    group = h5py.File(tmp_path / "x.h5", "w").create_group("X")
    group["data"], group["indices"], group["indptr"] = [2.0, 1.0, 3.0, 0.0, 5.0], [3, 1, 1, 0, 2], [0, 3, 4, 5]
    group.attrs["shape"] = (3, 4)
    np.testing.assert_array_equal(assembled(StoredCsr(group), scale=1.0), [[0, 4, 0, 2], [0, 0, 0, 0], [0, 0, 5, 0]])


def test_a_file_is_read_in_slabs_each_once(X, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_module, "_SLAB_BYTES", 100 * N * 8)
    reads = []
    source = StoredArray(in_hdf5(X, tmp_path, chunks=(50, N)))
    read = source._read
    source._read = lambda rows: reads.append(rows) or read(rows)
    assembled(source)
    covered = [row for rows in reads for row in range(rows.start, rows.stop)]
    assert len(covered) <= 2 * M  # Once for the strips and once for the tiles of whole rows.
    assert max(rows.stop - rows.start for rows in reads) <= 128  # A slab in whole strips.
    assert all(start % 50 == 0 for start in (block.start for block in Matrix(source, np.dtype(float)).layout.blocks))


BAD_GROUPS = {
    "no member": ({"data": [1.0]}, {"shape": (1, 1)}, "got the group '/X' with data."),
    "by columns": (
        {"data": [1.0], "indices": [0], "indptr": [0, 1]},
        {"shape": (1, 1), "encoding-type": "csc_matrix"},
        "must be stored in CSR format; got the group '/X' of shape (1, 1) in csc_matrix format",
    ),
    "no shape": (
        {"data": [1.0], "indices": [0], "indptr": [0, 1]},
        {},
        "must have an attribute 'shape'",
    ),
    "short indptr": (
        {"data": [1.0], "indices": [0], "indptr": [0, 1]},
        {"shape": (2, 7)},
        "must be 3 nondecreasing",
    ),
    "falling indptr": (
        {"data": [1.0, 1.0], "indices": [0, 0], "indptr": [0, 3, 1, 2]},
        {"shape": (3, 1)},
        "numbers from 0 to 2",
    ),
    "indptr beyond": (
        {"data": [1.0], "indices": [0], "indptr": [0, 2]},
        {"shape": (1, 1)},
        "numbers from 0 to 1",
    ),
    "few indices": ({"data": [1.0, 2], "indices": [0], "indptr": [0, 2]}, {"shape": (1, 2)}, "and 1 indices"),
    "complex": (
        {"data": [1j], "indices": [0], "indptr": [0, 1]},
        {"shape": (1, 1)},
        "X must hold real numbers; got dtype complex128",
    ),
    "two dimensions": (
        {"data": [[1.0]], "indices": [0], "indptr": [0, 1]},
        {"shape": (1, 1)},
        "data of the group '/X' must be a one-dimensional array",
    ),
    "as in CSC": (
        {"data": [1.0], "indices": [0], "indptr": [0, 1, 1, 1]},
        {"shape": (2, 3)},
        "of shape (2, 3) in csc format",
    ),
    "scalar shape": (
        {"data": [1.0], "indices": [0], "indptr": [0, 1]},
        {"shape": 3},
        "must have an attribute 'shape'",
    ),
    "empty": (
        {"data": np.empty(0), "indices": np.empty(0, int), "indptr": [0]},
        {"shape": (0, 3)},
        "must not be empty",
    ),
}


@pytest.mark.parametrize("case", BAD_GROUPS)
def test_bad_groups(tmp_path, case):
    members, attributes, sentence = BAD_GROUPS[case]
    group = h5py.File(tmp_path / "x.h5", "w").create_group("X")
    for name, values in members.items():
        group[name] = values
    group.attrs.update(attributes)
    with pytest.raises(InputError) as caught:
        check_matrix(group)
    assert sentence in str(caught.value)


def test_indices_outside_the_matrix_are_refused(tmp_path):
    group = h5py.File(tmp_path / "x.h5", "w").create_group("X")
    group["data"], group["indices"], group["indptr"] = [1.0, 2.0], [0, 7], [0, 1, 2]
    group.attrs["shape"] = (2, 3)
    with pytest.raises(InputError, match=r"must be from 0 to 2; got 0 to 7 in rows 0 to 1"):
        assembled(check_matrix(group))
    broken = sparse.csr_array(np.eye(3))
    broken.indices = np.array([0, 1, 9], np.int32)
    with pytest.raises(InputError, match="consistent sparse matrix"):
        check_matrix(broken)


def test_stored_text_and_stored_cubes_are_refused(tmp_path):
    file = h5py.File(tmp_path / "x.h5", "w")
    with pytest.raises(InputError, match="X must hold real numbers"):
        check_matrix(file.create_dataset("text", data=[[b"a", b"b"]]))
    with pytest.raises(InputError, match=r"X must be two-dimensional; got 3 dimension"):
        check_matrix(file.create_dataset("cube", data=np.ones((2, 2, 2))))


def test_scratch_that_was_written_to_is_zero_again():
    scratch, dtype = Scratch(), np.dtype(float)
    first = scratch.filled("Z", (4, 5), dtype, 0)
    first[1, 2] = first[3, 4] = 7
    scratch.written("Z", dtype, np.array([7, 19]))
    for shape in ((4, 5), (2, 3), (6, 6), (4, 5)):
        assert not scratch.filled("Z", shape, dtype, 0).any()


def test_dense_source_is_not_in_memory_when_mapped(tmp_path):
    mapped = memory_map(np.eye(5), tmp_path)
    assert not DenseSource(mapped).in_memory
    assert not DenseSource(np.asarray(mapped)[1:]).in_memory
    assert DenseSource(np.array(mapped)).in_memory


def test_what_a_closed_file_held_is_refused(tmp_path):
    file = h5py.File(tmp_path / "x.h5", "w")
    held = file.create_dataset("X", data=np.eye(3)), file.create_group("G")
    file.close()
    for X in held:
        with pytest.raises(InputError, match="HDF5 file that has been closed"):
            check_matrix(X)


def test_attributes_of_fixed_length_are_understood(tmp_path):
    group = hdf5_group(np.eye(3), tmp_path)
    group.attrs["encoding-type"] = np.bytes_("csr_matrix")
    np.testing.assert_array_equal(assembled(check_matrix(group), scale=1.0), np.eye(3))


def test_broken_row_starts_are_refused_before_compiled_code_sees_them():
    broken = sparse.csr_array((2, 3))
    broken.indptr = np.array([0, 5, 0], np.int32)
    by_columns = sparse.csc_array(np.eye(3))
    by_columns.indices = np.array([0, 1, 9], np.int32)
    for X in (broken, by_columns):
        with pytest.raises(InputError, match="consistent sparse matrix"):
            check_matrix(X)


@pytest.mark.parametrize("dtype", [np.float16, ">f8"])
def test_messy_csr_of_dtypes_that_scipy_does_not_know(dtype):
    data = np.array([2.0, 1.0, 3.0, 0.0, 5.0], dtype)
    messy = sparse.csr_array((data, [3, 1, 1, 0, 2], [0, 3, 4, 5]), shape=(3, 4))
    np.testing.assert_array_equal(assembled(check_matrix(messy), scale=1.0), [[0, 4, 0, 2], [0, 0, 0, 0], [0, 0, 5, 0]])


def test_tall_chunks_do_not_make_one_block_of_it_all(tmp_path, caplog):
    X = np.arange(12_000.0).reshape(4000, 3)
    with caplog.at_level("INFO", "relunmd"):
        source = check_matrix(in_hdf5(X, tmp_path, chunks=(4000, 1)))
    assert source.chunk_rows == 1
    assert "chunks of 4000 rows" in caplog.text
    np.testing.assert_array_equal(assembled(source, scale=1.0), X)


def test_strided_parts_of_a_csr_matrix():
    data, columns = np.repeat([1.0, 2.0, 3.0], 2)[::2], np.repeat([0, 2, 1], 2).astype(np.int32)[::2]
    X = sparse.csr_array((data, columns, np.array([0, 2, 3], np.int32)), shape=(2, 3), copy=False)
    np.testing.assert_array_equal(assembled(check_matrix(X), scale=1.0), [[1, 0, 2], [0, 3, 0]])


def test_one_scratch_serves_both_float_types(X):
    source, scratch = CsrSource(sparse.csr_array(X)), Scratch()
    for dtype in (np.float64, np.float32, np.float64, np.float32):
        for rows in (slice(0, 100), slice(300, 350)):
            tile = source.tile(rows, slice(0, 2000), np.dtype(dtype), 1.0, scratch)
            np.testing.assert_array_equal(tile.X, X[rows, :2000])


def test_sums_come_from_a_pool_that_keeps_only_what_is_used():
    pool = SumsPool()
    first = pool.take((3, 2))
    first += 7
    pool.give_back({"a": first, "b": np.ones(5), "c": 1.0})
    again = pool.take((3, 2))
    assert again is first
    assert not again.any()
    assert pool.take((5,)).base is None
    pool.end_of_pass()
    pool.give_back({"a": again})
    pool.end_of_pass()
    assert pool.take((3, 2)) is not again
