"""The matrix of figures 3 and 4: the sparse NMF basis U (361×100) of CBCL's faces.

It takes ten seconds to compute, so it is kept beside the results.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd import datasets
from relunmd.comparison.result_file import Matrix
from relunmd.errors import DatasetError
from relunmd.io.atomic import write_beside
from reproduction.experiment import Setup
from reproduction.minvol import minvol_nmf, nonnegative_least_squares

Array = NDArray[Any]
COMPONENTS = 100


@dataclass(frozen=True)
class FacesBasis:
    """The basis U of the faces X."""

    setup: Setup

    @property
    def matrix(self) -> Matrix:
        return Matrix(f"NMF basis of CBCL, {COMPONENTS} components", (361, COMPONENTS), self.load)

    def load(self) -> Array:
        """Return U, from its file if that exists."""
        X = self.faces()  # Before anything else: without them no run could be scored.
        place = self.setup.output / "cbcl-basis.npz"
        if place.exists():
            try:
                with np.load(place, allow_pickle=False) as arrays:
                    U: Array = arrays["U"]
                    return U
            except Exception as reason:  # Reading a damaged archive may raise any exception.
                raise DatasetError(f"{place} is damaged ({reason}). Delete it to recompute it.") from reason
        U = minvol_nmf(X.T, COMPONENTS).U
        write_beside(place, lambda out: np.savez(out, U=U))
        return U

    def faces(self) -> Array:
        """Return X, one face per column."""
        return datasets.cbcl(self.setup.data)

    def error_on_faces(self, U: Array) -> float:
        """Return e_NMF: min over V ≥ 0 of ‖X − UV‖ / ‖X‖."""
        X = self.faces()
        return float(np.linalg.norm(X - U @ nonnegative_least_squares(U, X)) / np.linalg.norm(X))
