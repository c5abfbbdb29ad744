"""Truncated SVDs of a matrix A that is seen only through sweeps over its rows.

A sweep takes an orthonormal n×p basis V and returns Y = AV and S = AᵀY: one pass, two products,
each tile of A used twice while it is in cache. Everything else is of size n×p. A sweep alone
already gives the best approximation of A whose columns lie in those of Y, so a sequence of
sweeps never loses accuracy (each is one exact step of alternating least squares).

Two ways to use it, chosen by measurement (`python -m benchmarks.tsvd`):

* `polish`, for the algorithms that need the TSVD of a matrix which changes a little every
  iteration: start from the last right vectors and 8 more, and sweep twice. Along an A-NMD run the
  residual ‖A − A_r‖ then exceeds the optimum by 3e-9 at the first iteration and by rounding from
  the fifth on, and from SVD-based initializations the iteration counts are those of exact SVDs (from
  random ones see `algorithms/alternating.py`). One sweep (1e-5), or none of the 8 extra vectors, cost up to
  half as many iterations again in some trials.
* `truncated_svd`, for initializations and the baseline: a block Krylov method with restarts, run until it
  misses about 1e-9 of the energy. It took 0.6 to 1.5 times ARPACK's time (4 times at 500 × 784 with
  r above the rank), a tenth of LAPACK's and a third of the Gram matrix's at 2000²; that one is faster
  for narrow X. Unlike them it needs nothing but sweeps, so X need not be in memory, and it has the
  same bits with any number of threads. scikit-learn's randomised SVD with its default number of
  sweeps missed 1e-4 on digits.

Singular values below about 1e-8 of the largest come out as noise of that size, in float32 those
below about 1e-4.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg

from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg.gram import orthonormal
from relunmd.engine.matrix import Array, Block
from relunmd.engine.problem import Problem

OVERSAMPLING = 8
_KRYLOV_DEPTH = 3
_KRYLOV_RESTARTS = 40
_ROUGH_WIDTH = 1.5
"""Columns of the basis of a rough TSVD for each singular vector, besides `OVERSAMPLING`.

With 1, the error of "qn" on classic was 1.5 % larger after 60 passes; 2 takes a third more time and gained nothing.
"""


@dataclass(frozen=True)
class Sweep:
    """Y = AV (m×p), and in float64 S = AᵀY (n×p) and YᵀY (p×p)."""

    Y: Array
    S: Array
    YY: Array


class Factors(NamedTuple):
    """A ≈ WH with W = U_r, H = Σ_r V_rᵀ, and the right singular vectors V (n×p) for the next time."""

    W: Array
    H: Array
    V: Array


def share_of_sweep(A: Array, Y: Array, sums: Sums, V: Array) -> None:
    """What one tile of A adds to a sweep: its rows of Y are written, its share of the sums added."""
    np.matmul(A, V, out=Y)
    sums["S"] += A.T @ Y
    sums["YY"] += Y.T @ Y


def empty_share(x: Block, V: Array) -> Sums:
    """A block's share of a sweep, all zero as yet."""
    n, p = V.shape
    return {"S": x.sums((n, p)), "YY": x.sums((p, p))}


def _sweep_block(x: Block, rows: Rows, out: Rows, *, V: Array) -> Sums:
    sums = empty_share(x, V)
    for rows_of_tile in x.tile_rows:
        share_of_sweep(rows.A[rows_of_tile], out.Y[rows_of_tile], sums, V)
    return sums


def sweep_rows(problem: Problem, A: Array, V: Array) -> Sweep:
    """A sweep over an m×n array in memory; one pass."""
    out, sums = problem.run(_sweep_block, {"A": A}, {"Y": V.shape[1]}, V=V.astype(problem.dtype))
    return Sweep(out.Y, sums["S"], sums["YY"])


def factors_of(problem: Problem, sweep: Sweep, rank: int) -> Factors:
    """The best rank-`rank` approximation of A with its columns in those of Y; no pass.

    Y is orthonormalized by its Gram matrix, columns scaled to length one first: they are nearly
    orthogonal already, so the scaled Gram matrix is well conditioned whatever the singular values.
    For A = 0 the factors are zero.
    """
    p = len(sweep.YY)
    length = np.sqrt(np.diag(sweep.YY))
    rounding = p * float(np.finfo(sweep.Y.dtype).eps)
    # A column this short beside the longest is rounding; brought to length one it would be taken for data.
    inverse = np.divide(1.0, length, out=np.zeros(p), where=length > rounding * length.max())
    spread, Q = linalg.eigh(sweep.YY * np.outer(inverse, inverse), check_finite=False)
    keep = spread > rounding * max(spread[-1], 0.0)
    basis = (inverse[:, None] * Q[:, keep]) / np.sqrt(spread[keep])
    left, sigma, Vt = _thin_svd(basis.T @ sweep.S.T)

    dtype = sweep.Y.dtype
    found = min(rank, len(sigma))
    H = np.zeros((rank, sweep.S.shape[0]), dtype)
    to_W = np.zeros((p, rank))
    to_W[:, :found] = basis @ left[:, :found]
    H[:found] = sigma[:found, None] * Vt[:found]
    return Factors(problem.times(sweep.Y, to_W), H, _padded(Vt.T, p))


