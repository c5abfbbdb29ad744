"""Matrices with a known exact decomposition."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import InputError

Array = NDArray[np.float64]
Seed = int | np.random.Generator | None


def synthetic(m: int, n: int, rank: int, random_state: Seed = None) -> Array:
    """Generate X = max(0, WH) with standard normal W and H; half of X is zero.

    The synthetic data of Seraghiti et al. (MLSP 2023, arXiv:2305.08687).

    Parameters
    ----------
    m : int
        Number of rows of X.
    n : int
        Number of columns of X.
    rank : int
        Number of columns of W.
    random_state : int, Generator or None, default=None
        Seed or source of random numbers.

    Returns
    -------
    ndarray of shape (m, n)
        The matrix X, in float64.

    Examples
    --------
    >>> from relunmd import datasets
    >>> X = datasets.synthetic(200, 100, rank=4, random_state=0)
    >>> X.shape, bool(abs((X == 0).mean() - 0.5) < 0.05)
    ((200, 100), True)
    """
    _check_shape(m, n, rank)
    random = np.random.default_rng(random_state)
    return np.maximum(0, random.standard_normal((m, rank)) @ random.standard_normal((rank, n)))


def planted(m: int, n: int, rank: int, zeros: float, random_state: Seed = None) -> Array:
    """Generate X = max(0, WH) of a given rank with a given share of zeros.

    W and H are standard normal, except that the last column of W is ones and the last row of H is the constant that
    gives WH the requested share of nonpositive entries.

    Parameters
    ----------
    m : int
        Number of rows of X.
    n : int
        Number of columns of X.
    rank : int
        Number of columns of W, at least 2.
    zeros : float
        Share of zeros, in [0, 1).
    random_state : int, Generator or None, default=None
        Seed or source of random numbers.

    Returns
    -------
    ndarray of shape (m, n)
        The matrix X, in float64.

    Examples
    --------
    >>> from relunmd import datasets
    >>> X = datasets.planted(200, 100, rank=5, zeros=0.95, random_state=0)
    >>> float((X == 0).mean())
    0.95
    """
    _check_shape(m, n, rank)
    if rank < 2:
        raise InputError(f"rank must be at least 2, since the constant takes one; got {rank!r}.")
    if not 0 <= zeros < 1:
        raise InputError(f"zeros must be a share in [0, 1); got {zeros!r}.")
    random = np.random.default_rng(random_state)
    Theta = random.standard_normal((m, rank - 1)) @ random.standard_normal((rank - 1, n))
    # The largest of the entries that become zero; below all entries if zeros is 0.
    count = round(zeros * Theta.size)
    level = np.partition(Theta, count - 1, axis=None)[count - 1] if count else Theta.min() - 1.0
    X: Array = np.maximum(0, Theta - level)
    return X


def _check_shape(m: Any, n: Any, rank: Any) -> None:
    for name, value in (("m", m), ("n", n), ("rank", rank)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} must be an integer of at least 1; got {value!r}.")
