"""ReLUNMD: scikit-learn's own checks, agreement of fit and transform, and what pipelines do with it."""

import os
import pickle
import subprocess
import sys
import warnings
from contextlib import contextmanager
from unittest import SkipTest

import h5py
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import zarr
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import relunmd
from relunmd import ReLUNMD, Status, datasets
from relunmd.errors import InputError
from tests.conftest import needs_data, relative_error, synthetic

pytestmark = pytest.mark.filterwarnings("error")

CHECKS = 48
"""What scikit-learn 1.9 asks of a transformer that takes sparse nonnegative input."""
RAN = set()


def name_of(check):
    return f"{check.func.__name__}{check.keywords}"


@contextmanager
def refusing_to_skip():
    try:
        yield
    except SkipTest as reason:
        raise AssertionError(f"skipped: {reason}") from reason


def run_check(estimator, check):
    with warnings.catch_warnings(), refusing_to_skip():
        warnings.simplefilter("ignore", ConvergenceWarning)  # The checks set max_iter=5.
        if check.func.__name__ == "check_array_api_input":
            run_elsewhere(check)
        else:
            check(estimator)
    RAN.add(name_of(check))


def run_elsewhere(check):
    """A check that skips itself unless a variable was set before SciPy was imported."""
    program = (
        "from sklearn.utils.estimator_checks import estimator_checks_generator as checks;"
        "from relunmd import ReLUNMD;"
        "import warnings; warnings.simplefilter('ignore');"
        f"found = [(e, c) for e, c in checks(ReLUNMD()) if c.func.__name__ == {check.func.__name__!r}];"
        f"found = [(e, c) for e, c in found if c.keywords == {check.keywords!r}];"
        "(estimator, check), = found; check(estimator); print('passed')"
    )
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout == "passed\n", done.stderr


@parametrize_with_checks([ReLUNMD()])
def test_scikit_learns_check(estimator, check):
    run_check(estimator, check)


def test_every_check_ran():
    checks = list(estimator_checks_generator(ReLUNMD()))
    for estimator, check in checks:
        if name_of(check) not in RAN:  # As when this test is run alone.
            run_check(estimator, check)
    assert len(RAN) == len(checks) == CHECKS


def model(rank=8, **settings):
    return ReLUNMD(rank, **{"random_state": 0} | settings)


@pytest.fixture(scope="module")
def digits():
    return datasets.digits()


@pytest.fixture(scope="module")
def fitted(digits):
    return model(tol=1e-3).fit(digits)


def agreement(X, rank):
    """How far the errors of fit_transform and of transform are apart, as a share."""
    estimator = model(rank, tol=0, max_iter=30)
    dense = X.toarray() if sparse.issparse(X) else X
    together = relative_error(dense, estimator.fit_transform(X), estimator.components_)
    apart = relative_error(dense, estimator.transform(X), estimator.components_)
    assert estimator.error_ == pytest.approx(together, rel=1e-6)
    assert estimator.reconstruction_err_ == pytest.approx(together * np.linalg.norm(dense.astype(float)), rel=1e-6)
    assert together < 1.02 * estimator.history_.error.min()  # The row solve is as good as the iterations.
    return abs(together - apart) / together


def test_fit_transform_agrees_with_transform_on_digits(digits):
    assert agreement(digits, 16) <= 1e-3


@needs_data
def test_fit_transform_agrees_with_transform_on_mnist_and_kos(data_folder):
    assert agreement(datasets.mnist(50, every=10, data=data_folder), 32) <= 1e-3
    assert agreement(datasets.kos(data=data_folder), 16) <= 1e-3


@needs_data
def test_held_out_images(data_folder):
    """The first 500 of each digit, and the 100 after them. In random splits it is 1.06 (benchmarks/RESULTS.md)."""
    images = datasets.mnist(600, data=data_folder)
    place = np.arange(len(images)) % 600
    estimator = model(32, tol=1e-3).fit(images[place < 500])
    assert -estimator.score(images[place >= 500]) <= 1.05 * estimator.error_


def test_what_a_fit_leaves_behind(digits, fitted):
    assert fitted.components_.shape == (8, 64)
    assert (fitted.n_components_, fitted.n_features_in_, fitted.n_samples_seen_) == (8, 64, 1797)
    assert fitted.status_ is Status.CONVERGED
    assert fitted.n_iter_ == len(fitted.history_) - 1
    assert fitted.score(digits) == -fitted.error_
    W = fitted.transform(digits)
    back = fitted.inverse_transform(W)
    np.testing.assert_allclose(back, np.maximum(0, W @ fitted.components_))
    assert np.linalg.norm(digits - back) == pytest.approx(fitted.reconstruction_err_)
    assert list(fitted.get_feature_names_out()[:2]) == ["relunmd0", "relunmd1"]
    assert not hasattr(fitted, "feature_names_in_")


