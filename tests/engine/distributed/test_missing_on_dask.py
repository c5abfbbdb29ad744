"""Missing, limited and weighted entries of X on a cluster: the same bits as on one machine."""

import numpy as np
import pytest
from dask import array as da
from dask import delayed
from scipy import sparse

import relunmd
from relunmd import InputError
from tests.conftest import synthetic

pytestmark = pytest.mark.xdist_group("cluster")
X = synthetic(200, 30, 3)
HIDDEN = np.random.default_rng(1).random(X.shape) < 0.3
WEIGHTS = np.random.default_rng(2).random(X.shape)
HOLES = np.where(HIDDEN, np.nan, X)
RUN = {"rank": 3, "tol": 0, "max_iter": 6, "random_state": 0}
CUTS = [slice(0, 100), slice(100, 200)]
STORED = sparse.csr_array(sparse.coo_array((X[~HIDDEN], np.nonzero(~HIDDEN)), shape=X.shape))


def on_dask(A):
    return da.from_array(A, chunks=(100, -1))


CASES = {
    "NaN": (on_dask(HOLES), {"missing_values": np.nan}, HOLES, {"missing_values": np.nan}),
    "mask on Dask": (on_dask(X), {"mask": da.from_array(HIDDEN, chunks=(70, 20))}, X, {"mask": HIDDEN}),
    "all in memory": (
        on_dask(X),
        {"mask": sparse.csr_array(HIDDEN), "weights": WEIGHTS, "lower": np.full(30, 0.2)},
        X,
        {"mask": HIDDEN, "weights": WEIGHTS, "lower": 0.2},
    ),
    "parts": (
        [delayed(X[cut]) for cut in CUTS],
        {"weights": [delayed(WEIGHTS[cut]) for cut in CUTS], "upper": 2.0},
        X,
        {"weights": WEIGHTS, "upper": 2.0},
    ),
    "stored entries": (
        [delayed(STORED[cut]) for cut in CUTS],
        {"missing_values": "unstored"},
        STORED,
        {"missing_values": "unstored"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_errors_as_on_one_machine(client, case):
    there, options, here, same_options = CASES[case]
    found, expected = relunmd.decompose(there, **options, **RUN), relunmd.decompose(here, **same_options, **RUN)
    np.testing.assert_allclose(found.history.error, expected.history.error, rtol=1e-12)
    assert found.fingerprint == expected.fingerprint


def test_futures(client):
    parts = [client.submit(np.array, HOLES[cut], pure=False) for cut in CUTS]
    found = relunmd.decompose(parts, missing_values=np.nan, **RUN)
    assert found.fingerprint.missing == HIDDEN.sum()
    masks = [delayed(HIDDEN[cut]) for cut in CUTS]
    parts = [client.submit(np.array, X[cut], pure=False) for cut in CUTS]
    assert relunmd.decompose(parts, mask=masks, **RUN).error == found.error


def test_the_estimator_and_resuming(client, tmp_path):
    model = relunmd.ReLUNMD(3, missing_values=np.nan, max_iter=5, tol=0, random_state=0)
    W = model.fit_transform(on_dask(HOLES))
    assert W.compute().shape == (200, 3)
    assert model.score(on_dask(HOLES)) == pytest.approx(-model.error_, rel=1e-6)
    run = {name: value for name, value in RUN.items() if name != "max_iter"}
    given = {"X": on_dask(X), "mask": on_dask(HIDDEN), "lower": 0.1, **run}
    whole = relunmd.decompose(max_iter=8, **given)
    relunmd.decompose(max_iter=3, checkpoint=tmp_path / "run.npz", **given)
    assert relunmd.decompose(max_iter=8, checkpoint=tmp_path / "run.npz", **given).error == whole.error


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (on_dask(X), {"mask": HIDDEN[:5]}, "mask must have the shape of X, with 200 rows"),
        ([delayed(X[cut]) for cut in CUTS], {"mask": HIDDEN}, "mask must be a list of 2 parts"),
        ([delayed(X[cut]) for cut in CUTS], {"mask": [delayed(HIDDEN)]}, "mask must have as many parts as X, 2; got 1"),
        (on_dask(X), {"mask": HIDDEN[:, :5]}, "mask must have the same rows as X in every part"),
        (on_dask(X), {"missing_values": "unstored"}, "missing_values='unstored' needs a sparse X"),
    ],
)
def test_what_cannot_be_used(client, X, options, message):
    with pytest.raises(InputError, match=message):
        relunmd.decompose(X, **options, **RUN)
