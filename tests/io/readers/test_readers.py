"""Every format gives the matrix that was written; an invalid file gives one sentence."""

import gzip
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import zarr
from PIL import Image
from scipy import sparse

import relunmd
from relunmd.engine.problem_setup import check_matrix
from relunmd.errors import FileError, InputError, MissingDependencyError, RelunmdError
from relunmd.inspection import inspect_matrix, row_parts
from relunmd.io.readers import open_matrix
from tests.io.readers import samples

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return samples.write_all(tmp_path_factory.mktemp("samples") / "files")


def dense(X):
    """What was opened, as an array."""
    if sparse.issparse(X):
        return X.toarray()
    if not hasattr(X, "shape"):
        parts = (np.asarray(X[name][:]) for name in ("data", "indices", "indptr"))
        return sparse.csr_array(tuple(parts), shape=tuple(X.attrs["shape"])).toarray()
    return np.asarray(X[...])


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_gives_what_was_written(files, name):
    with open_matrix(files / name) as opened:
        np.testing.assert_array_equal(dense(opened.X), samples.X)
        assert opened.entry.shape == samples.X.shape
        found = inspect_matrix(opened.X)
    assert (found.nonzeros, found.largest) == (np.count_nonzero(samples.X), samples.X.max())
    assert found.norm == pytest.approx(np.linalg.norm(samples.X.astype(float)))


@pytest.mark.parametrize("name", ["a.npy", "a.h5", "a.h5ad", "a.zarr", "b.zarr", "csr.zarr"])
def test_what_can_stay_on_the_disk_does(files, name):
    with open_matrix(files / name) as opened:
        assert opened.entry.lazy
        assert isinstance(opened.X, np.memmap) or type(opened.X).__module__.startswith(("h5py", "zarr"))


@pytest.mark.parametrize("name", ["a.h5ad", "a.zarr", "csc.npz", "a.mtx.gz", "named.csv", "images"])
def test_a_decomposition_of_it_is_that_of_the_array(files, name):
    options = {"rank": 3, "max_iter": 5, "tol": 0, "random_state": 0, "dtype": "float64"}
    with open_matrix(files / name) as opened:
        d = relunmd.decompose(opened.X, **options)
    np.testing.assert_allclose(d.error, relunmd.decompose(samples.X, **options).error, rtol=1e-9)


class TestSeveral:
    def test_the_names_are_told(self, tmp_path):
        np.savez(tmp_path / "two.npz", first=np.eye(3), second=np.eye(4), label=np.arange(3))
        with pytest.raises(InputError, match=r"several .* array=NAME.*'first' \(3 × 3, float64\), 'second'") as caught:
            open_matrix(tmp_path / "two.npz").__enter__()
        assert "label" not in str(caught.value)

    def test_one_is_picked(self, tmp_path):
        np.savez(tmp_path / "two.npz", first=np.eye(3), second=np.eye(4))
        with open_matrix(tmp_path / "two.npz", "second") as opened:
            assert opened.X.shape == (4, 4)

    def test_a_name_that_is_not_there(self, files):
        with pytest.raises(InputError, match=r"no array 'Y'. It holds 'X'"):
            open_matrix(files / "a.npz", "Y").__enter__()

    def test_a_name_where_there_are_none(self, files):
        with pytest.raises(InputError, match="without a name; omit the name 'Y'"):
            open_matrix(files / "a.npy", "Y").__enter__()

    def test_in_groups(self, files):
        for name in ("layers/counts", "/layers/counts"):
            with open_matrix(files / "a.h5ad", name) as opened:
                np.testing.assert_array_equal(dense(opened.X), samples.X)

    def test_which_was_taken_is_told(self, files, tmp_path):
        with open_matrix(files / "a.npz") as opened:
            assert opened.entry.note == "'X' is used, one of 2 arrays"
        with open_matrix(files / "a.npz", "X") as opened:
            assert opened.entry.note == ""

    def test_annotated_data_without_an_x_that_can_be_used(self, tmp_path):
        with h5py.File(tmp_path / "a.h5ad", "w") as file:
            file["obsm/X_pca"] = np.eye(4)
        with pytest.raises(InputError, match=r"no array 'X'; choose an array .* 'obsm/X_pca'"):
            open_matrix(tmp_path / "a.h5ad").__enter__()
        with h5py.File(tmp_path / "a.h5ad", "a") as file:
            file["X"] = np.eye(4) * 1j
        with pytest.raises(FileError, match=r"'/X' .* must hold real numbers"):
            open_matrix(tmp_path / "a.h5ad").__enter__()

    def test_of_matlab(self, tmp_path):
        scipy.io.savemat(tmp_path / "two.mat", {"A": np.eye(3), "B": sparse.eye_array(4).tocsc(), "name": "words"})
        with open_matrix(tmp_path / "two.mat", "B") as opened:
            np.testing.assert_array_equal(opened.X.toarray(), np.eye(4))
        with pytest.raises(InputError, match="several"):
            open_matrix(tmp_path / "two.mat").__enter__()
        with pytest.raises(FileError, match="It is a char"):
            open_matrix(tmp_path / "two.mat", "name").__enter__()


