"""ReLU nonlinear matrix decomposition: X ≈ max(0, WH) for sparse nonnegative X.

>>> import numpy as np, relunmd
>>> d = relunmd.decompose(np.eye(30), rank=10, random_state=0)
>>> d.W.shape, d.H.shape
((30, 10), (10, 30))
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from relunmd.algorithms import (
    AEM,
    ANMD,
    EM,
    TSVD,
    Algorithm,
    ANaive,
    Naive,
    QuasiNewton,
    State,
    ThreeBlock,
    ThreeBlockFactored,
)
from relunmd.door import decompose, inits
from relunmd.errors import FileError, InputError, InsufficientMemoryError, MissingDependencyError, RelunmdError
from relunmd.init import Init, MeanCorrectedInit, NuclearInit, RandomInit, ShiftedInit, TSVDInit
from relunmd.result import Decomposition, History, Status
from relunmd.rows import FittedRows, fit_rows
from relunmd.solve import Progress

if TYPE_CHECKING:
    from relunmd.estimator import ReLUNMD

    def algorithms() -> dict[str, str]: ...  # The package of that name, which can be called.


__version__ = version("relunmd")

__all__ = [
    "AEM",
    "ANMD",
    "EM",
    "TSVD",
    "ANaive",
    "Algorithm",
    "Decomposition",
    "FileError",
    "FittedRows",
    "History",
    "Init",
    "InputError",
    "InsufficientMemoryError",
    "MeanCorrectedInit",
    "MissingDependencyError",
    "Naive",
    "NuclearInit",
    "Progress",
    "QuasiNewton",
    "RandomInit",
    "ReLUNMD",
    "RelunmdError",
    "ShiftedInit",
    "State",
    "Status",
    "TSVDInit",
    "ThreeBlock",
    "ThreeBlockFactored",
    "__version__",
    "algorithms",
    "decompose",
    "fit_rows",
    "inits",
]


def __getattr__(name: str) -> Any:
    """The estimator, when it is asked for: scikit-learn takes as long to import as all the rest."""
    if name == "ReLUNMD":
        from relunmd.estimator import ReLUNMD

        return ReLUNMD
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
