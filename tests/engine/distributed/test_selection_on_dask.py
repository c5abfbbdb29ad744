"""Choosing the rank of X on a cluster: the same held-out entries, errors and choice as on one machine."""

import numpy as np
import pytest
from dask import array as da
from dask import delayed
from scipy import sparse

import relunmd
from relunmd.engine.matrix import Matrix
from relunmd.engine.problem_setup import check_matrix
from tests.conftest import synthetic

pytestmark = pytest.mark.xdist_group("cluster")
X = synthetic(200, 30, 3) + 0.05 * np.random.default_rng(1).random((200, 30)) * (synthetic(200, 30, 3) > 0)
SEARCH = {"ranks": [1, 2, 3, 4], "n_folds": 3, "max_iter": 30, "random_state": 0}
CUTS = [slice(0, 100), slice(100, 200)]


def errors(found):
    return [[getattr(fit, name) for fit in found.fits] for name in ("error", "training_error")]


@pytest.mark.parametrize("form", ["array", "csr"])
def test_the_same_errors_as_on_one_machine(client, form):
    parts = [delayed(sparse.csr_array(X[cut])) for cut in CUTS]
    there = da.from_array(X, chunks=(100, -1)) if form == "array" else parts
    found, expected = relunmd.select_rank(there, **SEARCH), relunmd.select_rank(X, **SEARCH)
    assert found.rank == expected.rank == 3
    np.testing.assert_allclose(errors(found), errors(expected), rtol=1e-6)
    assert found.model.error == pytest.approx(expected.model.error, rel=1e-6)
    assert found.model.W.compute().shape == (200, 3)


def test_the_same_bits_with_the_same_blocks(client):
    blocks = Matrix(check_matrix(X), np.dtype(float)).layout.blocks
    chunks = (tuple(block.stop - block.start for block in blocks), -1)
    found = relunmd.select_rank(da.from_array(X, chunks=chunks), refit=False, **SEARCH)
    assert errors(found) == errors(relunmd.select_rank(X, refit=False, **SEARCH))


def test_the_estimator(client):
    model = relunmd.ReLUNMD("auto", random_state=0, max_iter=500, tol=1e-2).fit(da.from_array(X, chunks=(100, -1)))
    assert model.n_components_ == model.selection_.rank
    here = relunmd.held_out_score(model, X)
    assert relunmd.held_out_score(model, da.from_array(X, chunks=(100, -1))) == pytest.approx(here, rel=1e-6)
