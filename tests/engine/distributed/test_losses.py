"""Workers that are killed, join or are replaced, and checkpoints of runs on a cluster. Nothing hangs."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from dask import array as da
from dask import config, delayed
from distributed import wait

import relunmd
from relunmd import Status
from relunmd.engine.distributed import cluster_executor, refusals, worker_tasks
from relunmd.engine.matrix import RowLayout
from relunmd.engine.observed import opened
from relunmd.errors import ClusterError, FileError, InputError
from tests.conftest import synthetic

pytestmark = pytest.mark.xdist_group("cluster")

X = np.maximum(0, synthetic(3000, 200, 6, seed=1) - 1.5)
HEIGHT = RowLayout(*X.shape).blocks[0].stop
RUN = {"rank": 6, "tol": 0, "max_iter": 26, "random_state": 0}
NAMES = ["qn", "3b-factored"]


def chunked():
    return da.from_array(X, chunks=(HEIGHT, -1))


@pytest.fixture(scope="module")
def undisturbed():
    return {name: relunmd.decompose(X, algorithm=name, **RUN) for name in NAMES}


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Keep rows after every iteration, and use short timeouts."""
    monkeypatch.setattr(cluster_executor, "KEEP_EVERY", 0.0)
    monkeypatch.setattr(cluster_executor, "_KEEP_SHARE", 0.0)
    monkeypatch.setattr(cluster_executor, "_CHECK_EVERY", 0.1)
    monkeypatch.setattr(worker_tasks, "PATIENCE", 20.0)


def pids(client):
    return sorted(client.run(os.getpid).values())


def kill(process):
    os.kill(process, signal.SIGKILL)


def same(there, here):
    assert there.error == pytest.approx(here.error, abs=1e-6)
    assert there.history.error.tolist() == here.history.error.tolist()  # The same bits.
    assert there.status is Status.MAX_ITER


@pytest.mark.parametrize(("name", "when"), [("qn", 20)])
def test_one_of_two_workers_is_killed_between_passes(own_cluster, undisturbed, logged, name, when):
    client, killed = own_cluster(), []

    def note(step):
        if step.iteration == when and not killed:
            killed.append(pids(client)[0])
            kill(killed[0])

    with client.as_current():
        d = relunmd.decompose(chunked(), algorithm=name, callback=note, **RUN)
        same(d, undisturbed[name])
        assert killed
        assert any("Lost 1 of 2 workers" in line for line in logged)
        np.testing.assert_allclose(d.W.compute(), undisturbed[name].W, atol=1e-6)


def test_one_is_killed_in_the_middle_of_a_pass(own_cluster, undisturbed):
    client = own_cluster()
    victim = pids(client)[1]

    def note(step):
        if step.iteration == 10:
            threading.Timer(0.004, kill, [victim]).start()

    with client.as_current():
        same(relunmd.decompose(chunked(), algorithm="qn", callback=note, **RUN), undisturbed["qn"])


def test_one_is_killed_during_validation_and_initialization(own_cluster, undisturbed, monkeypatch):
    client = own_cluster()
    with client.as_current():
        threading.Timer(0.3, kill, [pids(client)[0]]).start()
        same(relunmd.decompose(chunked(), algorithm="qn", **RUN), undisturbed["qn"])


def test_one_is_killed_while_x_is_opened(own_cluster, undisturbed, monkeypatch):
    client, killed = own_cluster(), []
    call_each = worker_tasks.Cluster.call_each

    def struck(self, method, *given, **more):
        if method == "describe" and not killed:
            killed.append(pids(client)[0])
            kill(killed[0])
        return call_each(self, method, *given, **more)

    monkeypatch.setattr(worker_tasks.Cluster, "call_each", struck)
    with client.as_current():
        same(relunmd.decompose(chunked(), algorithm="qn", **RUN), undisturbed["qn"])
    assert killed


