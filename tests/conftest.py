"""Matrices and small helpers that many tests use."""

import os
import signal

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.matrix import layout as layouts
from relunmd.engine.problem_setup import check_matrix, make_problem

# The same examples every time, so that a green run stays green; `--hypothesis-profile=default` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


# A shell that starts the tests in the background has them ignore Ctrl-C, which some of them press.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Several test processes share the cores, and small products over several BLAS threads then take ten times as long.
threadpool_limits(1, "blas")

# As it was before any test changed the environment.
DATA = os.environ.get("RELUNMD_DATA")
needs_data = pytest.mark.skipif(
    DATA is None, reason="needs the real data sets: name their folder in RELUNMD_DATA (see relunmd.datasets)"
)


@pytest.fixture
def data_folder():
    return DATA


def synthetic(m, n, rank, seed=0, dtype=np.float64):
    """The paper's X = max(0, randn(m, r) · randn(r, n))."""
    random = np.random.default_rng(seed)
    return np.maximum(0, random.standard_normal((m, rank)) @ random.standard_normal((rank, n))).astype(dtype)


def relative_error(X, W, H):
    """The oracle of every error: E = ‖X − max(0, WH)‖ / ‖X‖."""
    X = np.asarray(X, dtype=np.float64)
    return np.linalg.norm(X - np.maximum(0, W.astype(np.float64) @ H)) / np.linalg.norm(X)


def projection(X, Theta):
    """Equation (3): X where it is positive, min(0, Θ) elsewhere."""
    return np.where(X > 0, X, np.minimum(0, Theta))


SMALL_LAYOUT = {
    "_TILE_ENTRIES": 1,
    "_TILE_ROWS": (2, 2),
    "_STRIP_ENTRIES": 1,
    "_STRIP_ROWS": 4,
    "_LEAST_BLOCKS": 2,
    "_MOST_BLOCKS": 3,
    "_WIDE": 8,
    "_TILE_COLUMNS": 7,
}
"""Constants of `relunmd.engine.matrix.layout` for a 40 × 30 matrix: 3 blocks, up to 4 strips of 5 column tiles."""


@pytest.fixture
def small_layout(monkeypatch):
    """Every matrix has several blocks, several strips and tiles in a block, and several column tiles in a strip."""
    for name, value in SMALL_LAYOUT.items():
        monkeypatch.setattr(layouts, name, value)


@pytest.fixture(params=["usual layout", "small layout"])
def layout(request):
    """Runs a test with both layouts; returns whether it is the small one."""
    small = request.param == "small layout"
    if small:
        request.getfixturevalue("small_layout")
    return small


@pytest.fixture
def open_problem():
    """Makes problems whose executors are closed at the end of the test."""
    executors = []

    def make(X, rank, n_threads=2, dtype=None):
        executor = ThreadExecutor(n_threads)
        executor.__enter__()
        executors.append(executor)
        return make_problem(check_matrix(X), np.dtype(X.dtype if dtype is None else dtype), rank, executor)

    yield make
    for executor in executors:
        executor.__exit__(None, None, None)
