"""LowRankImputer: scikit-learn's contract, and what it returns for missing and for limited values."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.impute import MissingIndicator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from relunmd import EM, InputError, LowRankImputer

RANDOM = np.random.default_rng(0)
TRUTH = 1 + RANDOM.random((80, 3)) @ RANDOM.random((3, 30))
X = TRUTH + 0.02 * RANDOM.standard_normal(TRUTH.shape)
HIDDEN = RANDOM.random(X.shape) < 0.2
HOLES = np.where(HIDDEN, np.nan, X)


def imputer(**options):
    return LowRankImputer(4, random_state=0, **options)


@parametrize_with_checks([LowRankImputer(n_components=2), LowRankImputer(add_indicator=True)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_measured_values_are_returned_and_missing_ones_predicted():
    filled = imputer().fit_transform(HOLES)
    np.testing.assert_array_equal(filled[~HIDDEN], X[~HIDDEN])
    assert np.abs(filled - TRUTH)[HIDDEN].mean() < 0.03
    means = np.broadcast_to(np.nanmean(HOLES, axis=0), X.shape)
    assert np.abs(filled - TRUTH)[HIDDEN].mean() < 0.2 * np.abs(means - TRUTH)[HIDDEN].mean()


def test_new_rows():
    fitted = imputer().fit(HOLES[:60])
    filled = fitted.transform(HOLES[60:])
    assert np.abs(filled - TRUTH[60:])[HIDDEN[60:]].mean() < 0.04
    np.testing.assert_allclose(fitted.transform(np.full((1, 30), np.nan))[0], TRUTH.mean(axis=0), rtol=0.1)
    np.testing.assert_array_equal(fitted.transform(X[:3]), X[:3])


@pytest.mark.parametrize("placeholder", [-1, 0, 999.0])
def test_other_placeholders(placeholder):
    expected = imputer().fit_transform(HOLES)
    found = imputer(missing_values=placeholder).fit_transform(np.where(HIDDEN, placeholder, X))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("missing", [np.nan, pd.NA])
def test_frames_with_nullable_integers(missing):
    frame = pd.DataFrame({"a": [1, 2, None, 4], "b": [2, None, 6, 8]}, dtype="Int64")
    filled = LowRankImputer(1, ridge=0, missing_values=missing).fit_transform(frame)
    np.testing.assert_allclose(filled, [[1, 2], [2, 4], [3, 6], [4, 8]], atol=1e-3)


def test_names_of_features():
    frame = pd.DataFrame(HOLES[:, :4], columns=list("abcd")).assign(empty=np.nan)
    fitted = imputer(add_indicator=True).set_output(transform="pandas").fit(frame)
    out = fitted.transform(frame)
    names = [*"abcd", *(f"missingindicator_{name}" for name in [*"abcd", "empty"])]
    assert list(out.columns) == names
    assert list(fitted.get_feature_names_out()) == names
    kept = imputer(keep_empty_features=True).set_output(transform="pandas").fit_transform(frame)
    assert list(kept.columns) == [*"abcd", "empty"]
    assert (kept["empty"] == 0).all()


def test_the_indicator_is_that_of_scikit_learn():
    out = imputer(add_indicator=True).fit_transform(HOLES)
    np.testing.assert_array_equal(out[:, 30:], MissingIndicator().fit_transform(HOLES))


def test_nothing_measured():
    np.testing.assert_array_equal(imputer().fit_transform([[0.0, np.nan], [0.0, 0.0]]), np.zeros((2, 2)))
    assert imputer().fit_transform(np.full((3, 2), np.nan)).shape == (3, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("algorithm", ["auto", EM(nonnegative=True)])
def test_limits(dtype, algorithm):
    """Values below a limit are predicted between 0 and it, with what a normal distribution has there."""
    lower, upper = np.quantile(X, 0.2, axis=0), np.quantile(X, 0.9)
    data = X.astype(dtype)
    below, above = data <= lower.astype(dtype), data >= dtype(upper)
    data = np.where(below, 0, np.where(above, upper + 1, HOLES)).astype(dtype)
    fitted = imputer(lower=lower, upper=upper, algorithm=algorithm, tol=1e-3).fit(data)
    filled, error = fitted.transform(data), fitted.standard_error(data)
    assert filled.dtype == error.dtype == dtype
    assert (filled[below] <= np.broadcast_to(lower, X.shape)[below].astype(dtype)).all()
    assert (filled[above] >= dtype(upper)).all()
    assert np.abs(filled - X)[below].mean() < 0.7 * np.abs(lower / np.sqrt(2) - X)[below].mean()
    Theta = fitted.model_._latent(data, fitted._center)
    i, j = np.argwhere(below & ~HIDDEN)[0]
    law = stats.truncnorm(-Theta[i, j] / fitted.noise_, (lower[j] - Theta[i, j]) / fitted.noise_)
    assert filled[i, j] == pytest.approx(Theta[i, j] + fitted.noise_ * law.mean(), rel=1e-3)
    assert error[i, j] == pytest.approx(fitted.noise_ * law.std(), rel=2e-2)
    measured = ~(below | above | HIDDEN)
    assert (error[measured] == 0).all()
    np.testing.assert_array_equal(filled[measured], data[measured])
    assert (error[HIDDEN & ~below & ~above] == dtype(fitted.noise_)).all()


def test_the_noise_is_estimated():
    assert imputer(ridge=0).fit(HOLES).noise_ == pytest.approx(0.02, rel=0.2)
    assert imputer(algorithm="em").fit(HOLES).noise_ == pytest.approx(0.02, rel=0.3)


@pytest.mark.parametrize(("unit", "dtype"), [(2.0**600, float), (2.0**-600, float), (2.0**80, np.float32)])
def test_nothing_depends_on_the_units(unit, dtype):
    lower = np.quantile(X, 0.2, axis=0)

    def imputed(by):
        data = X.astype(dtype) * dtype(by)
        fitted = imputer(lower=by * lower).fit(data)
        return fitted.transform(data) / dtype(by), fitted.standard_error(data) / dtype(by)

    for found, expected in zip(imputed(unit), imputed(1.0), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_the_noise_of_data_with_zeros():
    """A positive value with a very negative entry of WH is as far off as it is large."""
    random = np.random.default_rng(0)
    data = np.maximum(0, random.standard_normal((60, 4)) @ random.standard_normal((4, 20))) + 0.05
    fitted = LowRankImputer(2, random_state=0).fit(data)
    W = fitted.model_.transform(data)
    rms = np.sqrt(np.mean((data - np.maximum(0, W @ fitted.model_.components_)) ** 2))
    assert rms < fitted.noise_ < 1.5 * rms


def test_in_a_pipeline():
    steps = make_pipeline(FunctionTransformer(np.log1p, feature_names_out="one-to-one"), imputer())
    assert not np.isnan(clone(steps).fit_transform(HOLES)).any()


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        ({}, -X, "Negative values in data passed to LowRankImputer"),
        ({"missing_values": "none"}, X, "missing_values must be a number"),
        ({"lower": [1.0, 2.0]}, X, "lower must be a number or one for each of the 30 features"),
        ({"lower": np.nan}, X, "lower must be nonnegative and finite; got nan"),
        ({"lower": 3.0, "upper": 1.0}, X, "lower must be below upper"),
        ({"upper": -1.0}, X, "upper must be nonnegative; got -1.0"),
        ({}, np.ma.masked_array(X, HIDDEN), "X must not be a masked array"),
        ({"n_components": 0}, X, "n_components must be an integer of at least 1"),
        ({"algorithm": "3b"}, HOLES, "algorithm must be one of em, a-em, 3b-factored, qn, tsvd"),
        ({"algorithm": "em", "ridge": 0.1}, X, "ridge is supported by"),
    ],
)
def test_what_cannot_be_used(options, data, message):
    with pytest.raises(InputError, match=message):
        LowRankImputer(**options).fit(data)
