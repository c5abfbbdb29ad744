"""Who takes part: a contender is a name and a method that yields its factors after every iteration.

The paper's algorithms and every other one of the library are contenders by themselves. A user's
own joins by `register`: nothing of the library is needed for it but the function.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.algorithms import ALGORITHMS, Algorithm
from relunmd.errors import InputError
from relunmd.executor import ThreadExecutor, usable_cores
from relunmd.init.given import GivenInit
from relunmd.validation import make_problem

__all__ = ["Contender", "Method", "added", "built_in", "register", "unregister"]

Array = NDArray[Any]
Method = Callable[[Array, Array, Array], Iterator[tuple[Array, Array]]]
"""``method(X, W, H)``: yields the factors (W, H) after every iteration, from the start it is given.

X is m×n, float64 and read-only; W and H are copies of its own. What it does between two yields is
timed, what the caller does is not. It need not end: the runner stops it.
"""

PAPER = {
    "naive": "Naive",
    "a-naive": "A-Naive",
    "em": "EM",
    "a-em": "A-EM",
    "a-nmd": "A-NMD",
    "3b": "3B-NMD",
    "tsvd": "TSVD",
}
"""The paper's algorithms and their names in it; all others are "added"."""


@dataclass(frozen=True)
class Contender:
    """A method under the name that tables and pictures show; `settings` tell its results apart from others'."""

    label: str
    method: Method = field(compare=False, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)


def built_in(algorithm: str | Algorithm[Any], label: str | None = None) -> Contender:
    """An algorithm of the library as a contender, by name or by settings."""
    settings = ALGORITHMS[algorithm]() if isinstance(algorithm, str) else algorithm
    shown = label or PAPER.get(settings.name, settings.name)
    return Contender(
        shown, lambda X, W, H: _iterates(settings, X, W, H), {"algorithm": settings.name} | asdict(settings)
    )


def _iterates(algorithm: Algorithm[Any], X: Array, W: Array, H: Array) -> Iterator[tuple[Array, Array]]:
    with ThreadExecutor(usable_cores()) as executor:
        problem = make_problem(X, X.dtype, W.shape[1], executor)
        state = algorithm.start(problem, *GivenInit(W, H).make(problem, np.random.default_rng(0)))
        while not state.done:
            state = algorithm.step(problem, state)
            yield state.W, state.H / problem.matrix.scale
        yield state.W, state.H / problem.matrix.scale


_registered: dict[str, Contender] = {}


def register(label: str, **settings: Any) -> Callable[[Method], Method]:
    """Let a method of one's own take part in every experiment from here on.

    Parameters
    ----------
    label : what tables and pictures call it
    settings : anything that changes its results: a finished run counts for the same settings only

    Examples
    --------
    >>> from relunmd import experiments
    >>> @experiments.register("stands still")
    ... def stands_still(X, W, H):
    ...     while True:
    ...         yield W, H
    >>> [contender.label for contender in experiments.added()]
    ['stands still']
    >>> experiments.unregister("stands still")
    """
    if not isinstance(label, str) or not label.strip():
        raise InputError(f"label must be a name to show. Got {label!r}.")
    if label in _registered or label in PAPER.values() or label in ALGORITHMS:
        raise InputError(f"label must be new. Got {label!r}, which takes part already.")

    def join(method: Method) -> Method:
        if not callable(method):
            raise InputError(f"A method must be a function of X, W and H. Got {method!r}.")
        _registered[label] = Contender(label, method, settings)
        return method

    return join


def unregister(label: str) -> None:
    """Take back what `register` did."""
    _registered.pop(label, None)


def added() -> list[Contender]:
    """The contenders that the paper does not have: the library's other algorithms, and users' own."""
    ours = [built_in(name) for name in ALGORITHMS if name not in PAPER]
    return ours + list(_registered.values())
