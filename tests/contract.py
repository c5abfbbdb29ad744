"""Compare an algorithm with a plain NumPy version of it, iteration by iteration."""

import numpy as np

import relunmd
from tests.conftest import relative_error, synthetic

__all__ = ["assert_follows"]


def assert_follows(algorithm, generator, X=None, rank=4, iterations=15, rtol=1e-6):
    """Assert that an algorithm and a generator have the same errors and the same WH after every iteration.

    Parameters
    ----------
    algorithm : str or Algorithm
    generator : callable
        ``generator(X, W, H)`` yields W, H after every iteration, from the initial factors it is given.
    X : ndarray of shape (m, n), optional
        By default a synthetic matrix with noise.
    rank, iterations : int
    rtol : float
        Largest difference, relative to the largest entry of WH.
    """
    X = synthetic(60, 40, rank) + 0.1 * synthetic(60, 40, 20, seed=1) if X is None else X
    random = np.random.default_rng(0)
    W0, H0 = random.standard_normal((X.shape[0], rank)), random.standard_normal((rank, X.shape[1]))
    scale = np.sqrt(np.linalg.norm(X))
    W0, H0 = W0 * scale / np.linalg.norm(W0), H0 * scale / np.linalg.norm(H0)
    seen = []
    relunmd.decompose(
        X,
        rank,
        algorithm,
        init=(W0, H0),
        tol=0,
        max_iter=iterations,
        callback=lambda progress: seen.append((progress.error, progress.W @ progress.H)) and None,
    )
    expected = generator(X, W0.copy(), H0.copy())
    assert len(seen) == iterations + 1
    for iteration, (error, product) in enumerate(seen[1:], 1):
        W, H = next(expected)
        message = f"iteration {iteration}"
        np.testing.assert_allclose(error, relative_error(X, W, H), rtol=rtol, err_msg=message)
        np.testing.assert_allclose(product, W @ H, atol=rtol * np.abs(W @ H).max(), rtol=0, err_msg=message)
