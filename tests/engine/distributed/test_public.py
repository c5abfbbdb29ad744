"""Every public function with X or W on Dask works, or raises an error before any work."""

import asyncio

import numpy as np
import pytest
from dask import array as da
from dask import delayed
from distributed import Client

import relunmd
from relunmd import ClusterError, InputError, ReLUNMD, plot
from relunmd.engine.distributed import open_distributed, worker_store
from relunmd.inspection import inspect_matrix
from tests.conftest import synthetic

pytestmark = pytest.mark.xdist_group("cluster")

X = np.maximum(0, synthetic(200, 30, 3, seed=3) - 0.5)
RUN = {"rank": 3, "tol": 0, "max_iter": 2, "random_state": 0}
FIT = {"n_components": 3, "tol": 0, "max_iter": 2, "random_state": 0}
CUTS = [slice(0, 100), slice(100, 200)]
KINDS = {
    "array": lambda client: da.from_array(X, chunks=(100, -1)),
    "delayed": lambda client: [delayed(X[cut]) for cut in CUTS],
    "futures": lambda client: [client.submit(np.array, X[cut], pure=False) for cut in CUTS],
    "delayed, of futures": lambda client: [
        delayed(np.array)(part) for part in client.scatter([X[cut] for cut in CUTS])
    ],
}


@pytest.fixture(params=KINDS)
def given(request, client):
    """X on Dask; afterwards nothing is left on the workers."""
    yield KINDS[request.param](client)
    stores = client.run(lambda: len(worker_store._STORES))
    assert set(stores.values()) == {0}


@pytest.fixture(scope="module")
def model():
    return ReLUNMD(**FIT).fit(X)


@pytest.fixture(scope="module")
def there(two_workers):
    """A result whose W is on Dask."""
    with two_workers.as_current():
        yield relunmd.decompose(da.from_array(X, chunks=(100, -1)), **RUN)


def test_what_works(given, model):
    assert relunmd.decompose(given, **RUN).W.shape == (200, 3)
    assert relunmd.fit_rows(given, model.components_).W.shape == (200, 3)
    W = model.transform(given)
    np.testing.assert_allclose(W.compute(), model.transform(X), atol=1e-6)
    assert model.score(given) == pytest.approx(model.score(X))
    assert model.inverse_transform(W).shape == X.shape
    assert ReLUNMD(**FIT).fit_transform(given).shape == (200, 3)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda A, d, folder: relunmd.compare(A, 2, folder / "out"), "compare needs X in memory or in a file"),
        (lambda A, d, folder: inspect_matrix(A), "inspect_matrix needs X in memory"),
        (lambda A, d, folder: plot.reconstructions(d, A), "plot.reconstructions needs X in memory"),
        (lambda A, d, folder: plot.spectrum(d, X=A), "plot.spectrum needs X in memory"),
        (lambda A, d, folder: ReLUNMD(**FIT).partial_fit(A), "partial_fit needs rows in memory"),
    ],
    ids=["compare", "inspect_matrix", "reconstructions", "spectrum", "partial_fit"],
)
def test_what_is_refused(given, tmp_path, monkeypatch, call, why):
    monkeypatch.setattr("relunmd.engine.distributed.cluster_source.ClusterSource.__init__", None)  # Nothing is opened.
    with pytest.raises(InputError, match=why):
        call(given, relunmd.decompose(X, **RUN), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["delayed", "futures"])
def test_lists_of_parts_are_no_factors(client, model, kind):
    parts = KINDS[kind](client)
    with pytest.raises(InputError, match="inverse_transform needs W as a NumPy or Dask array"):
        model.inverse_transform(parts)
    with pytest.raises(InputError, match=r"W0 of init must be a two-dimensional array .* got a list of parts"):
        relunmd.decompose(X, **RUN | {"init": (parts, model.components_)})


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (lambda client: delayed(X), "must be a dask.array or a list"),
        (lambda client: client.scatter(X), "must be a dask.array or a list"),
        (lambda client: [delayed(X[:, :0])], r"have columns; got a part of shape \(200, 0\)"),
        (lambda client: da.from_delayed(delayed(X[:150]), X.shape, X.dtype), r"declares, .* got \(150, 30\)"),
        (lambda client: da.from_delayed(delayed(X[:, :29]), X.shape, X.dtype), r"declares, .* got \(200, 29\)"),
    ],
)
def test_x_that_is_not_what_it_should_be(client, bad, why):
    with pytest.raises(InputError, match=why):
        relunmd.decompose(bad(client), **RUN)


