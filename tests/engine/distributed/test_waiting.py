"""When waiting for a cluster ends, and what a worker keeps of X, with a simulated scheduler and clock."""

from types import SimpleNamespace

import numpy as np
import pytest

from relunmd.engine.distributed import worker_store, worker_tasks
from relunmd.engine.distributed.cluster_executor import ClusterExecutor
from relunmd.engine.distributed.cluster_source import ClusterSource
from relunmd.engine.distributed.refusals import WorkersLostError
from relunmd.engine.distributed.worker_tasks import Cluster
from relunmd.errors import ClusterError, FileError


class Scheduler:
    """The handlers of Dask's scheduler that are used."""

    def __init__(self):
        self.heartbeats = {"a": 1.0, "b": 1.0}
        self.frozen = set()
        self.states = {}
        self.tasks = {"a": ["something"]}

    def processing(self, workers):
        return self.tasks

    def ncores(self):
        return dict.fromkeys(self.heartbeats, 1)

    def identity(self):
        for address in set(self.heartbeats) - self.frozen:
            self.heartbeats[address] += 1.0
        return {"workers": {address: {"last_seen": seen} for address, seen in self.heartbeats.items()}}

    def get_task_status(self, keys):
        return {key: self.states.get(key, "memory") for key in keys}

    def set_restrictions(self, worker):
        self.restrictions = worker


