"""ReLUNMD: scikit-learn's own checks, agreement of fit and transform, and what pipelines do with it."""

import os
import pickle
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager
from dataclasses import replace
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
from relunmd.arguments import check_threads
from relunmd.engine.matrix import StoredArray
from relunmd.errors import FileError, InputError
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
    estimator = model(rank, tol=0, max_iter=30, n_jobs=2)
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
    assert agreement(datasets.kos(data=data_folder)[:800], 16) <= 1e-3


@needs_data
def test_held_out_images(data_folder):
    """The first 500 of each digit, and the 100 after them. In random splits it is 1.06 (benchmarks/RESULTS.md)."""
    images = datasets.mnist(600, data=data_folder)
    place = np.arange(len(images)) % 600
    estimator = model(32, tol=1e-3).fit(images[place < 500])
    assert -estimator.score(images[place >= 500]) <= 1.05 * estimator.error_


KINDS = {
    "binary": lambda random, shape: np.ones(shape),
    "counts": lambda random, shape: 1.0 + random.poisson(1.0, shape),
    "reals": lambda random, shape: random.random(shape),
}


@contextmanager
def unconverged_rows():
    """On noise a row or two may take more than 100 Newton steps, which is said in a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def sparse_noise(kind, density, seed, shape=(200, 60)):
    random = np.random.default_rng(seed)
    return (random.random(shape) < density) * KINDS[kind](random, shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("density", "rank"), [(0.02, 4), (0.02, 20), (0.05, 10), (0.08, 10), (0.2, 4), (0.2, 20)])
def test_a_fit_keeps_the_better_w_and_transform_finds_it(kind, density, rank):
    """Row solves alone end up to 1.34 times higher; `python -m benchmarks.estimator grid` has all cases."""
    for seed in range(2):
        X = sparse_noise(kind, density, seed)
        estimator = model(rank, random_state=seed, max_iter=300, tol=0)
        with unconverged_rows():
            W = estimator.fit_transform(X)
        least = max(estimator.history_.error.min(), 1e-13)
        assert estimator.error_ <= 1.001 * least
        with unconverged_rows():
            np.testing.assert_array_equal(estimator.transform(X), W)
        assert relative_error(X, W, estimator.components_) == pytest.approx(estimator.error_, rel=1e-6, abs=1e-14)


def test_with_more_rows_than_are_kept_a_fit_still_keeps_the_better_w(monkeypatch):
    for module in ("new_rows", "estimator_fit"):
        monkeypatch.setattr(f"relunmd.{module}.spread", lambda count, *sizes: np.arange(0, count, 4))
    for seed in range(3):
        X = sparse_noise("binary", 0.08, seed)
        with unconverged_rows():
            estimator = model(10, random_state=seed, max_iter=300, tol=0).fit(X)
            assert -estimator.score(X) <= 1.1 * estimator.error_
        assert len(estimator._known) <= 50
        assert estimator.error_ <= 1.001 * estimator.history_.error.min()


def test_rows_do_not_go_to_infinity():
    """On very sparse data the error of a row may fall without end: W had entries of 1e9."""
    for seed in (2, 100):
        X = sparse_noise("binary", 0.01, seed, (60, 60))
        with unconverged_rows():
            estimator = model(4, random_state=0, max_iter=300, tol=0)
            Theta = estimator.fit_transform(X) @ estimator.components_
        assert np.linalg.norm(Theta, axis=1).max() < 1.01e4 * np.linalg.norm(X, axis=1).max()
        assert estimator.error_ <= 1.001 * estimator.history_.error.min() + 1e-12


def test_partial_fit_keeps_the_known_rows():
    """With a batch's own rows alone the score of the training rows fell back by up to a seventh."""
    for seed in range(1, 4):
        X = sparse_noise("binary", 0.08, seed)
        with unconverged_rows():
            estimator = model(10, random_state=seed, max_iter=300, tol=0).fit(X)
            before = -estimator.score(X)
            estimator.partial_fit(X[:1])
            assert -estimator.score(X) <= 1.001 * before
            estimator.partial_fit(X)
            assert estimator.error_ <= 1.001 * before
            assert -estimator.score(X) <= 1.001 * before


