"""The interface of initializations, the best multiple of given factors, and the random initialization."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relunmd.engine import kernels
from relunmd.engine.executor import Rows, Sums
from relunmd.engine.matrix import Array, Block
from relunmd.engine.problem import Problem
from relunmd.settings import check_settings


@dataclass(frozen=True)
class Init(ABC):
    """Base class of initializations: settings, and how to compute W and H.

    A subclass is a frozen dataclass that defines `name`, `summary` and `make`.

    Attributes
    ----------
    name : str
        The name for the argument `init`.
    summary : str
        One line that describes it.
    dense_arrays : int
        The number of m×n arrays that it holds besides X.
    handles_missing : bool
        Whether it supports missing, limited and weighted entries.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> class FirstRows(relunmd.Init):
    ...     name, summary = "first-rows", "the first rows of X as H"
    ...
    ...     def make(self, problem, random):
    ...         H = problem.dense[: problem.rank].copy()
    ...         return problem.dense @ H.T, H
    >>> relunmd.decompose(np.eye(12), rank=4, init=FirstRows(), max_iter=20).init
    'first-rows'
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    dense_arrays: ClassVar[int] = 0
    handles_missing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    @abstractmethod
    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        """Return initial factors in the scaled units and the float type of the problem.

        Parameters
        ----------
        problem : Problem
            X times a power of two (``problem.matrix.scale``), the rank, and the passes over X.
        random : numpy.random.Generator
            Source of random numbers.

        Returns
        -------
        W : ndarray of shape (m, r)
            Left factor.
        H : ndarray of shape (r, n)
            Right factor.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> from relunmd.engine.executor import ThreadExecutor
        >>> from relunmd.engine.problem_setup import check_matrix, make_problem
        >>> with ThreadExecutor(1) as executor:
        ...     problem = make_problem(check_matrix(np.eye(6)), np.dtype(float), 2, executor)
        ...     W, H = relunmd.RandomInit().make(problem, np.random.default_rng(0))
        >>> W.shape, H.shape
        ((6, 2), (2, 6))
        """


def best_multiple(problem: Problem, W: Array, H: Array) -> tuple[Array, Array]:
    """Return the factors of α·WH with α = ⟨X, max(0, WH)⟩ / ‖max(0, WH)‖², the best multiple; one pass."""
    if problem.matrix.observation is not None:
        # Up to limits, the squared error is a parabola in α, which the errors at 0, 1 and 2 determine.
        once, twice = (problem.error(W, H * H.dtype.type(factor)) ** 2 for factor in (1, 2))
        squares = (twice - 2 * once + 1) / 2
        cross = (squares + 1 - once) / 2
        return W, H * H.dtype.type(cross / squares if min(cross, squares) > 0 else 1.0)
    _, sums = problem.run(_cross_block, {"W": W}, H=H)
    if sums["cross"] <= 0:  # WH ≤ 0 wherever X > 0: no multiple helps, so use the norm of X.
        norm = np.sqrt(np.sum(problem.gram(W) * (H @ H.T), dtype=np.float64))
        factor = float(np.sqrt(problem.facts.squares) / norm) if norm > 0 else 1.0
    else:
        factor = sums["cross"] / sums["squares"]
    return W, H * H.dtype.type(factor)


def _cross_block(x: Block, rows: Rows, out: Rows, *, H: Array) -> Sums:
    cross = squares = 0.0
    for at in x.strips:
        for tile in x.across(at):
            products = kernels.cross_products(x.theta(tile, rows.W, H), *tile.scaled)
            cross, squares = cross + products[0], squares + products[1]
    return {"cross": cross, "squares": squares}


@dataclass(frozen=True)
class RandomInit(Init):
    """Draw standard normal W and H, scaled by the best multiple; one pass.

    The random initialization of section 5.1 of Seraghiti et al. (MLSP 2023, arXiv:2305.08687).

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
    >>> d = relunmd.decompose(X, rank=4, init=relunmd.RandomInit(), random_state=0, max_iter=50)
    >>> d.init, d.error < 0.1
    ('random', True)
    """

    name = "random"
    summary = "normal W and H, optimally scaled; one pass, clearly worse than the others"

    def make(self, problem: Problem, random: np.random.Generator) -> tuple[Array, Array]:
        W = problem.executor.normal_rows(problem.matrix, problem.rank, random)
        H = random.standard_normal((problem.rank, problem.shape[1])).astype(problem.dtype)
        return best_multiple(problem, W, H)
