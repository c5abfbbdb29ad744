"""The algorithms: one file each, and a registry. A new algorithm is a new file and a line below."""

from typing import Any

from relunmd.algorithm.aggressive import ANMD
from relunmd.algorithm.em import AEM, EM
from relunmd.algorithm.interface import Algorithm, State
from relunmd.algorithm.naive import ANaive, Naive
from relunmd.algorithm.quasi_newton import QuasiNewton
from relunmd.algorithm.three_block import ThreeBlock
from relunmd.algorithm.three_block_factored import ThreeBlockFactored
from relunmd.algorithm.tsvd import TSVD

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
