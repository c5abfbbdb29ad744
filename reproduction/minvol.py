"""Minimum-volume NMF with a regularized volume: the sparse basis that figures 3 and 4 compress.

    min ‖A − VUᵀ‖² + λ log det(VᵀV + δI),   U, V ≥ 0, the columns of V summing to one

after Leplat, Ang and Gillis, "Minimum-volume rank-deficient nonnegative matrix factorizations"
(ICASSP 2019) and Gillis, "Nonnegative Matrix Factorization" (SIAM 2020), section 8.3.4. The logarithm is
replaced by its tangent, a quadratic in V, and the two factors are then improved in turn by
projected fast gradients. λ and δ are relative to the initial terms, so units do not matter. The
initial V is a column subset of A, chosen by successive projections.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class MinVolNMF:
    """A ≈ VUᵀ.

    Attributes
    ----------
    V : ndarray of shape (m, components)
        Its columns sum to one.
    U : ndarray of shape (n, components)
        Sparse factor.
    objective : ndarray of shape (iterations + 1,)
        Initial value, then the value after each iteration; it never increases.
    """

    V: Array
    U: Array
    objective: Array


def minvol_nmf(A: Array, components: int, volume: float = 0.1, offset: float = 0.1, iterations: int = 100) -> MinVolNMF:
    """Factor the nonnegative A (m×n) so that the columns of V span little volume, which makes U sparse.

    Parameters
    ----------
    A : ndarray of shape (m, n)
        Nonnegative matrix.
    components : int
        Number of columns of V and U.
    volume : float, default=0.1
        λ, relative to the initial ‖A − VUᵀ‖² / |log det(VᵀV + δI)|.
    offset : float, default=0.1
        δ, relative to the initial mean of the diagonal of VᵀV.
    iterations : int, default=100
        Number of updates of V and U; 100 is the book's default, not convergence.

    Returns
    -------
    MinVolNMF

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.minvol import minvol_nmf
    >>> A = np.abs(np.sin(np.arange(600.0).reshape(30, 20) ** 2))
    >>> found = minvol_nmf(A, 5, iterations=20)
    >>> found.U.shape, bool((np.diff(found.objective) <= 0).all())
    ((20, 5), True)
    """
    V = A[:, successive_projections(A, components)]
    V = V / V.sum(axis=0)
    Ut = nonnegative_least_squares(V, A)
    identity = np.eye(components)
    delta = offset * float(np.trace(V.T @ V)) / components
    misfit, log_volume = _terms(A, V, Ut, delta)
    weight = volume * misfit / abs(log_volume)
    objective = [misfit + weight * log_volume]
    for _ in range(iterations):
        tangent = np.linalg.inv(V.T @ V + delta * identity)
        V = _fast_gradient(Ut @ Ut.T + weight * tangent, Ut @ A.T, V.T, _rows_on_simplex, steps=10).T
        Ut = _fast_gradient(V.T @ V, V.T @ A, Ut, _nonnegative, steps=20)
        misfit, log_volume = _terms(A, V, Ut, delta)
        objective.append(misfit + weight * log_volume)
    return MinVolNMF(V, Ut.T.copy(), np.array(objective))


def nonnegative_least_squares(B: Array, A: Array, accuracy: float = 1e-6, most: int = 5000) -> Array:
    """Return the Y ≥ 0 that minimizes ‖A − BY‖, all columns of A at once.

    It ends when a step is shorter than `accuracy` times the first step, or after `most` steps. Each column of B is
    scaled to length one first, which reduces the number of steps.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.minvol import nonnegative_least_squares
    >>> nonnegative_least_squares(np.eye(2), np.array([[1.0, -2.0], [3.0, 4.0]]))
    array([[1., 0.],
           [3., 4.]])
    """
    lengths = np.linalg.norm(B, axis=0)
    lengths[lengths == 0] = 1.0
    B = B / lengths
    Y = _fast_gradient(B.T @ B, B.T @ A, np.zeros((B.shape[1], A.shape[1])), _nonnegative, most, accuracy)
    solution: Array = Y / lengths[:, None]
    return solution


def successive_projections(A: Array, count: int) -> Array:
    """Return the indices of `count` columns of A, each the longest after projecting out the earlier ones."""
    residual = np.array(A, dtype=np.float64)
    chosen = []
    for _ in range(count):
        squares = np.einsum("ij,ij->j", residual, residual)
        chosen.append(int(squares.argmax()))
        direction = residual[:, chosen[-1]] / np.sqrt(squares[chosen[-1]])
        residual -= np.outer(direction, direction @ residual)
    return np.array(chosen)


def _terms(A: Array, V: Array, Ut: Array, delta: float) -> tuple[float, float]:
    misfit = float(np.linalg.norm(A - V @ Ut) ** 2)
    return misfit, float(np.linalg.slogdet(V.T @ V + delta * np.eye(V.shape[1]))[1])


def _fast_gradient(
    G: Array, B: Array, Y: Array, project: Callable[[Array], Array], steps: int, accuracy: float = 1e-2
) -> Array:
    """Improve Y for min ½⟨Y, GY⟩ − ⟨B, Y⟩ on a convex set: Nesterov's method, restarted when it overshoots."""
    step = 1.0 / float(np.linalg.eigvalsh(G)[-1])
    lead, pace, first = Y, 1.0, 0.0
    for _ in range(steps):
        new = project(lead - step * (G @ lead - B))
        move = new - Y
        if np.vdot(lead - new, move) > 0:
            pace = 1.0
        faster = (1 + np.sqrt(1 + 4 * pace * pace)) / 2
        lead, Y, pace = new + (pace - 1) / faster * move, new, faster
        moved = float(np.linalg.norm(move))
        first = first or moved
        if moved <= accuracy * first:
            break
    return Y


def _nonnegative(Y: Array) -> Array:
    return np.maximum(Y, 0)


def _rows_on_simplex(Y: Array) -> Array:
    """Return the nearest matrix whose rows are nonnegative and sum to one."""
    decreasing = -np.sort(-Y, axis=1)
    excess = np.cumsum(decreasing, axis=1) - 1
    kept = (decreasing * np.arange(1, Y.shape[1] + 1) > excess).sum(axis=1)
    level = excess[np.arange(len(Y)), kept - 1] / kept
    nearest: Array = np.maximum(Y - level[:, None], 0)
    return nearest
