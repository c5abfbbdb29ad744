"""The matrix of figures 3 and 4: the sparse NMF basis U (361×100) of CBCL's faces.

It takes ten seconds to make, so it is made once and kept beside the results.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd import datasets
from relunmd.comparison.run_plan import Matrix
from relunmd.errors import DatasetError
from relunmd.io.atomic import write_beside
from reproduction.experiment import Setup
from reproduction.minvol import minvol_nmf, nonnegative_least_squares

__all__ = ["COMPONENTS", "FacesBasis"]

Array = NDArray[Any]
COMPONENTS = 100


@dataclass(frozen=True)
class FacesBasis:
    """U with the faces X it comes from."""

    setup: Setup

    @property
    def matrix(self) -> Matrix:
        return Matrix(f"NMF basis of CBCL, {COMPONENTS} components", (361, COMPONENTS), self.load)

    def load(self) -> Array:
        """U, from its file if it has been made."""
        X = self.faces()  # Before anything else: without them no run could be scored.
        place = self.setup.output / "cbcl-basis.npz"
        if place.exists():
            try:
                with np.load(place, allow_pickle=False) as arrays:
                    U: Array = arrays["U"]
                    return U
            except Exception as reason:  # A damaged archive makes the reader raise all sorts of things.
                raise DatasetError(f"{place} is damaged ({reason}). Delete it, and it will be made again.") from reason
        U = minvol_nmf(X.T, COMPONENTS).U
        write_beside(place, lambda out: np.savez(out, U=U))
        return U

    def faces(self) -> Array:
        """X, one face a column."""
        return datasets.cbcl(self.setup.data)

    def error_on_faces(self, U: Array) -> float:
        """e_NMF: min over V ≥ 0 of ‖X − UV‖ / ‖X‖."""
        X = self.faces()
        return float(np.linalg.norm(X - U @ nonnegative_least_squares(U, X)) / np.linalg.norm(X))
