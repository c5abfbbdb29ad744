"""X on Dask: the same bits as threads for every kind of parts, and no array of m rows on the driver."""

import numpy as np
import pytest
from dask import array as da
from dask import delayed
from scipy import sparse

import relunmd
from relunmd import InputError, ReLUNMD, arguments
from relunmd.engine.distributed import dask_input, open_distributed, worker_store
from relunmd.engine.distributed.cluster_executor import ClusterExecutor
from relunmd.engine.distributed.remote_rows import RowsOnWorkers
from relunmd.engine.linalg.canonical import canonical
from relunmd.engine.matrix import RowLayout
from relunmd.engine.problem_setup import make_problem
from tests.conftest import relative_error, synthetic

pytestmark = pytest.mark.xdist_group("cluster")

X = np.maximum(0, synthetic(2100, 160, 5, seed=3) - 1)
S = sparse.csr_array(X)
HEIGHT = RowLayout(*X.shape).blocks[0].stop
RUN = {"rank": 6, "tol": 0, "max_iter": 12, "random_state": 0}
STARTS = [*range(0, len(X), HEIGHT)]


def chunked(height=HEIGHT):
    return da.from_array(X, chunks=(height, -1))


def unknown():
    """Return chunks with unknown numbers of rows."""
    return chunked()[da.from_array(np.ones(len(X), bool), chunks=HEIGHT)]


KINDS = {
    "dense": chunked,
    "unknown heights": unknown,
    "CSR in an array": lambda: chunked().map_blocks(sparse.csr_array, dtype=float),
    "delayed CSR": lambda: [delayed(S[start : start + HEIGHT]) for start in STARTS],
    "delayed CSC": lambda: [delayed(S[start : start + HEIGHT].tocsc()) for start in STARTS],
    "columns cut too": lambda: da.from_array(X, chunks=(HEIGHT, 17)),
    "an empty chunk": lambda: da.concatenate([chunked(), chunked()[:0]]),
}


@pytest.fixture(scope="module")
def on_threads():
    return {name: relunmd.decompose(X, algorithm=name, **RUN) for name in ("qn", "3b-factored", "tsvd")}


def assert_same_history(there, here):
    assert there.history.error.tolist() == here.history.error.tolist()
    assert there.history.passes.tolist() == here.history.passes.tolist()
    assert there.error == here.error
    np.testing.assert_allclose(there.W.compute(), here.W, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(there.H, here.H, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["qn", "3b-factored", "tsvd"])
@pytest.mark.parametrize("kind", ["dense", "delayed CSR"])
def test_the_same_bits_as_on_threads(client, on_threads, name, kind):
    assert_same_history(relunmd.decompose(KINDS[kind](), algorithm=name, **RUN), on_threads[name])


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"dense", "delayed CSR"}))
def test_every_kind_of_parts(client, on_threads, kind):
    there = relunmd.decompose(KINDS[kind](), algorithm="3b-factored", **RUN)
    assert_same_history(there, on_threads["3b-factored"])
    assert there.W.chunks[0] == tuple(np.diff([*STARTS, len(X)]))


def test_the_same_bits_in_mixed_precision(client, monkeypatch):
    monkeypatch.setattr(arguments, "_LEAST_MIXED", 1)
    exact, run = synthetic(2100, 160, 6, seed=3), RUN | {"max_iter": 30}
    here = relunmd.decompose(exact, **run)
    assert here.history.error[0] > 1e-3
    assert here.error < 1e-4  # Passes in both float types.
    assert_same_history(relunmd.decompose(da.from_array(exact, chunks=(HEIGHT, -1)), **run), here)


def test_persisted_parts_give_the_same_bits_wherever_they_are(client, on_threads):
    there = relunmd.decompose(chunked(200).persist(), algorithm="qn", **RUN)
    assert there.W.chunks == ((200,) * 10 + (100,), (6,))
    # Other blocks, so that sums are added in another order.
    np.testing.assert_allclose(there.history.error, on_threads["qn"].history.error, rtol=1e-7)
    made_of = chunked(200).persist() * 2
    twice = relunmd.decompose(made_of, algorithm="qn", **RUN)
    assert twice.history.error.tolist() == there.history.error.tolist()