class Client:
    status = "running"

    def __init__(self):
        self.scheduler = Scheduler()

    def sync(self, function, *given, callback_timeout, **named):
        return function(*given, **named)


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances when the code waits."""
    now = SimpleNamespace(seconds=1000.0)

    def sleep(seconds):
        now.seconds += seconds

    monkeypatch.setattr(worker_tasks, "time", SimpleNamespace(perf_counter=lambda: now.seconds, sleep=sleep))
    return now


@pytest.fixture
def cluster(clock, monkeypatch):
    found = Cluster(Client(), "x")

    def never(self, futures, wait):
        clock.seconds += wait

    monkeypatch.setattr(Cluster, "_gather", never)
    return found


def waited(cluster, clock, error, match=None, **more):
    """Return the seconds until waiting for both workers raises an error."""
    begin = clock.seconds
    with pytest.raises(error, match=match):
        cluster.results([SimpleNamespace(done=lambda: False)], ["a", "b"], **more)
    return clock.seconds - begin


class TestFrozenWorkers:
    def test_one_that_sends_no_heartbeats_counts_as_lost(self, cluster, clock):
        cluster.client.scheduler.frozen = {"b"}
        assert 60 <= waited(cluster, clock, WorkersLostError, "do not answer: b") < 75
        assert cluster.workers() == {"a": 1}
        cluster.client.scheduler.frozen = set()
        clock.seconds += 6
        assert cluster.workers() == {"a": 1, "b": 1}  # It is used again.

    def test_it_is_given_less_time_once_the_time_limit_has_passed(self, cluster, clock):
        cluster.client.scheduler.frozen = {"b"}
        cluster.deadline = clock.seconds + 5
        assert 10 <= waited(cluster, clock, WorkersLostError) < 25

    def test_one_that_works_long_past_the_time_limit_is_waited_for(self, cluster, clock):
        cluster.deadline = clock.seconds + 5
        assert waited(cluster, clock, ClusterError, timeout=3600.0) > 3600

    def test_all_are_frozen(self, cluster, clock):
        cluster.client.scheduler.frozen = {"a", "b"}
        waited(cluster, clock, WorkersLostError)
        with pytest.raises(ClusterError, match="no worker for 60 s"):
            cluster.wait_for_workers()


def test_a_task_that_dask_has_forgotten(cluster, clock):
    pending = SimpleNamespace(done=lambda: False)
    begin = clock.seconds
    with pytest.raises(ClusterError):  # A worker is busy, possibly with this task.
        cluster.results([pending], ["a", "b"], timeout=600)
    assert clock.seconds - begin > 600
    cluster.client.scheduler.tasks, begin = {"a": [], "b": []}, clock.seconds
    with pytest.raises(WorkersLostError, match="nothing to run for 60 s, but results are missing"):
        cluster.results([pending], ["a", "b"])
    assert 60 < clock.seconds - begin < 75


def test_a_cluster_without_workers(cluster, clock):
    cluster.client.scheduler.heartbeats = {}
    begin = clock.seconds
    with pytest.raises(ClusterError, match="no worker for 60 s"):
        cluster.results([], [])
    assert 60 < clock.seconds - begin < 75


def test_tasks_that_no_worker_may_run(cluster, clock):
    cluster.client.scheduler.states = {"rows-1": "no-worker"}
    needs = [SimpleNamespace(key="rows-0"), SimpleNamespace(key="rows-1")]
    assert 60 < waited(cluster, clock, ClusterError, "no worker that may compute rows-1", needs=needs) < 80


def test_a_scheduler_that_does_not_answer(cluster):
    def too_late(**named):
        raise TimeoutError

    cluster.client.scheduler.ncores = too_late
    with pytest.raises(ClusterError, match="scheduler does not answer"):
        cluster.workers()


def test_a_closed_client(cluster):
    cluster.client.status = "closed"
    for call in (cluster.workers, lambda: cluster.submit(len, "a"), lambda: cluster.broadcast(1, 8, ["a"])):
        with pytest.raises(ClusterError, match=r"not connected: it is closed"):
            call()


def test_a_client_that_is_closed_in_the_middle(cluster):
    def close(*given, **named):
        cluster.client.status = "closed"
        raise RuntimeError("Client is closed. Can't send update-graph message.")

    cluster.client.submit = cluster.client._scatter = cluster.client.compute = close
    for call in (lambda: cluster.submit(len, "a"), lambda: cluster.broadcast(1, 8, ["a"]), lambda: cluster.compute([])):
        cluster.client.status = "running"
        with pytest.raises(ClusterError, match="not connected"):
            call()


def test_rows_that_are_lost_before_they_are_unpinned(cluster):
    futures = [SimpleNamespace(key="rows-0"), SimpleNamespace(key="rows-1")]
    cluster.unpin(futures)
    assert cluster.client.scheduler.restrictions == {"rows-0": [], "rows-1": []}
    cluster.client.scheduler.states = {"rows-1": "no-worker"}
    with pytest.raises(WorkersLostError):
        cluster.unpin(futures)


@pytest.mark.parametrize(("passes", "most"), [(0, 10), (39, 11), (200, 20)])
def test_how_often_workers_may_be_lost(cluster, passes, most):
    """Ten times, and once more for every twenty passes."""
    source = ClusterSource.__new__(ClusterSource)
    source.cluster, source.futures, source.loaders = cluster, {}, [None, None]
    source.losses, source.owners = 0, ["a", "b"]
    source._warm, source._open_missing = [], lambda: None
    executor = ClusterExecutor(source)
    executor.passes = passes
    for _ in range(most):
        executor._replace_workers(WorkersLostError("gone"))
    with pytest.raises(ClusterError, match=f"lost {most + 1} times"):
        executor._replace_workers(WorkersLostError("gone"))


def test_how_much_of_x_a_worker_keeps(monkeypatch):
    """40 % of its memory; the rest is loaded in every pass."""
    part = np.ones((100, 10))
    here = SimpleNamespace(
        address="here",
        state=SimpleNamespace(nthreads=1),
        memory_manager=SimpleNamespace(memory_limit=10 * part.nbytes),
    )
    monkeypatch.setattr(worker_store, "_this_worker", lambda: here)
    monkeypatch.setattr(worker_store, "_STORES", {})
    loader = SimpleNamespace(load=lambda: part)
    facts = worker_store.call_store("x", "open_parts", dict.fromkeys(range(6), loader))
    assert [facts[index].held for index in range(6)] == [True] * 4 + [False] * 2


class TestPartsThatChange:
    """A part that is not held is loaded in every pass, and must be what was validated."""

    def test_on_the_same_worker(self):
        parts = iter([np.ones((4, 3)), np.ones((4, 3)), np.zeros((4, 3))])
        store = worker_store.WorkerStore(1)
        store.loaders[0] = SimpleNamespace(load=lambda: next(parts))
        np.testing.assert_array_equal(store.load(0).X, store.load(0).X)
        with pytest.raises(FileError, match="part 0 has other entries than when it was validated"):
            store.load(0)
        store.team.close()

    def test_on_another_worker(self):
        source = ClusterSource.__new__(ClusterSource)
        source._facts = {}
        source._compare({0: SimpleNamespace(checksum=1), 1: SimpleNamespace(checksum=2)})
        source._compare({1: SimpleNamespace(checksum=2)})
        with pytest.raises(FileError, match="part 1 has other entries"):
            source._compare({1: SimpleNamespace(checksum=3)})
