"""The algorithms, one file each; `relunmd._registry` lists those that have a name."""

from importlib import import_module

from relunmd._registry import ALGORITHMS as _PLACES
from relunmd.algorithm.base import Algorithm
from relunmd.algorithm.plain_numpy import DenseAlgorithm, GeneratorAlgorithm
from relunmd.algorithm.state import State
from relunmd.engine.passes import look
from relunmd.settings import setting

__all__ = ["ALGORITHMS", "AUTO", "Algorithm", "DenseAlgorithm", "GeneratorAlgorithm", "State", "look", "setting"]

ALGORITHMS: dict[str, type[Algorithm]] = {}
for _place in _PLACES:
    _module, _, _class = _place.partition(".")
    _algorithm = getattr(import_module(f"{__name__}.{_module}"), _class)
    ALGORITHMS[_algorithm.name] = _algorithm

AUTO = "qn"
"""What algorithm="auto" means."""