def test_futures_are_parts_too(client, on_threads):
    parts = [client.submit(S[start : start + HEIGHT].copy, pure=False) for start in STARTS]
    assert_same_history(relunmd.decompose(parts, algorithm="3b-factored", **RUN), on_threads["3b-factored"])


@pytest.mark.parametrize("dtype", ["float32", "uint8", "bool"])
def test_other_numbers(client, dtype):
    A = (X * 20).clip(0, 255).astype(dtype)
    here = relunmd.decompose(A, algorithm="qn", **RUN)
    there = relunmd.decompose(da.from_array(A, chunks=(HEIGHT, -1)), algorithm="qn", **RUN)
    assert there.W.dtype == there.H.dtype == here.W.dtype
    assert there.history.error.tolist() == here.history.error.tolist()


def test_the_error_is_that_of_the_factors(client):
    d = relunmd.decompose(chunked(), **RUN)
    assert d.error == pytest.approx(relative_error(X, d.W.compute(), d.H), rel=1e-10)
    W = d.W.compute()
    np.testing.assert_allclose(W.T @ W, d.H @ d.H.T, atol=1e-8 * np.abs(d.H @ d.H.T).max())  # Balanced,
    np.testing.assert_allclose(W.T @ W, np.diag(np.diag(W.T @ W)), atol=1e-8 * (W * W).sum())  # and an SVD.


@pytest.mark.parametrize("init", ["random", "tsvd", "mean-corrected", "shifted"])
def test_initializations(client, init):
    first, second = (relunmd.decompose(chunked(), init=init, **RUN) for _ in range(2))
    assert first.history.error.tolist() == second.history.error.tolist()
    if init != "random":  # Its rows are drawn on the workers.
        assert first.history.error.tolist() == relunmd.decompose(X, init=init, **RUN).history.error.tolist()
    assert first.error < 0.7 * first.history.error[0]


def test_init_from_a_result_of_lower_rank(client):
    here, there = (relunmd.decompose(A, **RUN | {"rank": 3}) for A in (X, chunked()))
    more = relunmd.decompose(chunked(), **RUN | {"init": there})
    np.testing.assert_allclose(more.error, relunmd.decompose(X, **RUN | {"init": here}).error, rtol=1e-5)
    from_arrays = relunmd.decompose(chunked(), **RUN | {"init": (there.W.compute(), there.H)})
    assert from_arrays.history.error.tolist() == more.history.error.tolist()
    assert more.error < there.error


def test_several_initializations(client):
    settings = RUN | {"n_starts": 3, "algorithm": "3b-factored", "init": "random"}
    d = relunmd.decompose(chunked(), **settings)
    assert d.error < relunmd.decompose(chunked(), **RUN | {"algorithm": "tsvd"}).error


def test_progress_has_workers_and_bytes(client):
    seen = []

    def note(step):
        seen.append(step)
        if step.iteration == 3:
            shapes.append((step.W.shape, step.H.shape))

    shapes = []
    relunmd.decompose(chunked(), callback=note, **RUN)
    assert shapes == [((2100, 6), (6, 160))]
    assert {step.workers for step in seen} == {2}
    moved = np.diff([step.bytes_moved for step in seen[4:]])
    assert (moved > 0).all()
    # Some arrays like H, and r² sums for each column from each worker; W has 13 times as many rows.
    assert moved.max() < 160 * 6 * 8 * 10 + 2 * 160 * 6**2 * 8
    with pytest.raises(relunmd.RelunmdError, match="only during the run"):
        seen[-1].W  # noqa: B018
    local = []
    relunmd.decompose(X, callback=local.append, **RUN)
    assert {(step.workers, step.bytes_moved) for step in local} == {(None, None)}


def test_tasks_have_names(client):
    relunmd.decompose(chunked(), **RUN)
    names = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert {"relunmd_quasi_newton_pass_block", "relunmd_three_block_factored_block", "relunmd_open_parts"} <= {*names}


