"""Entries that are missing, known only as an interval, or weighted: the general model on one tile.

Each entry has an interval [lo, hi] for Θ and a weight: {x} if it was measured, (−∞, lower] if x ≤ lower, a limit of
detection (0 for a zero of plain ReLU-NMD), [upper, ∞) if x ≥ upper, a ceiling, and (−∞, ∞) if it is missing. With
φ(Θ) = Θ where Θ > 0 and leak·Θ elsewhere, F² = Σ weight·dist(φ(Θ), [lo, hi])²; without limits and weights this is the
F² of `residual`. Whatever stands in the place of a missing value is never used.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from relunmd.engine.kernels._compile import (
    SAMPLED,
    Array,
    BytesTile,
    CsrRows,
    DataOrBytes,
    DataTile,
    DataValues,
    Nonzeros,
    Sums,
    Tile,
    Values,
    helper,
    kernel,
)

_NODES = (0.14887433898163122, 0.4333953941292472, 0.6794095682990244, 0.8650633666889845, 0.9739065285171717)
_WEIGHTS = (0.29552422471475287, 0.26926671930999635, 0.21908636251598204, 0.1494513491505806, 0.06667134430868814)
"""Gauss-Legendre quadrature with ten nodes ±x."""


class Known(NamedTuple):
    """What is known of the entries of a tile beside their values, in scaled units.

    `lower` and `upper` have one row for all rows of the tile or one for each, 0 and ∞ standing for no limit. If nothing
    has an upper limit, `upper` has no rows; if nothing has a limit, nor has `lower`. `mask` (nonzero: missing) and
    `weights` have the tile's shape, or no rows if there are none.
    """

    lower: DataTile
    upper: DataTile
    mask: BytesTile
    weights: DataTile


@helper
def _distance(value: Any, lo: Any, hi: Any, zero: Any) -> Any:
    """Return the projection onto [lo, hi] minus the value; zero without a sign if the value lies inside."""
    left, right = lo - value, hi - value
    return (left if left > zero else zero) + (right if right < zero else zero)


@helper
def _clean(data: Array, factor: Any, known: Known, i: int, start: int, x: Array, w: Array) -> None:
    """x, w ← the scaled values and the weights of some entries of row i; 0 and 0 where an entry is missing."""
    zero, one, count = x.dtype.type(0), x.dtype.type(1), len(data)
    for j in range(count):
        value = data[j] * factor
        x[j] = value if value == value else zero
        w[j] = one if value == value else zero
    if len(known.mask):
        mask = known.mask[i, start : start + count]
        for j in range(count):
            x[j] = x[j] if mask[j] == 0 else zero
            w[j] = w[j] if mask[j] == 0 else zero
    if len(known.weights):
        weights = known.weights[i, start : start + count]
        for j in range(count):
            x[j] = x[j] if weights[j] > zero else zero
            w[j] = w[j] * weights[j] if weights[j] > zero else zero


@helper
def _lower_limit(x: Any, lower: Any, infinity: Any) -> tuple[Any, Any]:
    """Return the interval of a value without an upper limit."""
    return x if x > lower else -infinity, max(x, lower)


@helper
def _interval(x: Any, lower: Any, upper: Any, infinity: Any) -> tuple[Any, Any]:
    """Return the interval of a value."""
    lo, hi = _lower_limit(x, lower, infinity)
    return upper if x >= upper else lo, infinity if x >= upper else hi


@helper
def _masked_residual(theta: Array, data: Array, mask: Array, factor: Any, below: Any) -> tuple[Any, Any]:
    """The loop of `interval_residual` without limits and weights; return the sums of E² and of F²."""
    zero, one = theta.dtype.type(0), theta.dtype.type(1)
    error = gap = zero
    for j in range(len(theta)):
        t, x = theta[j], data[j] * factor
        seen = (x == x) & (mask[j] == 0)
        relu = max(t, zero)
        slope = one if t > zero else below
        e = x - relu
        d = x - slope * t if x > zero else zero - relu
        theta[j] = (slope * d if x > zero else d) + zero if seen else zero  # Not −0, see `compress`.
        error += e * e if seen else zero
        gap += d * d if seen else zero
    return error, gap


@kernel
def interval_residual(
    T: Tile, X: DataOrBytes, first: int, scale: float, leak: float, squares: Sums, known: Known
) -> int:
    """T ← −∂(½F²)/∂Θ of the general model, in place; the rest as `residual`, which is this one without `known`.

    There is a loop for each kind of limit: one for all took a tenth of a pass longer without an upper limit, and again
    without any. The one without limits and weights has no copies of x and weights, which took as long as the rest.
    """
    kind = T.dtype.type
    zero, one, factor, below, infinity = kind(0), kind(1), kind(scale), kind(leak), kind(np.inf)
    x, w, unmasked = np.empty(256, T.dtype), np.empty(256, T.dtype), np.zeros(256, np.uint8)
    general = len(known.lower) > 0 or len(known.weights) > 0
    sampled = 0
    for i in range(T.shape[0]):
        for start in range(0, T.shape[1], 256):
            theta = T[i, start : start + 256]
            data = X[i, first + start : first + start + len(theta)]
            error = gap = zero
            if general:
                _clean(data, factor, known, i, start, x, w)
            if not general and len(known.mask):
                error, gap = _masked_residual(theta, data, known.mask[i, start : start + 256], factor, below)
            elif not general:
                error, gap = _masked_residual(theta, data, unmasked, factor, below)
            elif len(known.upper):
                lower = known.lower[i if len(known.lower) > 1 else 0, start : start + 256]
                upper = known.upper[i if len(known.upper) > 1 else 0, start : start + 256]
                for j in range(len(theta)):
                    lo, hi = _interval(x[j], lower[j], upper[j], infinity)
                    slope = one if theta[j] > zero else below
                    e = _distance(max(theta[j], zero), lo, hi, zero)
                    d = _distance(slope * theta[j], lo, hi, zero)
                    theta[j] = w[j] * slope * d + zero  # Not −0, see `compress`.
                    error += w[j] * e * e
                    gap += w[j] * d * d
            elif len(known.lower):
                lower = known.lower[i if len(known.lower) > 1 else 0, start : start + 256]
                for j in range(len(theta)):
                    lo, hi = _lower_limit(x[j], lower[j], infinity)
                    slope = one if theta[j] > zero else below
                    e = _distance(max(theta[j], zero), lo, hi, zero)
                    d = _distance(slope * theta[j], lo, hi, zero)
                    theta[j] = w[j] * slope * d + zero
                    error += w[j] * e * e
                    gap += w[j] * d * d
            else:
                for j in range(len(theta)):
                    t = theta[j]
                    relu = max(t, zero)
                    slope = one if t > zero else below
                    e = x[j] - relu
                    d = x[j] - slope * t if x[j] > zero else zero - relu
                    theta[j] = w[j] * (slope * d if x[j] > zero else d) + zero
                    error += w[j] * e * e
                    gap += w[j] * d * d
            squares[i, 0] += np.float64(error)
            squares[i, 1] += np.float64(gap)
        if i % SAMPLED == 0:
            row = T[i]
            for j in range(len(row)):
                sampled += row[j] != zero
    return sampled


@kernel
def tile_bounds(X: DataTile, scale: float, known: Known, lo: Tile, hi: Tile, w: Tile) -> None:
    """lo, hi, w ← the intervals and the weights of all entries; those of a missing entry are −∞, ∞ and 0."""
    kind = X.dtype.type
    factor, zero, infinity = kind(scale), kind(0), kind(np.inf)
    x = np.empty(X.shape[1], X.dtype)
    for i in range(X.shape[0]):
        _clean(X[i], factor, known, i, 0, x, w[i])
        for j in range(X.shape[1]):
            lower = known.lower[i if len(known.lower) > 1 else 0, j] if len(known.lower) else zero
            upper = known.upper[i if len(known.upper) > 1 else 0, j] if len(known.upper) else infinity
            a, b = _interval(x[j], lower, upper, infinity)
            lo[i, j] = a if w[i, j] > zero else -infinity
            hi[i, j] = b if w[i, j] > zero else infinity


class StoredRows(NamedTuple):
    """Rows of a CSR matrix whose unstored entries are missing; `weights` are those of its values, or none.

    `lower` and `upper` have one row, or none without limits.
    """

    rows: CsrRows
    weights: DataValues
    lower: DataTile
    upper: DataTile
    scale: float


@helper
def _stored_interval(x: Any, k: Any, value: Any) -> tuple[Any, Any]:
    """Return the interval of the stored entry k."""
    kind, j = x.rows.values.dtype.type, x.rows.columns[k]
    lower = x.lower[0, j] if len(x.lower) else kind(0)
    upper = x.upper[0, j] if len(x.upper) else kind(np.inf)
    return _interval(value, lower, upper, kind(np.inf))


@helper
def _stored_gap(x: Any, k: Any, t: Any, below: Any) -> tuple[Any, Any, Any]:
    """Return −∂(½F²)/∂Θ of stored entry k, and its shares of E²‖X‖² and of F²."""
    kind = x.rows.values.dtype.type
    zero, one = kind(0), kind(1)
    value, slope, relu = x.rows.values[k] * kind(x.scale), one if t > zero else below, max(t, zero)
    if len(x.lower) or len(x.upper):
        lo, hi = _stored_interval(x, k, value)
        e, d = _distance(relu, lo, hi, zero), _distance(slope * t, lo, hi, zero)
    else:
        e = value - relu
        d = value - slope * t if value > zero else e
    weight = x.weights[k] if len(x.weights) else one
    if weight == zero:
        return zero, zero, zero
    return weight * slope * d, weight * e * e, weight * d * d


@kernel
def stored_residual(x: StoredRows, W: Tile, Ht: Tile, leak: float, squares: Sums, out: Nonzeros) -> None:
    """out ← the nonzeros of −∂(½F²)/∂Θ of the stored entries, with Θ = WH; `squares` as in `residual`.

    Costs r for each entry.
    """
    columns, starts = x.rows.columns, x.rows.starts
    values_out, columns_out, starts_out = out
    zero, below = W.dtype.type(0), W.dtype.type(leak)
    count = 0
    for i in range(W.shape[0]):
        starts_out[i] = count
        w = W[i]
        for k in range(starts[i], starts[i + 1]):
            h, t = Ht[columns[k]], zero
            for q in range(len(w)):
                t += w[q] * h[q]
            gap, error, objective = _stored_gap(x, k, t, below)
            if gap != zero:
                values_out[count] = gap
                columns_out[count] = columns[k]
                count += 1
            squares[i, 0] += np.float64(error)
            squares[i, 1] += np.float64(objective)
    starts_out[W.shape[0]] = count


@kernel
def stored_gradient(x: StoredRows, W: Tile, Ht: Tile, leak: float, squares: Sums, by_W: Tile, by_H: Sums) -> None:
    """Add −∇_W and −∇_Hᵀ of ½F² to `by_W` and `by_H`, with R of `stored_residual`, while rows of Hᵀ are in cache."""
    columns, starts = x.rows.columns, x.rows.starts
    zero, below = W.dtype.type(0), W.dtype.type(leak)
    for i in range(W.shape[0]):
        w, by_w = W[i], by_W[i]
        for k in range(starts[i], starts[i + 1]):
            h, t = Ht[columns[k]], zero
            for q in range(len(w)):
                t += w[q] * h[q]
            gap, error, objective = _stored_gap(x, k, t, below)
            squares[i, 0] += np.float64(error)
            squares[i, 1] += np.float64(objective)
            if gap != zero:
                by_h = by_H[columns[k]]
                for q in range(len(w)):
                    by_w[q] += gap * h[q]
                    by_h[q] += np.float64(gap * w[q])


@kernel
def stored_bounds(x: StoredRows, lo: Values, hi: Values) -> None:
    """lo, hi ← the intervals of the stored entries."""
    factor = lo.dtype.type(x.scale)
    for k in range(len(lo)):
        lo[k], hi[k] = _stored_interval(x, k, x.rows.values[k] * factor)


@helper
def _erfcx(x: float) -> float:
    """Return exp(x²)·erfc(x) for x ≥ 0; the asymptotic series is accurate to 1e-14 from 25 on."""
    if x < 25.0:
        return math.exp(x * x) * math.erfc(x)
    w = 1.0 / (2.0 * x * x)
    series = 1.0 - w * (1.0 - 3.0 * w * (1.0 - 5.0 * w * (1.0 - 7.0 * w * (1.0 - 9.0 * w))))
    return series / (x * math.sqrt(math.pi))


@helper
def _narrow_moments(a: float, b: float) -> tuple[float, float, float]:
    """Return mean − a, variance and log mass of a standard normal number in [a, b], by quadrature."""
    half, mass, first = (b - a) / 2, 0.0, 0.0
    for k in range(10):
        u = half * (1.0 + (_NODES[k] if k < 5 else -_NODES[k - 5]))
        density = _WEIGHTS[k % 5] * math.exp(-u * (a + u / 2))
        mass += density
        first += density * u
    mean, second = first / mass, 0.0
    for k in range(10):
        u = half * (1.0 + (_NODES[k] if k < 5 else -_NODES[k - 5]))
        second += _WEIGHTS[k % 5] * math.exp(-u * (a + u / 2)) * (u - mean) ** 2
    return mean, second / mass, math.log(mass * half / math.sqrt(2 * math.pi)) - a * a / 2


@helper
def _truncated_moments(lo: float, hi: float) -> tuple[float, float, float]:
    """Return mean, variance and log mass of a standard normal number in [lo, hi], also far out in a tail.

    On the side of the larger tail, with a = lo/√2 and Δ = (hi² − lo²)/2, all terms are multiples of exp(−a²), which
    cancels. Where the interval is so narrow that differences would cancel too, ten nodes of quadrature are exact.
    """
    mirrored = lo + hi < 0
    a, b = (-hi, -lo) if mirrored else (lo, hi)
    if a == -np.inf:
        return 0.0, 1.0, 0.0
    half, root = math.sqrt(0.5), math.sqrt(2.0 / math.pi)
    if b - a < 1.0 and (b - a) * max(abs(a), abs(b)) < 2.0:
        mean, variance, log_mass = _narrow_moments(a, b)
        mean += a
    elif a <= 0:
        mass = (math.erf(b * half) - math.erf(a * half)) / 2
        at_a, at_b = math.exp(-a * a / 2) * root / 2, math.exp(-b * b / 2) * root / 2
        mean = (at_a - at_b) / mass
        edge = 0.0 if at_b == 0 else b * at_b
        variance, log_mass = 1 + (a * at_a - edge) / mass - mean * mean, math.log(mass)
    else:
        ratio = math.exp((a - b) * (a + b) / 2) if b < np.inf else 0.0
        mass = _erfcx(a * half) - (ratio * _erfcx(b * half) if ratio > 0 else 0.0)
        mean = root * (1 - ratio) / mass
        edge = 0.0 if ratio == 0 else b * ratio
        variance = 1 + root * (a - edge) / mass - mean * mean
        log_mass = math.log(mass / 2) - a * a / 2
    return -mean if mirrored else mean, min(1.0, max(0.0, variance)), log_mass


@kernel
def truncated_normal(lo: DataValues, hi: DataValues, sigma: DataValues, mean: Values, deviation: Values) -> None:
    """mean, deviation ← mean and standard deviation of normal numbers, of given means and σ, that lie in [lo, hi]."""
    for k in range(len(mean)):
        s = np.float64(sigma[k])
        first, second, _ = _truncated_moments((lo[k] - mean[k]) / s, (hi[k] - mean[k]) / s)
        mean[k] = min(max(mean[k] + s * first, lo[k]), hi[k])
        deviation[k] = s * math.sqrt(second)


@kernel
def interval_expect(
    T: Tile, X: DataTile, scale: float, known: Known, floor: float, Z_out: Tile, sigma: Sums, spread: Sums
) -> tuple[float, float, int]:
    """E-step of EM for the general model: Z ← Θ + weight·(E[Z̃ | X] − Θ) under Z̃ ~ N(Θ, σ²/weight).

    Entries below a positive limit are known to be at least `floor`. `sigma` (1×n) has σ of each column. Adds
    Σ weight·E[(Z̃ − Θ)² | X] and the number of entries of each column that are not missing to the rows of `spread`.
    Returns the squared error, the log-likelihood in scaled units, and the number of measured entries.
    """
    kind = X.dtype.type
    factor, zero, infinity = kind(scale), kind(0), kind(np.inf)
    x, w = np.empty(X.shape[1], X.dtype), np.empty(X.shape[1], X.dtype)
    squares = likelihood = 0.0
    measured = 0
    for i in range(X.shape[0]):
        _clean(X[i], factor, known, i, 0, x, w)
        for j in range(X.shape[1]):
            t, weight = np.float64(T[i, j]), np.float64(w[j])
            Z_out[i, j] = t
            if weight == 0:
                continue
            lower = known.lower[i if len(known.lower) > 1 else 0, j] if len(known.lower) else zero
            upper = known.upper[i if len(known.upper) > 1 else 0, j] if len(known.upper) else infinity
            lo, hi = _interval(x[j], lower, upper, infinity)
            lo = kind(floor) if lo == -infinity and lower > zero else lo
            e = _distance(max(t, 0.0), np.float64(lo), np.float64(hi), 0.0)
            squares += weight * e * e
            s = sigma[0, j] / math.sqrt(weight)
            if lo == hi:
                mean, variance = (x[j] - t) / s, 0.0
                measured += 1
                log_mass = -mean * mean / 2 - math.log(s * math.sqrt(2 * math.pi))
            else:
                mean, variance, log_mass = _truncated_moments((lo - t) / s, (hi - t) / s)
            Z_out[i, j] = t + weight * mean * s
            spread[0, j] += weight * s * s * (mean * mean + variance)
            spread[1, j] += 1
            likelihood += log_mass
    return squares, likelihood, measured
