"""Inspection of a matrix: the same numbers for every way it is stored, also where its entries are wrong."""

import numpy as np
import pytest
from scipy import sparse

from relunmd.engine.problem_setup import check_matrix
from relunmd.errors import InputError
from relunmd.inspection import inspect_matrix, row_parts
from tests.io.readers.samples import matrix


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.coo_array, sparse.csc_array])
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i2"])
def test_counts_and_range(kind, dtype):
    X = matrix(200, 50).astype(dtype)
    found = inspect_matrix(kind(X))
    assert (found.shape, found.nonzeros, found.negatives, found.not_finite) == ((200, 50), np.count_nonzero(X), 0, 0)
    assert (found.smallest, found.largest) == (X.min(), X.max())
    assert found.zeros == pytest.approx((X == 0).mean())
    assert found.norm == pytest.approx(np.linalg.norm(X.astype(float)))
    assert found.obstacle is None


def test_in_many_parts(monkeypatch):
    whole = inspect_matrix(matrix(500, 40))
    monkeypatch.setattr("relunmd.inspection._PART_BYTES", 4000)
    assert len(list(row_parts(check_matrix(matrix(500, 40))))) > 10
    parts = inspect_matrix(matrix(500, 40))
    assert parts.norm == pytest.approx(whole.norm)
    assert (parts.nonzeros, parts.largest) == (whole.nonzeros, whole.largest)


def test_what_is_wrong_is_counted():
    X = np.eye(6)
    X[0, 1], X[2, 2], X[3, 3], X[4, 4] = -1, np.nan, np.inf, -2
    found = inspect_matrix(X)
    assert (found.negatives, found.not_finite, found.smallest, found.largest) == (2, 2, -2, 1)
    (advice,) = found.advice()
    assert "X has 2 entries NaN or infinite; with missing_values=np.nan those that are NaN are missing" in advice
    assert "2 entries below zero" in inspect_matrix(np.where(np.isfinite(X), X, 0)).obstacle
    assert inspect_matrix(np.zeros((3, 3))).obstacle == "X is all zero."


def test_squares_beyond_the_range_of_floats():
    assert inspect_matrix(np.full((2, 2), 1e200)).norm == pytest.approx(2e200)
    assert inspect_matrix(np.full((2, 2), 1e-200)).norm == pytest.approx(2e-200)


def test_advice_fits_the_matrix():
    random = np.random.default_rng(0)
    full = inspect_matrix(random.random((100, 80)) + 1)
    assert "truncated SVD" in full.advice()[0]
    sparse_one = inspect_matrix(np.where(random.random((400, 300)) < 0.05, 1.0, 0))
    assert '"qn"' in sparse_one.advice()[0]
    assert any("--sparse" in line for line in sparse_one.advice())
    assert sparse_one.break_even_rank == sparse_one.nonzeros // 700
    assert 1 <= sparse_one.suggested_rank <= 32
    assert any("more numbers" in line for line in inspect_matrix(np.eye(50)).advice())


def test_a_sparse_matrix_without_zeros_but_with_nan():
    assert inspect_matrix(sparse.csr_array(np.array([[np.nan, 1.0], [2.0, 3.0]]))).smallest == 1.0


def test_x_on_dask_is_refused():
    dask_array = pytest.importorskip("dask.array")
    with pytest.raises(InputError, match=r"inspect_matrix needs X in memory or in a file.*X\.compute\(\)"):
        inspect_matrix(dask_array.ones((4, 3)))
