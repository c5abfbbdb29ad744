"""What an experiment is: the runs it needs, and what it says about their results."""

from collections.abc import Callable
from dataclasses import dataclass

from relunmd.algorithms import ANaive
from relunmd.experiments.contenders import Contender, built_in
from relunmd.experiments.plan import Run, Setup
from relunmd.experiments.report import Section
from relunmd.experiments.results import Record, Results

__all__ = ["SIX", "Experiment", "mean", "records_of"]


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper.

    Attributes
    ----------
    runs : the runs it needs, from the user's choices
    section : its part of the report, with pictures written into the output folder
    """

    name: str
    runs: Callable[[Setup], list[Run]]
    section: Callable[[Setup, Results], Section]


SIX: tuple[Contender, ...] = tuple(built_in(name) for name in ("3b", "a-nmd", "a-em", "em", "a-naive", "naive"))
"""The paper's six algorithms as its text sets them."""

A_NAIVE_OF_DRIVER = built_in(ANaive(alpha=0.5), "A-Naive, α = 0.5")


def records_of(results: Results, runs: list[Run]) -> list[Record]:
    """The records there are of these runs."""
    return [record for run in runs if (record := results.get(run)) is not None]


def mean(values: list[float]) -> float:
    """The mean, or NaN of nothing."""
    return sum(values) / len(values) if values else float("nan")
