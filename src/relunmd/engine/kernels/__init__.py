"""Compiled functions that touch every entry of one tile, once, while it is in cache.

Pure and typed: they know arrays and numbers, nothing of matrices, blocks or algorithms.
"""

from relunmd.engine.kernels._compile import SAMPLED, warm_up
from relunmd.engine.kernels.row_kernels import (
    N_FACTS,
    OBJECTIVE,
    SQUARES,
    WEIGHT,
    begin_rows,
    newton_directions,
    search_rows,
)
from relunmd.engine.kernels.sparse_kernels import (
    add_to,
    compress,
    gather,
    scatter,
    sparse_times,
    sparse_transposed_times,
)
from relunmd.engine.kernels.tile_kernels import (
    add_difference,
    add_four,
    cross_products,
    descend,
    dot,
    entry_moments,
    expect,
    extrapolate,
    extrapolate_rows,
    four_dots,
    latent,
    project,
    raise_positive,
    residual,
    scan,
    squared_difference,
    squared_error,
)

__all__ = [
    "N_FACTS",
    "OBJECTIVE",
    "SAMPLED",
    "SQUARES",
    "WEIGHT",
    "add_difference",
    "add_four",
    "add_to",
    "begin_rows",
    "compress",
    "cross_products",
    "descend",
    "dot",
    "entry_moments",
    "expect",
    "extrapolate",
    "extrapolate_rows",
    "four_dots",
    "gather",
    "latent",
    "newton_directions",
    "project",
    "raise_positive",
    "residual",
    "scan",
    "scatter",
    "search_rows",
    "sparse_times",
    "sparse_transposed_times",
    "squared_difference",
    "squared_error",
    "warm_up",
]
