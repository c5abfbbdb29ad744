"""Compiled functions that touch every entry of one tile, once, while it is in cache.

Pure and typed: they know arrays and numbers, nothing of matrices, blocks or algorithms.
"""

from relunmd.kernels._compile import SAMPLED, warm_up
from relunmd.kernels.sparse import add_to, compress, gather, scatter, sparse_times, sparse_transposed_times
from relunmd.kernels.tile import (
    add_difference,
    cross_products,
    descend,
    entry_moments,
    error_residual,
    expect,
    extrapolate,
    extrapolate_rows,
    latent,
    latent_residual,
    project,
    raise_positive,
    scan,
    squared_difference,
    squared_error,
)

__all__ = [
    "SAMPLED",
    "add_difference",
    "add_to",
    "compress",
    "cross_products",
    "descend",
    "entry_moments",
    "error_residual",
    "expect",
    "extrapolate",
    "extrapolate_rows",
    "gather",
    "latent",
    "latent_residual",
    "project",
    "raise_positive",
    "scan",
    "scatter",
    "sparse_times",
    "sparse_transposed_times",
    "squared_difference",
    "squared_error",
    "warm_up",
]
