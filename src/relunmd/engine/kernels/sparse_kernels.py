"""Tiles that are mostly zero: conversion to and from their nonzeros, and products with the nonzeros alone."""

from typing import NamedTuple

import numpy as np

from relunmd.engine.kernels._compile import (
    SAMPLED,
    Array,
    BitsTile,
    Columns,
    CsrRows,
    Float32Tile,
    Indices,
    Nonzeros,
    ShortIndices,
    Sums,
    Tile,
    Values,
    helper,
    kernel,
)


@helper
def _first_from(first: int, columns: Array, start: int, stop: int) -> int:
    """Return the first index in sorted columns[start:stop] of a column ≥ `first`, by bisection."""
    while start < stop and first > 0:
        middle = (start + stop) // 2
        if columns[middle] < first:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel
def scatter(rows: CsrRows, first: int, out: Tile, places: Indices) -> int:
    """Write the entries in the columns from `first` into `out`, which is zero. Return their number.

    `places` receives their indices in the flattened `out`.
    """
    values, columns, starts = rows
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


@kernel
def gather(rows: CsrRows, first: int, width: int, most: int, scale: float, lift: float, out: Nonzeros) -> int:
    """Write the positive entries of a tile, times `scale` plus `lift`. Return their number; −1 as `compress` does."""
    values, columns, starts = rows
    values_out, columns_out, starts_out = out
    kind = values_out.dtype.type
    zero, factor, more = kind(0), kind(scale), kind(lift)
    height = starts.shape[0] - 1
    count = sampled = 0
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


@kernel
def compress(A: Tile, bits: BitsTile, out: Nonzeros) -> int:
    """Write the nonzeros of a tile. Return their number; −1 if `out` has no room for them and 8 more.

    The number is first estimated from every eighth row. `bits` is A viewed as integers. Zeros are found by their bits,
    in groups of eight, and must have no sign; a group with nonzeros is written as a whole, and its zeros are
    overwritten, which needs the room for 8 more.
    """
    values, columns, starts = out
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


class Picked(NamedTuple):
    """Entries of a tile: their values, rows and columns."""

    values: Values
    rows: ShortIndices
    columns: Columns


@kernel
def pick(T: Float32Tile, positives: Nonzeros, least: float, out: Picked) -> int:
    """Write the positive entries of a tile, and zeros where Θ > `least`, row by row. Return their number.

    `out` has room for the whole tile. Entries are tested in groups of sixteen, nearly all of which have none.
    """
    values, columns, starts = positives
    bound, zero = np.float32(least), values.dtype.type(0)
    width = T.shape[1]
    count = 0
    for i in range(T.shape[0]):
        k, stop = starts[i], starts[i + 1]
        following = columns[k] if k < stop else width
        for first in range(0, width, 16):
            end = min(first + 16, width)
            if end == first + 16 and following >= end:
                group, largest = T[i, first : first + 16], bound
                for q in range(16):
                    largest = max(largest, group[q])
                if largest <= bound:
                    continue
            for j in range(first, end):
                positive = j == following
                if positive or T[i, j] > bound:
                    out.values[count] = values[k] if positive else zero
                    out.rows[count] = i
                    out.columns[count] = j
                    count += 1
                if positive:
                    k += 1
                    following = columns[k] if k < stop else width
    return count


@kernel
def sparse_times(A: Nonzeros, V: Tile, Y: Tile) -> None:
    """Y += A·V."""
    values, columns, starts = A
    for i in range(Y.shape[0]):
        for k in range(starts[i], starts[i + 1]):
            a, j = values[k], columns[k]
            for q in range(Y.shape[1]):
                Y[i, q] += a * V[j, q]


@kernel
def sparse_transposed_times(A: Nonzeros, Y: Tile, S: Sums) -> None:
    """S += Aᵀ·Y, summed in float64."""
    values, columns, starts = A
    for i in range(Y.shape[0]):
        for k in range(starts[i], starts[i + 1]):
            a, j = values[k], columns[k]
            for q in range(Y.shape[1]):
                S[j, q] += np.float64(a * Y[i, q])


@kernel
def add_to(S: Sums, A: Tile) -> None:
    """S += A, summed in float64."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            S[i, j] += np.float64(A[i, j])
