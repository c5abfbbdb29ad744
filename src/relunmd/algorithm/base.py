"""What an algorithm is: settings, what it keeps between iterations, a start and a step.

A step is one iteration and touches X only by passes. The loop, the stopping criteria and the clock are in
`relunmd.loop`; buffers, flattening and validation follow from the declarations of the class. CONTRIBUTING.md explains
how to write one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from relunmd.algorithm import state as states
from relunmd.algorithm.state import Array, Keeps, State
from relunmd.engine.problem import Problem
from relunmd.settings import check_settings

_OF_THE_RUN = 4
"""Arrays like W and H that a run needs besides those of the state: the best factors and those of the next step."""


@dataclass(frozen=True)
class Algorithm(ABC):
    """A method with its settings, which are its fields.

    A subclass is a frozen dataclass that declares its settings with `setting`, what it keeps between iterations with
    `keeps` (see `relunmd.algorithm.state.Keeps`), and defines `start` and `step`.

    Attributes
    ----------
    name : str
        Name in ``algorithm=``; by default the class name in lower case.
    summary : str
        One line on what it is for and needs; by default the first line of the docstring.
    keeps : mapping
        What a state has besides W, H and error.
    writes : sequence of str
        The m×n arrays that a step writes while it reads those of the state; by default as many as `keeps` has.
    reports : sequence of str
        Names in `keeps` that the history shows as columns.
    default_init : str
        What ``init="auto"`` means.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    keeps: ClassVar[Keeps] = {}
    writes: ClassVar[Sequence[str] | None] = None
    reports: ClassVar[Sequence[str]] = ()
    default_init: ClassVar[str] = "auto"
    dense_arrays: ClassVar[int] = 0
    """How many m×n arrays a run takes besides X; derived from `keeps` and `writes`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()
        if "summary" not in vars(cls):
            cls.summary = (cls.__doc__ or cls.__name__).partition("\n")[0].rstrip(".")
        kept = states.count_dense(cls.keeps)
        cls.dense_arrays = kept + (kept if cls.writes is None else len(cls.writes))

    def __post_init__(self) -> None:
        check_settings(self)

    @abstractmethod
    def start(self, problem: Problem, W: Array, H: Array) -> State:
        """Return the state at iteration 0, with the error of W and H."""

    @abstractmethod
    def step(self, problem: Problem, state: State) -> State:
        """Return the state one iteration later. The arrays of `state` must not be changed."""

    def tol_applies(self, state: State) -> bool:
        """Whether the algorithm decreases the error at present, so that `tol` may stop it."""
        return True

    def finished(self, state: State) -> bool:
        """Whether a further step would change nothing."""
        return False

    def columns(self, state: State) -> dict[str, float]:
        """What the history shows besides iteration, time, error and passes."""
        return {name: float(getattr(state, name)) for name in self.reports}

    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self)

    def first_state(self, problem: Problem, W: Array, H: Array) -> State:
        """The result of `start`, as declared by `keeps`."""
        return states.normalized(self.keeps, self.start(problem, W, H), problem.dtype)

    def next_state(self, problem: Problem, state: State) -> State:
        """The result of `step`, as declared by `keeps`."""
        return states.normalized(self.keeps, self.step(problem, state), problem.dtype)

    def to_arrays(self, state: State) -> dict[str, Array]:
        """Flatten a state to named arrays, which are its own."""
        return states.to_arrays(self.keeps, state)

    def from_arrays(self, arrays: Mapping[str, Array]) -> State:
        """Rebuild a state from named arrays; raise InputError if it is not of this algorithm."""
        return states.from_arrays(self.keeps, arrays)

    def misfit(self, state: State, problem: Problem) -> str | None:
        """What in a state cannot belong to a run on `problem`, if anything."""
        return states.misfit(self.keeps, state, problem)

    def bytes_per_entry(self, itemsize: int) -> int:
        """Bytes that a run takes for each entry of W and H, in a float type of `itemsize` bytes.

        The arrays of a state count twice: the next state is made while the last one is there.
        """
        return (_OF_THE_RUN + 2 * states.count_factors(states.complete(self.keeps))) * itemsize


@dataclass(frozen=True)
class DenseAlgorithm(Algorithm):
    """An algorithm in plain NumPy on a dense X: no passes, no blocks.

    A subclass defines `begin(X, W, H)`, which returns what it keeps as a dict, and `update(X, W, H, **kept)`, which
    returns the next W, the next H and such a dict. X is a read-only array of shape (m, n), scaled by a power of two.
    """

    @abstractmethod
    def begin(self, X: Array, W: Array, H: Array) -> dict[str, Any]:
        """Return what is kept at iteration 0."""

    @abstractmethod
    def update(self, X: Array, W: Array, H: Array, **kept: Any) -> tuple[Array, Array, dict[str, Any]]:
        """Return W, H and what is kept after one iteration."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.dense_arrays += 1  # X itself.

    def start(self, problem: Problem, W: Array, H: Array) -> State:
        return State(W, H, problem.error(W, H), **self.begin(problem.dense, W, H))

    def step(self, problem: Problem, state: State) -> State:
        kept = {name: getattr(state, name) for name in self.keeps}
        W, H, kept = self.update(problem.dense, state.W, state.H, **kept)
        W, H = (np.asarray(factor, problem.dtype, order="C") for factor in (W, H))
        return State(W, H, problem.error(W, H), **kept)


def balanced(W: Array, H: Array) -> tuple[Array, Array]:
    """Return the same WH with ‖W‖ = ‖H‖.

    A ridge depends on how WH is split: equally, or the units of X would matter. Without a ridge it keeps Gram matrices
    within the range of the float type. The norms agree to seven digits: more would depend on the order in which the
    squares are added.
    """
    of_W, of_H = (float(np.sum(np.square(factor, dtype=np.float64))) for factor in (W, H))
    if of_W == 0 or of_H == 0:
        return W, H
    share = W.dtype.type(np.float32((of_H / of_W) ** 0.25))
    return W * share, H / share