def test_the_iterations_are_those_of_decompose(digits, fitted):
    d = relunmd.decompose(digits, 8, tol=1e-3, random_state=0)
    np.testing.assert_array_equal(d.H, fitted.components_)
    np.testing.assert_array_equal(d.history.error, fitted.history_.error)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, bool, np.int64])
def test_dtypes(digits, dtype):
    X = (digits > 8).astype(dtype) if dtype is bool else digits.astype(dtype)
    estimator = model(4, max_iter=5, tol=0).fit(X)
    kind = np.float32 if dtype == np.float32 else np.float64
    assert estimator.components_.dtype == kind
    assert estimator.transform(X).dtype == kind
    assert estimator.inverse_transform(estimator.transform(X[:3])).dtype == kind
    assert estimator.transform(X[:3].astype(np.float32)).dtype == np.float32


def kinds_of(X, folder):
    """X in many forms, the last ones in files that are not loaded."""
    for make in (
        sparse.csr_array,
        sparse.csc_matrix,
        sparse.coo_array,
        np.asfortranarray,
        pd.DataFrame,
        np.ndarray.tolist,
    ):
        yield make(X)
    np.save(folder / "X.npy", X)
    yield np.load(folder / "X.npy", mmap_mode="r")
    yield zarr.create_array(folder / "X.zarr", data=X)
    with h5py.File(folder / "X.h5", "w") as file:
        yield file.create_dataset("X", data=X)


def test_every_kind_of_x_gives_the_same(digits, tmp_path):
    wanted = model(4, max_iter=10, tol=0).fit_transform(digits)
    for X in kinds_of(digits, tmp_path):
        estimator = model(4, max_iter=10, tol=0)
        np.testing.assert_array_equal(estimator.fit_transform(X), wanted)
        np.testing.assert_array_equal(estimator.transform(X), wanted)


def test_stored_arrays_of_other_widths_are_refused(digits, fitted, tmp_path):
    with h5py.File(tmp_path / "X.h5", "w") as file, pytest.raises(InputError) as caught:
        fitted.transform(file.create_dataset("X", data=digits[:, :10]))
    assert "X must have the 64 features that ReLUNMD was fitted with. Got 10" in str(caught.value)


def test_frames_and_names(digits):
    names = [f"pixel {i}" for i in range(64)]
    frame = pd.DataFrame(digits, columns=names)
    estimator = model(4, max_iter=5, tol=0).set_output(transform="pandas")
    found = estimator.fit_transform(frame)
    assert isinstance(found, pd.DataFrame)
    assert list(found.columns) == ["relunmd0", "relunmd1", "relunmd2", "relunmd3"]
    assert list(estimator.feature_names_in_) == names
    assert estimator.inverse_transform(found).shape == digits.shape
    with pytest.raises(ValueError, match="feature names"):
        estimator.transform(frame[names[::-1]])
    spread = frame.astype(pd.SparseDtype(float, 0))
    np.testing.assert_allclose(estimator.transform(spread), found, rtol=1e-6, atol=1e-8)
    polars = model(4, max_iter=5, tol=0).set_output(transform="polars").fit_transform(pl.DataFrame(frame))
    assert isinstance(polars, pl.DataFrame)
    np.testing.assert_allclose(polars.to_numpy(), found, rtol=1e-6, atol=1e-8)


def test_pickle_and_clone(digits, fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(digits[:9]), fitted.transform(digits[:9]))
    assert again.status_ is Status.CONVERGED
    copied = clone(model(3, algorithm=relunmd.ANMD(beta0=0.5), init=relunmd.NuclearInit(steps=2)))
    assert copied.get_params()["algorithm"] == relunmd.ANMD(beta0=0.5)
    assert not hasattr(copied, "components_")


def test_in_a_pipeline_and_a_grid(digits):
    labels = np.arange(600) % 3
    X = digits[:600]
    search = GridSearchCV(
        make_pipeline(model(max_iter=20, tol=0), StandardScaler(), LogisticRegression(max_iter=500)),
        {"relunmd__n_components": [2, 5]},
        cv=2,
    )
    search.fit(X, labels)
    assert search.predict(X[:5]).shape == (5,)
    ranks = GridSearchCV(model(max_iter=20, tol=0), {"n_components": [2, 10]}, cv=2, n_jobs=2).fit(X)
    assert ranks.best_params_ == {"n_components": 10}
    assert -1 <= ranks.best_score_ <= 0
    both = ColumnTransformer([("left", model(3, max_iter=5, tol=0), slice(0, 32)), ("right", "passthrough", [40, 41])])
    assert both.fit_transform(X).shape == (600, 5)


