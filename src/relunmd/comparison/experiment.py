"""What an experiment is: the runs it needs, and what it says about their results."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.algorithm.naive import ANaive
from relunmd.comparison.contenders import Contender, built_in
from relunmd.comparison.plan import Run, Setup
from relunmd.comparison.report import Claim, Section
from relunmd.comparison.result_file import Record, Results

__all__ = [
    "A_NAIVE_OF_DRIVER",
    "PAPERS",
    "SIX",
    "TSVD",
    "Experiment",
    "all_of",
    "error_at",
    "mean",
    "milliseconds",
    "not_seen",
    "seconds_each",
]


Array = NDArray[Any]


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

PAPERS = {contender.label: contender for contender in SIX}
"""The same by name."""

A_NAIVE_OF_DRIVER = built_in(ANaive(alpha=0.5), "A-Naive, α = 0.5")
"""As the authors' program sets it."""

TSVD = built_in("tsvd")
"""The baseline; its cases begin with the TSVD too, since a better start would not be it."""


def all_of(results: Results, runs: Sequence[Run]) -> list[Record]:
    """The records of these runs, or none if any is missing: a mean over part of them would be another's."""
    found = [record for run in runs if (record := results.get(run)) is not None]
    return found if len(found) == len(runs) else []


def mean(values: Sequence[float]) -> float:
    """The mean, or NaN of nothing."""
    return sum(values) / len(values) if values else float("nan")


def error_at(record: Mapping[str, Any], times: Array) -> Array:
    """E(t): the smallest error of an iteration that was finished by each time, the start's before the first.

    A method may rise for a while, as qn does when a new round begins; what it would hand back does not.
    """
    errors = np.array(record["curve"]["error"])
    errors[1:] = np.minimum.accumulate(errors[1:])
    places = np.searchsorted(np.array(record["curve"]["time"]), times, side="right") - 1
    return np.asarray(errors[places])


def seconds_each(record: Record) -> float:
    """Seconds an iteration; NaN if none was finished."""
    return float(record["time"] / record["n_iter"]) if record["n_iter"] else float("nan")


def milliseconds(seconds: float, digits: int = 0) -> str:
    """Seconds as milliseconds, a dash for NaN."""
    return "–" if math.isnan(seconds) else f"{1000 * seconds:.{digits}f}"


def not_seen(*claims: str) -> list[Claim]:
    """Claims of which nothing can be said, because runs are missing."""
    return [Claim(claim, None, "not all that it needs has been run") for claim in claims]
