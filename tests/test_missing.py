"""Missing values, masks, weights and limits, from the public functions; the oracle of a pass is in test_intervals."""

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse

import relunmd
from relunmd import InputError, ReLUNMD
from tests.conftest import synthetic

TRUTH = synthetic(120, 60, 3)
X = TRUTH + 0.01 * (TRUTH > 0)
HIDDEN = np.random.default_rng(1).random(X.shape) < 0.3
HOLES = np.where(HIDDEN, np.nan, X)
WEIGHTS = np.random.default_rng(2).random(X.shape)
RUN = {"rank": 3, "random_state": 0, "tol": 0, "max_iter": 25}
ABLE = ("qn", "3b-factored", "tsvd", "em", "a-em")


def same(a, b):
    return np.array_equal(a.W, b.W) and np.array_equal(a.H, b.H) and a.error == b.error


def off(found, where):
    """The relative error on some entries."""
    return np.linalg.norm((found - TRUTH)[where]) / np.linalg.norm(TRUTH[where])


@pytest.mark.parametrize("algorithm", ABLE)
def test_nan_mask_and_masked_array_are_the_same(algorithm):
    options = RUN | {"algorithm": algorithm}
    expected = relunmd.decompose(HOLES, missing_values=np.nan, **options)
    junk = np.where(HIDDEN, -1e9, X)
    others = [
        relunmd.decompose(junk, mask=HIDDEN, **options),
        relunmd.decompose(junk, mask=sparse.csr_array(HIDDEN), n_jobs=2, **options),
        relunmd.decompose(X, mask=HIDDEN.astype(float), **options),
        relunmd.decompose(np.ma.masked_array(junk, HIDDEN), **options),
        relunmd.decompose(pd.DataFrame(HOLES), missing_values=pd.NA, **options),
        relunmd.decompose(sparse.csc_array(HOLES), missing_values=np.nan, **options),
    ]
    assert all(same(found, expected) for found in others)
    assert {found.fingerprint for found in others} == {expected.fingerprint}
    assert expected.fingerprint.missing == HIDDEN.sum()
    shown = np.linalg.norm((X - expected.reconstruct())[~HIDDEN]) / np.linalg.norm(X[~HIDDEN])
    assert expected.error == pytest.approx(shown, rel=1e-9)


def test_nullable_integers():
    frame = pd.DataFrame({"a": [1, None, 3], "b": [2, 4, None]}, dtype="Int64")
    found = relunmd.decompose(frame, 1, missing_values=np.nan, random_state=0)
    assert found.fingerprint.missing == 2
    assert found.error < 1e-6
    narrow = relunmd.decompose(pd.DataFrame(HOLES.astype(np.float32)), missing_values=np.nan, **RUN)
    assert narrow.W.dtype == np.float32


@pytest.mark.parametrize("algorithm", ["qn", "3b-factored", "a-em"])
def test_missing_entries_are_predicted(algorithm):
    found = relunmd.decompose(HOLES, 3, algorithm, missing_values=np.nan, random_state=0, max_iter=300)
    assert off(found.reconstruct(), HIDDEN) < (0.05 if algorithm != "a-em" else 0.1)
    zeros = relunmd.decompose(np.nan_to_num(HOLES), 3, algorithm, random_state=0, max_iter=300)
    assert off(zeros.reconstruct(), HIDDEN) > 0.3


@pytest.mark.parametrize("init", ["shifted", "tsvd", "random", "mean-corrected", "auto"])
def test_every_initialization_but_the_nuclear_one(init):
    found = relunmd.decompose(HOLES, 3, init=init, missing_values=np.nan, random_state=0, max_iter=200)
    assert off(found.reconstruct(), HIDDEN) < 0.05


def test_a_given_initialization():
    first = relunmd.decompose(HOLES, 2, missing_values=np.nan, random_state=0, max_iter=20)
    more = relunmd.decompose(HOLES, 3, init=first, missing_values=np.nan, random_state=0, max_iter=200)
    assert off(more.reconstruct(), HIDDEN) < 0.05


