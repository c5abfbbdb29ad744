"""W for a fixed H: minima by SciPy's word, rows that do not know of each other, and every kind of X."""

import numpy as np
import pytest
from scipy import optimize, sparse

import relunmd
import relunmd.datasets
from relunmd.engine import row_newton
from relunmd.errors import InputError
from tests.conftest import relative_error

KINDS = {"dense": np.asarray, "fortran": np.asfortranarray, "csr": sparse.csr_array, "coo": sparse.coo_matrix}


def noisy(m=40, n=60, r=4, seed=0, noise=0.5):
    random = np.random.default_rng(seed)
    H = random.standard_normal((r, n))
    W = random.standard_normal((m, r))
    return np.maximum(0, W @ H + noise * random.standard_normal((m, n))), H


def objective(w, x, H, penalty=0.0):
    theta = w @ H
    residual = x - np.maximum(theta, 0)
    return (residual @ residual + penalty * w @ w) / 2, penalty * w - H @ (residual * (theta > 0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("penalty", [0.0, 3.0])
def test_scipy_cannot_improve_a_row(kind, penalty):
    X, H = noisy()
    found = relunmd.fit_rows(KINDS[kind](X), H, penalty=penalty)
    for w, x, error in zip(found.W, X, found.row_errors, strict=True):
        here = objective(w, x, H, penalty)[0]
        there = optimize.minimize(objective, w, (x, H, penalty), jac=True, method="L-BFGS-B", tol=1e-12)
        assert here <= there.fun * (1 + 1e-5) + 1e-12
        assert error == pytest.approx(np.sqrt(2 * objective(w, x, H)[0] / (x @ x)), rel=1e-9)
    assert found.error == pytest.approx(relative_error(X, found.W, H), rel=1e-9)
    assert found.norm == pytest.approx(np.linalg.norm(X))
    assert found.limited == 0
    np.testing.assert_allclose(found.shares, np.mean(found.W @ H > 0, axis=0))


def test_no_worse_on_the_whole_than_scipy_from_the_same_starts():
    X, H = noisy(m=60, n=80, r=6, noise=1.5)
    starts = np.linalg.lstsq(H.T, X.T, rcond=None)[0].T
    theirs = [
        optimize.minimize(objective, w, (x, H), jac=True, method="L-BFGS-B").fun for w, x in zip(starts, X, strict=True)
    ]
    found = relunmd.fit_rows(X, H)
    ours = [objective(w, x, H)[0] for w, x in zip(found.W, X, strict=True)]
    assert sum(ours) <= sum(theirs) * 1.001  # Each has rows on which it finds the better minimum.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_exact_fit_is_found_however_sparse(dtype):
    random = np.random.default_rng(5)
    H, W = random.standard_normal((8, 400)), random.standard_normal((100, 8))
    H[0], W[:, 0] = 2, -3  # 96 % zeros.
    X = np.maximum(0, W @ H).astype(dtype)
    assert np.mean(X == 0) > 0.9
    found = relunmd.fit_rows(X, H)
    assert found.W.dtype == dtype
    assert found.error < (1e-5 if dtype == np.float32 else 1e-9)
    kept = (X > 0).sum(axis=1) > 20
    np.testing.assert_allclose(found.W[kept], W[kept], atol=1e-2 if dtype == np.float32 else 1e-6)


@pytest.mark.parametrize(("kind", "apart"), [(np.float32, 1e-25), (np.float64, 1e-200)])
def test_rows_of_very_different_size(kind, apart):
    random = np.random.default_rng(0)
    W, H = random.standard_normal((20, 3)), random.standard_normal((3, 40))
    sizes = np.array([apart, 1.0, 1 / apart])[np.arange(20) % 3][:, None]
    X = np.maximum(0, W @ H)
    found = relunmd.fit_rows((X * sizes).astype(kind), H.astype(kind))
    np.testing.assert_allclose(found.W / sizes, W, rtol=1e-3 if kind is np.float32 else 1e-9)
    assert found.row_errors.max() < 1e-5


def test_candidates_lower_the_error_and_are_checked():
    random = np.random.default_rng(1)
    X = (random.random((200, 60)) < 0.08) * 1.0
    d = relunmd.decompose(X, 10, random_state=0)
    alone, helped = relunmd.fit_rows(X, d.H), relunmd.fit_rows(X, d.H, candidates=d.W)
    assert helped.error <= d.error * (1 + 1e-12)
    assert helped.error < alone.error
    assert (helped.row_errors <= alone.row_errors + 1e-12).all()
    for wrong in (d.W[:, :9], d.W[0], d.W * np.nan):
        with pytest.raises(InputError, match="candidates"):
            relunmd.fit_rows(X, d.H, candidates=wrong)
    for nothing in (0 * d.W, d.W[:0]):
        np.testing.assert_array_equal(relunmd.fit_rows(X, d.H, candidates=nothing).W, alone.W)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_threads_or_storage(dtype):
    X, H = noisy(m=700, n=300, r=5)
    X = X.astype(dtype)
    bits = {relunmd.fit_rows(make(X), H, n_jobs=n).W.tobytes() for make in KINDS.values() for n in (1, 2, 3)}
    assert len(bits) == 1


def test_a_row_does_not_depend_on_the_others():
    X, H = noisy(m=300, n=100, r=6)
    whole = relunmd.fit_rows(X, H).W
    few = np.random.default_rng(0).permutation(300)[:17]
    np.testing.assert_allclose(relunmd.fit_rows(X[few] * 4, H).W / 4, whole[few], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(relunmd.fit_rows(X[[8]], H).W[0], whole[8], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_nothing_depends_on_units(scale):
    X, H = noisy()
    plain = relunmd.fit_rows(X, H)
    found = relunmd.fit_rows(X * scale, H * np.sqrt(scale))
    np.testing.assert_allclose(found.W / np.sqrt(scale), plain.W, rtol=1e-5, atol=1e-7)
    assert found.error == pytest.approx(plain.error, rel=1e-8)


def test_rows_of_zeros_an_h_of_zeros_and_other_odd_ones():
    X, H = noisy(m=6)
    X[2] = 0
    found = relunmd.fit_rows(X, H)
    assert not found.W[2].any()
    assert found.row_errors[2] == 0
    none = relunmd.fit_rows(np.zeros((3, 60)), H)
    assert not none.W.any()
    assert (none.error, none.norm, none.limited) == (0.0, 0.0, 0)
    empty = relunmd.fit_rows(X, np.zeros((3, 60)))
    assert not empty.W.any()
    assert empty.error == pytest.approx(1.0, rel=1e-14)  # Two sums of the same squares, in different orders.
    twins = relunmd.fit_rows(X, np.vstack([H, H[:1]]))  # Of lower rank than it has rows.
    assert np.isfinite(twins.W).all()
    assert twins.error == pytest.approx(found.error, rel=0.01)
    wide = relunmd.fit_rows(X, np.random.default_rng(0).standard_normal((80, 60)))  # More components than columns.
    assert wide.error < 1e-6
    one = relunmd.fit_rows([[1, 0, 2]], [[1, -1, 2]])
    assert one.W.tolist() == [[1.0]]


def test_never_worse_than_nothing():
    random = np.random.default_rng(3)
    X = np.maximum(0, random.standard_normal((200, 12)) - 1)
    found = relunmd.fit_rows(X, random.standard_normal((2, 12)) - 1)
    assert found.row_errors.max() <= 1
    assert relunmd.fit_rows(X, random.standard_normal((2, 12)), penalty=1e9).row_errors.max() <= 1


@pytest.mark.parametrize("seed", range(3))
def test_small_ranks_and_binary_data_are_as_good_as_the_iterations(seed):
    """Where the rows of a fit are found again only from a single component."""
    digits = relunmd.datasets.digits()[200 * seed : 200 * seed + 200]
    binary = np.random.default_rng(seed).random((300, 80)) < 0.05
    # On binary data the two differ by up to a tenth either way from run to run, and with the last bits of a machine.
    for X, rank, most, runs in ((digits, 2, 1.01, 1), (digits, 3, 1.02, 1), (digits, 5, 1.02, 1), (binary, 10, 1.1, 3)):
        fits = [relunmd.decompose(X, rank, random_state=run) for run in range(runs)]
        assert np.mean([relunmd.fit_rows(X, d.H).error / d.error for d in fits]) < most


def test_a_limit_that_is_too_small_is_counted():
    X, H = noisy(m=50)
    found = relunmd.fit_rows(X, H, max_iter=1)
    assert 0 < found.limited <= 50
    assert found.error > relunmd.fit_rows(X, H).error


def test_it_is_one_pass(open_problem):
    X, H = noisy()
    problem = open_problem(X, 4)
    before = problem.executor.passes
    row_newton.fit_rows(problem, H)
    assert problem.executor.passes == before + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"H": np.ones((2, 5))}, "H must have at least one row and as many columns as X, 60; got shape (2, 5)"),
        ({"H": np.ones((0, 60))}, "got shape (0, 60)"),
        ({"H": np.full((2, 60), np.nan)}, "H must be finite; got 120 entries that are not"),
        ({"H": [["a"]]}, "H must be a two-dimensional real array; got dtype <U1"),
        ({"X": -np.ones((3, 60))}, "X must be nonnegative"),
        ({"X": np.full((3, 60), np.inf)}, "X must be finite"),
        ({"penalty": -1}, "penalty must be a finite number of at least 0; got -1"),
        ({"penalty": None}, "penalty must be a finite number of at least 0; got None"),
        ({"penalty": np.inf}, "got inf"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1; got 0"),
        ({"max_iter": 2.5}, "got 2.5"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"dtype": "int8"}, "dtype must be float32, float64 or None"),
    ],
)
def test_bad_arguments(change, message):
    X, H = noisy()
    given = {"X": X, "H": H} | change
    with pytest.raises(InputError) as caught:
        relunmd.fit_rows(given.pop("X"), given.pop("H"), **given)
    assert message in str(caught.value)