class TestMatlab:
    @pytest.mark.parametrize("packed", [False, True])
    @pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i2", "u4", "i8", "?"])
    def test_types_as_scipy_reads_them(self, tmp_path, dtype, packed):
        A = np.arange(12).reshape(4, 3).astype(dtype)
        scipy.io.savemat(tmp_path / "a.mat", {"A": A}, do_compression=packed)
        with open_matrix(tmp_path / "a.mat") as opened:
            np.testing.assert_array_equal(opened.X, scipy.io.loadmat(tmp_path / "a.mat")["A"])

    @pytest.mark.parametrize("dtype", ["f8", "?"])
    def test_sparse_as_scipy_reads_it(self, tmp_path, dtype):
        scipy.io.savemat(tmp_path / "a.mat", {"A": sparse.csc_array(samples.X.astype(dtype))})
        with open_matrix(tmp_path / "a.mat") as opened:
            np.testing.assert_array_equal(opened.X.toarray(), scipy.io.loadmat(tmp_path / "a.mat")["A"].toarray())

    @pytest.mark.parametrize("kind", [8, 19, 1000])
    def test_an_unknown_type_of_numbers(self, tmp_path, kind):
        """It ends the process in scipy.io.loadmat."""
        scipy.io.savemat(tmp_path / "a.mat", {"A": np.ones((2, 2))})
        content = (tmp_path / "a.mat").read_bytes()
        tag = struct.pack("<II", 9, 32)
        assert content.count(tag) == 1
        (tmp_path / "a.mat").write_bytes(content.replace(tag, struct.pack("<II", kind, 32)))
        with pytest.raises(FileError, match=f"is damaged.* 32 bytes of type {kind} "):
            open_matrix(tmp_path / "a.mat").__enter__()

    def test_big_endian(self, tmp_path):
        body = (
            struct.pack(">IIII", 6, 8, 6, 0) + struct.pack(">IIii", 5, 8, 2, 2) + struct.pack(">HH4s", 1, 1, b"X\0\0\0")
        )
        body += struct.pack(">II4d", 9, 32, 1.0, 2.0, 3.0, 4.0)
        header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI"
        (tmp_path / "big.mat").write_bytes(header + struct.pack(">II", 14, len(body)) + body)
        with open_matrix(tmp_path / "big.mat") as opened:
            np.testing.assert_array_equal(opened.X, [[1, 3], [2, 4]])
            assert relunmd.decompose(opened.X, 1, max_iter=1).shape == (2, 2)


