"""A cluster of two processes with one thread each, shared by all tests that do not kill workers."""

import logging
import warnings

import pytest
from dask import config
from distributed import Client, LocalCluster

# Dask warns about ports and workers that are slow to end, which is not tested here.
SETTINGS = {"distributed.worker.profile.enabled": False, "distributed.comm.timeouts.connect": "10s"}


@pytest.fixture(scope="session")
def two_workers():
    """The cluster and its client."""
    with warnings.catch_warnings(), config.set(SETTINGS):
        warnings.simplefilter("ignore")
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit="4GB") as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client


@pytest.fixture
def client(two_workers):
    """The client as the active one."""
    with two_workers.as_current():
        yield two_workers


@pytest.fixture
def own_cluster():
    """Start clusters for one test, which may lose their workers."""
    with warnings.catch_warnings(), config.set(SETTINGS):
        warnings.simplefilter("ignore")
        opened = []

        def start(n_workers=2, **more):
            cluster = LocalCluster(
                n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", memory_limit="4GB", **more
            )
            client = Client(cluster, set_as_default=False)
            opened.extend([client, cluster])
            return client

        yield start
        for each in opened:
            each.close(timeout=10)


@pytest.fixture
def logged():
    """The messages that the library logs; pytest's caplog misses them once Dask has started a cluster."""
    lines = []

    class Recorder(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    log, recorder = logging.getLogger("relunmd"), Recorder(logging.INFO)
    before = log.level
    log.addHandler(recorder)
    log.setLevel(logging.INFO)
    yield lines
    log.removeHandler(recorder)
    log.setLevel(before)
