"""What every registered algorithm owes the loop and the user, whatever it does inside.

Tests that take `layout` also run with a layout so small that X has several blocks, strips and column tiles; with the
usual one the matrices below are a single tile. `test_contract_notices.py` runs the contract on broken algorithms.
"""

import dataclasses
import hashlib

import numpy as np
import pytest
from scipy import sparse

import relunmd
from relunmd.algorithm import ALGORITHMS, Algorithm
from relunmd.engine.matrix import layout as layouts
from relunmd.init import INITS
from tests.conftest import SMALL_LAYOUT, relative_error, synthetic

pytestmark = pytest.mark.parametrize("name", sorted(ALGORITHMS))


def start_state(problem, name, seed=7):
    W, H = INITS["random"]().make(problem, np.random.default_rng(seed))
    return ALGORITHMS[name](), ALGORITHMS[name]().first_state(problem, W, H)


def test_says_what_it_is(name):
    algorithm = ALGORITHMS[name]
    assert issubclass(algorithm, Algorithm)
    assert algorithm.name == name
    assert relunmd.algorithms()[name] == algorithm.summary
    assert algorithm.default_init in INITS
    assert dataclasses.fields(algorithm) == dataclasses.fields(algorithm())
    assert algorithm.__doc__
    assert repr(algorithm()).startswith(algorithm.__name__)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reports_the_error_of_the_factors_it_would_hand_back(open_problem, layout, name, dtype):
    X = synthetic(*((40, 30) if layout else (150, 90)), 4, dtype=dtype)
    problem = open_problem(X, 4)
    algorithm, state = start_state(problem, name)
    for _ in range(4):
        assert state.W.dtype == state.H.dtype == dtype
        S = X.astype(np.float64) * problem.matrix.scale
        assert state.error == pytest.approx(
            relative_error(S, state.W, state.H), rel=1e-5 if dtype == np.float32 else 1e-12
        )
        assert all(isinstance(value, float) for value in algorithm.columns(state).values())
        if algorithm.finished(state):
            break
        state = algorithm.next_state(problem, state)


def _copied(algorithm, state):
    return {key: array.copy() for key, array in algorithm.to_arrays(state).items()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_stepping_after_flattening_gives_the_same_bits(open_problem, layout, name, dtype, steps):
    problem = open_problem(synthetic(*((40, 30) if layout else (150, 90)), 4, dtype=dtype), 4)
    algorithm, state = start_state(problem, name)
    for _ in range(steps):
        state = algorithm.next_state(problem, state)
    arrays = _copied(algorithm, state)
    assert all(type(array) is np.ndarray and array.dtype != object for array in arrays.values())
    again = algorithm.from_arrays(arrays)
    for _ in range(3):
        state, again = algorithm.next_state(problem, state), algorithm.next_state(problem, again)
        ours, theirs = algorithm.to_arrays(state), algorithm.to_arrays(again)
        assert ours.keys() == theirs.keys()
        assert all(ours[key].tobytes() == theirs[key].tobytes() for key in ours)


def test_the_arrays_of_a_state_lie_row_by_row(open_problem, name):
    """As they do in one that was written down and read: for others BLAS may give other bits."""
    problem = open_problem(synthetic(50, 30, 4), 4)
    algorithm, state = start_state(problem, name)
    for _ in range(15):
        assert all(x.flags.c_contiguous for x in algorithm.to_arrays(state).values())
        state = algorithm.next_state(problem, state)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_state_says_what_it_is_made_of(open_problem, name, dtype):
    """So one that comes from a file can be looked at before kernels, which do not look, are given it."""
    problem, other = (open_problem(synthetic(m, 30, 4, dtype=dtype), 4) for m in (50, 51))
    algorithm, state = start_state(problem, name)
    for _ in range(4):
        assert algorithm.misfit(state, problem) is None
        assert algorithm.misfit(state, other) is not None
        arrays = _copied(algorithm, state)
        for key, array in arrays.items():
            wrong = [np.zeros((2, 2, 2))]
            if array.ndim and array.size:
                wrong += [array.astype(np.float16)]
            if key in ("W", "H"):
                wrong += [np.full_like(array, np.nan)]
            if array.ndim == 0:
                wrong += [array.astype(np.longdouble), array.astype(complex)]
            if array.ndim and array.size and key != "recent":  # That one may have any length.
                wrong += [np.full(array.size + 1, 0.5), array[..., :-1]]
            for value in wrong:
                again = algorithm.from_arrays(arrays | {key: value})
                assert algorithm.misfit(again, problem) is not None, (key, value.shape, value.dtype)
        state = algorithm.next_state(problem, state)


def test_a_step_leaves_the_state_it_started_from_alone(open_problem, layout, name):
    """So a pass that is interrupted loses nothing."""
    problem = open_problem(synthetic(*((40, 30) if layout else (150, 90)), 4), 4)
    algorithm, state = start_state(problem, name)
    for _ in range(3):
        before = _copied(algorithm, state)
        following = algorithm.next_state(problem, state)
        assert all(before[key].tobytes() == array.tobytes() for key, array in algorithm.to_arrays(state).items())
        state = following


def test_a_foreign_state_is_refused(name):
    with pytest.raises(relunmd.InputError, match="is made of"):
        ALGORITHMS[name]().from_arrays({"W": np.zeros((2, 2))})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sparse.csr_array, sparse.csr_matrix, sparse.coo_array])
