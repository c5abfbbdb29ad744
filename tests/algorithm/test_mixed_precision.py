"""Runs in float64 whose first passes are in float32."""

import numpy as np
import pytest
from scipy import sparse

import relunmd
from relunmd import QuasiNewton, arguments
from relunmd.errors import InputError
from tests.algorithm.test_three_block_factored import everything_that_x_can_be
from tests.conftest import relative_error, synthetic

SHAPE = 420, 350


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch):
    """Mixed precision also for the small matrices of these tests."""
    monkeypatch.setattr(arguments, "_LEAST_MIXED", 2**17)


class Watched(QuasiNewton):
    """Remembers the float types of the states."""

    name = "watched"

    def step(self, problem, state):
        self.types.append((state.W.dtype, state.by_H.dtype, state.single))
        return super().step(problem, state)


def float_types(X, **options):
    Watched.types = []
    d = relunmd.decompose(X, 5, Watched(), random_state=0, **options)
    for W_type, gradient_type, single in Watched.types:
        assert W_type == gradient_type == (np.float32 if single else np.float64)
    return d, [single for _, _, single in Watched.types]


def noisy():
    return synthetic(*SHAPE, 5) + 0.1 * synthetic(*SHAPE, 60, seed=1)


def test_float32_comes_first_and_float64_last():
    X = synthetic(*SHAPE, 5)
    d, single = float_types(X, tol=0, target_error=1e-12)
    assert d.error <= 1e-12
    assert relative_error(X, d.W, d.H) < 2e-12
    changes = np.flatnonzero(np.diff(single))
    assert single[0]
    assert not single[-1]
    assert len(changes) == 1
    assert d.history.error[changes[0] + 1] < 1e-3
    assert d.W.dtype == d.H.dtype == np.float64


def test_the_result_is_that_of_float64():
    X = noisy()
    mixed, single = float_types(X, tol=0, max_iter=150)
    exact = relunmd.decompose(X, 5, dtype="float64", random_state=0, tol=0, max_iter=150)
    assert np.mean(single) > 0.2
    assert mixed.error == pytest.approx(exact.error, rel=2e-3)
    assert mixed.error == pytest.approx(relative_error(X, mixed.W, mixed.H), rel=1e-6)


def test_a_new_round_is_in_float32_again():
    _, single = float_types(noisy(), tol=0, max_iter=400)
    assert (np.diff(np.array(single, int)) > 0).any()


@pytest.mark.parametrize("convert", [np.asarray, lambda X: (10 * X).astype(np.int32), sparse.csr_array])
def test_any_x_of_float64_or_integers(convert):
    X = convert(noisy())
    d, single = float_types(X, max_iter=8)
    assert all(single)
    dense = X.toarray() if sparse.issparse(X) else X
    assert d.error == pytest.approx(relative_error(dense, d.W, d.H), rel=1e-6)


@pytest.mark.parametrize(
    "options", [{"dtype": "float64"}, {"weights": np.random.default_rng(0).random(SHAPE) + 0.5}, {"part": 30}]
)
def test_where_it_is_disabled(options):
    part = options.pop("part", None)
    _, single = float_types(noisy()[:part], max_iter=4, **options)
    assert not any(single)


def test_missing_entries_are_supported():
    X = noisy()
    X[::3, ::4] = np.nan
    d, single = float_types(X, max_iter=20, missing_values=np.nan)
    assert all(single)
    known = ~np.isnan(X)
    gap = np.where(known, np.nan_to_num(X) - np.maximum(0, d.W @ d.H), 0)
    assert d.error == pytest.approx(np.linalg.norm(gap) / np.linalg.norm(X[known]), rel=1e-6)


def test_same_bits_whatever_x_is_stored_as_and_with_any_number_of_threads(tmp_path):
    X = np.ceil(10 * synthetic(*SHAPE, 5))  # As some of the formats have integers.
    results = set()
    for kind, given in everything_that_x_can_be(X, tmp_path).items():
        for jobs in (1, 2, 5) if kind in ("dense", "csr") else (2,):
            d = relunmd.decompose(given, 5, random_state=0, max_iter=30, tol=0, n_jobs=jobs)
            results.add(d.W.tobytes() + d.H.tobytes() + d.history.error.tobytes())
    assert len(results) == 1


def test_resumed_runs_have_the_same_bits(tmp_path):
    X, options = synthetic(*SHAPE, 5), {"random_state": 0, "tol": 0}
    whole = relunmd.decompose(X, 5, max_iter=40, **options)
    file = tmp_path / "run.npz"
    for stop in (0, 3, 12, 25, 33, 40):
        resumed = relunmd.decompose(X, 5, max_iter=stop, checkpoint=file, checkpoint_every=0, **options)
    assert resumed.W.tobytes() == whole.W.tobytes()
    assert resumed.history.error.tobytes() == whole.history.error.tobytes()
    with pytest.raises(InputError, match="dtype: checkpoint has 'mixed', this call has 'float64'"):
        relunmd.decompose(X, 5, checkpoint=file, dtype="float64", **options)


def test_callbacks_get_float64():
    seen = []
    relunmd.decompose(noisy(), 5, max_iter=3, random_state=0, callback=lambda p: seen.append((p.W.dtype, p.H.dtype)))
    assert set(seen) == {(np.dtype(np.float64),) * 2}
