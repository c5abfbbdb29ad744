"""What an algorithm is: a settings object with a start and a step, and a state between them.

A step is one iteration, and its state is everything the next one needs; the loop, the stops and
the clock are solve.py's. It is one pass over X where the method allows it, and a few where an
iteration needs a truncated SVD; it never waits for a condition. A state flattens to named arrays
and back, and stepping on afterwards gives the same bits: checkpoints rest on that.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from relunmd.engine.linalg.truncated_svd import OVERSAMPLING
from relunmd.engine.problem import Problem
from relunmd.errors import InputError

__all__ = [
    "Algorithm",
    "Array",
    "Shape",
    "State",
    "at_least_one",
    "at_least_zero",
    "balanced",
    "in_unit_interval",
    "many_field",
    "scratch_field",
    "spare_or_new",
    "state_field",
]

Array = NDArray[Any]


@dataclass(frozen=True)
class Shape:
    """The shape of a state's array, in letters, with which its type is annotated.

    m, n and r are the sides of X and the rank, p is the number of columns of a truncated SVD, o is n or nothing, and
    any other letter is a number that is the same wherever it stands in a state. Of a tuple of arrays it is the shape
    of each, and `count` says how many they are. An array whose first letter is m belongs to the rows of X.
    """

    letters: str
    dtype: str | None = None
    """That of the problem unless it is said."""
    count: str | None = None


def scratch_field() -> Any:
    """A field for memory that may be written over: it is not part of what a state stands for."""
    return field(default=None, metadata={"scratch": True}, repr=False, compare=False)


def many_field() -> Any:
    """A field for a tuple of arrays, of any length: each goes by the field's name and its number."""
    return field(default=(), metadata={"many": True})


def state_field(kind: type["State"]) -> Any:
    """A field for another algorithm's state, or None: its parts go by the field's name and their own."""
    return field(default=None, metadata={"state": kind})


def spare_or_new(spare: Array | None, like: Array) -> Array:
    """The spare array if there is one, else a new one of the same shape."""
    return np.empty_like(like) if spare is None else spare