class TestText:
    def read(self, tmp_path, text, name="a.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with open_matrix(tmp_path / name) as opened:
            return dense(opened.X)

    @pytest.mark.parametrize(
        "text",
        [
            "1,2\n3,4\n",
            "1;2\n3;4",
            "1\t2\r\n3\t4\r\n",
            "1 2\n3 4\n",
            "a,b\n1,2\n3,4\n",
            '"a","b"\n"1","2"\n"3","4"\n',
            ",a,b\nx,1,2\ny,3,4\n",
            ",0,1\n0,1,2\n1,3,4\n",
            '"a" "b"\n"1" 1 2\n"2" 3 4\n',
            "a b\nx 1 2\ny 3 4\n",
            "x,1,2\ny,3,4\n",
            "# made by hand\n1,2\n\n3,4\n",
            "\ufeff1e0,2.0\n+3,4.\n",
            "1,2,\n3,4,\n",
            "a,b,\n1,2,\n3,4,\n",
            "ID,a,b\n7,1,2\n9,3,4\n",
            "sample,2001,2002\nx,1,2\ny,3,4\n",
            '"text 1" 1 2\n"text 2" 3 4\n',
            '"a, b",1,2\nc,3,4\n',
            'n,"a; b",b\n#1,1,2\nr2,3,4\n',
            "gene a\tgene b\n1\t2\n3\t4\n",
            "a\tb\t\n1\t2\t\n3\t4\t\n",
            "cat,1,2\ndog,3,4\n",
            ",2001,2005\nA,1,2\nB,3,4\n",
            "date,s1,s2\n2020-01-01,1,2\n2020-01-02,3,4\n",
            "probe,s1,s2\n1007_s_at,1,2\n1053_at,3,4\n",
            "\ufeff# c\na,b\n1,2\n3,4\n",
        ],
    )
    def test_names_and_delimiters(self, tmp_path, text):
        np.testing.assert_array_equal(self.read(tmp_path, text), [[1, 2], [3, 4]])

    def test_a_row_of_zeros_and_ones_is_no_header(self, tmp_path):
        np.testing.assert_array_equal(self.read(tmp_path, "cat,0\ndog,1\nemu,1\n"), [[0], [1], [1]])
        np.testing.assert_array_equal(self.read(tmp_path, "a,0,1\nb,1,0\n"), [[0, 1], [1, 0]])

    def test_years_above_numbers(self, tmp_path):
        text = "country,2001,2002,2003\nx,1,2,3\ny,4,5,6\n"
        np.testing.assert_array_equal(self.read(tmp_path, text), [[1, 2, 3], [4, 5, 6]])

    @pytest.mark.parametrize(
        ("names", "shape", "note"),
        [
            ("none", (3, 3), ""),
            ("columns", (2, 3), "the first line is names and is left out"),
            ("rows", (3, 2), "the first column is names and is left out"),
            ("both", (2, 2), "the first line and the first column are names and are left out"),
        ],
    )
    def test_names_can_be_told(self, tmp_path, names, shape, note):
        (tmp_path / "a.csv").write_text("1,2,3\n4,5,6\n7,8,9\n")
        with open_matrix(tmp_path / "a.csv", names=names) as opened:
            assert opened.X.shape == shape
            assert opened.entry.note == note

    def test_names_are_for_text(self, files, tmp_path):
        with pytest.raises(InputError, match=r"omitted for a NumPy array file. Got 'rows'"):
            open_matrix(files / "a.npy", names="rows").__enter__()
        with pytest.raises(InputError, match="must be one of none, columns"):
            open_matrix(files / "a.csv", names="all").__enter__()

    def test_other_encodings(self, tmp_path):
        (tmp_path / "a.csv").write_bytes("1,2\n3,4\nHöhe,1\n".encode("latin-1"))
        with pytest.raises(FileError, match=r"text in UTF-8. Line 3 is not; save it as UTF-8"):
            open_matrix(tmp_path / "a.csv").__enter__()

    def test_old_line_ends(self, tmp_path):
        (tmp_path / "a.csv").write_bytes(b"a,b\r1,2\r3,4\r")
        with open_matrix(tmp_path / "a.csv") as opened:
            np.testing.assert_array_equal(opened.X, [[1, 2], [3, 4]])

    @pytest.mark.parametrize(
        ("text", "words"),
        [("1,2\n3,4\n", "there are no names"), ("a,b\n1,2\n", "the first line is names and is left out")],
    )
    def test_a_guess_is_logged(self, tmp_path, caplog, text, words):
        (tmp_path / "a.csv").write_text(text)
        with caplog.at_level("INFO", "relunmd"), open_matrix(tmp_path / "a.csv"):
            assert f"assuming that {words}" in caplog.text
        caplog.clear()
        with caplog.at_level("INFO", "relunmd"), open_matrix(tmp_path / "a.csv", names="columns"):
            assert not caplog.text

    def test_one_column_with_a_name(self, tmp_path):
        np.testing.assert_array_equal(self.read(tmp_path, "count\n1\n2\n"), [[1], [2]])

    def test_many_pieces(self, tmp_path, monkeypatch):
        monkeypatch.setattr("relunmd.io.readers.text_tables._BLOCK_BYTES", 640)
        np.savetxt(tmp_path / "a.csv", samples.X, delimiter=",")
        with open_matrix(tmp_path / "a.csv") as opened:
            np.testing.assert_array_equal(dense(opened.X), samples.X)

    def test_a_first_line_longer_than_a_piece(self, tmp_path, monkeypatch):
        monkeypatch.setattr("relunmd.io.readers.text_tables._BLOCK_BYTES", 640)
        text = ",".join(f"a rather long name {j}" for j in range(20)) + "\n" + ("1" + ",0" * 19 + "\n") * 3
        np.testing.assert_array_equal(self.read(tmp_path, text), np.eye(20)[[0, 0, 0]])

    def test_mostly_zeros_become_sparse_and_others_do_not(self, tmp_path):
        for share, kind in ((0.9, sparse.csr_array), (0.1, np.ndarray)):
            X = np.where(np.random.default_rng(0).random((40, 10)) < share, 0, 1.5)
            np.savetxt(tmp_path / "a.csv", X, delimiter=",")
            with open_matrix(tmp_path / "a.csv") as opened:
                assert isinstance(opened.X, kind)
                np.testing.assert_array_equal(dense(opened.X), X)

    @pytest.mark.parametrize(
        ("text", "values"),
        [
            ("a,b\n1,\n", [[1, np.nan]]),
            ("a,b\nx,1\ny,\n", [[1], [np.nan]]),
            ("1,NA\n2,3\n", [[1, np.nan], [2, 3]]),
            (",2,3\n4,5,6\n7,8,9\n", [[np.nan, 2, 3], [4, 5, 6], [7, 8, 9]]),
            ("1\t2\n\t\n3\t4\n", [[1, 2], [np.nan, np.nan], [3, 4]]),
            ("1,,3\n2,3,4\n", [[1, np.nan, 3], [2, 3, 4]]),
            ('"r","a","b"\n"x",1,n/a\n"y","",4\n', [[1, np.nan], [np.nan, 4]]),
            ("1 NA\nnull 4\n", [[1, np.nan], [np.nan, 4]]),
            ("run,P1;P2;P3,Q\nr1,1,\nr2,,4\n", [[1, np.nan], [np.nan, 4]]),
        ],
    )
    def test_empty_cells_are_missing_values(self, tmp_path, text, values):
        (tmp_path / "a.csv").write_text(text)
        with open_matrix(tmp_path / "a.csv") as opened:
            np.testing.assert_array_equal(dense(opened.X), values)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("1,2\n3\n", "2 cells in every line. Line 2 has 1"),
            ("1,2\n3,x\n", "Line 2, cell 2 has 'x'"),
            ("a,b,c\n1,2,3\n1,2,3,4\n", "3 cells in every line. Line 3 has 4"),
            ("word\n", "cell 1 has 'word'"),
            ("a,b\n", "no rows of numbers"),
            (",a,b\nx,1,2\n\ny,1,2,3\n", "3 cells in every line. Line 4 has 4"),
            (",a,b\nx,1,2\ny,1\n", "3 cells in every line. Line 3 has 2"),
            ("a b\nx 1 2\ny\n", "3 cells in every line. Line 3 has 1"),
            ("1,2\nTrue,2\n", "Line 2, cell 1 has 'True'"),
            ("1,2\n0x10,2\n3,4\n", "Line 2, cell 1 has '0x10'"),
            ("0x10,2\n3,4\n", "Line 1, cell 1 has '0x10'"),
            ("1%,2\n3,4\n", "Line 1, cell 1 has '1%'"),
            ("1,2\n3,4\n# the end,5\n", "Line 3, cell 1 has '# the end'"),
            ("1,2,\n3,4,\n5,6,7\n", "nothing after the last delimiter of a line. Line 3 has"),
            ("3M,1\n7Up,3\n", r"Line 1, cell 1 has '3M'. If these are names, use names=KIND"),
            ("1 2\n3 4\n5 6 7\n", "2 cells in every line. Line 3 has 3"),
            ("1;2,5\n2;3\n", "Line 1, cell 2 has '2,5'. Write numbers with a decimal point"),
        ],
    )
    def test_what_is_wrong_is_told_with_its_place(self, tmp_path, text, words):
        with pytest.raises(FileError, match=words):
            self.read(tmp_path, text)


