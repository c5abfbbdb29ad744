"""The ridge: what is minimized, what is returned, and the argument of `decompose`."""

import numpy as np
import pytest

import relunmd
from relunmd import InputError, QuasiNewton, ThreeBlockFactored
from tests.conftest import relative_error, synthetic

X = synthetic(60, 40, 6)


def penalized(d, ridge):
    """Oracle: √(E² + ridge·(‖W‖² + ‖H‖²)/‖X‖)."""
    norm = np.linalg.norm(X)
    return np.sqrt(relative_error(X, d.W, d.H) ** 2 + ridge * ((d.W**2).sum() + (d.H**2).sum()) / norm)


@pytest.mark.parametrize("method", [QuasiNewton, ThreeBlockFactored])
@pytest.mark.parametrize("ridge", [1e-3, 1e-1])
def test_the_iterate_with_the_smallest_penalized_error_is_returned(method, ridge):
    d = relunmd.decompose(X, 4, method(ridge=ridge), random_state=0)
    assert d.best_iter == d.history.penalized.argmin()
    # The canonical form of the same WH is the one with the smallest norms.
    assert d.history.penalized.min() * 0.999 < penalized(d, ridge) <= d.history.penalized.min() * (1 + 1e-9)
    assert d.error == pytest.approx(relative_error(X, d.W, d.H), rel=1e-9)
    assert d.error == d.history.error[d.best_iter]


def test_a_strong_ridge_is_minimized_too():
    """From 0.1 on the smallest error was that of the initial factors, and these were returned."""
    d = relunmd.decompose(X, 4, ridge=0.3, random_state=0)
    assert d.best_iter > 0
    first = relunmd.decompose(X, 4, ridge=0.3, random_state=0, max_iter=0)
    assert penalized(d, 0.3) < 0.9 * penalized(first, 0.3)


def test_it_is_a_stationary_point():
    """The gradient of ½‖X − max(0, WH)‖² + ½·ridge·‖X‖·(‖W‖² + ‖H‖²), by hand."""
    ridge = 1e-2
    d = relunmd.decompose(X, 4, ridge=ridge, tol=1e-12, max_iter=3000, random_state=0)
    Theta = d.W @ d.H
    residual = np.where(Theta > 0, Theta - X, 0)
    strength = ridge * np.linalg.norm(X)
    for gradient, factor in ((residual @ d.H.T, d.W), (d.W.T @ residual, d.H)):
        assert np.linalg.norm(gradient + strength * factor) < 5e-3 * np.linalg.norm(strength * factor)


def test_the_argument_of_decompose():
    one = relunmd.decompose(X, 4, ridge=1e-2, random_state=0)
    other = relunmd.decompose(X, 4, QuasiNewton(ridge=1e-2), random_state=0)
    assert one.error == other.error
    assert one.settings["ridge"] == 1e-2
    assert "penalized" not in relunmd.decompose(X, 4, random_state=0, max_iter=3).history.columns
    with pytest.raises(InputError, match="ridge is supported by"):
        relunmd.decompose(X, 4, "3b", ridge=1e-2)
    with pytest.raises(InputError, match="ridge must be given only once"):
        relunmd.decompose(X, 4, QuasiNewton(ridge=1e-3), ridge=1e-2)
    with pytest.raises(InputError, match="ridge must be a finite number"):
        relunmd.decompose(X, 4, ridge="auto")


def test_resuming_with_a_ridge(tmp_path):
    options = {"ridge": 0.1, "tol": 0, "random_state": 0}
    whole = relunmd.decompose(X, 4, max_iter=25, **options)
    relunmd.decompose(X, 4, max_iter=12, checkpoint=tmp_path / "run.npz", **options)
    resumed = relunmd.decompose(X, 4, max_iter=25, checkpoint=tmp_path / "run.npz", **options)
    np.testing.assert_array_equal(resumed.W, whole.W)
    np.testing.assert_array_equal(resumed.history.penalized, whole.history.penalized)


def test_several_initializations_race_for_the_penalized_error():
    d = relunmd.decompose(X, 4, ridge=0.05, n_starts=3, random_state=0)
    alone = relunmd.decompose(X, 4, ridge=0.05, random_state=0)
    assert penalized(d, 0.05) <= penalized(alone, 0.05) * (1 + 1e-3)