def _thin_svd(A: Array) -> tuple[Array, Array, Array]:
    """LAPACK's thin SVD; of a matrix without rows, which SciPy 1.13 refuses, an empty one."""
    if len(A) == 0:
        return np.zeros((0, 0)), np.zeros(0), A
    left, sigma, Vt = linalg.svd(A, full_matrices=False, check_finite=False)
    return left, sigma, Vt


def _padded(V: Array, p: int) -> Array:
    """V with orthonormal columns added up to p: A may have lost rank for a while only."""
    missing = p - V.shape[1]
    if missing == 0:
        return V
    more = np.random.default_rng(0).standard_normal((len(V), missing))
    return orthonormal(np.hstack([V, more]))


def starting_basis(H: Array, shape: tuple[int, int]) -> Array:
    """An orthonormal basis (n×p) around the rows of H, with 8 more directions where there is room."""
    rank = len(H)
    p = min(rank + OVERSAMPLING, *shape)
    more = np.random.default_rng(0).standard_normal((shape[1], p - rank))
    return orthonormal(np.hstack([H.T.astype(np.float64), more]))


def polish(problem: Problem, A: Array, sweep: Sweep, sweeps: int) -> Factors:
    """The rank-r TSVD of an m×n array from a sweep already made; `sweeps` − 1 passes."""
    for _ in range(sweeps - 1):
        sweep = sweep_rows(problem, A, orthonormal(sweep.S))
    return factors_of(problem, sweep, problem.rank)


def truncated_svd(
    problem: Problem, sweep: Callable[[Array], Sweep], rank: int, random: np.random.Generator, tol: float | None = 1e-9
) -> Factors:
    """The rank-`rank` TSVD of A, of the shape of X, from nothing, by a restarted block Krylov method.

    Stops once it misses less than about `tol` of the energy Σσ² of the first `rank` singular
    values. 4 to 20 passes as a rule, memory 6·n·(rank + 8) numbers besides Y. With None as `tol` a rough one in two
    passes, one power iteration from a random basis.
    """
    shape = problem.shape
    smallest = min(shape)
    p = min(rank + OVERSAMPLING, smallest)
    exhaustive = _KRYLOV_DEPTH * p >= smallest  # V is a basis of the whole row space then: the second sweep is exact.
    if exhaustive:
        p = smallest
    elif tol is None:
        p = min(int(_ROUGH_WIDTH * rank) + OVERSAMPLING, smallest)
    V = orthonormal(random.standard_normal((shape[1], p)))
    if exhaustive or tol is None:
        return factors_of(problem, sweep(orthonormal(sweep(V).S)), rank)
    before = np.inf
    for _ in range(_KRYLOV_RESTARTS):
        V, missing = _krylov(sweep, V, rank)
        if missing <= tol or missing > 0.9 * before:  # Exact enough, or at what the float type allows.
            break
        before = missing
    return factors_of(problem, sweep(V), rank)


def _krylov(sweep: Callable[[Array], Sweep], V: Array, rank: int) -> tuple[Array, float]:
    """The p best directions in the span of V, (AᵀA)V, … and an estimate of the energy they miss.

    A direction v with AᵀAv = θv + ρ misses about ‖ρ‖²/θ of the energy; the estimate is the sum of
    that over the first `rank` of them, relative to the energy they have.
    """
    basis, images = [V], [sweep(V).S]
    while len(basis) < _KRYLOV_DEPTH:
        known = np.hstack(basis)
        new = images[-1]
        for _ in range(2):  # Once more against rounding.
            new = orthonormal(new - known @ (known.T @ new))
        basis.append(new)
        images.append(sweep(new).S)
    space, image = np.hstack(basis), np.hstack(images)
    small = space.T @ image
    energies, Q = linalg.eigh((small + small.T) / 2, check_finite=False)
    energies, Q = energies[::-1], Q[:, ::-1]
    V = space @ Q[:, : V.shape[1]]
    kept = energies[:rank][energies[:rank] > 0]
    left_over = image @ Q[:, : len(kept)] - V[:, : len(kept)] * kept
    missing = float(np.sum(np.sum(left_over**2, axis=0) / kept))
    return V, missing / max(float(kept.sum()), np.finfo(np.float64).tiny)