class TestMatrixMarket:
    def read(self, tmp_path, text):
        (tmp_path / "a.mtx").write_text(text)
        with open_matrix(tmp_path / "a.mtx") as opened:
            return dense(opened.X)

    @pytest.mark.parametrize("symmetry", ["general", "symmetric"])
    @pytest.mark.parametrize("field", ["real", "integer"])
    @pytest.mark.parametrize("stored", ["sparse", "dense"])
    def test_as_scipy_writes_it(self, tmp_path, stored, field, symmetry):
        A = samples.matrix(9, 9).astype(float if field == "real" else int)
        A = A + A.T if symmetry == "symmetric" else A
        scipy.io.mmwrite(tmp_path / "a.mtx", sparse.coo_array(A) if stored == "sparse" else A, symmetry=symmetry)
        with open_matrix(tmp_path / "a.mtx") as opened:
            np.testing.assert_array_equal(dense(opened.X), A)
            assert opened.X.dtype == A.dtype

    def test_pattern_comments_and_duplicates(self, tmp_path):
        text = "%%MatrixMarket matrix coordinate pattern general\n% a\n\n2 3 3\n1 1\n%b\n2 3\n2 3\n"
        np.testing.assert_array_equal(self.read(tmp_path, text), [[1, 0, 0], [0, 0, 2]])

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1\n", "from 1 to .* one in"),
            ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1.5 1 1\n", "from 1 to .* one in"),
            ("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1000\n", "has 1"),
            ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1\n1 2 1\n", "has more"),
            ("%%MatrixMarket matrix array real general\n2 1\n1\n1\n1\n", "has more"),
            ("%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 1 1 1\n", "real numbers"),
            ("%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n1 1 1\n", "square"),
            ("%%MatrixMarket matrix coordinate real general\n0 3 0\n", "empty"),
            ("%%MatrixMarket vector\n0 3 0\n", "begin with a line"),
        ],
    )
    def test_what_is_wrong(self, tmp_path, text, words):
        with pytest.raises(FileError, match=words):
            self.read(tmp_path, text)


