"""A tiny plan for tests: a small matrix, a contender or two, few iterations."""

import io

import numpy as np
import pytest
from rich.console import Console

from relunmd.comparison.comparison_display import ComparisonDisplay
from relunmd.comparison.contenders import Contender
from relunmd.comparison.result_file import Matrix, Run
from relunmd.comparison.runner import Runner
from relunmd.loop.criteria import Limits
from tests.conftest import synthetic


def small(name="small", seed=0, load=None):
    return Matrix(name, (30, 20), load or (lambda: synthetic(30, 20, 3, seed)))


def improving(X, W, H):
    """Alternating least squares on the latent matrix: the naive algorithm in four lines."""
    while True:
        Z = np.where(X > 0, X, np.minimum(0, W @ H))
        U, s, Vt = np.linalg.svd(Z, full_matrices=False)
        W, H = U[:, :3] * s[:3], Vt[:3]
        yield W, H


def run_of(matrix=None, contender=None, seed=0, max_iter=5, **options):
    method = contender or Contender("improving", improving)
    return Run(matrix or small(), 3, Limits(None, 0, max_iter, None), method, "random", seed, **options)


def make(runs, results, display):
    """Make the runs, and return the runner."""
    runner = Runner(results, display)
    runner.make(runs)
    return runner


def silent():
    """A display that shows nothing."""
    return ComparisonDisplay(Console(quiet=True))


@pytest.fixture
def output():
    return io.StringIO()


@pytest.fixture
def display(output):
    with ComparisonDisplay(Console(file=output, width=200)) as shown:
        yield shown