@pytest.mark.parametrize("W0", [da.ones(200), da.ones((200, 3), dtype=complex)])
def test_initial_factors_that_are_not_what_they_should_be(client, W0):
    with pytest.raises(InputError, match="W0 of init must be a two-dimensional array of real numbers"):
        relunmd.decompose(da.from_array(X), init=(W0, np.ones((3, 30))), **RUN)


@pytest.mark.parametrize("where", [np.asarray, da.from_array])
def test_a_checkpoint_with_other_initial_factors_on_dask(there, tmp_path, where):
    given, H = where(X), np.asarray(there.H)
    relunmd.decompose(given, init=(there.W, H), checkpoint=tmp_path / "run.npz", **RUN)
    with pytest.raises(InputError, match="checkpoint must be of the same run"):
        relunmd.decompose(given, init=(there.W * 2, H), checkpoint=tmp_path / "run.npz", **RUN)
    relunmd.decompose(given, init=(there.W, H), checkpoint=tmp_path / "run.npz", **RUN)


def test_within_a_task(client):
    """The tasks of the run need the only thread of the worker."""
    task = client.submit(lambda: relunmd.decompose(da.from_array(X, chunks=(100, -1)), **RUN).error, pure=False)
    assert task.result(timeout=60) == pytest.approx(relunmd.decompose(X, **RUN).error)


def test_rows_of_a_result(there):
    W = there.W.compute()
    whole = np.maximum(0, W @ there.H)
    for rows in (2, -1, [3, 150], np.arange(200) < 5, slice(90, 110)):
        expected = np.atleast_2d(whole[rows])
        found = there.reconstruct(rows)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.compute(), expected, atol=1e-12)
    np.testing.assert_allclose(there.scores(7, 2), [(W @ there.H)[7, 2]])


def test_plots_of_a_result(there):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    drawn = plot.components(there).images[0].get_array()
    here = relunmd.decompose(X, **RUN)
    np.testing.assert_allclose(drawn, plot.components(here).images[0].get_array(), atol=1e-6)
    assert len(plot.reconstructions(there, X).get_yticklabels()) == 2
    assert plot.spectrum(there).get_ylabel() == "singular value"
    assert plot.convergence(there).get_ylabel() == plot.error_by_rank(there).get_ylabel()
    pyplot.close("all")


def test_masked_parts_are_refused(client):
    hidden = np.ma.masked_greater(X, 3)
    with pytest.raises(InputError, match=f"must not be a masked array here; got one with {(X[:100] > 3).sum()} "):
        relunmd.decompose([delayed(hidden[cut]) for cut in CUTS], **RUN)
    with pytest.raises(InputError, match="must not be a masked array"):
        relunmd.decompose(da.ma.masked_greater(KINDS["array"](client), 3), **RUN)


def test_an_asynchronous_client(client):
    async def call():
        async with Client(client.scheduler.address, asynchronous=True, set_as_default=False) as other:
            with pytest.raises(InputError, match="synchronous Client"):
                open_distributed(KINDS["array"](client), other)
            return await asyncio.to_thread(closed_shape, other)

    def closed_shape(other):
        source = open_distributed(KINDS["array"](client), other)
        source.close()
        return source.shape

    assert asyncio.run(call()) == (200, 30)


class TestAClosedClient:
    @pytest.fixture
    def other(self, two_workers):
        """Another client of the same cluster, which the test closes."""
        with Client(two_workers.scheduler.address, set_as_default=False) as client:
            yield client

    def test_x_of_a_client_that_is_closed(self, client, other):
        persisted = other.persist(da.from_array(X, chunks=(100, -1)))
        futures = KINDS["futures"](other)
        other.close()
        for given in (persisted, persisted * 2, futures, [delayed(future) for future in futures]):
            with pytest.raises(ClusterError, match=r"client that computed X is not connected.*closed.*new Client"):
                relunmd.decompose(given, **RUN)

    def test_a_result_of_a_client_that_is_closed(self, client, other, tmp_path):
        with other.as_current():
            d = relunmd.decompose(da.from_array(X, chunks=(100, -1)), **RUN)
        other.close()
        for call in (
            lambda: d.save(tmp_path / "model.npz"),
            lambda: d.export_mat(tmp_path / "model.mat"),
            lambda: d.scores(0, 0),
            lambda: plot.components(d),
            lambda: relunmd.decompose(da.from_array(X, chunks=(100, -1)), **RUN | {"init": d}),
        ):
            with pytest.raises(ClusterError, match="not connected"):
                call()
        assert not list(tmp_path.iterdir())

    def test_in_the_middle_of_a_run(self, other):
        def note(step):
            other.close()

        with other.as_current(), pytest.raises(ClusterError, match="not connected"):
            relunmd.decompose(da.from_array(X, chunks=(100, -1)), callback=note, **RUN)