class TestContentGoesBeforeTheName:
    @pytest.mark.parametrize(
        ("sample", "name"),
        [
            ("a.npy", "a.csv"),
            ("a.npz", "a.npy"),
            ("a.h5", "a.npy"),
            ("a.mtx", "a.dat"),
            ("a.csv", "table"),
            ("7.3.mat", "a.h5"),
        ],
    )
    def test_a_name_that_says_something_else(self, files, tmp_path, sample, name):
        (tmp_path / name).write_bytes((files / sample).read_bytes())
        with open_matrix(tmp_path / name) as opened:
            np.testing.assert_array_equal(dense(opened.X), samples.X)

    def test_a_name_that_nothing_in_it_bears_out(self, files, tmp_path):
        (tmp_path / "a.npy").write_bytes((files / "a.csv").read_bytes())
        with pytest.raises(FileError, match="must be a NumPy array file by its name"):
            open_matrix(tmp_path / "a.npy").__enter__()

    @pytest.mark.parametrize(
        ("name", "content"), [("a.pdf", b"%PDF-1.7\nwords and 1 number\n"), ("README.md", b"# A\n\nwords.\n")]
    )
    def test_words(self, tmp_path, name, content):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileError, match="Neither its name nor its content"):
            open_matrix(tmp_path / name).__enter__()
        (tmp_path / "table.xlsx").write_bytes(content)
        with pytest.raises(FileError, match=r"a spreadsheet; save it as .csv"):
            open_matrix(tmp_path / "table.xlsx").__enter__()

    def test_gzip_where_it_does_not_belong(self, files, tmp_path):
        (tmp_path / "a.npy.gz").write_bytes(gzip.compress((files / "a.npy").read_bytes()))
        with pytest.raises(FileError, match="compressed by gzip; decompress it first"):
            open_matrix(tmp_path / "a.npy.gz").__enter__()

    def test_our_own_files(self, tmp_path):
        relunmd.decompose(np.eye(6), 2, max_iter=1, checkpoint=tmp_path / "run.npz").save(tmp_path / "model.npz")
        with pytest.raises(FileError, match="a model that relunmd wrote"):
            open_matrix(tmp_path / "model.npz").__enter__()
        with pytest.raises(FileError, match="a checkpoint that relunmd wrote"):
            open_matrix(tmp_path / "run.npz").__enter__()


