"""What an algorithm keeps between two iterations.

An algorithm declares it once, for example ``keeps = {"Z": "mn", "momentum": "rn", "alpha": float}``. Flattening to
named arrays and back, the checks of a state that was read from a file, the memory a run needs, float types and C order
follow from the declaration.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunmd.engine.linalg.truncated_svd import OVERSAMPLING
from relunmd.engine.problem import Problem
from relunmd.errors import InputError

Array = NDArray[Any]
Keeps = Mapping[str, Any]
"""What is kept, by name.

A string is an array: one letter for each axis, then the float type if it is not that of the computation
("mn", "np float64"). m, n and r are the sides of X and the rank, p is the number of columns of a truncated SVD, and
any other letter is a size that is the same wherever it occurs. "k * mr" is a tuple of k such arrays. `float`, `int`
and `bool` are numbers. A mapping declares the state of another algorithm, or None.
"""


class State:
    """The factors after an iteration, their relative error, and what the algorithm declares in `keeps`.

    Parameters
    ----------
    W : ndarray of shape (m, r)
        Left factor. WH approximates X times a power of two (``problem.matrix.scale``).
    H : ndarray of shape (r, n)
        Right factor.
    error : float
        Relative error ‖X − max(0, WH)‖ / ‖X‖.
    **kept : object
        What the algorithm declares in `keeps`; each is an attribute.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> state = relunmd.State(np.ones((3, 1)), np.ones((1, 3)), error=0.8, beta=0.7)
    >>> state.H.shape, state.beta
    ((1, 3), 0.7)
    """

    W: Any
    H: Any
    error: float

    def __init__(self, W: Any, H: Any, error: float, **kept: Any) -> None:
        vars(self).update(kept, W=W, H=H, error=error)

    def replace(self, **changes: Any) -> "State":
        """Return a copy with some values changed.

        Parameters
        ----------
        **changes : object
            New values by name.

        Returns
        -------
        State
            A new state. Arrays that are not replaced are shared.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> state = relunmd.State(np.ones((3, 1)), np.ones((1, 3)), error=0.8, beta=0.7)
        >>> state.replace(beta=0.5).beta, state.beta
        (0.5, 0.7)
        """
        return State(**(vars(self) | changes))

    @property
    def criterion(self) -> float:
        """What the run minimizes: ``penalized`` if the algorithm keeps it, else the error."""
        return float(vars(self).get("penalized", self.error))

    @property
    def n_steps(self) -> int:
        """Steps that the last iteration made: ``made`` if the algorithm keeps it, else 1."""
        return max(1, int(vars(self).get("made", 1)))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


@dataclass(frozen=True)
class Shape:
    """The declaration of an array, or of a tuple of arrays if `count` is a letter."""

    letters: str
    dtype: str
    count: str

    @classmethod
    def parse(cls, text: str) -> "Shape":
        count, _, array = text.rpartition(" * ")
        letters, _, dtype = array.partition(" ")
        return cls(letters, dtype, count)

    def fits(self, array: Any, dtype: np.dtype[Any], sizes: dict[str, int]) -> bool:
        """Whether an array has this shape and type; letters seen for the first time get their size."""
        if getattr(array, "dtype", None) != np.dtype(self.dtype or dtype) or array.ndim != len(self.letters):
            return False
        return all(size == sizes.setdefault(x, size) for size, x in zip(array.shape, self.letters, strict=True))


def complete(keeps: Keeps) -> dict[str, Any]:
    """The declaration with W, H and the error."""
    return {"W": "mr", "H": "rn", "error": float, **keeps}


def to_arrays(keeps: Keeps, state: State) -> dict[str, Array]:
    """Flatten a state to named arrays. They are the state's own, not copies."""
    named: dict[str, Array] = {}
    for name, kind in complete(keeps).items():
        value = getattr(state, name)
        if isinstance(kind, Mapping):
            named |= {} if value is None else {f"{name}.{key}": x for key, x in to_arrays(kind, value).items()}
        elif isinstance(kind, str) and Shape.parse(kind).count:
            named |= {f"{name}.{number}": array for number, array in enumerate(value)}
        else:
            named[name] = value if getattr(value, "ndim", 0) else np.asarray(value)
    return named


