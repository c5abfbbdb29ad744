"""What an algorithm is: a settings object with a start and a step, and a state between them.

A step is one iteration, and its state is everything the next one needs; the loop, the stops and
the clock are solve.py's. It is one pass over X where the method allows it, and a few where an
iteration needs a truncated SVD; it never waits for a condition. A state flattens to named arrays
and back, and stepping on afterwards gives the same bits: checkpoints rest on that.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import InputError
from relunmd.problem import Problem

__all__ = [
    "Algorithm",
    "Array",
    "State",
    "at_least_one",
    "at_least_zero",
    "in_unit_interval",
    "scratch_field",
    "spare_or_new",
]

Array = NDArray[Any]


def scratch_field() -> Any:
    """A field for memory that may be written over: it is not part of what a state stands for."""
    return field(default=None, metadata={"scratch": True}, repr=False, compare=False)


def spare_or_new(spare: Array | None, like: Array) -> Array:
    """The spare array if there is one, else a new one of the same shape."""
    return np.empty_like(like) if spare is None else spare


@dataclass(frozen=True, eq=False)
class State:
    """The factors that would be handed back now, in scaled units, and their relative error E.

    Fields are arrays and numbers. A state may be stepped from once: large arrays that it no
    longer needs are written over by the step after next (see `scratch_field`). W and H never are.
    """

    W: Array
    H: Array
    error: float

    @property
    def done(self) -> bool:
        """Whether a further step would change nothing."""
        return False

    def columns(self) -> dict[str, float]:
        """What the history shows besides iteration, time, error and passes."""
        return {}

    def to_arrays(self) -> dict[str, Array]:
        """The state as named arrays (copies), from which `from_arrays` makes it again."""
        return {
            part.name: np.array(getattr(self, part.name)) for part in fields(self) if not part.metadata.get("scratch")
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """The state that `to_arrays` flattened."""
        wanted = {part.name for part in fields(cls) if not part.metadata.get("scratch")}
        if wanted != set(arrays):
            raise InputError(f"A {cls.__name__} is made of {sorted(wanted)}. Got {sorted(arrays)}.")
        parts: dict[str, Any] = {
            name: array.item() if np.ndim(array) == 0 else np.array(array) for name, array in arrays.items()
        }
        return cls(**parts)


S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class Algorithm(ABC, Generic[S]):
    """A method with its settings, which are its fields."""

    name: ClassVar[str]
    summary: ClassVar[str]
    state_type: ClassVar[type[State]]
    dense_arrays: ClassVar[int] = 0
    """How many m×n arrays it keeps besides X."""
    default_init: ClassVar[str] = "auto"

    @abstractmethod
    def start(self, problem: Problem, W: Array, H: Array) -> S:
        """The state at iteration 0, with the error of the start."""

    @abstractmethod
    def step(self, problem: Problem, state: S) -> S:
        """The state one iteration on. `state` is not to be used again."""


def in_unit_interval(settings: Algorithm[Any], *names: str) -> None:
    """Raise InputError unless each named setting is a number in [0, 1)."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < 1:
            raise InputError(f"{name} of {type(settings).__name__} must be a number in [0, 1). Got {value!r}.")


def at_least_zero(settings: Algorithm[Any], *names: str) -> None:
    """Raise InputError unless each named setting is a finite number of at least zero."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
            raise InputError(f"{name} of {type(settings).__name__} must be a number of at least 0. Got {value!r}.")


def at_least_one(settings: Algorithm[Any], *names: str) -> None:
    """Raise InputError unless each named setting is an integer of at least one."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
            raise InputError(f"{name} of {type(settings).__name__} must be an integer of at least 1. Got {value!r}.")
