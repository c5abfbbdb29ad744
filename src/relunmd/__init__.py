"""ReLU nonlinear matrix decomposition: X ≈ max(0, WH) for sparse nonnegative X.

>>> import numpy as np, relunmd
>>> d = relunmd.decompose(np.eye(30), rank=10, random_state=0)
>>> d.W.shape, d.H.shape
((30, 10), (10, 30))
"""

from importlib.metadata import version
from typing import TYPE_CHECKING

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
from relunmd.solve import Progress

if TYPE_CHECKING:

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
    "inits",
]
