"""The small arrays that every worker needs in a pass, such as H, in the form in which they are sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np


@dataclass(frozen=True)
class _Transpose:
    """Stands for the C-ordered transpose of another array, which is then sent once."""

    of: str


def fold_transposes(shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with arrays that are another one's transpose replaced by a reference."""
    folded = dict(shared)
    names = [name for name, value in shared.items() if isinstance(value, np.ndarray) and value.ndim == 2]
    for first, second in combinations(names, 2):
        A, B = folded[first], folded[second]
        if isinstance(A, np.ndarray) and isinstance(B, np.ndarray) and A.dtype == B.dtype and B.flags.c_contiguous:
            folded[second] = _Transpose(first) if np.array_equal(A.T, B) else B
    return folded


def unfold_transposes(folded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as they were before `fold_transposes`."""
    return {
        name: np.ascontiguousarray(folded[value.of].T) if isinstance(value, _Transpose) else value
        for name, value in folded.items()
    }


def total_bytes(values: Mapping[str, Any]) -> int:
    """Return the bytes that the values take when they are sent."""
    return sum(value.nbytes if isinstance(value, np.ndarray) else 8 for value in values.values())
