"""Rows of arrays in blocks and tiles: every row once, converted and scaled, X untouched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relunmd.engine.matrix import DenseSource, Matrix, RowLayout, Scratch, power_of_two_scale


@given(st.integers(1, 20_000), st.integers(1, 5_000))
def test_layout_covers_every_row_once(m, n):
    layout = RowLayout(m, n)
    covered = [
        block.start + row for block in layout.blocks for tile in layout.tiles(block) for row in (tile.start, tile.stop)
    ]
    assert covered[0] == 0
    assert covered[-1] == m
    assert covered[1:-1:2] == covered[2::2]
    assert len(layout.blocks) <= 64
    assert layout.strip_rows % layout.tile_rows == 0


def test_very_wide_rows_are_taken_fewer_at_a_time():
    assert [RowLayout(10_000, n).strip_rows for n in (5_000, 30_000, 10**6, 10**7)] == [256, 256, 16, 8]
    assert all(columns.stop - columns.start <= 2048 for columns in RowLayout(10, 10**6).columns)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "X",
    [
        np.arange(600).reshape(200, 3).astype(np.float64),
        np.arange(600).reshape(200, 3).astype(np.float32),
        np.arange(600).reshape(200, 3).astype(np.uint8),
        np.asfortranarray(np.arange(600.0).reshape(200, 3)),
        np.arange(1200.0).reshape(200, 6)[:, ::2],
        np.arange(600.0).reshape(200, 3)[::-1],
        np.arange(600).reshape(200, 3) % 2 == 0,
        np.arange(600.0).reshape(200, 3).astype(">f8"),
        np.arange(600).reshape(200, 3).astype(np.float16),
    ],
    ids=["f8", "f4", "u1", "fortran", "strided", "reversed", "bool", "big-endian", "f2"],
)
def test_tiles_give_the_data(X, dtype):
    before = X.copy()
    matrix = Matrix(DenseSource(X), np.dtype(dtype), 0.5)
    scratch = Scratch()
    parts = [
        (tile.X * tile.scale).copy()
        for index in range(len(matrix.layout.blocks))
        for tile in matrix.block(index, scratch).tiles()
    ]
    assert all(part.dtype == dtype for part in parts)
    np.testing.assert_array_equal(np.vstack(parts), X.astype(dtype) * dtype(0.5))
    np.testing.assert_array_equal(X, before)


def test_tiles_are_read_only_and_c_ordered():
    for X in (np.ones((5, 4)), np.asfortranarray(np.ones((5, 4)))):
        tile = next(iter(Matrix(DenseSource(X), np.dtype(float)).block(0, Scratch()).tiles()))
        assert not tile.X.flags.writeable
        assert tile.X.flags.c_contiguous


@given(st.floats(min_value=5e-324, allow_infinity=False))
def test_scale_is_a_power_of_two_that_brings_the_largest_near_one(largest):
    scale = power_of_two_scale(largest, np.dtype(float))
    assert np.frexp(scale)[0] == 0.5
    if largest > 1e-300:
        assert 1 <= largest * scale < 4
