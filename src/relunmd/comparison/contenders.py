"""Who takes part: a contender is a name and a method that yields its factors after every iteration.

The paper's algorithms and every other one of the library are contenders by themselves. A user's
own joins by `register`: nothing of the library is needed for it but the function.
"""

import hashlib
import inspect
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.decomposition import non_negative_factorization

from relunmd.algorithm import ALGORITHMS, Algorithm
from relunmd.engine.blas_threads import usable_cores
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.problem_setup import check_matrix, make_problem
from relunmd.errors import InputError
from relunmd.init import TSVDInit
from relunmd.init.given import GivenInit
from relunmd.memory_check import check_memory
from relunmd.plot.chart import PAPER, shown_name

__all__ = ["NMF", "Contender", "Method", "added", "built_in", "register", "registered", "unregister"]

log = logging.getLogger("relunmd")
Array = NDArray[Any]
Method = Callable[[Array, Array, Array], Iterator[tuple[Array, Array]]]
"""``method(X, W, H)``: yields the factors (W, H) after every iteration, from the start it is given.

X is m×n, float64 and read-only; W and H are copies of its own. What it does between two yields is
timed, what the caller does is not. It need not end: the runner stops it.
"""


@dataclass(frozen=True)
class Contender:
    """A method under the name that tables and pictures show; `settings` tell its results apart from others'."""

    label: str
    method: Method = field(compare=False, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)
    takes: str = field(default="dense", compare=False)
    """How it is given X: "dense", a float64 array; "memory", that or CSR in float64; "anything", as the user has it."""


def built_in(algorithm: str | Algorithm, label: str | None = None) -> Contender:
    """An algorithm of the library as a contender, by name or by settings.

    >>> from relunmd import ANMD, comparison
    >>> comparison.built_in("3b").label, comparison.built_in(ANMD(beta0=0.9), "bold").settings["beta0"]
    ('3B-NMD', 0.9)
    """
    settings = ALGORITHMS[algorithm]() if isinstance(algorithm, str) else algorithm
    return Contender(
        label or shown_name(settings.name),
        lambda X, W, H: _iterates(settings, X, W, H),
        {"algorithm": settings.name} | settings.settings(),
        "anything",
    )


def _iterates(algorithm: Algorithm, X: Any, W: Array, H: Array) -> Iterator[tuple[Array, Array]]:
    source = check_matrix(X)
    check_memory(source, W.dtype, W.shape[1], algorithm, TSVDInit())
    with ThreadExecutor(usable_cores()) as executor:
        problem = make_problem(source, W.dtype, W.shape[1], executor)
        state = algorithm.first_state(problem, *GivenInit(W, H).make(problem, np.random.default_rng(0)))
        if algorithm.finished(state):  # It is all in the start, as with the baseline.
            yield state.W, state.H / problem.matrix.scale
        while not algorithm.finished(state):
            state = algorithm.next_state(problem, state)
            yield state.W, state.H / problem.matrix.scale


def _nmf(X: Any, W: Array, H: Array) -> Iterator[tuple[Array, Array]]:
    """scikit-learn's coordinate descent, sweep by sweep, from NNDSVDa: its factors may not be negative."""
    start: dict[str, Any] = {"init": "nndsvda"}
    while True:
        # One sweep a call is the same as many: the method has no memory. What it checks each time was checked before.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            W, H, _ = non_negative_factorization(X, n_components=len(H), max_iter=1, tol=0.0, random_state=0, **start)
        yield W, H
        start = {"init": "custom", "W": W, "H": H}


NMF = Contender("NMF", _nmf, {"library": "scikit-learn", "solver": "cd", "init": "nndsvda"}, "memory")
"""The other baseline: X ≈ WH with W, H ≥ 0."""

_registered: dict[str, Contender] = {}


def register(label: str, **settings: Any) -> Callable[[Callable[..., Iterator[tuple[Array, Array]]]], Any]:
    """Let a method of one's own take part in every experiment from here on.

    Parameters
    ----------
    label : what tables and pictures call it
    settings : numbers, strings, lists: handed to the method by name, and written down with its results

    A finished run is not made again for the same label, settings and source of the method. Of functions
    that the method calls nothing is known: after changing one, take another folder or setting.

    BLAS has one thread while the method runs, as it has for the library's algorithms.

    Examples
    --------
    >>> from relunmd import comparison
    >>> @comparison.register("shrinks", by=0.5)
    ... def shrinks(X, W, H, by):
    ...     while True:
    ...         W = by * W
    ...         yield W, H
    >>> [contender.label for contender in comparison.registered()]
    ['shrinks']
    >>> comparison.unregister("shrinks")
    """
    if not isinstance(label, str) or not label.strip():
        raise InputError(f"label must be a name to show. Got {label!r}.")
    if label in _registered or label in PAPER.values() or label in ALGORITHMS or label == NMF.label:
        raise InputError(f"label must be new. Got {label!r}, which takes part already.")
    try:
        written = json.loads(json.dumps(settings, allow_nan=False))
    except (TypeError, ValueError) as reason:
        raise InputError(
            f"settings of {label!r} must be numbers, strings, lists or None. Got {settings!r}."
        ) from reason

    def join(method: Any) -> Any:
        if not callable(method):
            raise InputError(f"A method must be a function of X, W and H. Got {method!r}.")
        told = written | {"source": _fingerprint(method)}
        _registered[label] = Contender(label, partial(method, **settings) if settings else method, told)
        return method

    return join


def _fingerprint(method: Any) -> str:
    """A short hash of the method's source, so that an edited one is run again; empty if there is no source."""
    try:
        source = inspect.getsource(method)
    except (OSError, TypeError):
        log.info("The source of %r is not to be had: change a setting when you change it", method)
        return ""
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def unregister(label: str) -> None:
    """Take back what `register` did."""
    _registered.pop(label, None)


def registered() -> list[Contender]:
    """Users' own."""
    return list(_registered.values())


def added() -> list[Contender]:
    """The contenders that the paper does not have: the library's other algorithms, and users' own."""
    ours = [built_in(name) for name in ALGORITHMS if name not in PAPER]
    return ours + registered()