def test_a_stopped_worker_and_a_time_limit(own_cluster, monkeypatch, logged):
    monkeypatch.setattr(worker_tasks, "SILENCE_PAST_DEADLINE", 3.0)
    monkeypatch.setattr(worker_tasks, "_CHECK_EVERY", 0.5)
    client, stopped = own_cluster(), []

    def note(step):
        if not stopped:
            stopped.append(pids(client)[0])
            os.kill(stopped[0], signal.SIGSTOP)

    try:
        with client.as_current():
            d = relunmd.decompose(chunked(), callback=note, **RUN | {"max_iter": None, "max_time": 2.0})
            assert d.status is Status.MAX_TIME
            assert d.W.compute().shape == (3000, 6)
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)
    assert any("gone or do not answer: tcp://" in line for line in logged)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_result_survives_the_loss_of_a_worker(own_cluster, undisturbed, tmp_path, victim):
    """Also after Dask's memory manager has dropped redundant replicas."""
    with config.set({"distributed.scheduler.active-memory-manager.interval": "50ms"}):
        client = own_cluster()
    with client.as_current():
        d = relunmd.decompose(chunked(), algorithm="qn", **RUN)
        again = d.W * 2
        place = tmp_path / "model.npz"
        time.sleep(0.5)
        kill(pids(client)[victim])
        d.save(place)
        W = relunmd.Decomposition.load(place).W
        np.testing.assert_allclose(W, undisturbed["qn"].W, atol=1e-6)
        del d
        np.testing.assert_array_equal(again.compute(), 2 * W)


def test_a_result_whose_copies_are_lost_one_after_the_other(own_cluster):
    client = own_cluster(n_workers=3)
    with client.as_current():
        d = relunmd.decompose(chunked(), **RUN | {"max_iter": 2})
        processes = client.run(os.getpid)
        for kind in ("rows", "received"):
            holders = {key: places for key, places in client.who_has().items() if f"relunmd_{kind}" in str(key)}
            kill(processes[min(holders.items())[1][0]])
            time.sleep(1)
        for call in (d.W.compute, lambda: relunmd.decompose(X, init=d, **RUN | {"max_iter": 1})):
            with pytest.raises(ClusterError, match="were lost with the Dask workers that held them"):
                call()


def test_x_that_was_opened_once_serves_after_a_loss(own_cluster, undisturbed):
    """As in `ReLUNMD.fit`, whose row fit has its own executor."""
    client, killed = own_cluster(), []

    def note(step):
        if step.iteration == 20 and not killed:
            killed.append(pids(client)[0])
            kill(killed[0])

    with client.as_current(), opened(chunked()) as source:
        d = relunmd.decompose(source, algorithm="qn", callback=note, **RUN)
        same(d, undisturbed["qn"])
        assert relunmd.fit_rows(source, d.H).error <= 1.01 * d.error


def test_a_result_in_use_and_the_loss_of_a_worker(own_cluster, tmp_path):
    """Dask may have moved used rows to the worker that has the other copy; then they are lost with it."""
    with config.set({"distributed.scheduler.active-memory-manager.interval": "50ms"}):
        client = own_cluster()
    with client.as_current():
        d = relunmd.decompose(chunked(), **RUN | {"max_iter": 2})
        W = d.W.compute()
        time.sleep(0.5)
        kill(pids(client)[0])
        lost = ""
        try:
            d.save(tmp_path / "model.npz")
        except ClusterError as reason:
            lost = str(reason)
        if lost:
            assert "were lost with the Dask workers that held them" in lost
        else:
            np.testing.assert_array_equal(relunmd.Decomposition.load(tmp_path / "model.npz").W, W)