def test_what_says_nothing_changes_no_bit():
    plain = relunmd.decompose(X, **RUN)
    for options in (
        {"weights": np.ones(X.shape)},
        {"weights": np.full(X.shape, 7.0)},
        {"missing_values": np.nan},
        {"mask": np.zeros(X.shape, bool)},
        {"lower": 0.0, "upper": np.inf},
        {"lower": np.zeros(60)},
        {"lower": np.zeros(X.shape)},
    ):
        found = relunmd.decompose(X, **options, **RUN)
        assert same(found, plain)
        assert found.fingerprint == plain.fingerprint


def test_only_the_ratios_of_weights_matter():
    first, second = (relunmd.decompose(X, weights=unit * WEIGHTS, **RUN) for unit in (1.0, 2.0**40))
    assert same(first, second)


def test_a_weight_counts_as_a_repetition():
    """Rows of weight 2 are rows that occur twice."""
    weights = np.ones(X.shape)
    weights[:40] = 2
    random = np.random.default_rng(0)
    W, H = random.standard_normal((120, 3)), random.standard_normal((3, 60))
    weighted = relunmd.decompose(X, 3, weights=weights, init=(W, H), max_iter=0)
    twice = relunmd.decompose(np.vstack([X, X[:40]]), 3, init=(np.vstack([W, W[:40]]), H), max_iter=0)
    assert weighted.error == pytest.approx(twice.error, rel=1e-12)


def test_limits():
    """Half of the positive entries are only known to be below or above a limit; WH fits the others and obeys these."""
    lower, upper = np.quantile(TRUTH[TRUTH > 0], [0.3, 0.8])
    seen = (lower < TRUTH) & (upper > TRUTH)
    noise = np.random.default_rng(0).random(X.shape)
    clipped = np.where(lower >= TRUTH, lower * noise, np.where(upper <= TRUTH, upper * (1 + noise), TRUTH))
    found = relunmd.decompose(clipped, 3, lower=lower, upper=upper, random_state=0, max_iter=1000, tol=1e-6)
    again = relunmd.decompose(clipped, 3, lower=np.full(60, lower), upper=np.full(X.shape, upper), random_state=0)
    Theta = found.reconstruct()
    assert off(Theta, seen) < 1e-3
    assert off(Theta, lower < TRUTH) < 0.05
    assert (Theta[lower >= TRUTH] < lower * 1.01).all()
    assert again.error < 1e-2


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("column_noise", [False, True])
def test_the_likelihood_never_decreases(nonnegative, column_noise):
    method = relunmd.EM(nonnegative=nonnegative, column_noise=column_noise)
    options = {"lower": 0.4, "upper": 2.0, "weights": WEIGHTS, "random_state": 0, "max_iter": 60, "tol": 0}
    for data in ({"X": HOLES, "missing_values": np.nan}, {"X": X}):
        found = relunmd.decompose(rank=3, algorithm=method, **data, **options)
        likelihood = found.history.log_likelihood
        assert (np.diff(likelihood) > -1e-9 * np.abs(likelihood[:-1])).all()
        assert found.history.sigma2[-1] < found.history.sigma2[0]


def test_the_noise_of_a_column():
    random = np.random.default_rng(0)
    truth = random.random((120, 3)) @ random.random((3, 60)) + 1
    sigma = np.where(np.arange(60) < 30, 0.01, 0.3)
    noisy = truth + sigma * np.clip(random.standard_normal(X.shape), -3, 3)
    noisy[HIDDEN] = np.nan
    options = {"missing_values": np.nan, "random_state": 0, "max_iter": 300}
    one, many = (relunmd.decompose(noisy, 4, relunmd.EM(column_noise=columns), **options) for columns in (False, True))
    quiet = HIDDEN & (np.arange(60) < 30)
    errors = [np.abs((found.reconstruct() - truth)[quiet]).mean() for found in (one, many)]
    assert errors[1] < 0.7 * errors[0]
    assert one.history.sigma2[-1] == pytest.approx(np.mean(sigma**2), rel=0.3)


