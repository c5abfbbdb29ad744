"""Tiles that are mostly zero: conversion to and from their nonzeros, and products with the nonzeros alone."""

from typing import Any, NamedTuple

import numpy as np

from relunmd.engine.kernels._compile import (
    SAMPLED,
    Array,
    BitsTile,
    Columns,
    CsrRows,
    Float32Panels,
    Float32Tile,
    Indices,
    Nonzeros,
    ShortIndices,
    Sums,
    Tile,
    Values,
    helper,
    kernel,
    longest,
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


@helper
def _above(bits: Any, bound: Any) -> Any:
    """Return whether a number exceeds a bound ≤ 0 and is not zero, from their bits as signed integers."""
    return (bits > 0) | ((bits < bound) & (bits != np.int32(-(2**31))))


@kernel
def screen(W: Float32Tile, panels: Float32Panels, positives: Nonzeros, bound: int, T: Float32Tile, out: Picked) -> int:
    """Write the positive entries of a tile, and its zeros where Θ = WH exceeds a bound ≤ 0. Return their number.

    Each panel has some columns of H in C order, and `T` as many columns: both are read again while in the
    fastest cache. `bound` is viewed as an integer. Entries are tested in groups of 64, nearly all of which have none.
    `out` has room for all.
    """
    values, columns, starts = positives
    width, least = panels.shape[2], np.int32(bound)
    bits = T.view(np.int32)
    count = 0
    for p in range(len(panels)):
        first = p * width
        np.dot(W, panels[p], T)
        for i in range(len(W)):
            k, stop = _first_from(first, columns, starts[i], starts[i + 1]), starts[i + 1]
            while k < stop and columns[k] < first + width:
                out.values[count], out.rows[count], out.columns[count] = values[k], i, columns[k]
                bits[i, columns[k] - first] = 0
                count += 1
                k += 1
            for start in range(0, width, 64):
                group = bits[i, start : start + 64]
                found = False
                for q in range(len(group)):
                    found |= _above(group[q], least)
                if found:
                    for q in range(len(group)):
                        if _above(group[q], least):
                            out.values[count], out.rows[count], out.columns[count] = 0, i, first + start + q
                            count += 1
    return count


class SetRows(NamedTuple):
    """Some rows of a working set: row i has the entries starts[i] to starts[i + 1]; `places` are those in columns."""

    values: Values
    columns: Columns
    places: Columns
    starts: Indices


class SetColumns(NamedTuple):
    """Some columns of a working set, and a number for each entry."""

    values: Values
    rows: Columns
    starts: Indices


@kernel
def count_columns(x: SetRows, first: int, counts: Indices) -> None:
    """Add how many entries are in each column from `first` to `counts`; a row has its columns from left to right.

    Columns that are out of order must be on the same side of `first` and of the last of these columns.
    """
    stop = first + len(counts)
    for i in range(len(x.starts) - 1):
        k, end = _first_from(first, x.columns, x.starts[i], x.starts[i + 1]), x.starts[i + 1]
        while k < end and x.columns[k] < stop:
            counts[x.columns[k] - first] += 1
            k += 1


@kernel
def place_columns(x: SetRows, first: int, following: Indices, rows: Columns) -> None:
    """Write the places by columns of the entries that `count_columns` counts, and their rows to these places.

    `following` has the first place of each column and is advanced.
    """
    stop = first + len(following)
    for i in range(len(x.starts) - 1):
        k, end = _first_from(first, x.columns, x.starts[i], x.starts[i + 1]), x.starts[i + 1]
        while k < end and x.columns[k] < stop:
            place = following[x.columns[k] - first]
            x.places[k], rows[place] = place, i
            following[x.columns[k] - first] += 1
            k += 1


class SupportSums(NamedTuple):
    """Sums over nonzero entries: the parts that are added, a row for each column (or row) of X, and the sums.

    Without columns if none are wanted.
    """

    parts: Tile
    sums: Tile


@helper
def _add_rows(factors: Array, places: Array, count: int, A: Tile, out: Array) -> None:
    """out += Σ factors[k]·A[places[k]] for k < count; four at a time, which takes a third of the time of one at a time.

    There is room for three more factors and places, which are overwritten.
    """
    for k in range(count, count + 3):
        factors[k], places[k] = 0, places[0]
    for k in range(0, count, 4):
        a, b, c, d = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        A0, A1, A2, A3 = A[places[k]], A[places[k + 1]], A[places[k + 2]], A[places[k + 3]]
        for q in range(len(out)):
            out[q] += (a * A0[q] + b * A1[q]) + (c * A2[q] + d * A3[q])


@helper
def _sum_rows(places: Array, count: int, A: Tile, out: Array) -> None:
    """out ← Σ A[places[k]] for k < count."""
    out[:] = 0
    for k in range(count):
        row = A[places[k]]
        for q in range(len(out)):
            out[q] += row[q]


@kernel
def set_gradient(
    x: SetRows,
    W: Tile,
    Ht: Tile,
    leak: float,
    squares: Sums,
    out: Values,
    by_W: Tile,
    wanted: SupportSums,
) -> None:
    """out ← −∂(½F²)/∂Θ of the entries, by columns; by_W ← their product with Hᵀ. `squares` as in `residual`.

    Row i of the wanted sums is over the columns of the entries of row i that are not zero.
    """
    values, columns, all_places, starts = x
    zero, one, below = W.dtype.type(0), W.dtype.type(1), W.dtype.type(leak)
    room = longest(starts) + 3
    gap, factors, places = np.empty(room, W.dtype), np.empty(room, W.dtype), np.empty(room, np.int32)
    for i in range(W.shape[0]):
        at, data, w = columns[starts[i] : starts[i + 1]], values[starts[i] : starts[i + 1]], W[i]
        out_places = all_places[starts[i] : starts[i + 1]]
        for k in range(len(at)):
            h, t = Ht[at[k]], zero
            for q in range(len(w)):
                t += w[q] * h[q]
            gap[k] = t
        error = objective = zero
        for k in range(len(at)):
            x_k, t = data[k], gap[k]
            relu = max(t, zero)
            slope = one if t > zero else below
            e = x_k - relu
            d = x_k - slope * t if x_k > zero else e
            gap[k] = slope * d if x_k > zero else d
            error += e * e
            objective += d * d
        squares[i, 0] += np.float64(error)
        squares[i, 1] += np.float64(objective)
        count = 0
        for k in range(len(at)):
            out[out_places[k]] = gap[k]
            factors[count], places[count] = gap[k], at[k]
            count += gap[k] != zero
        if wanted.sums.shape[1] > 0:
            _sum_rows(places, count, wanted.parts, wanted.sums[i])
        by_W[i] = zero
        _add_rows(factors, places, count, Ht, by_W[i])


@kernel
def set_columns_times(x: SetColumns, W: Tile, by_H: Tile, wanted: SupportSums) -> None:
    """by_H ← GᵀW for the columns of a matrix G.

    Row j of the wanted sums is over the rows of the entries of column j that are not zero.
    """
    values, rows, starts = x
    room = longest(starts) + 3
    factors, places = np.empty(room, W.dtype), np.empty(room, np.int32)
    for j in range(by_H.shape[0]):
        count = 0
        for k in range(starts[j], starts[j + 1]):
            factors[count], places[count] = values[k], rows[k]
            count += values[k] != 0
        if wanted.sums.shape[1] > 0:
            _sum_rows(places, count, wanted.parts, wanted.sums[j])
        by_H[j] = 0
        _add_rows(factors, places, count, W, by_H[j])


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