def _threads_in_a_worker():
    return ReLUNMD()._threads(), ReLUNMD(n_jobs=3)._threads()


def test_one_thread_in_joblibs_workers():
    assert ReLUNMD()._threads() is None
    for backend in ("loky", "threading"):
        found = joblib.Parallel(2, backend=backend)(joblib.delayed(_threads_in_a_worker)() for _ in range(2))
        assert found == [(1, 3), (1, 3)]


def test_warnings_only_for_limits_that_came_before_tol(digits):
    with pytest.warns(ConvergenceWarning, match=r"ended by max_iter=3 before the error, now 0\.\d+, stopped improving"):
        model(4, max_iter=3).fit(digits)
    with pytest.warns(ConvergenceWarning, match="Increase max_time, or tol"):
        model(4, max_time=1e-9).fit(digits)
    assert model(4, max_iter=3, tol=0).fit(digits).status_ is Status.MAX_ITER
    assert model(4, tol=0.01).fit(digits).status_ is Status.CONVERGED
    assert model(4, target_error=0.9).fit(digits).status_ is Status.TARGET
    with pytest.warns(
        ConvergenceWarning, match=r"\d+ of 1797 rows had not converged after transform_max_iter=1 Newton"
    ):
        model(4, tol=0, max_iter=3, transform_max_iter=1).fit(digits)


def test_warm_start(digits):
    estimator = model(6, max_iter=30, tol=0, warm_start=True).fit(digits)
    first = estimator.error_
    estimator.set_params(max_iter=200).fit(digits)
    assert estimator.history_.error[0] == pytest.approx(first, rel=1e-6)
    assert estimator.error_ < first
    estimator.set_params(n_components=9, max_iter=1).fit(digits[:900])  # Other rows, and more components.
    assert estimator.components_.shape == (9, 64)
    assert estimator.history_.error[0] < first * 1.2
    again = model(6, max_iter=30, tol=0).fit(digits).fit(digits)
    assert again.error_ == first
    estimator.set_params(n_components=3).fit(digits)  # Fewer: from the beginning.
    assert estimator.components_.shape == (3, 64)


def test_ridge(digits):
    plain, ridged = (model(6, max_iter=60, tol=0, ridge=ridge).fit(digits) for ridge in (0.0, 0.01))
    assert np.linalg.norm(ridged.components_) < np.linalg.norm(plain.components_)
    W = ridged.transform(digits)
    assert np.linalg.norm(W) < np.linalg.norm(plain.transform(digits))
    np.testing.assert_allclose(ridged.transform(digits[:50]), W[:50], rtol=1e-5, atol=1e-6)  # Not the batch's ‖X‖.
    penalty = 0.01 * np.linalg.norm(digits)
    np.testing.assert_allclose(W, relunmd.fit_rows(digits, ridged.components_, penalty=penalty).W)
    own = model(6, max_iter=60, tol=0, algorithm=relunmd.QuasiNewton(ridge=0.01)).fit(digits)
    np.testing.assert_array_equal(own.transform(digits), W)
    with pytest.raises(InputError, match="ridge must be given once"):
        model(6, algorithm=relunmd.QuasiNewton(ridge=0.1), ridge=0.2).fit(digits)
    before = ridged.score(digits)
    for start in range(0, 200, 20):
        ridged.partial_fit(digits[start : start + 20])
    assert ridged.score(digits) > before - 0.02
    with pytest.raises(InputError, match='ridge is for the algorithms "3b-factored" and "qn"'):
        model(6, algorithm="em", ridge=0.1).fit(digits)


@pytest.mark.parametrize("algorithm", ["a-nmd", "em", "tsvd", "3b-factored"])
def test_every_kind_of_algorithm(digits, algorithm):
    X = digits[:300]
    estimator = model(5, algorithm=algorithm, max_iter=10, tol=0)
    W = estimator.fit_transform(X)
    assert relative_error(X, W, estimator.components_) <= estimator.history_.error.min()


