"""What can be drawn: a decomposition, several of them, or what a comparison found, all seen as labelled runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import InputError
from relunmd.plot.chart import Series, shown_name
from relunmd.result import Decomposition

__all__ = ["Compared", "Factors", "Subject", "curves_of", "errors_of", "factors_of"]

Array = NDArray[Any]


@runtime_checkable
class Compared(Protocol):
    """What a comparison offers to pictures (`relunmd.Comparison`)."""

    @property
    def ranks(self) -> Sequence[int]: ...
    @property
    def image_shape(self) -> tuple[int, int] | None: ...
    def curves(self, rank: int) -> list[Series]: ...
    def errors(self) -> Mapping[str, Mapping[int, float]]: ...
    def factors(self, rank: int) -> Mapping[str, tuple[Array, Array]]: ...


Subject = Decomposition | Sequence[Decomposition] | Mapping[str, Decomposition] | Compared
"""One run, several, several with names, or a comparison."""


@dataclass(frozen=True)
class Factors:
    """W and H of a run under its name."""

    label: str
    W: Array
    H: Array


def _runs(subject: Any) -> dict[str, Decomposition]:
    """Decompositions by name; those of one algorithm at several ranks, or more than once, are told apart."""
    if isinstance(subject, Decomposition):
        subject = [subject]
    if isinstance(subject, Mapping):
        runs = {str(label): run for label, run in subject.items()}
    elif isinstance(subject, Sequence) and not isinstance(subject, str):
        runs = _named(list(subject))
    else:
        runs = {}
    if not runs or not all(isinstance(run, Decomposition) for run in runs.values()):
        raise InputError(
            "What is drawn must be a Decomposition, several of them as a list or by name as a dict, or a Comparison. "
            f"Got {type(subject).__name__}{'' if runs else ', which has none'}."
        )
    return runs


def _named(given: list[Any]) -> dict[str, Any]:
    if not all(isinstance(run, Decomposition) for run in given):
        return {str(place): run for place, run in enumerate(given)}
    names = [shown_name(run.algorithm) for run in given]
    if len(set(names)) < len(names):
        names = [f"{name}, rank {run.rank}" for name, run in zip(names, given, strict=True)]
    counted = [f"{name} ({1 + names[:place].count(name)})" if names.count(name) > 1 else name
               for place, name in enumerate(names)]  # fmt: skip
    return dict(zip(counted, given, strict=True))


def curves_of(subject: Any, rank: int | None, over: str) -> list[Series]:
    """The error of each run over "time", "iteration" or "passes"."""
    if isinstance(subject, Compared):
        if over != "time":
            raise InputError(f'over must be "time" for a comparison. Got {over!r}.')
        return _some(subject.curves(_rank_of(subject, rank)), "a run that has finished an iteration")
    runs = _of_rank(_runs(subject), rank)
    return [Series.of(label, getattr(run.history, over), run.history.error) for label, run in runs.items()]


def errors_of(subject: Any) -> Mapping[str, Mapping[int, float]]:
    """The final error by name and rank."""
    if isinstance(subject, Compared):
        return subject.errors()
    found: dict[str, dict[int, float]] = {}
    named = isinstance(subject, Mapping)
    for label, run in _runs(subject).items():
        curve = found.setdefault(label if named else shown_name(run.algorithm), {})
        curve[run.rank] = min(run.error, curve.get(run.rank, np.inf))
    return found


def factors_of(subject: Any, rank: int | None) -> list[Factors]:
    """W and H of each run."""
    if isinstance(subject, Compared):
        kept = subject.factors(_rank_of(subject, rank))
        return _some([Factors(label, *pair) for label, pair in kept.items()], "factors that were kept")
    return [Factors(label, run.W, run.H) for label, run in _of_rank(_runs(subject), rank).items()]


def _of_rank(runs: dict[str, Decomposition], rank: int | None) -> dict[str, Decomposition]:
    found = {label: run for label, run in runs.items() if rank is None or run.rank == rank}
    if not found:
        there = sorted({run.rank for run in runs.values()})
        raise InputError(f"rank must be one of {', '.join(map(str, there))}, which are there. Got {rank!r}.")
    return found


def _some(found: list[Any], what: str) -> list[Any]:
    """What there is, if there is any."""
    if not found:
        raise InputError(f"A comparison must have {what} at this rank to be drawn. It has none; try another rank.")
    return found


def _rank_of(subject: Compared, rank: int | None) -> int:
    if rank is None:
        return max(subject.ranks)
    if rank not in subject.ranks:
        raise InputError(f"rank must be one of {', '.join(map(str, subject.ranks))}. Got {rank!r}.")
    return rank
