"""Initializations: their formulas, their scale, and that given factors are kept or extended."""

import numpy as np
import pytest
from scipy import linalg

import relunmd
from benchmarks import reference
from relunmd.init import INITS
from tests.algorithm import oracles
from tests.conftest import projection, relative_error, synthetic

X = synthetic(120, 80, 5, seed=2)


def initial(init, data=X, rank=5, **more):
    return relunmd.decompose(data, rank, init=init, max_iter=0, random_state=0, **more)


@pytest.mark.parametrize("init", sorted(INITS))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(120, 80), (80, 120), (1, 30), (30, 1), (2, 2)])
def test_every_init_is_finite_reproducible_and_independent_of_scale(init, dtype, shape):
    data = synthetic(*shape, 5, seed=1, dtype=dtype)
    rank = min(5, *shape)
    d = initial(init, data, rank)
    assert np.isfinite(d.W).all()
    assert np.isfinite(d.H).all()
    assert d.error < 1.01
    assert d.W.tobytes() == initial(init, data, rank, n_jobs=1).W.tobytes()
    assert initial(init, data * dtype(2.0**40), rank).error == pytest.approx(d.error, rel=1e-6)


def test_random_init_has_the_best_multiple():
    d = initial("random")
    relu = np.maximum(0, d.W @ d.H)
    assert np.vdot(X, relu) == pytest.approx(np.vdot(relu, relu))


def test_tsvd_init_is_lapacks():
    d = initial("tsvd")
    np.testing.assert_allclose(d.W @ d.H, oracles.tsvd(X, 5), atol=1e-4)
    assert d.error == pytest.approx(oracles.error(X, oracles.tsvd(X, 5)), rel=1e-7)


def test_mean_corrected_init_is_the_formula():
    """At a rank where its TSVD is exact."""
    corrected = 2 * (X - np.outer(X.mean(axis=1), X.mean(axis=0)) / X.mean())
    Theta = oracles.tsvd(corrected, 20)
    relu = np.maximum(0, Theta)
    Theta *= np.vdot(X, relu) / np.vdot(relu, relu)
    d = initial("mean-corrected", X, 20)
    np.testing.assert_allclose(d.W @ d.H, Theta, atol=1e-8)
    assert d.error == pytest.approx(oracles.error(X, Theta), rel=1e-8)


@pytest.mark.parametrize("c", [0.5, 1.0])
def test_shifted_init_is_the_formula(c):
    """At a rank where its TSVD is exact; at a small rank it misses little of the energy."""
    lowered = np.where(X > 0, X, -c * X[X > 0].mean())
    d = initial(relunmd.ShiftedInit(c=c), X, 20)
    np.testing.assert_allclose(d.W @ d.H, oracles.tsvd(lowered, 20), atol=1e-8)
    d = initial(relunmd.ShiftedInit(c=c))
    left, least = (np.linalg.norm(lowered - Theta) for Theta in (d.W @ d.H, oracles.tsvd(lowered, 5)))
    assert least < left < 1.01 * least


@pytest.mark.parametrize(("init", "passes"), [("random", 1), ("shifted", 2), ("mean-corrected", 4)])
def test_an_initialization_takes_as_many_passes_as_it_says(init, passes):
    """Without the one that evaluates it; on noise, where an exact TSVD takes far more."""
    noise = np.maximum(0, np.random.default_rng(0).standard_normal((150, 120)))
    assert initial(init, noise, 6, algorithm="3b-factored").history.passes[0] == passes + 1
    assert initial("tsvd", noise, 6, algorithm="3b-factored").history.passes[0] > 12


@pytest.mark.parametrize("shape", [(90, 60), (60, 90)])
def test_nuclear_init_is_no_worse_than_the_reference(shape):
    ours, theirs = [], []
    for seed in range(5):
        data = synthetic(*shape, 5, seed=seed)
        ours.append(relunmd.decompose(data, 5, init="nuclear", max_iter=0, random_state=seed).error)
        theirs.append(relative_error(data, *reference.nuclear_start(data, 5, np.random.default_rng(seed + 100))))
    assert np.mean(ours) <= np.mean(theirs) * 1.02


def test_nuclear_steps_lower_the_nuclear_norm(open_problem):
    problem = open_problem(X, 5)
    init = relunmd.NuclearInit(steps=3)
    Theta = projection(X * problem.matrix.scale, np.random.default_rng(0).standard_normal(X.shape))
    before = linalg.svdvals(Theta).sum()
    found = init._descend(problem, Theta)
    assert linalg.svdvals(found).sum() < 0.98 * before
    np.testing.assert_allclose(found, projection(X * problem.matrix.scale, found))


def test_nuclear_without_steps_is_the_tsvd_of_the_projected_random_start():
    assert initial(relunmd.NuclearInit(steps=0)).error < initial("random").error


