"""3b-factored against a plain NumPy version, iteration by iteration, and on everything that X can be."""

import h5py
import numpy as np
import pytest
import zarr
from scipy import sparse

import relunmd
from relunmd import ThreeBlockFactored, datasets
from relunmd.engine.problem_setup import check_matrix
from tests.conftest import needs_data, projection, relative_error, synthetic


def oracle(X, W, H, beta, iterations, penalty=0.0, adapt=True):
    """The method as its docstring has it, with Z formed: yields E, L and the factors of every point."""
    eye = penalty * np.eye(len(H))
    W_before, H_before, least, restart = W, H, np.inf, True
    for _ in range(iterations):
        momentum = 0.0 if restart else beta
        P, Q = W + momentum * (W - W_before), H + momentum * (H - H_before)
        Z = projection(X, P @ Q)
        latent = np.linalg.norm(Z - P @ Q)
        yield relative_error(X, P, Q), latent / np.linalg.norm(X), P, Q
        W_before, H_before = W, H
        W = np.linalg.solve(Q @ Q.T + eye, Q @ Z.T).T
        H = np.linalg.solve(W.T @ W + eye, W.T @ Z)
        objective = latent**2 / 2 + penalty / 2 * (np.sum(P**2) + np.sum(Q**2))
        fresh, restart = restart, objective > least
        if adapt and not fresh:
            beta = 1 - (min(1.0, 2 * (1 - beta)) if restart else (1 - beta) / 1.05)
        least = objective


@pytest.mark.parametrize("ridge", [0.0, 1e-2])
@pytest.mark.parametrize("adapt", [True, False])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_agrees_with_numpy(open_problem, kind, adapt, ridge):
    X = synthetic(300, 120, 4) + 0.1 * synthetic(300, 120, 30, seed=1)
    problem = open_problem(kind(X), 4)
    S = X * problem.matrix.scale
    random = np.random.default_rng(0)
    W, H = random.standard_normal((300, 4)), random.standard_normal((4, 120))
    W /= np.linalg.norm(W)
    H /= np.linalg.norm(H)  # Alike, as the ridge wants them.
    algorithm = ThreeBlockFactored(beta=0.7, adapt=adapt, ridge=ridge)
    state = algorithm.first_state(problem, W, H)
    restarts = 0
    for error, latent, P, Q in oracle(S, W, H, 0.7, 40, ridge * np.linalg.norm(S), adapt):
        assert state.error == pytest.approx(error, rel=1e-8)
        assert state.latent == pytest.approx(latent, rel=1e-8)
        np.testing.assert_allclose(state.W @ state.H, P @ Q, atol=1e-7)
        restarts += state.restarted
        state = algorithm.next_state(problem, state)
    assert ridge or restarts > 0  # The case has some.


def test_without_momentum_the_latent_residual_never_rises():
    X = synthetic(80, 60, 6) + 0.2 * synthetic(80, 60, 40, seed=3)
    d = relunmd.decompose(X, 6, ThreeBlockFactored(beta=0.0, adapt=False), "random", tol=0, max_iter=100)
    assert (np.diff(d.history.latent) <= 1e-12).all()


@pytest.mark.parametrize("settings", [ThreeBlockFactored, relunmd.QuasiNewton])
def test_ridge_keeps_the_factors_small_and_changes_nothing_with_the_scale(settings):
    X = (np.random.default_rng(0).random((60, 40)) < 0.1) * 1.0
    sizes = []
    for ridge in (0.0, 1e-3, 1e-2):
        d = relunmd.decompose(X, 8, settings(ridge=ridge), random_state=0, tol=0, max_iter=300)
        sizes.append(np.linalg.norm(d.W) * np.linalg.norm(d.H))
        small, big = (
            relunmd.decompose(X * factor, 8, settings(ridge=ridge), random_state=0, tol=0, max_iter=10)
            for factor in (1e-6, 1e6)
        )
        assert big.error == pytest.approx(small.error, rel=1e-6)
    assert sizes[0] > 1.1 * sizes[1] > 1.1 * 1.1 * sizes[2]


def planted(dtype=np.float64):
    """Counts: many blocks, several tiles in a row, some tiles sparse and some not."""
    X = datasets.planted(400, 9000, 4, 0.97, 0)
    X[:, :1500] = np.maximum(0, X[:, :1500] + 1)
    return np.minimum(200, np.round(X * 20)).astype(dtype)