class TestNotThere:
    def test_nothing(self, tmp_path):
        with pytest.raises(FileError, match=r"There is no file .*nowhere.npy\."):
            open_matrix(tmp_path / "nowhere.npy").__enter__()

    def test_a_device(self):
        with pytest.raises(FileError, match="device"):
            open_matrix("/dev/zero").__enter__()

    @pytest.mark.parametrize(
        ("module", "name", "extra"),
        [
            ("h5py", "a.h5", "files"),
            ("zarr", "a.zarr", "files"),
            ("pyarrow", "a.parquet", "parquet"),
            ("PIL", "images", "images"),
        ],
    )
    def test_a_package(self, files, monkeypatch, module, name, extra):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingDependencyError, match=rf"pip install 'relunmd\[{extra}\]'"):
            open_matrix(files / name).__enter__()


class TestImages:
    def test_in_the_order_of_numbers(self, tmp_path):
        for number in (10, 9, 1):
            Image.new("L", (2, 2), number).save(tmp_path / f"image{number}.png")
        with open_matrix(tmp_path) as opened:
            np.testing.assert_array_equal(opened.X[:, 0], [1, 9, 10])

    def test_shades_of_grey_in_other_forms(self, tmp_path):
        Image.new("RGB", (3, 2), (7, 7, 7)).save(tmp_path / "0.png")
        Image.new("RGBA", (3, 2), (7, 7, 7, 255)).save(tmp_path / "1.png")
        Image.new("L", (3, 2), 7).convert("P").save(tmp_path / "2.gif")
        with open_matrix(tmp_path) as opened:
            np.testing.assert_array_equal(opened.X, np.full((3, 6), 7))

    def test_sixteen_bits(self, tmp_path):
        A = np.array([[0, 1000], [65535, 3]], np.uint16)
        Image.fromarray(A).save(tmp_path / "0.png")
        with open_matrix(tmp_path) as opened:
            np.testing.assert_array_equal(opened.X, A.reshape(1, 4))


