"""What a Decomposition offers."""

import numpy as np
import pytest

import relunmd
from tests.conftest import relative_error, synthetic

X = synthetic(40, 30, 4, seed=1)
D = relunmd.decompose(X, 4, "em", random_state=0, max_iter=30)


def test_says_how_it_was_made():
    assert (D.algorithm, D.init, D.rank, D.shape) == ("em", "tsvd", 4, (40, 30))
    assert D.settings == {"sweeps": 2, "column_noise": False, "nonnegative": False}
    assert D.message == D.status.message
    assert D.error == pytest.approx(relative_error(X, D.W, D.H), rel=1e-9)
    assert repr(D).startswith("Decomposition(shape=(40, 30), rank=4, error=")
    assert (
        repr(D.history) == f"History({D.n_iter + 1} entries of iteration, time, error, passes, sigma2, log_likelihood)"
    )


def test_history_has_its_columns():
    history = D.history
    assert len(history) == D.n_iter + 1
    np.testing.assert_array_equal(history.iteration, np.arange(D.n_iter + 1))
    assert np.all(np.diff(history.time) > 0)
    assert np.all(np.diff(history.passes) > 0)
    assert set(history.extra) == {"sigma2", "log_likelihood"}
    assert history.sigma2 is history.extra["sigma2"]
    with pytest.raises(AttributeError, match="no column 'beta'; it has"):
        history.beta  # noqa: B018


def test_reconstruct():
    Theta = D.W @ D.H
    np.testing.assert_array_equal(D.reconstruct(), np.maximum(0, Theta))
    np.testing.assert_allclose(D.reconstruct(relu=False), Theta)
    np.testing.assert_allclose(D.reconstruct(slice(3, 7)), np.maximum(0, Theta[3:7]))
    np.testing.assert_allclose(D.reconstruct([5, -1, 5]), np.maximum(0, Theta[[5, -1, 5]]))
    np.testing.assert_allclose(D.reconstruct(2), np.maximum(0, Theta[2:3]))


def test_scores():
    np.testing.assert_allclose(D.scores([0, 1, 39], [29, 0, 5]), (D.W @ D.H)[[0, 1, 39], [29, 0, 5]])
    np.testing.assert_allclose(D.scores(3, 4), (D.W @ D.H)[3, [4]])
    with pytest.raises(relunmd.InputError, match="two lists of the same length"):
        D.scores([0, 1], [0])


def test_factors_are_canonical():
    strengths = np.linalg.norm(D.W, axis=0)
    assert np.all(np.diff(strengths) <= 0)
    np.testing.assert_allclose(strengths, np.linalg.norm(D.H, axis=1))
    np.testing.assert_allclose(D.W.T @ D.W, np.diag(strengths**2), atol=1e-9)
    assert np.all(D.H[np.arange(4), np.abs(D.H).argmax(axis=1)] > 0)


def test_every_status_has_a_sentence():
    assert all(status.message.endswith(".") for status in relunmd.Status)
