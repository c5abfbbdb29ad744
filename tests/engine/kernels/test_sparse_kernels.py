"""Tiles to and from their nonzeros, and products with these, against NumPy and SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from relunmd.engine import kernels


@st.composite
def sparse_tiles(draw, most_rows=20, most_columns=40):
    """An array of nonnegative numbers, many or most of them zero."""
    dtype = draw(st.sampled_from((np.float32, np.float64)))
    shape = draw(st.tuples(st.integers(1, most_rows), st.integers(1, most_columns)))
    few = hnp.arrays(dtype, shape, elements=st.floats(0.125, 8, width=np.finfo(dtype).bits), fill=st.just(0))
    return draw(few)


def read_only(*arrays):
    for array in arrays:
        array.flags.writeable = False
    return arrays


def compressed(A, most):
    bits = A.view(np.int32 if A.dtype == np.float32 else np.int64)
    values, columns = np.empty(most + 8, A.dtype), np.empty(most + 8, np.int32)
    starts = np.empty(len(A) + 1, np.int64)
    count = kernels.compress(A, bits, kernels.Nonzeros(values, columns, starts))
    return count, values, columns, starts


def pays(A, most):
    """The rule: not more than `most`, and each eighth row does not say otherwise."""
    sample = A[:: kernels.SAMPLED]
    return np.count_nonzero(A) <= most and np.count_nonzero(sample) * len(A) <= most * len(sample)


@given(sparse_tiles(), st.data())
def test_compress_and_gather_find_the_same_nonzeros_or_give_up_alike(A, data):
    first = data.draw(st.integers(0, A.shape[1] - 1))
    width = data.draw(st.integers(1, A.shape[1] - first))
    index = data.draw(st.sampled_from((np.int32, np.int64)))
    most = data.draw(st.integers(0, A.size))
    tile = np.ascontiguousarray(A[:, first : first + width])
    count, values, columns, starts = compressed(tile, most)
    if not pays(tile, most):
        assert count == -1
    else:
        wanted = sparse.csr_array(tile)
        assert count == wanted.nnz
        np.testing.assert_array_equal(values[:count], wanted.data)
        np.testing.assert_array_equal(columns[:count], wanted.indices)
        np.testing.assert_array_equal(starts, wanted.indptr)
    whole = sparse.csr_array(A)
    rows = kernels.CsrRows(*read_only(whole.data, whole.indices.astype(index)), whole.indptr.astype(np.int64))
    out = kernels.Nonzeros(np.empty(most, A.dtype), np.empty(most, np.int32), np.empty(len(A) + 1, np.int64))
    again = kernels.gather(rows, first, width, most, 0.5, 2.0, out)
    assert again == count
    if count >= 0:
        np.testing.assert_array_equal(out[0][:count], values[:count] * A.dtype.type(0.5) + A.dtype.type(2))
        np.testing.assert_array_equal(out[1][:count], columns[:count])
        np.testing.assert_array_equal(out[2], starts)


@given(sparse_tiles(), st.data())
def test_scatter_writes_the_tile_and_tells_where(A, data):
    first = data.draw(st.integers(0, A.shape[1] - 1))
    width = data.draw(st.integers(1, A.shape[1] - first))
    whole = sparse.csr_array(A)
    values, columns = read_only(whole.data, whole.indices.astype(data.draw(st.sampled_from((np.int32, np.int64)))))
    out, places = np.zeros((len(A), width), A.dtype), np.empty(whole.nnz, np.int64)
    count = kernels.scatter(kernels.CsrRows(values, columns, whole.indptr.astype(np.int64)), first, out, places)
    np.testing.assert_array_equal(out, A[:, first : first + width])
    assert sorted(places[:count]) == np.flatnonzero(out).tolist()


@given(sparse_tiles(), st.integers(1, 7), st.integers(0, 2**31))
def test_products_with_nonzeros(A, p, seed):
    random = np.random.default_rng(seed)
    count, values, columns, starts = compressed(A, 2 * A.size)
    assert count >= 0
    V, Y = (random.standard_normal((k, p)).astype(A.dtype) for k in (A.shape[1], len(A)))
    found, wanted = Y.copy(), Y + A @ V
    kernels.sparse_times(kernels.Nonzeros(values, columns, starts), V, found)
    close = {"rtol": 1e-4, "atol": 1e-4} if A.dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(found, wanted, **close)
    S = random.standard_normal((A.shape[1], p))
    wanted = S + A.T.astype(float) @ Y
    kernels.sparse_transposed_times(kernels.Nonzeros(values, columns, starts), Y, S)
    np.testing.assert_allclose(S, wanted, **close)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_in_float64(dtype):
    S = np.full((2, 3), 2.0**40)
    kernels.add_to(S, np.full((2, 3), 0.25, dtype))
    assert (S == 2.0**40 + 0.25).all()
