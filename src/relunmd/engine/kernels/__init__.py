"""Compiled functions that visit every entry of a tile once, while it is in cache.

They take arrays and numbers, and know nothing of matrices, blocks or algorithms.
"""

# ruff: noqa: F403
from relunmd.engine.kernels._compile import *
from relunmd.engine.kernels.held_out_kernels import *
from relunmd.engine.kernels.interval_kernels import *
from relunmd.engine.kernels.row_kernels import *
from relunmd.engine.kernels.sparse_kernels import *
from relunmd.engine.kernels.sweep_kernels import *
from relunmd.engine.kernels.tile_kernels import *
