"""ReLU nonlinear matrix decomposition: X ≈ max(0, WH) for sparse nonnegative X.

>>> import numpy as np, relunmd
>>> d = relunmd.decompose(np.eye(30), rank=10, random_state=0)
>>> d.W.shape, d.H.shape
((30, 10), (10, 30))
"""

from typing import TYPE_CHECKING, Any

from relunmd._registry import ALGORITHMS as _ALGORITHMS
from relunmd.errors import __all__ as _errors
from relunmd.forks import imported as _imported

if TYPE_CHECKING:
    from relunmd import comparison as comparison
    from relunmd import datasets as datasets
    from relunmd import plot as plot
    from relunmd.algorithm import Algorithm as Algorithm
    from relunmd.algorithm import DenseAlgorithm as DenseAlgorithm
    from relunmd.algorithm import State as State
    from relunmd.algorithm import look as look
    from relunmd.algorithm import setting as setting
    from relunmd.algorithm.aggressive import ANMD as ANMD
    from relunmd.algorithm.em import AEM as AEM
    from relunmd.algorithm.em import EM as EM
    from relunmd.algorithm.naive import ANaive as ANaive
    from relunmd.algorithm.naive import Naive as Naive
    from relunmd.algorithm.quasi_newton import QuasiNewton as QuasiNewton
    from relunmd.algorithm.three_block import ThreeBlock as ThreeBlock
    from relunmd.algorithm.three_block_factored import ThreeBlockFactored as ThreeBlockFactored
    from relunmd.algorithm.tsvd import TSVD as TSVD
    from relunmd.api import algorithms as algorithms
    from relunmd.api import decompose as decompose
    from relunmd.api import inits as inits
    from relunmd.comparison import Comparison as Comparison
    from relunmd.comparison import compare as compare
    from relunmd.errors import ClusterError as ClusterError
    from relunmd.errors import DatasetError as DatasetError
    from relunmd.errors import FileError as FileError
    from relunmd.errors import InputError as InputError
    from relunmd.errors import InsufficientMemoryError as InsufficientMemoryError
    from relunmd.errors import MissingDependencyError as MissingDependencyError
    from relunmd.errors import RelunmdError as RelunmdError
    from relunmd.estimator import ReLUNMD as ReLUNMD
    from relunmd.history import History as History
    from relunmd.history import Status as Status
    from relunmd.imputer import LowRankImputer as LowRankImputer
    from relunmd.init import Init as Init
    from relunmd.init import MeanCorrectedInit as MeanCorrectedInit
    from relunmd.init import NuclearInit as NuclearInit
    from relunmd.init import RandomInit as RandomInit
    from relunmd.init import ShiftedInit as ShiftedInit
    from relunmd.init import TSVDInit as TSVDInit
    from relunmd.io.readers import Opened as Opened
    from relunmd.io.readers import open_matrix as open_matrix
    from relunmd.loop.callback import Progress as Progress
    from relunmd.new_rows import FittedRows as FittedRows
    from relunmd.new_rows import fit_rows as fit_rows
    from relunmd.result import Decomposition as Decomposition
    from relunmd.selection import FoldFit as FoldFit
    from relunmd.selection import RankRow as RankRow
    from relunmd.selection import RankSelection as RankSelection
    from relunmd.selection import held_out_score as held_out_score
    from relunmd.selection import select_rank as select_rank

    __version__: str

_NAMES = {
    "": "comparison datasets plot",
    "algorithm": "Algorithm DenseAlgorithm State look setting",
    "api": "algorithms decompose inits",
    "comparison": "Comparison compare",
    "errors": " ".join(_errors),
    "estimator": "ReLUNMD",
    "history": "History Status",
    "imputer": "LowRankImputer",
    "init": "Init MeanCorrectedInit NuclearInit RandomInit ShiftedInit TSVDInit",
    "io.readers": "Opened open_matrix",
    "loop.callback": "Progress",
    "new_rows": "FittedRows fit_rows",
    "result": "Decomposition",
    "selection": "FoldFit RankRow RankSelection held_out_score select_rank",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
for _place in _ALGORITHMS:
    _module, _, _class = _place.partition(".")
    _HOMES[_class] = f"algorithm.{_module}"

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    """Import what is asked for: NumPy, numba and scikit-learn take a second."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("relunmd")
    elif name in _HOMES:
        home = _HOMES[name]
        value = getattr(_imported(f"{__name__}.{home}"), name) if home else _imported(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
