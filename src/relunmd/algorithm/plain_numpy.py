"""Methods in plain NumPy on a dense X: a class with what it keeps, or just a generator function for a first try."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunmd.algorithm.base import Algorithm
from relunmd.algorithm.state import Array, State
from relunmd.engine.problem import Problem


@dataclass(frozen=True)
class DenseAlgorithm(Algorithm):
    """An algorithm in plain NumPy on a dense X: no passes, no blocks.

    A subclass defines `begin(X, W, H)`, which returns what it keeps as a dict, and `update(X, W, H, **kept)`, which
    returns the next W, the next H and such a dict. X is a read-only array of shape (m, n), scaled by a power of two.

    See Also
    --------
    Algorithm : Base class of methods that also serve sparse and distributed X.

    Examples
    --------
    The alternation of Saul (2022), with exact truncated SVDs:

    >>> import numpy as np, relunmd
    >>> class Alternating(relunmd.DenseAlgorithm):
    ...     def begin(self, X, W, H):
    ...         return {}
    ...
    ...     def update(self, X, W, H):
    ...         U, s, Vt = np.linalg.svd(np.where(X > 0, X, np.minimum(0, W @ H)), full_matrices=False)
    ...         r = len(H)
    ...         return U[:, :r] * s[:r], Vt[:r], {}
    >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
    >>> relunmd.decompose(X, rank=4, algorithm=Alternating(), random_state=0, max_iter=20).error < 0.1
    True
    """

    @abstractmethod
    def begin(self, X: Array, W: Array, H: Array) -> dict[str, Any]:
        """Return what is kept at iteration 0.

        Parameters
        ----------
        X : ndarray of shape (m, n)
            The matrix, read-only and scaled by a power of two.
        W : ndarray of shape (m, r)
            Initial factor.
        H : ndarray of shape (r, n)
            Initial factor.

        Returns
        -------
        dict of str to object
            One value for each key of `keeps`.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> class Momentum(relunmd.DenseAlgorithm):
        ...     keeps = {"Z": "mn"}
        ...
        ...     def begin(self, X, W, H):
        ...         return {"Z": np.where(X > 0, X, np.minimum(0, W @ H))}
        ...
        ...     def update(self, X, W, H, Z):
        ...         return W, H, {"Z": Z}
        >>> Momentum().begin(np.eye(2), np.ones((2, 1)), -np.ones((1, 2)))["Z"]
        array([[ 1., -1.],
               [-1.,  1.]])
        """

    @abstractmethod
    def update(self, X: Array, W: Array, H: Array, **kept: Any) -> tuple[Array, Array, dict[str, Any]]:
        """Return W, H and what is kept after one iteration.

        Parameters
        ----------
        X : ndarray of shape (m, n)
            The matrix, read-only and scaled by a power of two.
        W : ndarray of shape (m, r)
            The last W.
        H : ndarray of shape (r, n)
            The last H.
        **kept : object
            What is kept, by name.

        Returns
        -------
        W : ndarray of shape (m, r)
            The next W.
        H : ndarray of shape (r, n)
            The next H.
        kept : dict of str to object
            One value for each key of `keeps`.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> class LeastSquares(relunmd.DenseAlgorithm):
        ...     def begin(self, X, W, H):
        ...         return {}
        ...
        ...     def update(self, X, W, H):
        ...         Z = np.where(X > 0, X, np.minimum(0, W @ H))
        ...         W = Z @ np.linalg.pinv(H)
        ...         return W, np.linalg.pinv(W) @ Z, {}
        >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
        >>> relunmd.decompose(X, rank=4, algorithm=LeastSquares(), random_state=0, max_iter=20).error < 0.1
        True
        """

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


@dataclass(frozen=True)
class GeneratorAlgorithm(Algorithm):
    """Runs a generator function f(X, W, H) that yields W, H after every iteration.

    X is dense, read-only and in the user's units; W and H are the initial factors. A run cannot be resumed from a
    checkpoint: what the function keeps is unknown. If it ends, the run has converged.

    Parameters
    ----------
    function : callable
        The same function that `relunmd.compare` accepts.
    """

    summary = "a generator function"
    writes = ("X", "X in the units of the user")
    function: Callable[[Array, Array, Array], Iterator[tuple[Array, Array]]]

    @property
    def name(self) -> str:  # type: ignore[override]
        return getattr(self.function, "__name__", "generator")

    def settings(self) -> dict[str, Any]:
        return {}

    def start(self, problem: Problem, W: Array, H: Array) -> State:
        scale = problem.dtype.type(problem.matrix.scale)
        X = problem.dense / scale
        X.flags.writeable = False
        iterates = self.function(X, W.copy(), H / scale)
        return State(W, H, problem.error(W, H), iterates=iterates, ended=False)

    def step(self, problem: Problem, state: State) -> State:
        try:
            W, H = next(state.iterates)
        except StopIteration:
            return state.replace(ended=True)
        W, H = np.array(W, problem.dtype), np.array(H, problem.dtype) * problem.dtype.type(problem.matrix.scale)
        return state.replace(W=W, H=H, error=problem.error(W, H))

    def finished(self, state: State) -> bool:
        return bool(state.ended)

    def first_state(self, problem: Problem, W: Array, H: Array) -> State:
        return self.start(problem, W, H)

    def next_state(self, problem: Problem, state: State) -> State:
        return self.step(problem, state)