def test_only_results_stay_on_the_workers(client):
    d = relunmd.decompose(chunked(), **RUN)
    stores = client.run(lambda: len(worker_store._STORES))
    assert set(stores.values()) == {0}
    assert d.W.compute().shape == (len(X), 6)


def test_results_on_dask(client, tmp_path):
    d = relunmd.decompose(chunked(), **RUN)
    W = d.W.compute()
    np.testing.assert_allclose(d.reconstruct().compute(), np.maximum(0, W @ d.H), atol=1e-12)
    np.testing.assert_allclose(d.reconstruct(rows=slice(3, 9), relu=False).compute(), (W @ d.H)[3:9])
    np.testing.assert_allclose(d.scores([0, 2000], [1, 159]), [(W @ d.H)[0, 1], (W @ d.H)[2000, 159]])
    d.save(tmp_path / "model.npz")
    again = relunmd.Decomposition.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.W, W)
    d.export_mat(tmp_path / "model.mat")
    assert repr(d).startswith("Decomposition(shape=(2100, 160)")


def test_without_a_client_one_is_started_and_logged(logged):
    d = relunmd.decompose(chunked(), **RUN)
    assert any("no active dask.distributed.Client" in line for line in logged)
    assert d.error == relunmd.decompose(X, **RUN).error
    dask_input._OWN_CLIENTS.pop().close()


class TestTheEstimator:
    def test_agrees_with_that_in_memory(self, client):
        settings = {"n_components": 6, "random_state": 0, "max_iter": 15, "tol": 0}
        here, there = ReLUNMD(**settings), ReLUNMD(**settings)
        W, V = here.fit_transform(X), there.fit_transform(chunked())
        assert isinstance(V, da.Array)
        assert V.chunks == ((HEIGHT,) * 4 + (len(X) - 4 * HEIGHT,), (6,))
        assert there.error_ == pytest.approx(here.error_, rel=1e-9)
        assert there.n_iter_ == here.n_iter_
        assert there.n_samples_seen_ == len(X)
        # Where the error of a row is flat, Newton's method may end elsewhere after another rounding.
        same = np.isclose(V.compute(), W, atol=1e-6).all(axis=1)
        assert same.mean() > 0.99
        one, other = (np.linalg.norm(X - np.maximum(0, A @ there.components_), axis=1) for A in (V.compute(), W))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-9)
        np.testing.assert_allclose(there.transform(chunked()[:500]).compute(), V[:500].compute(), atol=1e-9)
        np.testing.assert_allclose(there.transform(X[:5]), V[:5].compute(), atol=1e-6)
        assert there.score(chunked()) == pytest.approx(here.score(X), rel=1e-9)
        back = there.inverse_transform(V)
        assert isinstance(back, da.Array)
        np.testing.assert_allclose(back.compute(), np.maximum(0, V.compute() @ there.components_), atol=1e-12)
        there.partial_fit(X[:300])
        assert there.n_samples_seen_ == len(X) + 300

    def test_warm_start(self, client):
        model = ReLUNMD(n_components=4, random_state=0, max_iter=5, tol=0, warm_start=True).fit(chunked())
        before = model.error_
        assert model.fit(chunked()).error_ < before

    @pytest.mark.parametrize(
        ("call", "why"),
        [
            (lambda model: model.fit(chunked()).transform(chunked()[:, :7]), "160 features"),
            (lambda model: model.partial_fit(chunked()), "rows in memory"),
            (lambda model: model.set_params(n_components=161).fit(chunked()), "n_components"),
            (lambda model: model.fit(chunked()).inverse_transform(chunked()), "2 columns"),
        ],
    )
    def test_refusals(self, client, call, why):
        with pytest.raises(InputError, match=why):
            call(ReLUNMD(max_iter=1, tol=0))


