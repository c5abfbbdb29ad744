"""The small arrays that every worker needs in a pass, such as H, in the form in which they are sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

__all__ = ["fold_transposes", "split_large", "total_bytes", "unfold_transposes"]

_INLINE = 2**20
"""Bytes of arrays that are sent with each task. Larger ones are sent once, and workers fetch them from each other."""


@dataclass(frozen=True)
class _Transpose:
    """Stands for the C-ordered transpose of another array, which is then sent once."""

    of: str


def fold_transposes(shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with arrays that are another one's transpose replaced by a reference."""
    folded = dict(shared)
    names = [name for name, value in shared.items() if isinstance(value, np.ndarray) and value.ndim == 2]
    for first, second in combinations(names, 2):
        A, B = shared[first], shared[second]
        both = isinstance(folded[first], np.ndarray) and isinstance(folded[second], np.ndarray)
        if both and A.dtype == B.dtype and B.flags.c_contiguous and np.array_equal(A.T, B):
            folded[second] = _Transpose(first)
    return folded


def unfold_transposes(folded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as they were before `fold_transposes`."""
    return {
        name: np.ascontiguousarray(folded[value.of].T) if isinstance(value, _Transpose) else value
        for name, value in folded.items()
    }


def split_large(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values that are sent with each task, and those that are too large for that."""
    many = total_bytes(values) > _INLINE
    large = {
        name: value
        for name, value in values.items()
        if many and isinstance(value, np.ndarray) and value.nbytes > _INLINE // 8
    }
    return {name: value for name, value in values.items() if name not in large}, large


def total_bytes(values: Mapping[str, Any]) -> int:
    """Return the bytes that the values take when they are sent."""
    return sum(value.nbytes if isinstance(value, np.ndarray) else 8 for value in values.values())