def test_x_that_changes_between_the_iterations_and_the_row_solve(tmp_path, monkeypatch):
    X = synthetic(300, 40, 3)
    array = zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, chunks=(100, 40), dtype=X.dtype)
    array[:] = X

    def then_changed(*given, **named):
        found = relunmd.decompose(*given, **named)
        array[:] = 0
        return found

    monkeypatch.setattr("relunmd.estimator_fit.decompose", then_changed)
    with pytest.raises(FileError, match="X changed between the iterations and the fit of its rows"):
        model(3, max_iter=5, tol=0).fit(zarr.open(str(tmp_path / "X.zarr"), mode="r"))


def test_ctrl_c_after_the_last_pass_of_a_row_solve(digits, monkeypatch):
    in_units = relunmd.new_rows._in_units

    def pressed(*given):
        signal.raise_signal(signal.SIGINT)
        return in_units(*given)

    monkeypatch.setattr("relunmd.new_rows._in_units", pressed)
    with pytest.raises(KeyboardInterrupt):
        model(3, max_iter=3, tol=0).fit(digits)


def test_the_hidden_values_of_a_masked_array_are_not_fitted(digits):
    hidden = np.ma.masked_less(digits, 3)
    fitted = model(2, max_iter=2, tol=0).fit(digits)
    for call in (model(2).fit, model(2).fit_transform, model(2).partial_fit, fitted.transform, fitted.score):
        with pytest.raises(InputError, match="must not be a masked array"):
            call(hidden)


@pytest.mark.parametrize("unit", [1e-200, 1e200, 1e307])
def test_nothing_depends_on_the_units_of_x(digits, unit):
    unit = 2.0 ** round(np.log2(unit))
    X = digits[:300] / 16
    for ridge in (0.0, 1e-3) if unit < 1e300 else (0.0,):
        plain, scaled = (model(4, max_iter=20, tol=0, ridge=ridge).fit(A) for A in (X, X * unit))
        assert scaled.error_ == pytest.approx(plain.error_, rel=1e-12)
        W, V = plain.transform(X), scaled.transform(X * unit)
        np.testing.assert_allclose(V / np.sqrt(unit), W, rtol=1e-5, atol=1e-8)
        assert scaled.score(X * unit) == pytest.approx(plain.score(X), rel=1e-12)


def test_ctrl_c_ends_a_fit_and_not_the_iterations_alone(digits, monkeypatch):
    d = relunmd.decompose(digits, 3, max_iter=2)
    monkeypatch.setattr(
        "relunmd.estimator_fit.decompose", lambda *given, **named: replace(d, status=Status.INTERRUPTED)
    )
    for fit in (model(3).fit, model(3).fit_transform, model(3).partial_fit):
        with pytest.raises(KeyboardInterrupt):
            fit(digits)


def test_x_that_cannot_be_read_any_more_ends_a_fit(tmp_path):
    X = synthetic(2000, 300, 6)
    array = zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, chunks=(100, 300), dtype=X.dtype)
    array[:] = X
    passes = []
    read = StoredArray._read

    def failing(self, rows):
        passes.append(rows.start)
        if passes.count(0) == 30:
            raise OSError("a damaged chunk")
        return read(self, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredArray, "_read", failing)
        with pytest.raises(FileError, match=r"X could not be read after iteration \d+"):
            model(4, tol=0).fit(zarr.open(str(tmp_path / "X.zarr"), mode="r"))
        passes.clear()
        d = relunmd.decompose(zarr.open(str(tmp_path / "X.zarr"), mode="r"), 4, tol=0)
    assert d.status is Status.READ_FAILED
    assert relative_error(X, d.W, d.H) == pytest.approx(d.error)