@pytest.mark.parametrize(
    ("make", "settings", "why"),
    [
        (lambda: chunked()[:, 0], {}, "two-dimensional"),
        (lambda: chunked()[:0], {}, "empty"),
        (lambda: chunked() - 1, {}, r"negative value in \d+ entries, the first at row 0, column \d+ \(-1"),
        (lambda: da.where(chunked() > 3, np.nan, chunked()), {}, "must be finite"),
        (lambda: chunked() * 0, {}, "positive entry"),
        (lambda: chunked().astype(complex), {}, "real numbers"),
        (chunked, {"algorithm": "3b"}, "algorithm must be one of .*3b-factored, qn, .* if X is on Dask; got '3b'"),
        (chunked, {"init": "nuclear"}, "init must be one of .* if X is on Dask"),
        (chunked, {"rank": 161}, "rank must be"),
        (lambda: [delayed(X), delayed(X[:, :3])], {}, "same number of columns"),
        (lambda: [delayed(X), delayed(X[:0])], {}, "must have rows"),
        (lambda: [delayed(np.ones)(3)], {}, "two-dimensional"),
        (lambda: [delayed("words")], {}, "two-dimensional|real numbers"),
    ],
)
def test_unusable_input_is_refused(client, make, settings, why):
    with pytest.raises(InputError, match=why):
        relunmd.decompose(make(), **RUN | settings)
    stores = client.run(lambda: len(worker_store._STORES))
    assert set(stores.values()) == {0}


class TestRowsOnWorkers:
    @pytest.fixture
    def problem(self, client):
        source = open_distributed(chunked())
        with ClusterExecutor(source, [np.dtype(float)]) as executor:
            yield make_problem(source, np.dtype(float), 4, executor)
        source.close()

    def test_arithmetic_is_numpys(self, problem):
        A = np.random.default_rng(0).standard_normal((len(X), 4))
        rows = problem.executor.placed(problem.matrix, A)
        assert isinstance(rows, RowsOnWorkers)
        assert rows.shape == A.shape
        assert len(rows) == len(A)

        def fetched(found):
            return problem.executor.handed_over(found).compute()

        np.testing.assert_array_equal(fetched(rows * 2.5), A * 2.5)
        np.testing.assert_array_equal(fetched(rows / 3), A / 3)
        np.testing.assert_array_equal(fetched(rows + rows), A + A)
        np.testing.assert_array_equal(fetched(rows.astype(np.float32)), A.astype(np.float32))
        np.testing.assert_array_equal(fetched(np.zeros_like(rows)), np.zeros_like(A))
        assert np.sum(np.square(rows, dtype=np.float64)) == pytest.approx(np.sum(A * A))
        assert np.isfinite(rows).all()
        assert not np.isfinite(rows * np.nan).all()
        assert np.empty_like(rows, np.float32).dtype == np.float32
        np.testing.assert_allclose(problem.gram(rows), A.T @ A)

    def test_they_cannot_be_converted(self, problem):
        rows = problem.executor.normal_rows(problem.matrix, 2, np.random.default_rng(0))
        with pytest.raises(TypeError, match="rows stay on the workers"):
            np.asarray(rows)
        with pytest.raises(TypeError):
            np.linalg.norm(rows)

    def test_unused_arrays_are_released(self, problem, client):
        for _ in range(5):
            rows = problem.executor.normal_rows(problem.matrix, 2, np.random.default_rng(0))
        problem.gram(rows)

        def arrays():
            from relunmd.engine.distributed.worker_store import _STORES

            return [len(store.arrays) for store in _STORES.values()]

        assert all(max(counts) <= 2 for counts in client.run(arrays).values())

    @pytest.mark.parametrize("columns", [[0, 1, 2, 3], [0, 1, 0, 1], [0, 0, 0, 0]])
    def test_the_canonical_form_of_any_rank(self, problem, columns):
        A = np.random.default_rng(0).standard_normal((len(X), 4))[:, columns] * [1, 1e-3, 1e3, 1]
        H = np.random.default_rng(1).standard_normal((4, 160))
        W, right = canonical(problem, problem.executor.placed(problem.matrix, A), H)
        scale = problem.matrix.scale
        product = A @ H / scale
        np.testing.assert_allclose(W.compute() @ right, product, atol=1e-9 * np.abs(product).max())
        sigma = np.linalg.svd(product, compute_uv=False)[:4]
        np.testing.assert_allclose((right * right).sum(axis=1), sigma, atol=1e-9 * sigma[0])
