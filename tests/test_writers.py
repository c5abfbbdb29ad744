"""What is written is what is read again, whole or not at all."""

import numpy as np
import pytest
from scipy import sparse

from relunmd.errors import InputError, MissingDependencyError
from relunmd.readers import open_matrix
from relunmd.writers import SUFFIXES, Parts, check_suffix, write_matrix
from tests.readers.samples import matrix
from tests.readers.test_readers import dense

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
    X = (matrix().astype(np.dtype(dtype).newbyteorder("=")) / (3 if "f" in dtype else 1)).astype(dtype)
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
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match="Parquet files need pyarrow"):
        check_suffix(tmp_path / "W.parquet")


def test_an_array_without_rows_of_zeros_and_one_row(tmp_path):
    for shape in ((1, 1), (1, 5), (5, 1)):
        X = np.ones(shape)
        for suffix in SUFFIXES:
            write_matrix(tmp_path / f"X{suffix}", Parts.of(X))
            with open_matrix(tmp_path / f"X{suffix}") as opened:
                np.testing.assert_array_equal(dense(opened.X), X)
