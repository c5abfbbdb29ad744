"""Passes over X that algorithms and initializations share; none keeps an m×n array.

Every tile of X is converted to a tile of a matrix A (a residual, or X with its zeros shifted) while it is in cache, and
A is multiplied from both sides: Y = A·V, S = Aᵀ·Y. A gradient costs 6mnr flops (less if A is mostly zero, see `Strip`).
Memory is O((m + n)r) and, for each thread, a strip of some hundred rows.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums
from relunmd.engine.linalg.gram import right_inverse
from relunmd.engine.linalg.truncated_svd import Sweep, empty_share
from relunmd.engine.matrix import Array, Block, Strip
from relunmd.engine.problem import Problem

LATENT, ERROR = 1.0, 0.0
"""The leaks of the two objectives ½L² and ½E²‖X‖².

The objectives differ only where Θ ≤ 0 < X: such an entry contributes (X − Θ)² to L² and X² to E²‖X‖², so that its
gradient vanishes. With a leak between 0 and 1 it contributes (X − leak·Θ)².
"""


def residual_strip(x: Block, rows: slice, W: Array, H: Array, leak: float, squares: Array) -> Strip:
    """Minus the derivative of an objective by Θ = WH in some of a block's rows; W has these rows.

    Their shares of E² and of twice the objective are added to `squares`, which has these rows too.
    """
    strip = Strip(x, len(W))
    for tile in x.across(rows):
        strip.add_residual(tile, W, H, leak, squares)
    return strip


class Support(NamedTuple):
    """Sums over the entries with a nonzero residual.

    For each entry, what `of_columns` has for its column is added to `by_row`, and what `of_rows` has for its row to
    `by_column`: (n, k), (some rows, k), (the same rows, k) and (n, k) for some k.
    """

    of_columns: Array
    of_rows: Array
    by_row: Array
    by_column: Array


def gradient_strip(
    x: Block,
    rows: slice,
    W: Array,
    factors: tuple[Array, Array],
    leak: float,
    squares: Array,
    out: tuple[Array, Array],
    support: Support | None = None,
) -> None:
    """Write ∇_W of some rows to out[0] and add their −∇_Hᵀ (n×r) to out[1]; `squares` as in `residual_strip`."""
    by_W, by_H = out
    H, Ht = factors
    by_W[:] = 0
    if x.matrix.stored_only:
        kernels.stored_gradient(x.whole(rows).stored(), W, Ht, leak, squares, by_W, by_H)
    else:
        for tile in x.across(rows):
            # A strip of one tile, so that the next tile uses the same scratch memory, which is in cache.
            piece = Strip(x, tile.n_rows).add_residual(tile, W, H, leak, squares)
            piece.add_times(Ht, by_W)
            piece.add_transposed_times(W, by_H)
            if support is not None and support.by_row.size:
                ones = piece.support()
                ones.add_times(support.of_columns, support.by_row)
                ones.add_transposed_times(support.of_rows, support.by_column)
    np.negative(by_W, out=by_W)


@dataclass(frozen=True)
class Look:
    """The result of one pass at Θ = WH; G is the residual Z − Θ, minus the derivative of the objective by Θ.

    Attributes
    ----------
    W : array of shape (m, r)
        The factor that was evaluated.
    P : array of shape (m, r)
        The projected residual GHᵀ(HHᵀ)⁻¹: W + P minimizes ‖Z − WH‖ for this H.
    error : float
        ‖X − max(0, WH)‖ / ‖X‖.
    objective : float
        √F²/‖X‖ for the objective ½F² of the leak: the latent residual L/‖X‖ for 1, the error for 0.
    GW, GP : ndarray of shape (n, r)
        GᵀW and GᵀP.
    WW, WP, PP : ndarray of shape (r, r)
        WᵀW, WᵀP and PᵀP.
    """

    W: Any
    P: Any
    error: float
    objective: float
    GW: Array
    GP: Array
    WW: Array
    WP: Array
    PP: Array


def look(problem: Problem, W: Any, H: Array, leak: float = LATENT) -> Look:
    """Evaluate WH: errors, the projected residual and the small products; one pass, 8mnr flops.

    Parameters
    ----------
    problem : Problem
        X, the rank, and the passes over X.
    W : array of shape (m, r), or list of (array of shape (m, k), coefficient)
        A list stands for the sum of the products array·coefficient, formed inside the pass. A coefficient is a number
        or a matrix of shape (k, r).
    H : ndarray of shape (r, n)
        Right factor.
    leak : float, default=1
        Objective: 1 for the latent residual L, 0 for the error E.

    Returns
    -------
    Look
        With the residual G = Z − WH, Z = X where X > 0 and min(0, WH) elsewhere: ``error``, ``objective`` (‖G‖/‖X‖),
        ``W``, ``P`` = GHᵀ(HHᵀ)⁻¹, ``GW`` = GᵀW, ``GP`` = GᵀP, ``WW`` = WᵀW, ``WP`` = WᵀP and ``PP`` = PᵀP.

    Examples
    --------
    One step of least squares for W in an algorithm:

    >>> import numpy as np, relunmd
    >>> class FixedH(relunmd.Algorithm):
    ...     def start(self, problem, W, H):
    ...         return relunmd.State(W, H, problem.error(W, H))
    ...
    ...     def step(self, problem, state):
    ...         W = state.W + relunmd.look(problem, state.W, state.H).P
    ...         return relunmd.State(W, state.H, problem.error(W, state.H))
    >>> d = relunmd.decompose(np.eye(12), rank=4, algorithm=FixedH(), random_state=0)
    >>> bool(d.error < d.history.error[0])
    True
    """
    terms = W if isinstance(W, list) else [(W, 1.0)]
    factors = [np.asarray(coefficient, problem.dtype) for _, coefficient in terms]
    H = np.asarray(H, problem.dtype, order="C")
    r = len(H)
    shared = {"H": H, "inverse": right_inverse(H), "factors": factors, "leak": leak}
    new, sums = problem.run(_look_block, {"terms": [array for array, _ in terms]}, {"W": r, "P": r}, **shared)
    G, products = sums["G"], sums["products"]
    error, objective = (problem.relative(x) for x in sums["squares"].tolist())
    small = products[:r, :r], products[:r, r:], products[r:, r:]
    return Look(new.W, new.P, error, objective, G[:, :r], G[:, r:], *small)


def _look_block(x: Block, rows: Rows, out: Rows, *, H: Array, inverse: Array, factors: Any, leak: float) -> Sums:
    r = len(H)
    G, products, squares = x.sums((x.n_columns, 2 * r)), x.sums((2 * r, 2 * r)), np.zeros((len(out.W), 2))
    for at in x.strips:
        both = x.scratch_tile("W and P", at.stop - at.start, 2 * r)
        W, P = out.W[at], out.P[at]
        W[:] = 0
        for array, factor in zip(rows.terms, factors, strict=True):
            W += array[at] @ factor if factor.ndim else array[at] * factor
        gap = residual_strip(x, at, W, H, leak, squares[at])
        gap.times(inverse, P)
        both[:, :r], both[:, r:] = W, P
        gap.add_transposed_times(both, G)
        products += both.T @ both
    return {"squares": squares.sum(axis=0), "G": G, "products": products}


def sweep_of_x(
    problem: Problem, V: Array, lift: float = 0.0, left: Array | float = 0.0, right: Array | None = None
) -> Sweep:
    """A sweep over X + lift·[X > 0] − left·rightᵀ, which is never formed; one pass.

    `left` is m×1, or one number for all rows, and `right` n×1. Every truncated SVD of a fully known X goes through
    here.
    """
    level = left if isinstance(left, float) else None
    rows = {} if isinstance(left, float) else {"left": left.astype(problem.dtype)}
    right = np.zeros((problem.shape[1], 1), problem.dtype) if right is None else right.astype(problem.dtype)
    V = np.array(V, problem.dtype, order="C")
    shared = {"V": V, "lift": lift, "level": level, "seen": right.T @ V}
    out, sums = problem.run(_sweep_block, rows, {"Y": V.shape[1]}, **shared)
    return Sweep(out.Y, sums["S"] - right @ sums["u"], sums["YY"])


def _sweep_block(x: Block, rows: Rows, out: Rows, *, V: Array, lift: float, level: float | None, seen: Array) -> Sums:
    sums = empty_share(x, V) | {"u": x.sums((1, V.shape[1]))}
    for at in x.strips:
        left = rows.left[at] if level is None else np.full((at.stop - at.start, 1), level, V.dtype)
        data = Strip(x, at.stop - at.start)
        for tile in x.across(at):
            data.add_data(tile, lift)
        Y = data.times(V, out.Y[at])
        Y -= left @ seen
        data.add_transposed_times(Y, sums["S"])
        sums["YY"] += Y.T @ Y
        sums["u"] += left.T @ Y
    return sums


def sweep_of_filled_x(problem: Problem, V: Array, means: Array, centered: bool = False) -> Sweep:
    """A sweep over X with each missing entry replaced by the mean of its column; one pass.

    An entry that is known as an interval is replaced by the point of it nearest to the mean, and the weight of an entry
    is how far it is from the mean: the result is Z of the latent model at Θ = 1·meansᵀ. `centered` subtracts the means
    again.
    """
    V = np.array(V, problem.dtype, order="C")
    means = means.reshape(1, -1).astype(problem.dtype)
    shared = {"V": V, "means": means, "seen": np.zeros((1, V.shape[1]), V.dtype) if centered else means @ V}
    out, sums = problem.run(_filled_block, None, {"Y": V.shape[1]}, **shared)
    return Sweep(out.Y, sums["S"] if centered else sums["S"] + means.T @ sums["u"], sums["YY"])


def _filled_block(x: Block, rows: Rows, out: Rows, *, V: Array, means: Array, seen: Array) -> Sums:
    sums = empty_share(x, V) | {"u": x.sums((1, V.shape[1]))}
    for at in x.strips:
        ones = np.ones((at.stop - at.start, 1), V.dtype)
        gap = residual_strip(x, at, ones, means, LATENT, np.zeros((len(ones), 2)))
        Y = gap.times(V, out.Y[at])
        Y += seen
        gap.add_transposed_times(Y, sums["S"])
        sums["YY"] += Y.T @ Y
        sums["u"] += Y.sum(axis=0)
    return sums
