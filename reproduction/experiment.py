"""What an experiment of the paper is, and what all of them share: choices of the user, matrices and algorithms."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd import datasets
from relunmd.algorithm import ALGORITHMS
from relunmd.algorithm.naive import ANaive
from relunmd.comparison.contenders import Contender, built_in, registered
from relunmd.comparison.report.content import Claim, Section
from relunmd.comparison.result_file import Matrix, Record, Results, Run
from relunmd.plot.chart import PAPER

Array = NDArray[Any]

SIX: tuple[Contender, ...] = tuple(built_in(name) for name in ("3b", "a-nmd", "a-em", "em", "a-naive", "naive"))
"""The paper's six algorithms with the settings of its text."""

PAPERS = {contender.label: contender for contender in SIX}
"""The same six by label."""

A_NAIVE_OF_DRIVER = built_in(ANaive(alpha=0.5), "A-Naive, α = 0.5")
"""A-Naive with the setting of the authors' program."""


@dataclass(frozen=True)
class Setup:
    """Choices of the user.

    Attributes
    ----------
    output : Path
        Folder for results, pictures and report.
    quick : bool
        Whether to use smaller data, fewer repetitions and shorter runs.
    seed : int
        Seed of all matrices and initializations.
    data : Path or None
        Folder of data sets that is searched first.
    added : tuple of Contender
        Contenders besides the paper's.
    """

    output: Path
    quick: bool = False
    seed: int = 0
    data: Path | None = None
    added: tuple[Contender, ...] = ()

    def seed_of(self, index: int) -> int:
        """Return the seed of the matrix or initialization with this index."""
        return 1000 * self.seed + index


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper.

    Attributes
    ----------
    name : str
        Name on the command line.
    runs : callable
        Returns the runs that the experiment needs, given a Setup.
    section : callable
        Returns the section of the report, given a Setup and Results; writes pictures to the output folder.
    """

    name: str
    runs: Callable[[Setup], list[Run]]
    section: Callable[[Setup, Results], Section]


def added() -> list[Contender]:
    """Return the contenders that the paper does not have: the library's other algorithms and registered methods."""
    return [*(built_in(name) for name in ALGORITHMS if name not in PAPER), *registered()]


def mean(values: Sequence[float]) -> float:
    """Return the mean, or NaN if there are no values."""
    return sum(values) / len(values) if values else math.nan


def seconds_each(record: Record) -> float:
    """Return the seconds per iteration, or NaN if no iteration was finished."""
    return float(record["time"] / record["n_iter"]) if record["n_iter"] else math.nan


def milliseconds(seconds: float, digits: int = 0) -> str:
    """Return seconds as milliseconds, or a dash for NaN."""
    return "–" if math.isnan(seconds) else f"{1000 * seconds:.{digits}f}"


def factors(results: Results, run: Run) -> tuple[Array, Array]:
    """Return the best W and H of a run that keeps them."""
    with np.load(results.folder / "factors" / run.file_name, allow_pickle=False) as arrays:
        return arrays["W"], arrays["H"]


def all_of(results: Results, runs: Sequence[Run]) -> list[Record]:
    """Return the records of these runs, or an empty list if one is missing: a partial mean would mislead."""
    found = [record for run in runs if (record := results.get(run)) is not None]
    return found if len(found) == len(runs) else []


def not_seen(*claims: str) -> list[Claim]:
    """Return claims without a verdict, because runs are missing."""
    return [Claim(claim, None, "not all that it needs has been run") for claim in claims]


def synthetic(setup: Setup, n: int, rank: int, index: int) -> Matrix:
    """Return one of the paper's synthetic n×n matrices of a given rank."""
    seed = setup.seed_of(index)
    return Matrix(f"synthetic {n}×{n}, rank {rank}, seed {seed}", (n, n), lambda: datasets.synthetic(n, n, rank, seed))


def mnist(setup: Setup, per_digit: int, every: int = 1) -> Matrix:
    """Return MNIST images, `per_digit` of each digit, with values 0–255."""
    chosen = f"first {per_digit} a digit" if every == 1 else f"{per_digit} a digit, every {every}th"
    return Matrix(f"MNIST, {chosen}", (10 * per_digit, 784), lambda: datasets.mnist(per_digit, every, setup.data))
