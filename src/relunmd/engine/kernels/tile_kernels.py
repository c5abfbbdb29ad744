"""Elementwise operations of the algorithms and initializations on one tile.

Letters are those of the paper: X is the data (times `scale`, a power of two), T a tile of Θ = WH, Z the latent matrix,
and P(Θ) the projection of equation (3): X where X > 0, min(0, Θ) elsewhere. Products with `scale` are always computed
in the tile's float type, so that all kernels agree on which entries are zero. Squared residuals are summed in float64.
"""

import math

import numpy as np

from relunmd.engine.kernels._compile import SAMPLED, DataOrBytes, DataTile, Float32Tile, Sums, Tile, helper, kernel

Four = tuple[Float32Tile, Float32Tile, Float32Tile, Float32Tile]


@helper
def _mixed(z: np.uint64) -> np.uint64:
    """Return z mixed by the finalizer of SplitMix64: every bit of the result depends on every bit of z."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def scan(X: DataTile, row: int, column: int, n_columns: int) -> tuple[float, int, int, int, int]:
    """Return the largest finite entry, the numbers of infinite and of negative entries, a checksum, the number of NaN.

    The tile begins at (row, column) of a matrix with n_columns columns. The checksum is the sum modulo 2⁶⁴ of a hash of
    the position and the value of each nonzero entry: it does not depend on the storage or on the tiles. Entries are
    read 64 at a time, and those that are all zero are skipped.
    """
    largest, checksum = 0.0, np.uint64(0)
    infinite = negative = missing = 0
    values = np.empty(64, np.float64)
    bits = values.view(np.uint64)
    for i in range(X.shape[0]):
        for start in range(0, X.shape[1], 64):
            part = X[i, start : start + 64]
            nonzeros = 0
            for j in range(len(part)):
                nonzeros += part[j] != 0
            if nonzeros == 0:
                continue
            place = np.uint64(row + i) * np.uint64(n_columns) + np.uint64(column + start)
            for j in range(len(part)):
                values[j] = part[j] if part[j] == part[j] else np.nan  # One NaN, whatever its bits.
            for j in range(len(part)):
                x = values[j]
                if x != 0:
                    key = _mixed((place + np.uint64(j)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1))
                    checksum += _mixed(key ^ bits[j])
                if x != x:
                    missing += 1
                elif not math.isfinite(x):
                    infinite += 1
                elif x < 0:
                    negative += 1
                elif x > largest:
                    largest = x
    return largest, infinite, negative, checksum, missing  # type: ignore[return-value]


@kernel
def entry_moments(X: DataTile, scale: float) -> tuple[float, float, int]:
    """Return Σ X, Σ X² and the number of positive entries of the scaled X."""
    factor = X.dtype.type(scale)
    total = squares = 0.0
    positive = 0
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = np.float64(X[i, j] * factor)
            total += x
            squares += x * x
            if x > 0:
                positive += 1
    return total, squares, positive


@kernel
def raise_positive(X: DataTile, scale: float, out: Tile, amount: float) -> None:
    """out ← the scaled X, with `amount` added to its positive entries."""
    zero, factor, lift = X.dtype.type(0), X.dtype.type(scale), X.dtype.type(amount)
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = X[i, j] * factor
            out[i, j] = x + lift if x > zero else zero


@kernel
def squared_error(T: Tile, X: DataTile, scale: float) -> float:
    """Return ‖X − max(0, Θ)‖²."""
    zero, factor = X.dtype.type(0), X.dtype.type(scale)
    squares = 0.0
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            d = np.float64(X[i, j] * factor - max(T[i, j], zero))
            squares += d * d
    return squares


@kernel
def cross_products(T: Tile, X: DataTile, scale: float) -> tuple[float, float]:
    """Return ⟨X, max(0, Θ)⟩ and ‖max(0, Θ)‖², whose ratio is the best multiple of Θ."""
    factor = X.dtype.type(scale)
    cross = squares = 0.0
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            t = max(np.float64(T[i, j]), 0.0)
            cross += t * np.float64(X[i, j] * factor)
            squares += t * t
    return cross, squares


@kernel
def project(T: Tile, X: DataTile, scale: float, Z_out: Tile) -> float:
    """Z ← P(Θ). Return ‖X − max(0, Θ)‖²."""
    zero, factor = X.dtype.type(0), X.dtype.type(scale)
    squares = 0.0
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            t = T[i, j]
            x = X[i, j] * factor
            Z_out[i, j] = x if x > zero else min(t, zero)
            d = np.float64(x - max(t, zero))
            squares += d * d
    return squares


@kernel
def add_difference(Z_out: Tile, Z: Tile, Z_before: Tile, alpha: float) -> None:
    """Equation (4): Z_out ← Z_out + α (Z − Z_before)."""
    a = Z.dtype.type(alpha)
    for i in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            Z_out[i, j] += a * (Z[i, j] - Z_before[i, j])


@kernel
def extrapolate_rows(W: Tile, W_before: Tile, out: Tile, beta: float) -> None:
    """out ← W + β (W − W_before)."""
    b = W.dtype.type(beta)
    for i in range(W.shape[0]):
        for j in range(W.shape[1]):
            out[i, j] = W[i, j] + b * (W[i, j] - W_before[i, j])


@kernel
def extrapolate(T: Tile, X: DataTile, scale: float, Theta: Tile, Theta_out: Tile, beta: float) -> tuple[float, float]:
    """Θ_out ← T + β (T − Θ). Return ‖X − max(0, ·)‖² for T and for Θ_out."""
    zero, factor, b = X.dtype.type(0), X.dtype.type(scale), X.dtype.type(beta)
    plain = extrapolated = 0.0
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


@kernel
def latent(Theta: Tile, X: DataTile, scale: float, Z: Tile, Z_out: Tile, beta: float) -> None:
    """Equation (6): Z_out ← P(Θ) + β (P(Θ) − Z)."""
    zero, factor, b = X.dtype.type(0), X.dtype.type(scale), X.dtype.type(beta)
    for i in range(Theta.shape[0]):
        for j in range(Theta.shape[1]):
            x = X[i, j] * factor
            z = x if x > zero else min(Theta[i, j], zero)
            Z_out[i, j] = z + b * (z - Z[i, j])


@kernel
def residual(T: Tile, X: DataOrBytes, first: int, scale: float, leak: float, squares: Sums) -> int:
    """T ← −∂(½F²)/∂Θ, in place; add ‖X − max(0, Θ)‖² and F² of each row to the two columns of `squares`.

    F² = Σ (X − Θ)² where Θ > 0, and (X − leak·Θ)² where Θ ≤ 0 < X: L² for a leak of 1, E²‖X‖² for 0.
    T holds the columns of X from `first`. Squares are summed in the tile's float type, 256 at a time, and these sums in
    float64: to convert each square from float32 would take half of the time. Return the number of nonzeros in every
    eighth row.
    """
    zero, one = T.dtype.type(0), T.dtype.type(1)
    factor, below = T.dtype.type(scale), T.dtype.type(leak)
    sampled = 0
    for i in range(T.shape[0]):
        for start in range(0, T.shape[1], 256):
            theta = T[i, start : start + 256]
            data = X[i, first + start : first + start + len(theta)]
            error = gap = zero
            for j in range(len(theta)):
                t = theta[j]
                x = data[j] * factor
                relu = max(t, zero)
                slope = one if t > zero else below
                e = x - relu
                d = x - slope * t if x > zero else zero - relu  # −relu may be −0.
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


@kernel
def dot(A: Tile, B: Tile) -> float:
    """Return Σ A∘B; rows are summed in the float type, their sums in float64."""
    total = 0.0
    for i in range(A.shape[0]):
        row = A.dtype.type(0)
        for j in range(A.shape[1]):
            row += A[i, j] * B[i, j]
        total += np.float64(row)
    return total


@kernel
def four_dots(four: Four, left: Tile, right: Tile, sums: Sums) -> None:
    """Add Σ A∘left and Σ A∘right to a row of `sums` (4×2), for each of four arrays A.

    Four at a time: with one call for each the threads would wait for each other.
    """
    A, B, C, D = four
    zero = left.dtype.type(0)
    for i in range(left.shape[0]):
        a = b = c = d = e = f = g = h = zero
        for j in range(left.shape[1]):
            x, y = left[i, j], right[i, j]
            a += A[i, j] * x
            b += B[i, j] * x
            c += C[i, j] * x
            d += D[i, j] * x
            e += A[i, j] * y
            f += B[i, j] * y
            g += C[i, j] * y
            h += D[i, j] * y
        for k, found in enumerate(((a, e), (b, f), (c, g), (d, h))):
            sums[k, 0] += np.float64(found[0])
            sums[k, 1] += np.float64(found[1])


@kernel
def add_four(out: Tile, four: Four, factors: tuple[float, float, float, float]) -> None:
    """out += a·A + b·B + c·C + d·D."""
    A, B, C, D = four
    kind = out.dtype.type
    a, b, c, d = kind(factors[0]), kind(factors[1]), kind(factors[2]), kind(factors[3])
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] += a * A[i, j] + b * B[i, j] + c * C[i, j] + d * D[i, j]


@kernel
def rows_times(M: Float32Tile, A: Tile, out: Tile) -> None:
    """out[i] ← the symmetric r×r matrix in row i of M, times A[i]."""
    r = A.shape[1]
    for i in range(A.shape[0]):
        found = out[i]
        found[:] = 0
        for a in range(r):
            x, row = A[i, a], M[i, a * r : (a + 1) * r]
            for q in range(r):
                found[q] += x * row[q]


@kernel
def squared_difference(Z: Tile, T: Tile) -> float:
    """Return ‖Z − T‖²."""
    squares = 0.0
    for i in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            d = np.float64(Z[i, j] - T[i, j])
            squares += d * d
    return squares


@kernel
def descend(Theta: Tile, Y: Tile, X: DataTile, scale: float, out: Tile, step: float) -> None:
    """out ← Π(Θ − step·Y), Π is the projection onto the feasible set of the nuclear-norm problem (8)."""
    zero, factor, a = X.dtype.type(0), X.dtype.type(scale), X.dtype.type(step)
    for i in range(Theta.shape[0]):
        for j in range(Theta.shape[1]):
            x = X[i, j] * factor
            out[i, j] = x if x > zero else min(Theta[i, j] - a * Y[i, j], zero)


@kernel
def expect(T: Tile, X: DataTile, scale: float, Z_out: Tile, sigma: float) -> tuple[float, float, float, float]:
    """E-step of EM: Z ← E[Z̃ | X] under Z̃ ~ N(Θ, σ²).

    Return ‖X − max(0, Θ)‖², Σ_{I+} (X − Θ)², Σ_{I0} log Φ(−Θ/σ) and Σ var[Z̃ | X] / σ².

    With γ = Θ/σ the inverse Mills ratio ρ = φ(γ)/Φ(−γ) is √(2/π)·exp(−γ²/2)/erfc(γ/√2). This form is used until erfc
    nears underflow. Beyond, the asymptotic series erfc(x) ≈ exp(−x²)/(x√π)·(1 − 1/2x² + 3/4x⁴ − …) is accurate to
    1e-14, and exp cancels.
    """
    factor = X.dtype.type(scale)
    squares = fit = tail = variance = 0.0
    root_half, root_two_over_pi = math.sqrt(0.5), math.sqrt(2.0 / math.pi)
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
