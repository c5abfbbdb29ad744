"""Solves with r×r Gram matrices, safe where the factors are rank-deficient."""

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from relunmd.engine.matrix import Array


def gram_solve(gram: Array, B: Array, ridge: float = 0.0) -> Array:
    """Solve (gram + (ridge + δ)I) Y = B for a positive semidefinite r×r matrix, in float64.

    δ is r machine epsilons of the trace: far below what a well-conditioned problem can notice,
    and enough to keep Cholesky going when W or H has lost rank (a zero row or column of X, a
    rank above that of the data), where Y then stays of moderate size.

    >>> gram_solve(np.diag([4.0, 0.0]), np.array([[4.0], [0.0]])).ravel()
    array([1., 0.])
    """
    gram, inverse = _inverse_of_root(gram, ridge)
    if inverse is None:
        return np.asarray(np.linalg.lstsq(gram, B, rcond=None)[0])
    return np.asarray(inverse.T @ (inverse @ B))


def gram_solve_right(B: Array, gram: Array, ridge: float = 0.0) -> Array:
    """Solve Y (gram + (ridge + δ)I) = B, n×r, as `gram_solve` does."""
    regular, inverse = _inverse_of_root(gram, ridge)
    if inverse is None:
        return np.asarray(np.linalg.lstsq(regular, B.T, rcond=None)[0].T)
    return np.asarray((B @ inverse.T) @ inverse)


def _inverse_of_root(gram: Array, ridge: float) -> tuple[Array, Array | None]:
    """gram + (ridge + δ)I = LLᵀ, and L⁻¹; None in its place if the rounding of a huge spread of scales outweighs δ.

    Two products with L⁻¹ take two thirds of the time of two triangular solves as wide as B and stand lost rank as
    well; one product with (LLᵀ)⁻¹ does not. LAPACK itself is called: for matrices this small SciPy's wrappers take
    longer than the work.
    """
    gram = _lifted(gram, ridge)
    L, failed = lapack.dpotrf(gram, lower=1)
    inverse, singular = lapack.dtrtri(L, lower=1)
    return gram, None if failed or singular else inverse


def _lifted(gram: Array, ridge: float) -> Array:
    """gram + (ridge + δ)I in float64."""
    gram = gram.astype(np.float64)
    rank = len(gram)
    floor = rank * np.finfo(np.float64).eps * max(float(np.trace(gram)), np.finfo(np.float64).tiny)
    gram.flat[:: rank + 1] += ridge + floor
    return gram


def cholesky(gram: Array) -> tuple[Array, Array]:
    """L and L⁻¹ with LLᵀ = gram + δI; np.linalg.LinAlgError if gram is not finite."""
    L = np.linalg.cholesky(_lifted(gram, 0.0))
    return L, np.asarray(linalg.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False))


def right_inverse(H: Array, ridge: float = 0.0) -> Array:
    """Hᵀ(HHᵀ + ridge·I)⁻¹, n×r: what Z is multiplied by to give argmin_W ‖Z − WH‖² + ridge·‖W‖²."""
    H64 = H.astype(np.float64, copy=False)
    return np.ascontiguousarray(gram_solve_right(H64.T, H64 @ H64.T, ridge), dtype=H.dtype)


def orthonormal(A: Array) -> Array:
    """An orthonormal basis of the columns of A (n×p, p ≤ n), in float64, row by row in memory.

    LAPACK gives it column by column; read from a file it would be stored otherwise, and some BLAS kernels (those for
    AVX-512) then give other last bits.

    >>> Q = orthonormal(np.array([[3.0], [4.0]]))
    >>> np.abs(Q.ravel()).round(2)
    array([0.6, 0.8])
    """
    A = A.astype(np.float64)
    Q = _by_cholesky(A)
    if Q is None:
        Q, _ = linalg.qr(A, mode="economic", check_finite=False)
    return np.ascontiguousarray(Q)


def _by_cholesky(A: Array) -> Array | None:
    """An orthonormal basis by Cholesky factors of two Gram matrices; None if A is nearly of lower rank.

    It takes a fifth of the time of a QR decomposition.
    """
    lengths = np.sqrt(np.sum(A**2, axis=0))
    if not (np.isfinite(lengths).all() and lengths.all()):
        return None
    Q: Array = A / lengths
    for _ in range(2):
        L, failed = lapack.dpotrf(Q.T @ Q, lower=1)
        if failed or L.diagonal().min() < _LEAST_PIVOT:
            return None
        Q = np.asarray(Q @ lapack.dtrtri(L, lower=1)[0].T)
    return Q


_LEAST_PIVOT = 1e-5
"""With smaller pivots two rounds would not be orthogonal up to rounding."""