@dataclass(frozen=True, eq=False)
class State:
    """The factors that would be handed back now, in scaled units, and their relative error E.

    Fields are arrays and numbers. A state may be stepped from once: large arrays that it no
    longer needs are written over by the step after next (see `scratch_field`). W and H never are.
    """

    W: Annotated[Array, Shape("mr")]
    H: Annotated[Array, Shape("rn")]
    error: float

    @property
    def settled(self) -> bool:
        """Whether the error is what is being lowered now, so that `tol` may be asked of it."""
        return True

    @property
    def done(self) -> bool:
        """Whether a further step would change nothing."""
        return False

    def columns(self) -> dict[str, float]:
        """What the history shows besides iteration, time, error and passes."""
        return {}

    def to_arrays(self) -> dict[str, Array]:
        """The state as named arrays, from which `from_arrays` makes it again.

        They are the state's own, not copies: to be read before it is stepped from twice.
        """
        named: dict[str, Array] = {}
        for part in self._parts():
            value = getattr(self, part.name)
            if part.metadata.get("many"):
                named |= {f"{part.name}.{number}": array for number, array in enumerate(value)}
            elif part.metadata.get("state"):
                named |= {} if value is None else {f"{part.name}.{key}": x for key, x in value.to_arrays().items()}
            else:
                named[part.name] = value if getattr(value, "ndim", 0) else np.asarray(value)
        return named

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """The state that `to_arrays` flattened; the arrays are its own from now on."""
        many = {part.name for part in cls._parts() if part.metadata.get("many")}
        states = {part.name: part.metadata["state"] for part in cls._parts() if part.metadata.get("state")}
        inner = {
            name: {key.removeprefix(f"{name}."): x for key, x in arrays.items() if key.startswith(f"{name}.")}
            for name in states
        }
        arrays = {key: x for key, x in arrays.items() if not any(key.startswith(f"{name}.") for name in states)}
        wanted = {part.name for part in cls._parts()} - many - set(states)
        numbered = {name: sum(key.startswith(f"{name}.") for key in arrays) for name in many}
        wanted |= {f"{name}.{number}" for name, count in numbered.items() for number in range(count)}
        if wanted != set(arrays):
            raise InputError(f"A {cls.__name__} is made of {sorted(wanted)}. Got {sorted(arrays)}.")
        parts: dict[str, Any] = {
            name: tuple(arrays[f"{name}.{number}"] for number in range(count)) for name, count in numbered.items()
        }
        parts |= {
            name: array.item() if array.ndim == 0 else array
            for name, array in arrays.items()
            if name in wanted and "." not in name
        }
        parts |= {name: kind.from_arrays(inner[name]) if inner[name] else None for name, kind in states.items()}
        return cls(**parts)

    def misfit(self, problem: Problem) -> str | None:
        """What in this state cannot be of a run on `problem`, if anything.

        Kernels do not look at the sizes of what they are given, so a state from a file has to be looked at first. Only
        W and H need be finite: a state whose next step fails may have been written down.
        """
        (m, n), r = problem.shape, problem.rank
        sizes = {"m": m, "n": n, "r": r, "p": min(r + OVERSAMPLING, m, n)}
        shapes, hints = self.shapes(), get_type_hints(type(self))
        for part in self._parts():
            value = getattr(self, part.name)
            if part.metadata.get("state"):
                if value is not None and (what := value.misfit(problem)):
                    return f"{part.name}.{what}"
            elif part.name in shapes:
                shape, many = shapes[part.name], value if part.metadata.get("many") else (value,)
                if shape.count and len(many) != sizes.setdefault(shape.count, len(many)):
                    return f"{part.name} are {len(many)} and not {sizes[shape.count]}"
                dtype = np.dtype(shape.dtype or problem.dtype)
                if not all(_fits(array, shape.letters, dtype, sizes) for array in many):
                    return f"{part.name} is no array {shape.letters} of the right size and type"
                if part.name in ("W", "H") and not np.isfinite(value).all():
                    return f"{part.name} is not finite"
            elif type(value) is not hints[part.name]:
                return f"{part.name} is no {hints[part.name].__name__}"
        return None

    @classmethod
    def shapes(cls) -> dict[str, Shape]:
        """The shapes of the arrays, by the names of the fields."""
        hints = get_type_hints(cls, include_extras=True)
        return {
            name: noted
            for name, hint in hints.items()
            for noted in getattr(hint, "__metadata__", ())
            if isinstance(noted, Shape)
        }

    def without_scratch(self) -> Self:
        """The same with no memory to write over: what earlier states had stays as it is."""
        changed: dict[str, Any] = {part.name: None for part in fields(self) if part.metadata.get("scratch")}
        for part in self._parts():
            if part.metadata.get("state") and (value := getattr(self, part.name)) is not None:
                changed[part.name] = value.without_scratch()
        return replace(self, **changed)

    @classmethod
    def _parts(cls) -> list[Field[Any]]:
        return [part for part in fields(cls) if not part.metadata.get("scratch")]


def _fits(array: Any, shape: str, dtype: np.dtype[Any], sizes: dict[str, int]) -> bool:
    if getattr(array, "dtype", None) != dtype or array.ndim != len(shape):
        return False
    for size, letter in zip(array.shape, shape, strict=True):
        if size != sizes.setdefault(letter, size) or (letter == "o" and size not in (0, sizes["n"])):
            return False
    return True


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

    def bytes_per_entry(self, itemsize: int) -> int:
        """Bytes that a run takes for each entry of W and H, in a float type of `itemsize` bytes."""
        return 10 * itemsize

    @abstractmethod
    def start(self, problem: Problem, W: Array, H: Array) -> S:
        """The state at iteration 0, with the error of the start."""

    @abstractmethod
    def step(self, problem: Problem, state: S) -> S:
        """The state one iteration on. `state` is not to be used again."""


def balanced(W: Array, H: Array) -> tuple[Array, Array]:
    """The same WH with ‖W‖ = ‖H‖.

    A ridge sees how it is shared between them: equally, or the units of X would matter. Without one it keeps Gram
    matrices in the range of the float type. Equally to seven digits: the others depend on the order in which the
    squares are added.
    """
    of_W, of_H = (float(np.sum(np.square(factor, dtype=np.float64))) for factor in (W, H))
    if of_W == 0 or of_H == 0:
        return W, H
    share = W.dtype.type(np.float32((of_H / of_W) ** 0.25))
    return W * share, H / share


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
