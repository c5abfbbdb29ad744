"""Compiled functions that touch every entry of one tile, once, while it is in cache.

Pure and typed: they know arrays and numbers, nothing of matrices, blocks or algorithms.
"""

from relunmd.kernels._compile import warm_up
from relunmd.kernels.tile import (
    add_difference,
    cross_products,
    descend,
    entry_moments,
    expect,
    extrapolate,
    latent,
    latent_gap,
    project,
    raise_positive,
    scan,
    squared_difference,
    squared_error,
)

__all__ = [
    "add_difference",
    "cross_products",
    "descend",
    "entry_moments",
    "expect",
    "extrapolate",
    "latent",
    "latent_gap",
    "project",
    "raise_positive",
    "scan",
    "squared_difference",
    "squared_error",
    "warm_up",
]