class TestPartialFit:
    def test_comes_near_the_full_fit(self, digits):
        estimator = model(10)
        shuffled = digits[np.random.default_rng(0).permutation(len(digits))]
        errors = []
        for _ in range(3):
            for start in range(0, 1797, 200):
                estimator.partial_fit(shuffled[start : start + 200])
            errors.append(-estimator.score(digits))
        full = model(10).fit(digits)
        assert errors[2] <= errors[0] * 1.001
        assert errors[2] < 1.05 * full.error_
        assert (estimator.n_iter_, estimator.n_samples_seen_) == (27, 3 * 1797)
        assert not hasattr(estimator, "history_")

    def test_is_the_same_for_the_same_batches(self, digits):
        def learnt(make):
            estimator = model(5, n_jobs=2)
            for start in range(0, 600, 150):
                estimator.partial_fit(make(digits[start : start + 150]))
            return estimator.components_

        wanted = learnt(np.asarray)
        for make in (sparse.csr_array, pd.DataFrame):
            np.testing.assert_array_equal(learnt(make), wanted)

    def test_goes_on_from_a_fit_and_survives_a_pickle(self, digits):
        shuffled = digits[np.random.default_rng(0).permutation(len(digits))]
        estimator = model(5, max_iter=20, tol=0).fit(shuffled[:400])
        before = -estimator.score(digits)
        for start in range(400, 1797, 100):
            estimator = pickle.loads(pickle.dumps(estimator.partial_fit(shuffled[start : start + 100])))
        assert -estimator.score(digits) < before
        assert estimator.n_samples_seen_ == 1797
        assert not hasattr(estimator, "history_")
        assert estimator.fit(digits[:900]).n_samples_seen_ == 900

    def test_the_first_batch_needs_as_many_rows_as_components(self, digits):
        with pytest.raises(InputError, match="n_components=10 with n_samples=9"):
            model(10).partial_fit(digits[:9])
        estimator = model(10).partial_fit(digits[:50])
        estimator.partial_fit(digits[50:51])
        estimator.partial_fit(np.zeros((2, 64)))
        assert estimator.n_samples_seen_ == 53

    def test_float32_stays(self, digits):
        estimator = model(4).partial_fit(digits[:100].astype(np.float32))
        estimator.partial_fit(digits[100:300])
        assert estimator.components_.dtype == np.float32

    def test_other_features_are_refused(self, digits):
        with pytest.raises(ValueError, match="features"):
            model(4).partial_fit(digits[:100]).partial_fit(digits[:100, :9])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "n_components must be an integer from 1 to 12, the smaller of n_samples and n_features"),
        ({"n_components": 13}, "Got n_components=13 with n_samples=20, n_features=12"),
        ({"n_components": 2.0}, "Got n_components=2.0"),
        ({"algorithm": "svd"}, "algorithm must be one of auto, naive"),
        ({"init": "nowhere"}, "init must be one of"),
        ({"ridge": -1}, "ridge must be a finite number of at least 0. Got -1"),
        ({"transform_max_iter": 0}, "transform_max_iter must be an integer of at least 1. Got 0"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"n_starts": 0}, "n_starts must be"),
        ({"tol": -1}, "tol must be"),
        ({"max_iter": -1}, "max_iter must be"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError) as caught:
        ReLUNMD(**settings).fit(synthetic(20, 12, 3))
    assert message in str(caught.value)


def test_what_failed_leaves_nothing_behind(digits, monkeypatch):
    estimator = model(10)
    for spoilt in (lambda: estimator.fit(0 * digits), lambda: estimator.partial_fit(digits[:5])):
        with pytest.raises(InputError):
            spoilt()
        with pytest.raises(NotFittedError):
            estimator.transform(digits)
    estimator = model(3, max_iter=5, tol=0).fit(digits)
    before = vars(estimator).copy()

    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr("relunmd.estimator.fit_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(digits[:300])
    assert all(vars(estimator)[name] is value for name, value in before.items())


def test_a_stored_group_and_names_of_an_earlier_fit(digits, tmp_path):
    names = [f"pixel {i}" for i in range(64)]
    estimator = model(3, max_iter=5, tol=0).fit(pd.DataFrame(digits, columns=names))
    rows = sparse.csr_array(digits)
    with h5py.File(tmp_path / "X.h5", "w") as file:
        group = file.create_group("X")
        group.attrs["shape"] = rows.shape
        for part in ("data", "indices", "indptr"):
            group.create_dataset(part, data=getattr(rows, part))
        found = estimator.fit_transform(group)
        assert not hasattr(estimator, "feature_names_in_")
        with pytest.raises(InputError, match="partial_fit takes rows in memory"):
            estimator.partial_fit(group)
    np.testing.assert_array_equal(estimator.transform(digits), found)


def test_bad_input():
    X = synthetic(20, 12, 3)
    estimator = ReLUNMD(3, random_state=0)
    with pytest.raises(NotFittedError):
        estimator.transform(X)
    with pytest.raises(ValueError, match="Negative values in data"):
        estimator.fit(-X)
    with pytest.raises(ValueError, match="X must have a positive entry"):
        estimator.fit(0 * X)
    estimator.fit(X)
    with pytest.raises(InputError, match=r"X must have 3 columns, one for each component. Got shape \(20, 12\)"):
        estimator.inverse_transform(X)
    assert not estimator.transform(0 * X).any()
    assert estimator.score(0 * X) == 0