def stored(A, kind, folder):
    if kind == "memory map":
        np.save(folder / f"{id(A)}.npy", A)
        return np.load(folder / f"{id(A)}.npy", mmap_mode="r")
    if kind == "HDF5":
        return h5py.File(folder / f"{id(A)}.h5", "w").create_dataset("A", data=A, chunks=(16, 60))
    return zarr.create_array(store=str(folder / f"{id(A)}.zarr"), data=A, chunks=(16, 60))


@pytest.mark.parametrize("kind", ["memory map", "HDF5", "Zarr"])
def test_matrices_beside_x_may_be_stored_in_files(kind, tmp_path):
    lower = np.where(WEIGHTS > 0.5, 0.2, 0.0)
    expected = relunmd.decompose(X, mask=HIDDEN, weights=WEIGHTS, lower=lower, **RUN)
    files = [stored(A, kind, tmp_path) for A in (X, HIDDEN, WEIGHTS, lower)]
    found = relunmd.decompose(files[0], mask=files[1], weights=files[2], lower=files[3], n_jobs=2, **RUN)
    assert same(found, expected)
    assert found.fingerprint == expected.fingerprint
    mixed = relunmd.decompose(X, mask=files[1], weights=sparse.csr_array(WEIGHTS), lower=lower, **RUN)
    assert same(mixed, expected)


STORED = sparse.coo_array((X[~HIDDEN], np.nonzero(~HIDDEN)), shape=X.shape)


def test_only_stored_entries_are_known(tmp_path):
    assert STORED.nnz == (~HIDDEN).sum()  # Zeros of X are stored.
    found = relunmd.decompose(STORED, missing_values="unstored", **RUN)
    expected = relunmd.decompose(HOLES, missing_values=np.nan, **RUN)
    assert found.error == pytest.approx(expected.error, rel=1e-6)
    assert found.fingerprint.missing == HIDDEN.sum()
    csr = sparse.csr_array(STORED)
    with h5py.File(tmp_path / "X.h5", "w") as file:
        group = file.create_group("X")
        group.attrs["shape"] = X.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(csr, name)
        assert same(relunmd.decompose(group, missing_values="unstored", n_jobs=2, **RUN), found)


@pytest.mark.parametrize("algorithm", ["qn", "em"])
def test_weights_of_stored_entries(algorithm):
    """Entries of weight 0 are missing, also where all other weights are 1."""
    for weights in (WEIGHTS * (WEIGHTS > 0.3), 1.0 * (WEIGHTS > 0.3)):
        beside = sparse.coo_array((weights[~HIDDEN], np.nonzero(~HIDDEN)), shape=X.shape)
        found = relunmd.decompose(STORED, algorithm=algorithm, missing_values="unstored", weights=beside, **RUN)
        dense = np.where(HIDDEN, 0, weights)
        expected = relunmd.decompose(X, algorithm=algorithm, weights=dense, **RUN)
        assert found.error == pytest.approx(expected.error, rel=1e-6)
        assert found.fingerprint.missing == expected.fingerprint.missing


def test_weights_beyond_the_range_of_float32():
    expected = relunmd.decompose(X.astype(np.float32), weights=WEIGHTS, **RUN)
    for unit in (2.0**-200, 2.0**200):
        assert same(relunmd.decompose(X.astype(np.float32), weights=unit * WEIGHTS, **RUN), expected)


def test_rows_without_entries():
    found = relunmd.fit_rows(
        sparse.csr_array((5, 4)), np.ones((1, 4)), missing_values="unstored", weights=sparse.csr_array((5, 4))
    )
    assert not found.W.any()
    assert not found.shares.any()


