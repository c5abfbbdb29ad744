"""One form for W and H, so that two runs can be compared and components have an order."""

import math
from typing import Any

import numpy as np
from scipy import linalg

from relunmd.engine.linalg.gram import cholesky
from relunmd.engine.matrix import Array
from relunmd.engine.problem import Problem


def canonical_factors(W: Array, H: Array, scale: float = 1.0) -> tuple[Array, Array]:
    """The balanced SVD of WH / scale: W = U√Σ, H = √ΣVᵀ, strongest component first, each row of H
    with its largest entry positive. O((m+n)r²), in float64 inside.

    >>> W, H = canonical_factors(np.array([[-2.0]]), np.array([[-2.0, 0.0]]))
    >>> W, H
    (array([[2.]]), array([[2., 0.]]))
    """
    Q_left, R_left = linalg.qr(W.astype(np.float64), mode="economic", overwrite_a=True, check_finite=False)
    turn, right = _turned(R_left, H, scale)
    return np.ascontiguousarray((Q_left @ turn[0]) * turn[1], dtype=W.dtype), right


def canonical(problem: Problem, W: Array, H: Array) -> tuple[Any, Array]:
    """The same for the factors of a problem, in the units of X, wherever the rows of W are."""
    scale = problem.matrix.scale
    W, H = W.astype(problem.dtype), H.astype(problem.dtype)
    if isinstance(W, np.ndarray):
        return canonical_factors(W, H, scale)
    # QR from Gram matrices, which lose half of the digits: the second and the third time make up for it, whatever the
    # condition of W (the shifted CholeskyQR3 of Fukaya et al. 2020).
    Q, R = W.astype(np.float64), np.eye(len(H))
    for _ in range(3):
        L, inverse = cholesky(problem.gram(Q))
        Q, R = problem.times(Q, inverse.T), L.T @ R
    (U, root), right = _turned(R, H, scale)
    return problem.executor.handed_over(problem.times(Q, U * root).astype(W.dtype)), right


def _turned(R_left: Array, H: Array, scale: float) -> tuple[tuple[Array, Array], Array]:
    """For W = QR: U and the factors of its columns, with which Q becomes the left one, and the right one itself."""
    Q_right, R_right = linalg.qr(H.T.astype(np.float64), mode="economic", overwrite_a=True, check_finite=False)
    U, sigma, Vt = linalg.svd(R_left @ R_right.T, check_finite=False)
    root = np.sqrt(sigma) * math.sqrt(1.0 / scale)
    right = root[:, None] * (Vt @ Q_right.T)
    peak = np.take_along_axis(right, np.abs(right).argmax(axis=1)[:, None], axis=1)
    sign = np.where(peak < 0, -1.0, 1.0)
    return (U, root * sign[:, 0]), np.ascontiguousarray(right * sign, dtype=H.dtype)


def balanced(W: Array, H: Array) -> tuple[Array, Array]:
    """Return the same WH with ‖W‖ = ‖H‖.

    A ridge depends on how WH is split: equally, or the units of X would matter. Without a ridge it keeps Gram matrices
    within the range of the float type. The norms agree to seven digits: more would depend on the order in which the
    squares are added.
    """
    of_W, of_H = (float(np.sum(np.square(factor, dtype=np.float64))) for factor in (W, H))
    if of_W == 0 or of_H == 0:
        return W, H
    share = W.dtype.type(np.float32((of_H / of_W) ** 0.25))
    return W * share, H / share