class TestStored:
    """What HDF5 and Zarr can hold besides the samples."""

    @pytest.mark.parametrize("form", ["csr", "csc"])
    @pytest.mark.parametrize("told", ["encoding-type", "h5sparse_format", "shape"])
    def test_square_matrices_are_not_turned_round(self, tmp_path, form, told):
        A = np.array([[0, 1, 2], [0, 0, 3], [4, 0, 0.0]])
        S = getattr(sparse, f"{form}_array")(A)
        with h5py.File(tmp_path / "a.h5", "w") as file:
            group = file.create_group("X")
            group["data"], group["indices"], group["indptr"] = S.data, S.indices, S.indptr
            if told == "shape":  # As 10x Genomics has it by columns, and others by rows.
                group["shape"] = S.shape
                if form == "csc":
                    group["barcodes"] = np.arange(3)
            else:
                group.attrs["shape"], group.attrs[told] = S.shape, f"{form}_matrix"
        with open_matrix(tmp_path / "a.h5") as opened:
            (part,) = (part.toarray() for _, part in row_parts(check_matrix(opened.X)))
        np.testing.assert_array_equal(part, A)

    def test_half_precision_and_duplicates(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            group = file.create_group("X")
            group["data"], group["indices"] = np.array([1, 2, 3], "f2"), np.array([0, 0, 1])
            group["indptr"], group.attrs["shape"] = np.array([0, 3]), (1, 2)
        with open_matrix(tmp_path / "a.h5") as opened:
            found = inspect_matrix(opened.X)
        assert (found.nonzeros, found.largest, found.norm) == (2, 3.0, pytest.approx(np.sqrt(18)))

    def test_after_somebody_elses_bytes(self, tmp_path):
        with h5py.File(tmp_path / "a.dat", "w", userblock_size=4096) as file:
            file["X"] = samples.X
        with open_matrix(tmp_path / "a.dat") as opened:
            np.testing.assert_array_equal(dense(opened.X), samples.X)

    def test_big_endian_among_others(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["X"], file["label"] = samples.X.astype(">f4"), np.arange(3)
        with open_matrix(tmp_path / "a.h5") as opened:
            np.testing.assert_array_equal(dense(opened.X), samples.X)

    def test_a_store_of_many_chunks_is_not_listed(self, tmp_path, monkeypatch):
        """At most a thousand files are counted when it is opened."""
        X = np.ones((2000, 2))
        zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(1, 1), compressors=None)
        seen = []
        monkeypatch.setattr(os, "scandir", lambda folder, scan=os.scandir: seen.append(folder) or scan(folder))
        with open_matrix(tmp_path / "a.zarr") as opened:
            np.testing.assert_array_equal(opened.X[:3], X[:3])
        assert len(seen) < 600


class TestHostile:
    @pytest.mark.parametrize("part", ["data", "indices", "indptr", None])
    def test_links_to_other_files_are_not_followed(self, files, tmp_path, part):
        """Their targets are there, and could be read."""
        with h5py.File(tmp_path / "other.h5", "w") as other:
            other["data"], other["indices"], other["indptr"] = np.ones(2), np.arange(2), np.arange(3)
            other["X"] = np.eye(2)
        with h5py.File(tmp_path / "a.h5", "w") as file:
            if part is None:
                file["X"] = h5py.ExternalLink("other.h5", "/X")
            else:
                group = file.create_group("X")
                for name, values in (("data", np.ones(2)), ("indices", np.arange(2)), ("indptr", np.arange(3))):
                    group[name] = h5py.ExternalLink("other.h5", f"/{name}") if name == part else values
                group.attrs["shape"] = (2, 2)
        with pytest.raises(FileError):
            open_matrix(tmp_path / "a.h5").__enter__()

    def test_columns_without_end(self, tmp_path):
        (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 999999999999 1\n1 1 1.5\n")
        with pytest.raises(FileError, match="would take"):
            open_matrix(tmp_path / "a.mtx").__enter__()
        out = sparse.csr_array(([1.0], [0], [0, 1, 1]), shape=(2, 2**33))
        sparse.save_npz(tmp_path / "a.npz", out)
        with pytest.raises(FileError, match="would take"):
            open_matrix(tmp_path / "a.npz").__enter__()
        with h5py.File(tmp_path / "a.h5", "w") as file:
            group = file.create_group("X")
            group["data"], group["indices"], group["indptr"] = out.data, out.indices, out.indptr
            group.attrs["shape"] = (2, 10**12)
        with pytest.raises(FileError, match="would take"):
            open_matrix(tmp_path / "a.h5").__enter__()

    def test_a_chunk_file_that_is_larger_than_its_chunk(self, tmp_path):
        zarr.create_array(tmp_path / "a.zarr", data=np.ones((10, 10)), chunks=(10, 10))
        (chunk,) = (file for file in (tmp_path / "a.zarr").rglob("0") if file.is_file())
        chunk.write_bytes(bytes(2**18))
        with (
            open_matrix(tmp_path / "a.zarr") as opened,
            pytest.raises(FileError, match="is damaged: it has 262144 bytes for a chunk"),
        ):
            inspect_matrix(opened.X)

    def test_shards_of_small_chunks(self, tmp_path):
        """Whose index is larger than their numbers."""
        X = np.ones((100, 50), np.uint8)
        zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(1, 1), shards=(100, 50), compressors=None)
        with open_matrix(tmp_path / "a.zarr") as opened:
            np.testing.assert_array_equal(opened.X[:], X)

    def test_images_of_several_frames(self, tmp_path):
        frames = [Image.new("L", (3, 3), shade) for shade in (1, 2)]
        frames[0].save(tmp_path / "0.tif", save_all=True, append_images=frames[1:])
        with pytest.raises(FileError, match=r"one image. It has 2 frames"):
            open_matrix(tmp_path).__enter__()

    @pytest.mark.parametrize(
        ("name", "content"), [("a-idx3-ubyte", struct.pack(">HBBIII", 0, 8, 3, 0, 4, 5)), ("5²5.png", b"nothing")]
    )
    def test_nothing_in_it(self, tmp_path, name, content):
        (tmp_path / name).write_bytes(content)
        place = tmp_path if name.endswith("png") else tmp_path / name
        with pytest.raises(RelunmdError) as caught, open_matrix(place) as opened:
            check_matrix(opened.X)
        assert "invalid literal" not in str(caught.value)
        assert "reshape" not in str(caught.value)

    def test_parquet_without_rows_or_columns(self, tmp_path):
        pq.write_table(pa.table({"x": pa.array([], pa.float64())}), tmp_path / "a.parquet")
        with pytest.raises(FileError, match="no rows"):
            open_matrix(tmp_path / "a.parquet").__enter__()
        pq.write_table(pa.table({}), tmp_path / "a.parquet")
        with pytest.raises(FileError, match=r"columns of numbers. It has no such column"):
            open_matrix(tmp_path / "a.parquet").__enter__()

    def test_a_parquet_file_with_words(self, tmp_path):
        place = tmp_path / "a.parquet"
        pq.write_table(pa.table({"x": [1.0, 2.0], "name": ["a", "b"]}), place)
        with pytest.raises(FileError, match="'name' has the type string"):
            open_matrix(place).__enter__()
        pq.write_table(pa.table({"y": [None, 1], "x": [1, 2]}), place)
        with open_matrix(place) as opened:
            np.testing.assert_array_equal(opened.X, [[np.nan, 1], [1, 2]])
        pd.DataFrame({"a": [1, 2], "b": [3.5, 4]}, index=pd.Index(["x", "y"], name="sample")).to_parquet(place)
        with open_matrix(place) as opened:
            np.testing.assert_array_equal(opened.X, [[1, 3.5], [2, 4]])
            assert opened.entry.note == "the column 'sample' of names is left out"

    def test_a_codec_that_unpickles(self, tmp_path):
        """By our own list, whatever the library does."""
        from relunmd.io.readers import zarr_stores

        class Metadata:
            def to_dict(self):
                inner = {"name": "sharding_indexed", "configuration": {"codecs": [{"name": "numcodecs.pickle"}]}}
                return {"codecs": [{"name": "bytes"}, inner]}

        class Hidden:
            metadata, name = Metadata(), "X"

        with pytest.raises(FileError, match=r"supported codecs only. Got 'pickle'"):
            zarr_stores._check_codecs(Hidden(), tmp_path)

    @pytest.mark.parametrize(
        ("length", "words"),
        [(3, r"c/0/0 is damaged: .*not in zstd"), (50, r"Rows 0 to .* could not be read")],
    )
    def test_a_chunk_that_is_damaged_is_told_when_it_is_read(self, tmp_path, length, words):
        zarr.save_array(str(tmp_path / "a.zarr"), samples.X.astype(np.float32))
        (chunk,) = (file for file in (tmp_path / "a.zarr").rglob("0") if file.is_file())
        chunk.write_bytes(chunk.read_bytes()[:length])
        with open_matrix(tmp_path / "a.zarr") as opened, pytest.raises(FileError, match=words):
            relunmd.decompose(opened.X, 2)

    def test_a_chunk_that_is_more_than_it_can_be(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            X = file.create_dataset("X", (8, 8), "f8", chunks=(8, 8), compression="gzip")
            X.id.write_direct_chunk((0, 0), bytes(2**21))
        with pytest.raises(FileError, match="bytes are stored for 512 bytes of numbers"):
            open_matrix(tmp_path / "a.h5").__enter__()

    def test_two_thousand_mutants_and_the_absurd(self, tmp_path):
        """In one process: no traceback, no hang, no memory beyond 1 GB, and a sentence every time."""
        for arguments in (
            ["tests.io.readers.samples", str(tmp_path / "absurd")],
            ["tests.io.readers.fuzz", str(tmp_path), "2000"],
        ):
            done = subprocess.run(
                [sys.executable, "-X", "faulthandler", "-m", *arguments], cwd=ROOT, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr[-3000:]
        told = json.loads(done.stdout)
        assert told["failures"] == []
        assert told["peak"] < 1e9
        absurd = sum(1 for file in (tmp_path / "absurd").iterdir())
        assert sum(told["outcomes"].values()) == 2000 + absurd
        refused = sum(count for word, count in told["outcomes"].items() if word != "opened")
        assert refused > 1000
        assert told["outcomes"].keys() <= {"opened", "FileError", "InputError"}
        assert "EXECUTED" not in done.stdout + done.stderr
        for name in (
            "bomb.npz",
            "bomb.csv.gz",
            "bomb.mat",
            "bomb-idx3-ubyte.gz",
            "chunk.h5",
            "chunk.zarr",
            "huge csr.npz",
        ):
            assert "damaged or malicious" in told["sentences"][name], told["sentences"][name]


def test_every_refusal_is_our_own(tmp_path):
    for name, content in (("a.npy", b"x"), ("a.mat", b"x" * 200), ("a.h5", b"x"), ("a.npz", b"PK\x03\x04")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RelunmdError):
            open_matrix(tmp_path / name).__enter__()