def test_shares_are_those_of_the_known_entries():
    found = relunmd.fit_rows(sparse.csr_array(np.eye(6, 4)), np.ones((1, 4)), missing_values="unstored")
    np.testing.assert_array_equal(found.shares, np.ones(4))


@pytest.mark.parametrize("algorithm", ["em", "tsvd", "3b-factored"])
def test_only_stored_entries_for_other_algorithms(algorithm):
    found = relunmd.decompose(STORED, algorithm=algorithm, missing_values="unstored", **RUN)
    expected = relunmd.decompose(HOLES, algorithm=algorithm, missing_values=np.nan, **RUN)
    assert found.error == pytest.approx(expected.error, rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"missing_values": np.nan, "X": HOLES},
        {"mask": HIDDEN, "weights": WEIGHTS, "lower": 0.3, "X": X},
        {"missing_values": "unstored", "X": STORED},
    ],
)
@pytest.mark.parametrize("algorithm", ["qn", "em"])
def test_a_run_resumes_with_the_same_bits(options, algorithm, tmp_path):
    run = {"rank": 3, "algorithm": algorithm, "random_state": 0, "tol": 0, **options}
    whole = relunmd.decompose(max_iter=12, **run)
    relunmd.decompose(max_iter=5, checkpoint=tmp_path / "run.npz", **run)
    assert same(relunmd.decompose(max_iter=12, checkpoint=tmp_path / "run.npz", **run), whole)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"mask": HIDDEN.T.reshape(X.shape)}, "is of another: number of nonzeros of X"),
        ({"mask": np.eye(*X.shape)}, "missing of X: checkpoint has"),
        ({"mask": HIDDEN, "weights": WEIGHTS}, "X has other entries|sum of X"),
        ({"mask": HIDDEN, "lower": 0.3}, "number of nonzeros of X"),
        ({"mask": HIDDEN, "lower": 1e-9}, "X has other entries"),
    ],
)
def test_a_checkpoint_of_other_entries_is_refused(other, message, tmp_path):
    relunmd.decompose(X, mask=HIDDEN, checkpoint=tmp_path / "run.npz", **RUN)
    with pytest.raises(InputError, match=message):
        relunmd.decompose(X, checkpoint=tmp_path / "run.npz", **other, **RUN)


def test_a_saved_model_says_what_was_missing(tmp_path):
    found = relunmd.decompose(HOLES, missing_values=np.nan, **RUN)
    found.save(tmp_path / "model.npz")
    assert relunmd.Decomposition.load(tmp_path / "model.npz").fingerprint == found.fingerprint


