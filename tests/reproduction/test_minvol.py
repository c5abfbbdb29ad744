"""Minimum-volume NMF against SciPy's solvers, the definition of its objective, and brute force."""

import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from reproduction.minvol import _rows_on_simplex, minvol_nmf, nonnegative_least_squares, successive_projections


def test_least_squares_are_scipys():
    random = np.random.default_rng(0)
    B, A = random.random((30, 8)) * [1, 10, 0.1, 1, 1, 1, 1, 1], random.standard_normal((30, 20))
    expected = np.column_stack([nnls(B, column)[0] for column in A.T])
    found = nonnegative_least_squares(B, A, accuracy=1e-9)
    np.testing.assert_allclose(found, expected, atol=1e-5 * expected.max())
    assert (found >= 0).all()
    assert ((found > 0) == (expected > 0)).mean() > 0.99


def test_least_squares_with_a_zero_column():
    B = np.array([[1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(nonnegative_least_squares(B, np.array([[2.0], [3.0]])), [[2.0], [0.0]])


def test_the_simplex_by_brute_force():
    random = np.random.default_rng(1)
    for y in random.standard_normal((5, 4)) * 2:
        best = minimize(
            lambda x, y=y: np.sum((x - y) ** 2),
            np.full(4, 0.25),
            bounds=[(0, 1)] * 4,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
            options={"ftol": 1e-14},
        ).x
        np.testing.assert_allclose(_rows_on_simplex(y[None])[0], best, atol=1e-6)


def test_successive_projections_find_the_vertices():
    """Columns that are mixtures of three: the three come out, as the method's theorem says."""
    random = np.random.default_rng(2)
    corners = random.random((10, 3))
    mixtures = random.dirichlet(np.ones(3), 40).T
    A = np.hstack([corners @ mixtures, corners])
    assert set(successive_projections(A, 3)) == {40, 41, 42}


@pytest.fixture(scope="module")
def example():
    random = np.random.default_rng(3)
    A = random.random((60, 6)) @ (random.random((6, 40)) * (random.random((6, 40)) < 0.4)) + 0.01 * random.random(
        (60, 40)
    )
    return A, minvol_nmf(A, 6, iterations=40)


def test_constraints(example):
    _, found = example
    assert found.V.shape == (60, 6)
    assert found.U.shape == (40, 6)
    assert (found.V >= 0).all()
    assert (found.U >= 0).all()
    np.testing.assert_allclose(found.V.sum(axis=0), 1)


def test_the_objective_is_the_definitions_and_never_rises(example):
    A, found = example
    start = A[:, successive_projections(A, 6)]
    V = start / start.sum(axis=0)
    U = nonnegative_least_squares(V, A).T
    delta = 0.1 * np.trace(V.T @ V) / 6

    def terms(V, U):
        return np.sum((A - V @ U.T) ** 2), np.log(np.linalg.det(V.T @ V + delta * np.eye(6)))

    misfit, volume = terms(V, U)
    weight = 0.1 * misfit / abs(volume)
    assert found.objective[0] == pytest.approx(misfit + weight * volume)
    misfit, volume = terms(found.V, found.U)
    assert found.objective[-1] == pytest.approx(misfit + weight * volume)
    assert (np.diff(found.objective) <= 1e-12 * abs(found.objective[0])).all()
    assert found.objective[-1] < found.objective[0]


def test_units_do_not_matter(example):
    A, found = example
    scaled = minvol_nmf(1000 * A, 6, iterations=40)
    np.testing.assert_allclose(scaled.V, found.V, atol=1e-8)
    np.testing.assert_allclose(scaled.U, 1000 * found.U, rtol=1e-5, atol=1e-6 * scaled.U.max())


def test_a_larger_volume_term_gives_a_smaller_volume(example):
    A, found = example
    tight = minvol_nmf(A, 6, volume=2.0, iterations=40)
    assert np.linalg.slogdet(tight.V.T @ tight.V)[1] < np.linalg.slogdet(found.V.T @ found.V)[1]
