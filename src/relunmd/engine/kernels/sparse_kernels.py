"""Tiles that are mostly zero: to and from their nonzeros, and products with these alone.

Nonzeros are (values, columns, starts): row i has values[starts[i]:starts[i+1]] at those columns.
"""

import numpy as np
from numpy.typing import NDArray

from relunmd.engine.kernels._compile import SAMPLED, helper, kernel

__all__ = ["add_to", "compress", "gather", "scatter", "sparse_times", "sparse_transposed_times"]

Array = NDArray[np.generic]


@helper
def _first_from(first: int, columns: Array, start: int, stop: int) -> int:
    """The first place in sorted columns[start:stop] with a column from `first` on, by bisection."""
    while start < stop and first > 0:
        middle = (start + stop) // 2
        if columns[middle] < first:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel("vipnwp")
def scatter(values: Array, columns: Array, starts: Array, first: int, out: Array, places: Array) -> int:
    """Write the entries of rows with sorted columns from `first` on into `out`, which is zero; returns how many.

    `places` receives where in the flat `out` they are.
    """
    width = out.shape[1]
    count = 0
    for i in range(out.shape[0]):
        k, stop = _first_from(first, columns, starts[i], starts[i + 1]), starts[i + 1]
        while k < stop and columns[k] < first + width:
            j = columns[k] - first
            out[i, j] = values[k]
            places[count] = i * width + j
            count += 1
            k += 1
    return count


@kernel("vipnnnssujp")
def gather(
    values: Array,
    columns: Array,
    starts: Array,
    first: int,
    width: int,
    most: int,
    scale: float,
    lift: float,
    values_out: Array,
    columns_out: Array,
    starts_out: Array,
) -> int:
    """The positive entries of a tile, times `scale` and raised by `lift`; −1 if they are too many, as in `compress`."""
    zero = values_out.dtype.type(0)
    factor = values_out.dtype.type(scale)
    more = values_out.dtype.type(lift)
    height = starts.shape[0] - 1
    count = 0
    sampled = 0
    for i in range(height):
        starts_out[i] = count
        k, stop = _first_from(first, columns, starts[i], starts[i + 1]), starts[i + 1]
        while k < stop and columns[k] < first + width:
            x = values[k] * factor
            if x > zero:
                if count == most:
                    return -1
                values_out[count] = x + more
                columns_out[count] = columns[k] - first
                count += 1
            k += 1
        if i % SAMPLED == 0:
            sampled += count - starts_out[i]
    if sampled * height > most * ((height + SAMPLED - 1) // SAMPLED):
        return -1
    starts_out[height] = count
    return count


@kernel("wbujp")
def compress(A: Array, bits: Array, values: Array, columns: Array, starts: Array) -> int:
    """The nonzeros of a tile; −1 if there are more than `values` has room for, less 8, by `SAMPLED` rows or in all.

    `bits` is A seen as integers. Zeros are found by them, in groups of eight, and must have no sign; whatever is
    in the group is written, and counted if it is not zero: that is what the room for 8 more is for.
    """
    most = values.shape[0] - 8
    height, width = A.shape
    whole = width - width % 8
    sampled = 0
    for i in range(0, height, SAMPLED):
        for j in range(width):
            sampled += bits[i, j] != 0
    if sampled * height > most * ((height + SAMPLED - 1) // SAMPLED):
        return -1
    count = 0
    for i in range(height):
        starts[i] = count
        for j in range(0, whole, 8):
            found = bits[i, j]
            for k in range(1, 8):
                found |= bits[i, j + k]
            if found != 0:
                for k in range(8):
                    values[count] = A[i, j + k]
                    columns[count] = j + k
                    count += bits[i, j + k] != 0
                if count > most:
                    return -1
        for j in range(whole, width):
            values[count] = A[i, j]
            columns[count] = j
            count += bits[i, j] != 0
        if count > most:
            return -1
    starts[height] = count
    return count


@kernel("ujpww")
def sparse_times(values: Array, columns: Array, starts: Array, V: Array, Y: Array) -> None:
    """Y += A·V."""
    for i in range(Y.shape[0]):
        for k in range(starts[i], starts[i + 1]):
            a, j = values[k], columns[k]
            for q in range(Y.shape[1]):
                Y[i, q] += a * V[j, q]


@kernel("ujpwa")
def sparse_transposed_times(values: Array, columns: Array, starts: Array, Y: Array, S: Array) -> None:
    """S += Aᵀ·Y, the sums in float64."""
    for i in range(Y.shape[0]):
        for k in range(starts[i], starts[i + 1]):
            a, j = values[k], columns[k]
            for q in range(Y.shape[1]):
                S[j, q] += np.float64(a * Y[i, q])


@kernel("aw")
def add_to(S: Array, A: Array) -> None:
    """S += A, the sums in float64."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            S[i, j] += np.float64(A[i, j])