WRONG = {
    "NaN": ({"X": HOLES}, "Use missing_values=np.nan if NaN stands for missing values"),
    "infinity": ({"X": np.where(HIDDEN, np.inf, X), "missing_values": np.nan}, "must be finite"),
    "negative": ({"X": np.where(HIDDEN, -1, X), "mask": HIDDEN ^ np.eye(*X.shape, dtype=bool)}, "nonnegative"),
    "missing_values": ({"missing_values": -1}, "missing_values must be None, np.nan or 'unstored'"),
    "dense": ({"missing_values": "unstored"}, "needs a sparse X; got ndarray"),
    "mask and unstored": ({"X": STORED, "missing_values": "unstored", "mask": HIDDEN}, "mask must not be a matrix if"),
    "other places": (
        {"X": STORED, "missing_values": "unstored", "weights": sparse.csr_array(WEIGHTS)},
        "weights must store the entries that X stores",
    ),
    "stored NaN": (
        {"X": sparse.csr_array(HOLES), "missing_values": "unstored"},
        r"must be finite; got NaN or infinity in \d+ entries, the first at row 0, column \d+ \(nan\)",
    ),
    "dense weights": (
        {"X": STORED, "missing_values": "unstored", "weights": WEIGHTS},
        "weights must be a sparse matrix",
    ),
    "Dask mask": ({"mask": da.from_array(HIDDEN)}, "mask must not be on Dask if X is not"),
    "ragged": ({"lower": [[1, 2], [3]]}, "lower must be a number"),
    "words": ({"X": pd.DataFrame([["a", "b"]]), "missing_values": np.nan}, "must hold real numbers"),
    "shape of mask": ({"mask": HIDDEN[:5]}, r"mask must have the shape of X, \(120, 60\); got \(5, 60\)"),
    "text": ({"weights": np.full(X.shape, "a")}, "weights must hold real numbers"),
    "negative weights": ({"weights": -WEIGHTS}, "weights must be finite and nonnegative; got other values in 7200"),
    "no weight": ({"weights": 0 * WEIGHTS}, "must have a positive entry that is not missing"),
    "all missing": ({"mask": np.ones(X.shape)}, "must have a positive entry that is not missing"),
    "all limited": ({"lower": 100.0}, "must have an entry above its limits"),
    "lower": ({"lower": -1.0}, "lower must be nonnegative and finite; got -1.0"),
    "columns": ({"lower": np.ones(3)}, "lower must be a number, one for each of the 60 columns, or a matrix; got 3"),
    "crossed": ({"lower": 2.0, "upper": 1.0}, "lower must be below upper; got lower 2 and upper 1 in column 0"),
    "crossed entries": ({"lower": 2 * X + 1, "upper": X + 0.5}, "lower must be below upper; got 7200 entries"),
    "masked": ({"weights": np.ma.masked_array(WEIGHTS, HIDDEN)}, "weights must not be a masked array"),
    "algorithm": (
        {"mask": HIDDEN, "algorithm": "3b"},
        "algorithm must be one of em, a-em, 3b-factored, qn, tsvd.* if entries",
    ),
    "init": ({"mask": HIDDEN, "init": "nuclear"}, "init must be one of random, tsvd, mean-corrected, shifted, auto if"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_used(name):
    options, message = WRONG[name]
    with pytest.raises(InputError, match=message):
        relunmd.decompose(**({"X": X} | RUN | options))


def model(**options):
    return ReLUNMD(3, random_state=0, max_iter=100, **options)


def test_the_estimator():
    fitted = model(missing_values=np.nan, tol=1e-3).fit(HOLES)
    assert fitted.error_ < 0.02
    new = HOLES[:20].copy()
    new[5] = np.nan  # Nothing is known of this row.
    W = fitted.transform(new)
    assert not W[5].any()
    known = np.delete(np.arange(20), 5)
    assert (
        off(np.pad(fitted.inverse_transform(W), ((0, 100), (0, 0))), HIDDEN & np.isin(np.arange(120), known)[:, None])
        < 0.1
    )
    assert fitted.score(HOLES) > -0.02
    sparse_fit = model(missing_values="unstored", tol=1e-3).fit(STORED)
    assert sparse_fit.error_ == pytest.approx(fitted.error_, rel=1e-2)
    np.testing.assert_allclose(
        np.maximum(0, sparse_fit.transform(STORED.tocsr()[:9]) @ sparse_fit.components_).shape, (9, 60)
    )
    assert model(missing_values=pd.NA, tol=1e-3).fit(HOLES).error_ == fitted.error_
    limited = model(lower=0.3, tol=1e-3).fit(X)
    assert limited.error_ < 0.02


@pytest.mark.parametrize(("data", "options"), [(HOLES, {"missing_values": np.nan}), (X, {"lower": np.full(60, 0.2)})])
def test_batches(data, options):
    fitted = model(tol=1e-3, **options)
    for _ in range(3):
        for start in range(0, 120, 40):
            fitted.partial_fit(data[start : start + 40])
    assert fitted.score(data) > -0.05
    assert fitted.n_samples_seen_ == 360


def test_batches_of_stored_entries():
    fitted, csr = model(tol=1e-3, missing_values="unstored"), sparse.csr_array(STORED)
    for start in range(0, 120, 40):
        fitted.partial_fit(csr[start : start + 40])
    assert fitted.score(csr) > -0.1
