"""What is to be run: matrices, cases, and the choices of the user that an experiment makes them from."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from relunmd import datasets
from relunmd.comparison.contenders import Contender
from relunmd.loop.criteria import Limits

__all__ = ["Case", "Matrix", "Run", "Setup", "mnist", "synthetic"]

Array = NDArray[Any]
Measure = Callable[[Array, Array, Array], dict[str, float]]


@dataclass(frozen=True)
class Matrix:
    """A matrix by name; `load` makes it when its turn has come, and `mark` tells it from others of that name."""

    name: str
    shape: tuple[int, int]
    load: Callable[[], Any] = field(compare=False, repr=False)
    mark: str = ""


@dataclass(frozen=True)
class Case:
    """A matrix, a rank, a start and the limits: what all contenders have in common.

    Attributes
    ----------
    seed : of the start
    measure : numbers to be noted of the best factors, from (X, W, H)
    keep_factors : whether the best factors are kept in a file
    """

    matrix: Matrix
    rank: int
    limits: Limits
    init: str = "nuclear"
    seed: int = 0
    measure: Measure | None = field(default=None, compare=False, repr=False)
    keep_factors: bool = False


@dataclass(frozen=True)
class Run:
    """A contender in a case."""

    case: Case
    contender: Contender

    def facts(self) -> dict[str, Any]:
        """What tells this run from every other, as it is written down."""
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
        """A short name for files that belong to this run."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]

    @property
    def guess(self) -> float:
        """Seconds that it may take without its start, for the estimate of the time left."""
        m, n = self.case.matrix.shape
        limits = self.case.limits
        if limits.max_iter == 0:
            return 1e-3
        if limits.target_error is None and limits.max_time is not None:
            return 1.3 * limits.max_time  # It will be used up, and scoring comes on top.
        return 1e-6 * m * n

    @property
    def start_guess(self) -> float:
        """Seconds that its start may take."""
        m, n = self.case.matrix.shape
        return 1e-9 * m * n * min(m, n) if self.case.init == "nuclear" else 1e-7 * m * n


@dataclass(frozen=True)
class Setup:
    """The user's choices.

    Attributes
    ----------
    output : folder for results, pictures and report
    quick : smaller data, fewer repetitions, shorter runs
    seed : a number from which every matrix and start is drawn
    data : folder of data sets to look in first
    added : contenders besides the paper's
    """

    output: Path
    quick: bool = False
    seed: int = 0
    data: Path | None = None
    added: tuple[Contender, ...] = ()

    def seed_of(self, index: int) -> int:
        """The seed of the index-th matrix or start."""
        return 1000 * self.seed + index


def synthetic(setup: Setup, n: int, rank: int, index: int) -> Matrix:
    """The index-th of the paper's synthetic n×n matrices of that rank."""
    seed = setup.seed_of(index)
    return Matrix(f"synthetic {n}×{n}, rank {rank}, seed {seed}", (n, n), lambda: datasets.synthetic(n, n, rank, seed))


def mnist(setup: Setup, per_digit: int, every: int = 1) -> Matrix:
    """Images of MNIST, so many a digit, raw 0–255."""
    chosen = f"first {per_digit} a digit" if every == 1 else f"{per_digit} a digit, every {every}th"
    return Matrix(f"MNIST, {chosen}", (10 * per_digit, 784), lambda: datasets.mnist(per_digit, every, setup.data))
