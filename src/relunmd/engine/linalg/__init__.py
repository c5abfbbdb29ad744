"""Small dense factorisations, and truncated SVDs of matrices seen only through passes over rows."""

from relunmd.engine.linalg.canonical import canonical, canonical_factors
from relunmd.engine.linalg.gram import gram_solve, gram_solve_right, orthonormal, right_inverse
from relunmd.engine.linalg.truncated_svd import (
    Factors,
    Sweep,
    empty_share,
    factors_of,
    polish,
    share_of_sweep,
    starting_basis,
    sweep_rows,
    truncated_svd,
)

__all__ = [
    "Factors",
    "Sweep",
    "canonical",
    "canonical_factors",
    "empty_share",
    "factors_of",
    "gram_solve",
    "gram_solve_right",
    "orthonormal",
    "polish",
    "right_inverse",
    "share_of_sweep",
    "starting_basis",
    "sweep_rows",
    "truncated_svd",
]
