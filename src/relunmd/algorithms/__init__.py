"""The algorithms. `relunmd.algorithms()` lists their names, with a line on what each is for and needs.

One file each, and a registry: a new one is a new file and a line below. The listing has the name of
this package, so the package itself can be called. (A function of that name beside it would break
``import relunmd.algorithms.em as em``.)
"""

import sys
from types import ModuleType
from typing import Any

from relunmd.algorithms.aggressive import ANMD
from relunmd.algorithms.base import Algorithm, State
from relunmd.algorithms.em import AEM, EM
from relunmd.algorithms.naive import ANaive, Naive
from relunmd.algorithms.quasi_newton import QuasiNewton
from relunmd.algorithms.three_block import ThreeBlock
from relunmd.algorithms.three_block_factored import ThreeBlockFactored
from relunmd.algorithms.tsvd import TSVD

__all__ = [
    "AEM",
    "ALGORITHMS",
    "ANMD",
    "AUTO",
    "EM",
    "TSVD",
    "ANaive",
    "Algorithm",
    "Naive",
    "QuasiNewton",
    "State",
    "ThreeBlock",
    "ThreeBlockFactored",
]

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    algorithm.name: algorithm
    for algorithm in (Naive, ANaive, EM, AEM, ANMD, ThreeBlock, ThreeBlockFactored, QuasiNewton, TSVD)
}

AUTO = QuasiNewton.name
"""What algorithm="auto" means."""


class _CallablePackage(ModuleType):
    def __call__(self) -> dict[str, str]:
        """The algorithms' names, with a line on what each is for and what it needs.

        >>> import relunmd
        >>> relunmd.algorithms()["tsvd"]
        'the baseline max(0, X_r): one truncated SVD, no iterations'
        """
        return {name: algorithm.summary for name, algorithm in ALGORITHMS.items()}


sys.modules[__name__].__class__ = _CallablePackage