def test_a_real_ctrl_c_ends_a_grid_search():
    program = """if True:
        import signal, threading, time
        import numpy as np
        from sklearn.model_selection import GridSearchCV
        from relunmd import ReLUNMD
        X = np.random.default_rng(0).random((600, 300))
        ReLUNMD(2, max_iter=1, tol=0).fit(X)
        search = GridSearchCV(ReLUNMD(tol=0, max_iter=None, max_time=60), {"n_components": [5, 6]}, cv=2)
        threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
        begin = time.perf_counter()
        try:
            search.fit(X)
        except KeyboardInterrupt:
            print("interrupted", time.perf_counter() - begin < 30)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.stdout == "interrupted True\n", done.stderr


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
    assert "X must have the 64 features that ReLUNMD was fitted with; got 10" in str(caught.value)


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


def test_n_jobs_as_scikit_learn_counts_it(monkeypatch):
    monkeypatch.setattr("relunmd.arguments.usable_cores", lambda: 8)
    assert [check_threads(n) for n in (None, 1, 3, -1, -2, -8, -100)] == [1, 1, 3, 8, 7, 1, 1]
    assert check_threads(10**12) <= 64
    with joblib.parallel_config(n_jobs=4):
        assert check_threads(None) == 4
    with joblib.parallel_config(n_jobs=-2):
        assert check_threads(None) == 7
    for backend in ("loky", "threading"):
        found = joblib.Parallel(2, backend=backend)(joblib.delayed(check_threads)(n) for n in (None, 3))
        assert found == [1, 3]


def test_warnings_only_for_limits_that_came_before_tol(digits):
    with pytest.warns(ConvergenceWarning, match=r"ended by max_iter=3 before the error, now 0\.\d+, stopped improving"):
        model(4, max_iter=3).fit(digits)
    with pytest.warns(ConvergenceWarning, match="Increase max_time or tol"):
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


def objective(X, W, H, penalty):
    return np.linalg.norm(X - np.maximum(0, W @ H)) ** 2 + penalty * np.linalg.norm(W) ** 2


def test_ridge(digits):
    plain, ridged = (model(6, max_iter=60, tol=0, ridge=ridge).fit(digits) for ridge in (0.0, 0.01))
    assert np.linalg.norm(ridged.components_) < np.linalg.norm(plain.components_)
    W = ridged.transform(digits)
    assert np.linalg.norm(W) < np.linalg.norm(plain.transform(digits))
    np.testing.assert_allclose(ridged.transform(digits[:50]), W[:50], rtol=1e-5, atol=1e-6)  # Not the batch's ‖X‖.
    penalty = 0.01 * np.linalg.norm(digits)
    found = relunmd.fit_rows(digits, ridged.components_, penalty=penalty, candidates=ridged.fit_transform(digits))
    assert objective(digits, W, ridged.components_, penalty) == pytest.approx(
        objective(digits, found.W, ridged.components_, penalty), rel=1e-4
    )
    own = model(6, max_iter=60, tol=0, algorithm=relunmd.QuasiNewton(ridge=0.01)).fit(digits)
    np.testing.assert_array_equal(own.transform(digits), W)
    with pytest.raises(InputError, match="ridge must be given only once"):
        model(6, algorithm=relunmd.QuasiNewton(ridge=0.1), ridge=0.2).fit(digits)
    before = ridged.score(digits)
    for start in range(0, 200, 20):
        ridged.partial_fit(digits[start : start + 20])
    assert ridged.score(digits) > before - 0.02
    with pytest.raises(InputError, match='ridge is supported by "3b-factored" and "qn"'):
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
        (
            {"n_components": 0},
            "n_components must be 'auto' or an integer between 1 and min(n_samples, n_features) = 12",
        ),
        ({"n_components": 13}, "got n_components=13 with n_samples=20, n_features=12"),
        ({"n_components": 2.0}, "got n_components=2.0"),
        ({"algorithm": "svd"}, "algorithm must be one of auto, naive"),
        ({"init": "nowhere"}, "init must be one of"),
        ({"ridge": -1}, "ridge must be a finite number of at least 0; got -1"),
        ({"transform_max_iter": 0}, "transform_max_iter must be an integer of at least 1; got 0"),
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

    monkeypatch.setattr("relunmd.estimator_fit.solve_rows", interrupted)
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
        with pytest.raises(InputError, match="partial_fit needs rows in memory"):
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
    with pytest.raises(InputError, match=r"X must have 3 columns, one for each component; got shape \(20, 12\)"):
        estimator.inverse_transform(X)
    assert not estimator.transform(0 * X).any()
    assert estimator.score(0 * X) == 0