def from_arrays(keeps: Keeps, arrays: Mapping[str, Array]) -> State:
    """Rebuild the state that `to_arrays` flattened; raise InputError if the names differ."""
    values: dict[str, Any] = {}
    for name, kind in complete(keeps).items():
        inner = {key.removeprefix(f"{name}."): x for key, x in arrays.items() if key.startswith(f"{name}.")}
        if isinstance(kind, Mapping):
            values[name] = from_arrays(kind, inner) if inner else None
        elif isinstance(kind, str) and Shape.parse(kind).count:
            values[name] = tuple(inner.get(str(number)) for number in range(len(inner)))
        else:
            value: Any = arrays.get(name)
            values[name] = value.item() if getattr(value, "ndim", None) == 0 else value
    state = State(**values)
    if to_arrays(keeps, state).keys() != arrays.keys():
        raise InputError(f"The state is made of {sorted(complete(keeps))}; got {sorted(arrays)}.")
    return state


def float_type(state: State, problem: Problem) -> np.dtype[Any]:
    """The float type of a state: float32 if it keeps `single`, that is true and the problem is mixed."""
    return problem.single.dtype if vars(state).get("single") is True else problem.dtype


def misfit(keeps: Keeps, state: State, problem: Problem, dtype: np.dtype[Any] | None = None) -> str | None:
    """What in a state cannot belong to a run on `problem`, if anything; `dtype` is that of the state around it.

    Kernels do not check the sizes of their arguments, so a state from a file is checked first. Only W and H must be
    finite: a checkpoint may hold a state whose next step fails.
    """
    (m, n), r = problem.shape, problem.rank
    sizes = {"m": m, "n": n, "r": r, "p": min(r + OVERSAMPLING, m, n)}
    dtype = float_type(state, problem) if dtype is None else dtype
    for name, kind in complete(keeps).items():
        value = getattr(state, name)
        if isinstance(kind, Mapping):
            found = None if value is None else misfit(kind, value, problem, dtype)
            if found:
                return f"{name}.{found}"
        elif isinstance(kind, str):
            shape = Shape.parse(kind)
            arrays = value if shape.count else (value,)
            if shape.count and len(arrays) != sizes.setdefault(shape.count, len(arrays)):
                return f"{name} has {len(arrays)} arrays, not {sizes[shape.count]}"
            if not all(shape.fits(array, dtype, sizes) for array in arrays):
                return f"{name} is not an array {kind!r} of the right size and type"
            if name in ("W", "H") and not np.isfinite(value).all():
                return f"{name} is not finite"
        elif type(value) is not kind:
            return f"{name} is not of type {kind.__name__}"
    return None


def normalized(keeps: Keeps, state: State, dtype: np.dtype[Any]) -> State:
    """The state with arrays in C order and in their declared float types, and numbers of Python's types.

    After a state is read from a file its arrays are in C order, and for another order BLAS may give other bits.
    """
    values: dict[str, Any] = {}
    for name, kind in complete(keeps).items():
        value = getattr(state, name)
        if isinstance(kind, Mapping):
            values[name] = None if value is None else normalized(kind, value, dtype)
        elif isinstance(kind, str):
            shape = Shape.parse(kind)
            wanted = np.dtype(shape.dtype or dtype)
            values[name] = tuple(_array(x, wanted) for x in value) if shape.count else _array(value, wanted)
        else:
            values[name] = kind(value)
    return State(**values)


def _array(value: Any, dtype: np.dtype[Any]) -> Any:
    """An array in memory in C order, or an array on a cluster, in this float type."""
    return np.asarray(value, dtype, order="C") if isinstance(value, np.ndarray) else value.astype(dtype)


def count_dense(keeps: Keeps) -> int:
    """How many m×n arrays are kept."""
    return sum(isinstance(kind, str) and kind.startswith("mn") for kind in keeps.values())


def count_factors(keeps: Keeps) -> int:
    """How many arrays of the shape of W, or of H, are kept, whichever are more."""
    shapes = ["".join(sorted(Shape.parse(kind).letters)) for kind in keeps.values() if isinstance(kind, str)]
    return max(shapes.count("mr"), shapes.count("nr"))