def test_given_factors_are_taken_as_they_are():
    first = relunmd.decompose(X, 5, random_state=1, max_iter=30)
    for init in (first, (first.W, first.H), [first.W * 2, first.H / 2]):
        again = initial(init)
        assert again.error == pytest.approx(first.error, rel=1e-9)
        np.testing.assert_allclose(again.W, first.W, atol=1e-8)


@pytest.mark.parametrize("k", [1, 3])
def test_factors_of_smaller_rank_are_filled_up_and_only_gain(k):
    small = relunmd.decompose(X, k, random_state=1, max_iter=60)
    latent = projection(X, small.W @ small.H) - small.W @ small.H
    filled = initial(small)
    assert filled.W.shape == (120, 5)
    wanted = small.W @ small.H + oracles.tsvd(latent, 5 - k)
    np.testing.assert_allclose(filled.W @ filled.H, wanted, atol=2e-2)
    better = relunmd.decompose(X, 5, init=small, random_state=1, max_iter=60)
    assert better.error < small.error


@pytest.mark.parametrize("algorithm", sorted(relunmd.algorithms()))
@pytest.mark.parametrize("init", ["mean-corrected", (np.zeros((30, 2)), np.zeros((2, 20)))], ids=["means", "zeros"])
def test_an_init_that_would_be_zero_is_replaced(algorithm, init):
    data = np.ones((30, 20))
    assert relunmd.decompose(data, 2, algorithm, init=init, max_iter=30).error < 1e-7


PRODUCTS = {
    "ones": np.ones((6, 5)),
    "tall": np.ones((300, 3)),
    "one row": np.ones((1, 5)),
    "one entry": np.ones((1, 1)),
    "not exact in binary": np.full((8, 6), 0.3),
    "tiny": np.full((8, 6), 1e-300),
    "rank one": np.outer(np.arange(1.0, 9), np.arange(1.0, 7)),
    "rank one with zeros": np.outer(np.arange(8) % 2, np.arange(6) % 3 > 0) * 1.0,
}
"""Products of their means: the mean correction leaves zero, or rounding."""


@pytest.fixture
def oldest_scipy(monkeypatch):
    """Refuses what LAPACK refuses through SciPy 1.13, the oldest that is supported."""
    svd, eigh = linalg.svd, linalg.eigh

    def refusing_svd(A, *given, **more):
        if 0 in A.shape:
            raise ValueError("Internal work array size computation failed: -5")
        return svd(A, *given, **more)

    def refusing_eigh(A, *given, driver=None, **more):
        if driver == "evd" and len(A) == 1:
            raise ValueError("(lwork>=(compute_v?1+6*n+2*n*n:2*n+1)) failed for 3rd keyword lwork: ssyevd:lwork=1")
        return eigh(A, *given, driver=driver, **more)

    monkeypatch.setattr(linalg, "svd", refusing_svd)
    monkeypatch.setattr(linalg, "eigh", refusing_eigh)


@pytest.mark.parametrize("init", sorted(INITS))
@pytest.mark.parametrize("case", PRODUCTS)
def test_products_of_means_at_full_rank(oldest_scipy, caplog, case, init):
    data = PRODUCTS[case]
    for dtype in (np.float64, np.float32) if data.max() > 1e-30 else (np.float64,):
        with caplog.at_level("INFO", "relunmd"):
            d = initial(init, data.astype(dtype), min(data.shape))
        assert np.isfinite(d.W).all()
        assert np.isfinite(d.H).all()
        if init == "mean-corrected":
            assert d.error < (1e-5 if dtype == np.float32 else 1e-13)
            assert "uses init='tsvd'" in caplog.text
        else:
            assert d.error <= 1


def test_auto_takes_the_tsvd_where_x_is_of_low_rank_itself():
    low = np.kron(np.eye(4), np.ones((10, 8)))
    assert initial("auto", low, 4, algorithm="3b").error < 1e-12
    assert initial("auto", algorithm="3b").error == pytest.approx(initial("shifted").error, rel=1e-3)


def test_auto_takes_no_init_that_is_positive_nowhere():
    assert initial("shifted", np.eye(100), 3).error > 0.999
    assert initial("auto", np.eye(100), 3, algorithm="3b").error < 0.99


def test_the_flagship_comes_away_from_an_init_that_is_positive_nowhere():
    assert initial("auto", np.eye(100), 3).error > 0.999
    assert relunmd.decompose(np.eye(100), 3, random_state=0).error < 0.9


@pytest.mark.parametrize("bad", [lambda: relunmd.NuclearInit(steps=-1), lambda: relunmd.ShiftedInit(c=0)])
def test_bad_settings_are_refused(bad):
    with pytest.raises(relunmd.InputError, match="must be"):
        bad()