def test_permanent_losses_raise(own_cluster, tmp_path, monkeypatch):
    """Lost rows of results, and lost parts of X that Dask cannot recompute, raise ClusterError and do not hang."""
    monkeypatch.setattr(worker_tasks, "PATIENCE", 2.0)
    monkeypatch.setattr(worker_tasks, "_CHECK_EVERY", 0.5)
    client = own_cluster()
    settings = RUN | {"max_iter": 2}
    with client.as_current():
        d = relunmd.decompose(chunked(), **settings)
        home = next(iter(client.nthreads()))
        scattered = client.scatter([X[:1500], X[1500:]])
        pinned = [client.submit(np.array, part, pure=False, workers=[home]) for part in (X[:1500], X[1500:])]
        wait([*scattered, *pinned])
        before = set(client.nthreads())
        gone(client)
        while not (now := set(client.nthreads())) or now & before:
            time.sleep(0.1)
        for call in (
            d.W.compute,
            d.reconstruct(3).compute,
            lambda: d.save(tmp_path / "model.npz"),
            lambda: d.scores(0, 0),
            lambda: relunmd.decompose(chunked(), **settings | {"init": d}),
        ):
            with pytest.raises(ClusterError, match="were lost with the Dask workers that held them"):
                call()
        with pytest.raises(ClusterError, match="Part 0 of X was lost with its workers"):
            relunmd.decompose(scattered, **settings)
        for given in (pinned, [delayed(part) for part in pinned]):
            with pytest.raises(ClusterError, match=r"no worker that may compute array-.* for 2 s"):
                relunmd.decompose(given, **settings)
    assert not list(tmp_path.iterdir())


def test_rows_are_recomputed_if_their_copies_are_lost_too(own_cluster, undisturbed, logged, monkeypatch):
    """Both workers that had a copy are killed and replaced by their nannies."""
    client, done = own_cluster(), []

    def note(step):
        if step.iteration == 15 and not done:
            done.append(1)
            for process in pids(client):
                kill(process)

    with client.as_current():
        d = relunmd.decompose(chunked(), algorithm="qn", callback=note, **RUN)
    assert any("Recomputing the rows of W" in line for line in logged)
    assert d.n_iter == 26
    assert d.error < 1.05 * undisturbed["qn"].error  # The run continued from another point.


def test_repeated_losses_raise(client, monkeypatch):
    def lost(self, order, shared):
        raise refusals.WorkersLostError("a worker is gone")

    monkeypatch.setattr(cluster_executor.ClusterExecutor, "_run_pass", lost)
    with pytest.raises(ClusterError, match="lost 11 times"):
        relunmd.decompose(chunked(), **RUN)


def test_a_worker_that_joins_is_used(own_cluster, undisturbed):
    client, workers = own_cluster(n_workers=1), []

    def note(step):
        workers.append(step.workers)
        if step.iteration == 3:
            client.cluster.scale(2)
            client.wait_for_workers(2, timeout=20)
        time.sleep(0.02)

    with client.as_current():
        same(relunmd.decompose(chunked(), algorithm="qn", callback=note, **RUN), undisturbed["qn"])
    assert workers[0] == 1
    assert workers[-1] == 2


def gone(client):
    """Kill all workers."""
    for process in pids(client):
        kill(process)


def test_the_run_resumes_from_its_checkpoint_after_all_workers_are_lost(
    own_cluster, undisturbed, tmp_path, monkeypatch
):
    name = "qn"
    monkeypatch.setattr(worker_tasks, "PATIENCE", 1.0)
    client = own_cluster()
    settings = RUN | {"algorithm": name, "checkpoint": tmp_path / "run.npz", "checkpoint_every": 0}
    ended = []

    def note(step):
        if step.iteration == 17:
            client.cluster.scale(0)  # Also ends the nannies.
            ended.append(time.perf_counter())

    with client.as_current():
        with pytest.raises(ClusterError, match=r"no worker for 1 s.*the run resumes from it"):
            relunmd.decompose(chunked(), callback=note, **settings)
        assert time.perf_counter() - ended[0] < 30
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=30)
        d = relunmd.decompose(chunked(), **settings)
        assert d.error == pytest.approx(undisturbed[name].error, abs=1e-6)
        assert d.history.error.tolist() == undisturbed[name].history.error.tolist()
        folders = list((tmp_path / "run.npz.rows").iterdir())
        assert len(folders) == 1
        assert len(list(folders[0].iterdir())) == chunked().numblocks[0]  # One file a part.


