"""One form for W and H, so that two runs can be compared and components have an order."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

__all__ = ["canonical_factors"]

Array = NDArray[Any]


def canonical_factors(W: Array, H: Array, scale: float = 1.0) -> tuple[Array, Array]:
    """The balanced SVD of WH / scale: W = U√Σ, H = √ΣVᵀ, strongest component first, each row of H
    with its largest entry positive. O((m+n)r²), in float64 inside.

    >>> W, H = canonical_factors(np.array([[-2.0]]), np.array([[-2.0, 0.0]]))
    >>> W, H
    (array([[2.]]), array([[2., 0.]]))
    """
    Q_left, R_left = linalg.qr(W.astype(np.float64), mode="economic", overwrite_a=True, check_finite=False)
    Q_right, R_right = linalg.qr(H.T.astype(np.float64), mode="economic", overwrite_a=True, check_finite=False)
    U, sigma, Vt = linalg.svd(R_left @ R_right.T, check_finite=False)
    root = np.sqrt(sigma) * math.sqrt(1.0 / scale)
    left = (Q_left @ U) * root
    right = root[:, None] * (Vt @ Q_right.T)
    peak = np.take_along_axis(right, np.abs(right).argmax(axis=1)[:, None], axis=1)
    sign = np.where(peak < 0, -1.0, 1.0)
    return (
        np.ascontiguousarray(left * sign.T, dtype=W.dtype),
        np.ascontiguousarray(right * sign, dtype=H.dtype),
    )