def everything_that_x_can_be(X, folder):
    file = h5py.File(folder / "x.h5", "w")
    A = sparse.csr_array(X)
    group = file.create_group("csr")
    for name in ("data", "indices", "indptr"):
        group[name] = getattr(A, name)
    group.attrs["shape"] = X.shape
    np.save(folder / "x.npy", X)
    stored = zarr.create_array(store=str(folder / "x.zarr"), shape=X.shape, dtype="uint8", chunks=(64, 9000))
    stored[:300] = X[:300]
    stored[300:] = X[300:]
    return {
        "dense": X,
        "bytes": X.astype(np.uint8),
        "csr": A,
        "csc matrix of int16": sparse.csc_matrix(X.astype(np.int16)),
        "memory map": np.load(folder / "x.npy", mmap_mode="r"),
        "hdf5": file.create_dataset("X", data=X.astype(np.int32)),
        "csr in hdf5": group,
        "zarr": stored,
    }


def test_same_bits_whatever_x_is_stored_as_and_with_any_number_of_threads(tmp_path):
    X = planted()
    results = {}
    for kind, given in everything_that_x_can_be(X, tmp_path).items():
        for jobs in (1, 2, 5) if kind in ("dense", "csr") else (2,):
            d = relunmd.decompose(given, 4, "3b-factored", random_state=0, max_iter=4, n_jobs=jobs)
            results[kind, jobs] = d.W.tobytes() + d.H.tobytes() + d.history.error.tobytes()
            assert d.error == pytest.approx(relative_error(X, d.W, d.H), rel=1e-9)
    assert len(set(results.values())) == 1


@pytest.mark.parametrize("init", ["random", "tsvd", "mean-corrected", "shifted", "nuclear"])
def test_every_start_on_every_kind(tmp_path, init):
    X = planted()[:200, :9000:12]
    plain = relunmd.decompose(X, 4, "3b-factored", init, random_state=0, max_iter=2)
    for given in (
        X.astype(np.uint8),
        sparse.csr_array(X),
        h5py.File(tmp_path / "x.h5", "w").create_dataset("X", data=X),
    ):
        d = relunmd.decompose(given, 4, "3b-factored", init, random_state=0, max_iter=2)
        assert d.W.tobytes() == plain.W.tobytes()
        assert d.H.tobytes() == plain.H.tobytes()


def test_float32_ends_where_float64_does():
    X = synthetic(400, 300, 8) + 0.05 * synthetic(400, 300, 60, seed=1)
    errors = [
        relunmd.decompose(X.astype(dtype), 8, "3b-factored", random_state=0, max_iter=200).error
        for dtype in (np.float64, np.float32)
    ]
    assert errors[1] == pytest.approx(errors[0], abs=1e-5)


@needs_data
@pytest.mark.parametrize("name", ["kos", "classic"])
def test_better_than_the_baseline_on_term_counts(name, data_folder):
    X = datasets.load(name, data=data_folder)
    d = relunmd.decompose(X, 16, "3b-factored", random_state=0, dtype="float32", max_iter=20)
    assert d.error < relunmd.decompose(X, 16, "tsvd", random_state=0, dtype="float32").error


@pytest.mark.parametrize("rank", [3, 10])
def test_frames_and_protocols(rank):
    import pandas as pd
    import polars as pl

    X = np.round(synthetic(40, 12, 3) * 4)
    plain = relunmd.decompose(X, rank, "3b-factored", random_state=0, max_iter=5)
    frames = {
        "pandas": pd.DataFrame(X),
        "pandas, mixed": pd.DataFrame({str(j): X[:, j].astype(np.int8 if j % 2 else np.float32) for j in range(12)}),
        "pandas, sparse": pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(X)),
        "polars": pl.DataFrame(X),
    }
    assert check_matrix(frames["pandas, sparse"]).sparse
    for kind, frame in frames.items():
        d = relunmd.decompose(frame, rank, "3b-factored", random_state=0, max_iter=5, dtype="float64")
        assert d.W.tobytes() == plain.W.tobytes(), kind


def test_what_fails_while_a_worker_reads_comes_out_and_the_executor_is_closed():
    class Failing:
        shape, dtype, ndim, chunks = (20_000, 50), np.dtype(float), 2, None
        reads = 0

        def __getitem__(self, rows):
            Failing.reads += 1
            if Failing.reads > 3:
                raise OSError("the disk is gone")
            return np.ones((rows.stop - rows.start, 50))

    Failing.__module__ = "h5py.stand_in"
    with pytest.raises(OSError, match="the disk is gone"):
        relunmd.decompose(Failing(), 4, "3b-factored", max_iter=3)
    assert relunmd.decompose(np.eye(20), 4, "3b-factored", max_iter=3).error < 1


def test_momentum_comes_back_after_many_restarts(open_problem):
    """β falls to 0 when rises follow each other closely, and must not stay there."""
    problem = open_problem(synthetic(60, 50, 3), 3)
    random = np.random.default_rng(0)
    algorithm = ThreeBlockFactored()
    state = algorithm.first_state(problem, random.standard_normal((60, 3)), random.standard_normal((3, 50)))
    state = state.replace(beta=0.0)
    for _ in range(5):
        state = algorithm.next_state(problem, state)
    assert state.beta > 0.1
