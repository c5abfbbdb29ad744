"""Input of the plotting functions: a decomposition, several of them, or a comparison, seen as labeled runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import InputError
from relunmd.plot.chart import Series, shown_name
from relunmd.result import Decomposition

Array = NDArray[Any]
Factors = Mapping[str, tuple[Array, Array]]
"""W and H of each run, by label."""


@runtime_checkable
class Compared(Protocol):
    """What the plotting functions need from a comparison (`relunmd.Comparison`)."""

    @property
    def ranks(self) -> Sequence[int]: ...
    @property
    def image_shape(self) -> tuple[int, int] | None: ...
    def curves(self, rank: int) -> list[Series]: ...
    def errors(self) -> Mapping[str, Mapping[int, float]]: ...
    def factors(self, rank: int) -> Factors: ...


Subject = Decomposition | Sequence[Decomposition] | Mapping[str, Decomposition] | Compared


def _runs(subject: Any, rank: int | None = None) -> dict[str, Decomposition]:
    """Return decompositions by label, only those of `rank` unless it is None."""
    given = [subject] if isinstance(subject, Decomposition) else subject
    several = isinstance(given, Sequence | Mapping) and not isinstance(given, str)
    values = list(given.values() if isinstance(given, Mapping) else given) if several else []
    if not values or not all(isinstance(run, Decomposition) for run in values):
        raise InputError(
            "The first argument must be a Decomposition, a non-empty list or dict of them, or a Comparison; "
            f"got {type(subject).__name__}{' without decompositions' if several else ''}."
        )
    labels = map(str, given) if isinstance(given, Mapping) else _labels(values)
    runs = dict(zip(labels, values, strict=True))
    found = {label: run for label, run in runs.items() if rank is None or run.rank == rank}
    if not found:
        raise _no_rank({run.rank for run in values}, rank)
    return found


def _labels(runs: Sequence[Decomposition]) -> list[str]:
    """Return distinct labels: the algorithm, with the rank and a count where necessary."""
    names = [shown_name(run.algorithm) for run in runs]
    if len(set(names)) < len(names):
        names = [f"{name}, rank {run.rank}" for name, run in zip(names, runs, strict=True)]
    return [
        f"{name} ({1 + names[:place].count(name)})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def curves_of(subject: Any, rank: int | None, over: str) -> list[Series]:
    """Return the error of each run over "time", "iteration" or "passes"."""
    if not isinstance(subject, Compared):
        runs = _runs(subject, rank)
        return [Series.of(label, getattr(run.history, over), run.history.error) for label, run in runs.items()]
    if over != "time":
        raise InputError(f'over must be "time" for a comparison; got {over!r}.')
    found = subject.curves(_rank_of(subject, rank))
    if not found:
        raise InputError("The comparison has no run with a finished iteration at this rank; choose another rank.")
    return found


def errors_of(subject: Any) -> Mapping[str, Mapping[int, float]]:
    """Return the final error by label and rank."""
    if isinstance(subject, Compared):
        return subject.errors()
    found: dict[str, dict[int, float]] = {}
    for label, run in _runs(subject).items():
        curve = found.setdefault(label if isinstance(subject, Mapping) else shown_name(run.algorithm), {})
        curve[run.rank] = min(run.error, curve.get(run.rank, np.inf))
    return found


def factors_of(subject: Any, rank: int | None) -> Factors:
    """Return W and H of each run."""
    if not isinstance(subject, Compared):
        return {label: (run.W, run.H) for label, run in _runs(subject, rank).items()}
    found = subject.factors(_rank_of(subject, rank))
    if not found:
        raise InputError("The comparison has no saved factors at this rank; choose another rank.")
    return found


def _rank_of(subject: Compared, rank: int | None) -> int:
    chosen = max(subject.ranks) if rank is None else rank
    if chosen not in subject.ranks:
        raise _no_rank(subject.ranks, rank)
    return chosen


def _no_rank(ranks: Iterable[int], rank: int | None) -> InputError:
    return InputError(f"rank must be one of {', '.join(map(str, sorted(ranks)))}; got {rank!r}.")
