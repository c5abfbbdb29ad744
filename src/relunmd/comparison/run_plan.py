"""What is to be run: a contender on a matrix, from an initialization, within limits."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from relunmd.comparison.contenders import Contender
from relunmd.loop.criteria import Limits


@dataclass(frozen=True)
class Matrix:
    """A matrix by name; `load` returns it when it is needed, and `mark` distinguishes it from others of that name."""

    name: str
    shape: tuple[int, int]
    load: Callable[[], Any] = field(compare=False, repr=False)
    mark: str = ""


@dataclass(frozen=True)
class Case:
    """What contenders have in common: matrix, rank, limits and initialization; `keep_factors` saves the best W, H."""

    matrix: Matrix
    rank: int
    limits: Limits
    init: str = "nuclear"
    seed: int = 0
    keep_factors: bool = False

    @property
    def expected_seconds(self) -> float:
        """A guess of the time that one run takes without its initialization."""
        m, n = self.matrix.shape
        if self.limits.max_iter == 0:
            return 1e-3
        if self.limits.target_error is None and self.limits.max_time is not None:
            return 1.3 * self.limits.max_time  # All of it, and scoring.
        return 1e-6 * m * n

    @property
    def expected_initialization(self) -> float:
        """A guess of the seconds that the initialization takes."""
        m, n = self.matrix.shape
        return 1e-9 * m * n * min(m, n) if self.init == "nuclear" else 1e-7 * m * n


@dataclass(frozen=True)
class Run:
    """A contender in a case."""

    case: Case
    contender: Contender

    def facts(self) -> dict[str, Any]:
        """Return what distinguishes this run from others, as it is written to the results."""
        case, limits = self.case, self.case.limits
        return {
            "matrix": f"{case.matrix.name} #{case.matrix.mark}" if case.matrix.mark else case.matrix.name,
            "rank": case.rank,
            "init": case.init,
            "seed": case.seed,
            "target_error": limits.target_error,
            "max_iter": limits.max_iter,
            "max_time": limits.max_time,
            "contender": self.contender.label,
            "settings": dict(self.contender.settings),
        }

    @property
    def key(self) -> str:
        """The facts as one string."""
        return json.dumps(self.facts(), sort_keys=True)

    @property
    def file_name(self) -> str:
        """The name of the file of factors."""
        return f"{hashlib.sha256(self.key.encode()).hexdigest()[:16]}.npz"
