"""Compiled functions that touch every entry of one tile, once, while it is in cache.

Pure and typed: they know arrays and numbers, nothing of matrices, blocks or algorithms.
"""

from relunmd.kernels._compile import SAMPLED, warm_up
from relunmd.kernels.sparse import add_to, compress, gather, scatter, sparse_times, sparse_transposed_times
from relunmd.kernels.tile import (
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
    "SAMPLED",
    "add_difference",
    "add_four",
    "add_to",
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
    "project",
    "raise_positive",
    "residual",
    "scan",
    "scatter",
    "sparse_times",
    "sparse_transposed_times",
    "squared_difference",
    "squared_error",
    "warm_up",
]