def test_decomposes_every_kind_of_input_alike(layout, name, dtype, kind):
    X = synthetic(60, 40, 3, dtype=dtype)
    given, max_iter = kind(X), 6 if layout else 20
    d = relunmd.decompose(given, 3, name, random_state=0, max_iter=max_iter)
    assert d.W.dtype == d.H.dtype == dtype
    assert d.error == pytest.approx(relative_error(X, d.W, d.H), rel=1e-4, abs=1e-6)
    plain = relunmd.decompose(X, 3, name, random_state=0, max_iter=max_iter)
    assert d.W.tobytes() == plain.W.tobytes()
    assert d.H.tobytes() == plain.H.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_seed_same_bits_with_any_number_of_threads_and_x_untouched(layout, name, dtype):
    X = synthetic(*((40, 30) if layout else (1500, 70)), 5, dtype=dtype)
    before = hashlib.sha256(X.tobytes()).digest()
    runs = [relunmd.decompose(X, 5, name, random_state=0, n_jobs=jobs, max_iter=8) for jobs in (1, 2, 2, 5)]
    assert len({d.W.tobytes() + d.H.tobytes() + d.history.error.tobytes() for d in runs}) == 1
    assert hashlib.sha256(X.tobytes()).digest() == before


def test_the_layout_changes_nothing_but_rounding(name, monkeypatch):
    """Sums over blocks, strips and tiles are complete, however X is cut."""
    X = synthetic(40, 30, 4) + 0.2 * synthetic(40, 30, 20, seed=1)
    X[[3, 17]] = 0
    settings = {"rank": 4, "algorithm": name, "init": "random", "random_state": 0, "tol": 0, "max_iter": 12}
    usual = relunmd.decompose(X, **settings)
    for constant, value in SMALL_LAYOUT.items():
        monkeypatch.setattr(layouts, constant, value)
    small = relunmd.decompose(X, **settings)
    np.testing.assert_allclose(small.history.error, usual.history.error, rtol=1e-6)
    np.testing.assert_allclose(small.W @ small.H, usual.W @ usual.H, atol=1e-5)


def test_scale_of_x_changes_nothing(name):
    X = synthetic(60, 40, 3)
    plain = relunmd.decompose(X, 3, name, random_state=0, max_iter=20)
    for factor in (1e150, 1e-150):
        scaled = relunmd.decompose(X * factor, 3, name, random_state=0, max_iter=20)
        assert scaled.error == pytest.approx(plain.error, rel=1e-3, abs=1e-12)
        np.testing.assert_allclose((scaled.W @ scaled.H) / factor, plain.W @ plain.H, atol=1e-3)


def odd_matrices():
    random = np.random.default_rng(0)
    low = random.random((40, 3)) @ random.random((3, 30))
    spotty = np.where(random.random((40, 30)) < 0.5, 0.0, low)
    holed = spotty.copy()
    holed[[3, 17]] = 0
    holed[:, 5] = 0
    sparse_rows = (random.random((100, 70)) < 0.001) * random.random((100, 70))
    sparse_rows[0, 0] = 1
    blocks = np.kron(np.eye(4), np.ones((10, 8)))
    return {
        "singular": (np.ones((20, 20)), 5),
        "rank-deficient with zero rows and columns": (holed, 6),
        "scaled by 1e150": (spotty * 1e150, 5),
        "scaled by 1e-150": (spotty * 1e-150, 5),
        "1 × n": (spotty[:1], 1),
        "m × 1": (spotty[:, :1], 1),
        "tall": (np.maximum(0, random.standard_normal((600, 4))), 2),
        "wide": (np.maximum(0, random.standard_normal((4, 600))), 2),
        "exactly rank 3": (low, 3),
        "exactly rank 4 with zeros": (blocks, 4),
        "above its rank": (low, 8),
        "no zeros": (random.random((40, 30)) + 0.1, 5),
        "99.9 % zeros": (sparse_rows, 5),
        "one positive entry": (np.eye(30)[:1] * np.ones((20, 1)) * (np.arange(20) == 7)[:, None], 3),
        "full rank asked for": (spotty[:8, :6], 6),
        "diagonal": (np.diag(np.linspace(1, 2, 30)), 5),
    }


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("odd", sorted(odd_matrices()))
def test_odd_matrices_give_something_finite_no_worse_than_the_baseline(name, odd, dtype):
    X, rank = odd_matrices()[odd]
    if dtype == np.float32:
        X = (X / X.max()).astype(np.float32)
    d = relunmd.decompose(X, rank, name, random_state=0)
    baseline = relunmd.decompose(X, rank, "tsvd", random_state=0)
    assert np.isfinite(d.W).all()
    assert np.isfinite(d.H).all()
    assert d.status in (relunmd.Status.CONVERGED, relunmd.Status.MAX_ITER)
    assert d.error <= baseline.error * (1 + 1e-6) + (1e-7 if dtype == np.float64 else 1e-5)
    unit = X / X.max()
    assert d.error == pytest.approx(relative_error(unit, d.W / np.sqrt(X.max()), d.H / np.sqrt(X.max())), abs=1e-6)
