"""The elementwise work of every algorithm and start, on one tile.

Letters as in the paper: X the data (times `scale`, a power of two), T a tile of Θ = WH, Z the
latent matrix, P(Θ) the projection of equation (3): X where X > 0, min(0, Θ) elsewhere. Products with
`scale` are made in the tile's float type everywhere, so that all agree on which entries are zero.
Squares are those of finished residuals, summed in float64.
"""

import math

import numpy as np
from numpy.typing import NDArray

from relunmd.engine.kernels._compile import SAMPLED, helper, kernel

__all__ = [
    "add_difference",
    "add_four",
    "cross_products",
    "descend",
    "dot",
    "entry_moments",
    "expect",
    "extrapolate",
    "extrapolate_rows",
    "four_dots",
    "latent",
    "project",
    "raise_positive",
    "residual",
    "scan",
    "squared_difference",
    "squared_error",
]

Tile = NDArray[np.floating]


@helper
def _mixed(z: np.uint64) -> np.uint64:
    """The finalizer of SplitMix64: every bit of the result depends on every bit of z."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel("rnnn")
def scan(X: Tile, row: int, column: int, n_columns: int) -> tuple[float, int, int, int]:
    """Largest finite entry, number of entries that are not finite, number that are negative, and a checksum.

    The tile begins at (row, column) of a matrix of n_columns columns. The checksum is the sum modulo 2⁶⁴ of a hash of
    the place and the value of each nonzero entry: it does not depend on how the matrix is stored or cut.
    """
    largest = 0.0
    not_finite = 0
    negative = 0
    checksum = np.uint64(0)
    values = np.empty(X.shape[1], np.float64)
    bits = values.view(np.uint64)
    for i in range(X.shape[0]):
        place = np.uint64(row + i) * np.uint64(n_columns) + np.uint64(column)
        for j in range(X.shape[1]):
            values[j] = X[i, j]
        for j in range(X.shape[1]):
            x = values[j]
            if x != 0:
                key = _mixed((place + np.uint64(j)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1))
                checksum += _mixed(key ^ bits[j])
            if not math.isfinite(x):
                not_finite += 1
            elif x < 0:
                negative += 1
            elif x > largest:
                largest = x
    return largest, not_finite, negative, checksum  # type: ignore[return-value]


@kernel("rs")
def entry_moments(X: Tile, scale: float) -> tuple[float, float, int]:
    """Σ X, Σ X² and the number of positive entries, X scaled."""
    factor = X.dtype.type(scale)
    total = 0.0
    squares = 0.0
    positive = 0
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = np.float64(X[i, j] * factor)
            total += x
            squares += x * x
            if x > 0:
                positive += 1
    return total, squares, positive


@kernel("rsws")
def raise_positive(X: Tile, scale: float, out: Tile, amount: float) -> None:
    """out ← X scaled, its positive entries raised by `amount`."""
    zero = X.dtype.type(0)
    factor = X.dtype.type(scale)
    lift = X.dtype.type(amount)
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = X[i, j] * factor
            out[i, j] = x + lift if x > zero else zero


@kernel("wrs")
def squared_error(T: Tile, X: Tile, scale: float) -> float:
    """‖X − max(0, Θ)‖² of the tile."""
    zero = X.dtype.type(0)
    factor = X.dtype.type(scale)
    squares = 0.0
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            d = np.float64(X[i, j] * factor - max(T[i, j], zero))
            squares += d * d
    return squares


@kernel("wrs")
def cross_products(T: Tile, X: Tile, scale: float) -> tuple[float, float]:
    """⟨X, max(0, Θ)⟩ and ‖max(0, Θ)‖²: what the best multiple of Θ is made of."""
    factor = X.dtype.type(scale)
    cross = 0.0
    squares = 0.0
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            t = max(np.float64(T[i, j]), 0.0)
            cross += t * np.float64(X[i, j] * factor)
            squares += t * t
    return cross, squares


@kernel("wrsw")
def project(T: Tile, X: Tile, scale: float, Z_out: Tile) -> float:
    """Z ← P(Θ); returns ‖X − max(0, Θ)‖²."""
    zero = X.dtype.type(0)
    factor = X.dtype.type(scale)
    squares = 0.0
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            t = T[i, j]
            x = X[i, j] * factor
            Z_out[i, j] = x if x > zero else min(t, zero)
            d = np.float64(x - max(t, zero))
            squares += d * d
    return squares


@kernel("wwws")
def add_difference(Z_out: Tile, Z: Tile, Z_before: Tile, alpha: float) -> None:
    """Equation (4): Z_out ← Z_out + α (Z − Z_before)."""
    a = Z.dtype.type(alpha)
    for i in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            Z_out[i, j] += a * (Z[i, j] - Z_before[i, j])


@kernel("wwws")
def extrapolate_rows(W: Tile, W_before: Tile, out: Tile, beta: float) -> None:
    """out ← W + β (W − W_before)."""
    b = W.dtype.type(beta)
    for i in range(W.shape[0]):
        for j in range(W.shape[1]):
            out[i, j] = W[i, j] + b * (W[i, j] - W_before[i, j])


@kernel("wrswws")
def extrapolate(T: Tile, X: Tile, scale: float, Theta: Tile, Theta_out: Tile, beta: float) -> tuple[float, float]:
    """Θ_out ← T + β (T − Θ); returns ‖X − max(0, ·)‖² of T and of Θ_out."""
    zero = X.dtype.type(0)
    factor = X.dtype.type(scale)
    b = X.dtype.type(beta)
    plain = 0.0
    extrapolated = 0.0
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            t = T[i, j]
            x = X[i, j] * factor
            theta = t + b * (t - Theta[i, j])
            Theta_out[i, j] = theta
            d = np.float64(x - max(t, zero))
            plain += d * d
            d = np.float64(x - max(theta, zero))
            extrapolated += d * d
    return plain, extrapolated


@kernel("wrswws")
def latent(Theta: Tile, X: Tile, scale: float, Z: Tile, Z_out: Tile, beta: float) -> None:
    """Equation (6): Z_out ← P(Θ) + β (P(Θ) − Z)."""
    zero = X.dtype.type(0)
    factor = X.dtype.type(scale)
    b = X.dtype.type(beta)
    for i in range(Theta.shape[0]):
        for j in range(Theta.shape[1]):
            x = X[i, j] * factor
            z = x if x > zero else min(Theta[i, j], zero)
            Z_out[i, j] = z + b * (z - Z[i, j])


@kernel("wxnssa")
def residual(T: Tile, X: Tile, first: int, scale: float, leak: float, squares: Tile) -> int:
    """T ← minus the derivative of ½F² by Θ, in place; adds each row's (X − max(0, Θ))² and share of F² to `squares`.

    F² = Σ (X − Θ)² where Θ > 0, and (X − leak·Θ)² where Θ ≤ 0 < X: L² for a leak of 1, E²‖X‖² for 0.
    `squares` has two columns; T has the columns of X from `first` on. Here 256 squares at a time are summed in the
    tile's float type, and their sums in float64: in float32, to convert each would take half of the time. Returns how
    many entries of each eighth row are not zero.
    """
    zero = T.dtype.type(0)
    one = T.dtype.type(1)
    factor = T.dtype.type(scale)
    below = T.dtype.type(leak)
    sampled = 0
    for i in range(T.shape[0]):
        for start in range(0, T.shape[1], 256):
            theta = T[i, start : start + 256]
            data = X[i, first + start : first + start + len(theta)]
            error = zero
            gap = zero
            for j in range(len(theta)):
                t = theta[j]
                x = data[j] * factor
                relu = max(t, zero)
                slope = one if t > zero else below
                e = x - relu
                d = x - slope * t if x > zero else zero - relu  # And not −relu, which may be −0.
                theta[j] = slope * d if x > zero else d
                error += e * e
                gap += d * d
            squares[i, 0] += np.float64(error)
            squares[i, 1] += np.float64(gap)
        if i % SAMPLED == 0:
            row = T[i]
            for j in range(len(row)):
                sampled += row[j] != zero
    return sampled


@kernel("ww")
def dot(A: Tile, B: Tile) -> float:
    """Σ A∘B: each row in the float type, the rows in float64."""
    total = 0.0
    for i in range(A.shape[0]):
        row = A.dtype.type(0)
        for j in range(A.shape[1]):
            row += A[i, j] * B[i, j]
        total += np.float64(row)
    return total


@kernel("ffffwwa")
def four_dots(A: Tile, B: Tile, C: Tile, D: Tile, left: Tile, right: Tile, sums: Tile) -> None:
    """Add Σ A∘left and Σ A∘right to the first row of `sums` (4×2), those of B, C and D to the others.

    A, …, D are in float32. Four at a time: one call for each would leave the threads waiting for each other's.
    """
    zero = left.dtype.type(0)
    for i in range(left.shape[0]):
        a = b = c = d = e = f = g = h = zero
        for j in range(left.shape[1]):
            x = left[i, j]
            y = right[i, j]
            a += A[i, j] * x
            b += B[i, j] * x
            c += C[i, j] * x
            d += D[i, j] * x
            e += A[i, j] * y
            f += B[i, j] * y
            g += C[i, j] * y
            h += D[i, j] * y
        sums[0, 0] += np.float64(a)
        sums[1, 0] += np.float64(b)
        sums[2, 0] += np.float64(c)
        sums[3, 0] += np.float64(d)
        sums[0, 1] += np.float64(e)
        sums[1, 1] += np.float64(f)
        sums[2, 1] += np.float64(g)
        sums[3, 1] += np.float64(h)


@kernel("wffffssss")
def add_four(out: Tile, A: Tile, B: Tile, C: Tile, D: Tile, a: float, b: float, c: float, d: float) -> None:
    """out += a·A + b·B + c·C + d·D; these in float32."""
    kind = out.dtype.type
    of_A, of_B, of_C, of_D = kind(a), kind(b), kind(c), kind(d)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] += of_A * A[i, j] + of_B * B[i, j] + of_C * C[i, j] + of_D * D[i, j]


@kernel("ww")
def squared_difference(Z: Tile, T: Tile) -> float:
    """‖Z − T‖² of the tile."""
    squares = 0.0
    for i in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            d = np.float64(Z[i, j] - T[i, j])
            squares += d * d
    return squares


@kernel("wwrsws")
def descend(Theta: Tile, Y: Tile, X: Tile, scale: float, out: Tile, step: float) -> None:
    """out ← Π(Θ − step·Y), Π the projection on the feasible set of the nuclear-norm problem (8)."""
    zero = X.dtype.type(0)
    factor = X.dtype.type(scale)
    a = X.dtype.type(step)
    for i in range(Theta.shape[0]):
        for j in range(Theta.shape[1]):
            x = X[i, j] * factor
            out[i, j] = x if x > zero else min(Theta[i, j] - a * Y[i, j], zero)


@kernel("wrsws")
def expect(T: Tile, X: Tile, scale: float, Z_out: Tile, sigma: float) -> tuple[float, float, float, float]:
    """The E-step of EM: Z ← E[Z̃ | X] under Z̃ ~ N(Θ, σ²).

    Returns ‖X − max(0, Θ)‖², Σ_{I+} (X − Θ)², Σ_{I0} log Φ(−Θ/σ) and Σ var[Z̃ | X] / σ².

    With γ = Θ/σ the inverse Mills ratio ρ = φ(γ)/Φ(−γ) is √(2/π)·exp(−γ²/2)/erfc(γ/√2). That
    form is used until erfc nears underflow; beyond it the asymptotic series erfc(x) ≈
    exp(−x²)/(x√π)·(1 − 1/2x² + 3/4x⁴ − …) is right to 1e-14, and exp cancels.
    """
    factor = X.dtype.type(scale)
    squares = 0.0
    fit = 0.0
    tail = 0.0
    variance = 0.0
    root_half = math.sqrt(0.5)
    root_two_over_pi = math.sqrt(2.0 / math.pi)
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            t = np.float64(T[i, j])
            x = np.float64(X[i, j] * factor)
            d = x - max(t, 0.0)
            squares += d * d
            if x > 0:
                Z_out[i, j] = x
                fit += (x - t) * (x - t)
                continue
            gamma = t / sigma
            y = gamma * root_half
            if y < 25.0:
                mass = math.erfc(y)
                rho = root_two_over_pi * math.exp(-y * y) / mass
                tail += math.log(0.5 * mass) if y > 0 else math.log1p(-0.5 * math.erfc(-y))
            else:
                w = 1.0 / (2.0 * y * y)
                series = 1.0 - w * (1.0 - 3.0 * w * (1.0 - 5.0 * w * (1.0 - 7.0 * w * (1.0 - 9.0 * w))))
                rho = gamma / series
                tail += math.log(0.5 * series / (y * math.sqrt(math.pi))) - y * y
            Z_out[i, j] = t - sigma * rho
            variance += min(1.0, max(0.0, 1.0 - (rho - gamma) * rho))
    return squares, fit, tail, variance
