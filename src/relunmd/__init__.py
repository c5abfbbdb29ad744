"""ReLU nonlinear matrix decomposition: X ≈ max(0, WH) for sparse nonnegative X.

>>> import numpy as np, relunmd
>>> d = relunmd.decompose(np.eye(30), rank=10, random_state=0)
>>> d.W.shape, d.H.shape
((30, 10), (10, 30))
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from relunmd.forks import imported

if TYPE_CHECKING:
    from relunmd.algorithm import (
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
    from relunmd.api import algorithms, decompose, inits
    from relunmd.comparison import Comparison, compare
    from relunmd.errors import (
        ClusterError,
        FileError,
        InputError,
        InsufficientMemoryError,
        MissingDependencyError,
        RelunmdError,
    )
    from relunmd.estimator import ReLUNMD
    from relunmd.init import Init, MeanCorrectedInit, NuclearInit, RandomInit, ShiftedInit, TSVDInit
    from relunmd.loop.driver import Progress
    from relunmd.new_rows import FittedRows, fit_rows
    from relunmd.result import Decomposition, History, Status

    __version__: str

__all__ = [
    "AEM",
    "ANMD",
    "EM",
    "TSVD",
    "ANaive",
    "Algorithm",
    "ClusterError",
    "Comparison",
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
    "compare",
    "decompose",
    "fit_rows",
    "inits",
]

_HOMES = {
    "algorithm": "AEM ANMD EM TSVD Algorithm ANaive Naive QuasiNewton State ThreeBlock ThreeBlockFactored",
    "api": "decompose inits algorithms",
    "errors": "ClusterError FileError InputError InsufficientMemoryError MissingDependencyError RelunmdError",
    "estimator": "ReLUNMD",
    "comparison": "Comparison compare",
    "init": "Init MeanCorrectedInit NuclearInit RandomInit ShiftedInit TSVDInit",
    "result": "Decomposition History Status",
    "new_rows": "FittedRows fit_rows",
    "loop.driver": "Progress",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """What is asked for, from where it is: NumPy, numba and scikit-learn take a second to import."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("relunmd")
    elif name in _HOME_OF:
        value = getattr(imported(f"{__name__}.{_HOME_OF[name]}"), name)
    elif not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return imported(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