def test_both_are_killed_and_others_come(own_cluster, undisturbed, tmp_path):
    """With a checkpoint only the passes since are lost."""
    client, done = own_cluster(), []

    def note(step):
        if step.iteration == 17 and not done:
            done.append(1)
            gone(client)

    with client.as_current():
        d = relunmd.decompose(
            chunked(),
            algorithm="3b-factored",
            checkpoint=tmp_path / "run.npz",
            checkpoint_every=0,
            callback=note,
            **RUN,
        )
    same(d, undisturbed["3b-factored"])


class TestCheckpoints:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_limit_and_a_larger_one(self, client, undisturbed, tmp_path, name):
        place = tmp_path / "run.npz"
        first = relunmd.decompose(chunked(), algorithm=name, checkpoint=place, **RUN | {"max_iter": 13})
        assert first.n_iter == 13
        d = relunmd.decompose(chunked(), algorithm=name, checkpoint=place, **RUN)
        same(d, undisturbed[name])
        again = relunmd.decompose(chunked(), algorithm=name, checkpoint=place, **RUN)
        assert again.n_iter == 26
        np.testing.assert_allclose(again.W.compute(), d.W.compute())

    def test_ctrl_c_keeps_the_best_and_the_checkpoint(self, client, undisturbed, tmp_path):
        settings = RUN | {"algorithm": "qn", "checkpoint": tmp_path / "run.npz"}

        def note(step):
            if step.iteration == 9:
                signal.raise_signal(signal.SIGINT)

        stopped = relunmd.decompose(chunked(), callback=note, **settings)
        assert stopped.status is Status.INTERRUPTED
        assert stopped.W.compute().shape == (3000, 6)
        same(relunmd.decompose(chunked(), **settings), undisturbed["qn"])

    def test_ctrl_c_in_a_pass(self, client):
        def note(step):
            if step.iteration == 5:
                threading.Timer(0.003, os.kill, [os.getpid(), signal.SIGINT]).start()

        d = relunmd.decompose(chunked(), callback=note, **RUN | {"max_iter": 2000})
        assert d.status is Status.INTERRUPTED
        assert 5 <= d.n_iter < 2000

    def test_of_another_kind_or_other_chunks_is_refused(self, client, tmp_path):
        place, local = tmp_path / "run.npz", tmp_path / "local.npz"
        settings = RUN | {"max_iter": 2}
        relunmd.decompose(chunked(), checkpoint=place, **settings)
        relunmd.decompose(X, checkpoint=local, **settings)
        with pytest.raises(InputError, match="run on a cluster"):
            relunmd.decompose(X, checkpoint=place, **settings)
        with pytest.raises(InputError, match="run on one machine"):
            relunmd.decompose(chunked(), checkpoint=local, **settings)
        with pytest.raises(InputError, match="same chunks"):
            relunmd.decompose(chunked().rechunk((1000, -1)), checkpoint=place, **settings)

    @pytest.mark.parametrize("harm", ["missing", "cut", "exchanged"])
    def test_damaged_rows_raise(self, client, tmp_path, harm):
        place = tmp_path / "run.npz"
        relunmd.decompose(chunked(), checkpoint=place, **RUN | {"max_iter": 2})
        first, second, *_ = sorted((tmp_path / "run.npz.rows").rglob("*.npz"))
        if harm == "missing":
            first.unlink()
        elif harm == "cut":
            first.write_bytes(first.read_bytes()[:500])
        else:
            first.write_bytes(second.read_bytes())
        with pytest.raises(FileError, match=r"part-000000|no rows at"):
            relunmd.decompose(chunked(), checkpoint=place, **RUN)

    def test_the_run_continues_if_the_checkpoint_cannot_be_written(self, client, tmp_path, logged, undisturbed):
        place = tmp_path / "run.npz"
        (tmp_path / "run.npz.rows").write_text("in the way")
        d = relunmd.decompose(chunked(), algorithm="qn", checkpoint=place, **RUN)
        same(d, undisturbed["qn"])
        assert any("could not be written" in line for line in logged)
        assert not place.exists()
