"""What is compared: a contender is a label and a method that yields its factors after every iteration.

Every algorithm of the library is a contender. A method of your own becomes one by `register`; it needs nothing of the
library.
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

log = logging.getLogger("relunmd")
Array = NDArray[Any]
Method = Callable[[Array, Array, Array], Iterator[tuple[Array, Array]]]
"""``method(X, W, H)`` yields the factors (W, H) after every iteration, from the given initial factors.

X is m×n, float64 and read-only; W and H are copies. The time between two yields is measured. The method need not end.
"""


@dataclass(frozen=True)
class Contender:
    """A method with the label that tables and pictures show.

    Parameters
    ----------
    label : str
        Name in tables and pictures.
    method : callable
        ``method(X, W, H)`` yields (W, H) after every iteration.
    settings : mapping, default={}
        What distinguishes its results from those of other contenders; written to the results.
    takes : {"dense", "memory", "anything"}, default="dense"
        How X is passed: as a float64 array; as that or CSR in float64; or as the user gave it.

    See Also
    --------
    built_in : Make a contender of an algorithm of the library.
    register : Add a method to all comparisons.

    Examples
    --------
    >>> from relunmd import comparison
    >>> def constant(X, W, H):
    ...     while True:
    ...         yield W, H
    >>> comparison.Contender("constant", constant, {"version": 1})
    Contender(label='constant', settings={'version': 1}, takes='dense')
    """

    label: str
    method: Method = field(compare=False, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)
    takes: str = field(default="dense", compare=False)


def built_in(algorithm: str | Algorithm | Method, label: str | None = None) -> Contender:
    """Return an algorithm as a contender.

    Parameters
    ----------
    algorithm : str, Algorithm or callable
        A name of `relunmd.algorithms()`, an instance with settings, or a generator function of X, W and H.
    label : str, default=None
        Name in tables and pictures; the algorithm's name by default.

    Returns
    -------
    Contender
        For the argument `algorithms` of `relunmd.compare`.

    Examples
    --------
    >>> from relunmd import ANMD, comparison
    >>> comparison.built_in("3b").label, comparison.built_in(ANMD(beta0=0.9), "bold").settings["beta0"]
    ('3B-NMD', 0.9)
    """
    if not isinstance(algorithm, str | Algorithm):
        return Contender(label or algorithm.__name__, algorithm, {"source": _fingerprint(algorithm)})
    method = ALGORITHMS[algorithm]() if isinstance(algorithm, str) else algorithm
    settings = {"algorithm": method.name} | method.settings()
    return Contender(label or shown_name(method.name), partial(_iterates, method), settings, "anything")


def _iterates(algorithm: Algorithm, X: Any, W: Array, H: Array) -> Iterator[tuple[Array, Array]]:
    source = check_matrix(X)
    check_memory(source, W.dtype, W.shape[1], algorithm, TSVDInit())
    with ThreadExecutor(usable_cores()) as executor:
        problem = make_problem(source, W.dtype, W.shape[1], executor)
        state = algorithm.first_state(problem, *GivenInit(W, H).make(problem, np.random.default_rng(0)))
        if algorithm.finished(state):  # The baseline has no iterations.
            yield state.W, state.H / problem.matrix.scale
        while not algorithm.finished(state):
            state = algorithm.next_state(problem, state)
            yield state.W, state.H / problem.matrix.scale


def _nmf(X: Any, W: Array, H: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the sweeps of scikit-learn's coordinate descent from NNDSVDa: its factors may not be negative."""
    options: dict[str, Any] = {"init": "nndsvda"}
    while True:
        # The method has no memory, so one sweep per call equals many; its checks of X were made before.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            W, H, _ = non_negative_factorization(X, n_components=len(H), max_iter=1, tol=0.0, random_state=0, **options)
        yield W, H
        options = {"init": "custom", "W": W, "H": H}


TSVD = built_in("tsvd")
"""The baseline max(0, X_r), from the truncated SVD."""

NMF = Contender("NMF", _nmf, {"library": "scikit-learn", "solver": "cd", "init": "nndsvda"}, "memory")
"""The baseline X ≈ WH with W, H ≥ 0."""

_registered: dict[str, Contender] = {}


def register(label: str, **settings: Any) -> Callable[[Any], Any]:
    """Add a method of your own to all comparisons; a decorator.

    Parameters
    ----------
    label : str
        Name in tables and pictures.
    **settings : int, float, str, list or None
        Passed to the method by name, and written to the results.

    Returns
    -------
    callable
        Decorator for a function ``method(X, W, H, **settings)`` that yields (W, H) after every iteration.

    Raises
    ------
    InputError
        If the label is taken, or a setting cannot be written as JSON.

    Notes
    -----
    A finished run is not repeated for the same label, settings and source of the method. Changes of functions that the
    method calls are not detected: use another folder or setting after such a change. BLAS has one thread while the
    method runs, as for the library's algorithms.

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
        raise InputError(f"label must be a nonempty string; got {label!r}.")
    if label in {*_registered, *PAPER.values(), *ALGORITHMS, NMF.label}:
        raise InputError(f"label must be new; {label!r} already takes part.")
    try:
        written = json.loads(json.dumps(settings, allow_nan=False))
    except (TypeError, ValueError) as why:
        raise InputError(f"settings of {label!r} must be numbers, strings, lists or None; got {settings!r}.") from why

    def decorate(method: Any) -> Any:
        if not callable(method):
            raise InputError(f"register must decorate a function of X, W and H; got {method!r}.")
        _registered[label] = Contender(label, partial(method, **settings), written | {"source": _fingerprint(method)})
        return method

    return decorate


def _fingerprint(method: Any) -> str:
    """Return a short hash of the method's source, so that an edited one is run again; empty without source."""
    try:
        source = inspect.getsource(method)
    except (OSError, TypeError):
        log.info("The source of %r is not available: change a setting when you change it", method)
        return ""
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def unregister(label: str) -> None:
    """Remove a registered method from comparisons.

    Parameters
    ----------
    label : str
        The label that was given to `register`. Nothing happens if it is unknown.

    Examples
    --------
    >>> from relunmd import comparison
    >>> @comparison.register("constant")
    ... def constant(X, W, H):
    ...     while True:
    ...         yield W, H
    >>> comparison.unregister("constant")
    >>> comparison.registered()
    []
    """
    _registered.pop(label, None)


def registered() -> list[Contender]:
    """Return the registered methods.

    Returns
    -------
    list of Contender
        In the order of their registration.

    Examples
    --------
    >>> from relunmd import comparison
    >>> @comparison.register("constant")
    ... def constant(X, W, H):
    ...     while True:
    ...         yield W, H
    >>> [contender.label for contender in comparison.registered()]
    ['constant']
    >>> comparison.unregister("constant")
    """
    return list(_registered.values())
