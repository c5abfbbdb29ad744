"""What an algorithm is: settings, what it keeps between iterations, a start and a step.

A step is one iteration and touches X only by passes. The loop, the stopping criteria and the clock are in
`relunmd.loop`; buffers, flattening and validation follow from the declarations of the class. CONTRIBUTING.md explains
how to write one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

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
        What a state has besides W, H and error. If it has a float ``penalized``, the run minimizes that.
    writes : sequence of str
        The m×n arrays that a step writes while it reads those of the state; by default as many as `keeps` has.
    reports : sequence of str
        Names in `keeps` that the history shows as columns.
    default_init : str
        What ``init="auto"`` means.
    handles_missing : bool
        Whether it supports missing, limited and weighted entries, as `look` does; False by default.

    See Also
    --------
    DenseAlgorithm : Base class of methods in plain NumPy on a dense X.
    look : One pass over X with what methods on W and H need.

    Examples
    --------
    Least squares for W, with H as initialized:

    >>> import numpy as np, relunmd
    >>> class FixedH(relunmd.Algorithm):
    ...     def start(self, problem, W, H):
    ...         return relunmd.State(W, H, problem.error(W, H))
    ...
    ...     def step(self, problem, state):
    ...         W = state.W + relunmd.look(problem, state.W, state.H).P
    ...         return relunmd.State(W, state.H, problem.error(W, state.H))
    >>> d = relunmd.decompose(np.eye(12), rank=4, algorithm=FixedH(), random_state=0)
    >>> d.algorithm, bool(d.error < d.history.error[0])
    ('fixedh', True)
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    keeps: ClassVar[Keeps] = {}
    writes: ClassVar[Sequence[str] | None] = None
    reports: ClassVar[Sequence[str]] = ()
    default_init: ClassVar[str] = "auto"
    handles_missing: ClassVar[bool] = False
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
        """Return the state at iteration 0, with the error of W and H.

        Parameters
        ----------
        problem : Problem
            X, the rank, and the passes over X.
        W : ndarray of shape (m, r)
            Initial factor; WH approximates X times ``problem.matrix.scale``.
        H : ndarray of shape (r, n)
            Initial factor.

        Returns
        -------
        State
            W, H, their error, and what `keeps` declares.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> class Constant(relunmd.Algorithm):
        ...     keeps = {"steps": int}
        ...
        ...     def start(self, problem, W, H):
        ...         return relunmd.State(W, H, problem.error(W, H), steps=0)
        ...
        ...     def step(self, problem, state):
        ...         return state.replace(steps=state.steps + 1)
        >>> relunmd.decompose(np.eye(12), rank=4, algorithm=Constant(), init="tsvd", max_iter=5).n_iter
        5
        """

    @abstractmethod
    def step(self, problem: Problem, state: State) -> State:
        """Return the state one iteration later.

        Parameters
        ----------
        problem : Problem
            X, the rank, and the passes over X.
        state : State
            The last state. Its arrays must not be changed.

        Returns
        -------
        State
            The next W and H, their error, and what `keeps` declares.

        Examples
        --------
        A subclass that counts the steps of another algorithm:

        >>> import numpy as np, relunmd
        >>> class Counted(relunmd.ThreeBlock):
        ...     steps = []
        ...
        ...     def step(self, problem, state):
        ...         self.steps.append(state.error)
        ...         return super().step(problem, state)
        >>> d = relunmd.decompose(np.eye(12), rank=4, algorithm=Counted(), max_iter=5)
        >>> len(Counted.steps)
        5
        """

    def tol_applies(self, state: State) -> bool:
        """Return whether `tol` may stop the run now.

        Parameters
        ----------
        state : State
            The current state.

        Returns
        -------
        bool
            True by default. False while the algorithm lets the error increase on purpose.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> state = relunmd.State(np.ones((3, 1)), np.ones((1, 3)), error=0.8, leak=1.0)
        >>> relunmd.QuasiNewton().tol_applies(state), relunmd.ThreeBlock().tol_applies(state)
        (False, True)
        """
        return True

    def finished(self, state: State) -> bool:
        """Return whether a further step would change nothing.

        Parameters
        ----------
        state : State
            The current state.

        Returns
        -------
        bool
            False by default. True ends the run with the status CONVERGED.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> state = relunmd.State(np.ones((3, 1)), np.ones((1, 3)), error=0.8)
        >>> relunmd.TSVD().finished(state), relunmd.ThreeBlock().finished(state)
        (True, False)
        """
        return False

    def columns(self, state: State) -> dict[str, float]:
        """Return what the history shows besides iteration, time, error and passes.

        Parameters
        ----------
        state : State
            The current state.

        Returns
        -------
        dict of str to float
            By default what `reports` names.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> state = relunmd.State(np.ones((3, 1)), np.ones((1, 3)), 0.8, sigma2=0.5, log_likelihood=-3)
        >>> relunmd.EM().columns(state)
        {'sigma2': 0.5, 'log_likelihood': -3.0}
        """
        return {name: float(getattr(state, name)) for name in self.reports}

    def settings(self) -> dict[str, Any]:
        """Return the settings by name.

        Returns
        -------
        dict of str to object
            The fields of the dataclass.

        Examples
        --------
        >>> import relunmd
        >>> relunmd.QuasiNewton(memory=20).settings()
        {'memory': 20, 'ridge': 0.0, 'warm_up': 5}
        """
        return asdict(self)

    def first_state(self, problem: Problem, W: Array, H: Array) -> State:
        """Return the result of `start` in the types that `keeps` declares.

        Parameters
        ----------
        problem : Problem
            X, the rank, and the passes over X.
        W : ndarray of shape (m, r)
            Initial factor.
        H : ndarray of shape (r, n)
            Initial factor.

        Returns
        -------
        State
            Arrays are in C order and in their declared float types.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> from relunmd.engine.executor import ThreadExecutor
        >>> from relunmd.engine.problem_setup import check_matrix, make_problem
        >>> with ThreadExecutor(1) as executor:
        ...     problem = make_problem(check_matrix(np.eye(6)), np.dtype(float), 2, executor)
        ...     state = relunmd.ThreeBlock().first_state(problem, np.ones((6, 2)), np.ones((2, 6)))
        >>> state.Z.shape, state.error > 1
        ((6, 6), True)
        """
        return self._normalized(problem, self.start(problem, W, H))

    def next_state(self, problem: Problem, state: State) -> State:
        """Return the result of `step` in the types that `keeps` declares.

        Parameters
        ----------
        problem : Problem
            X, the rank, and the passes over X.
        state : State
            The last state.

        Returns
        -------
        State
            Arrays are in C order and in their declared float types.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> from relunmd.engine.executor import ThreadExecutor
        >>> from relunmd.engine.problem_setup import check_matrix, make_problem
        >>> method = relunmd.ThreeBlock()
        >>> with ThreadExecutor(1) as executor:
        ...     problem = make_problem(check_matrix(np.eye(6)), np.dtype(float), 2, executor)
        ...     first = method.first_state(problem, np.ones((6, 2)), np.ones((2, 6)))
        ...     second = method.next_state(problem, first)
        >>> second.error < first.error
        True
        """
        return self._normalized(problem, self.step(problem, state))

    def _normalized(self, problem: Problem, state: State) -> State:
        return states.normalized(self.keeps, state, states.float_type(state, problem))

    def to_arrays(self, state: State) -> dict[str, Array]:
        """Flatten a state to named arrays, as a checkpoint stores them.

        Parameters
        ----------
        state : State
            A state of this algorithm.

        Returns
        -------
        dict of str to ndarray
            The arrays of the state itself, not copies.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> state = relunmd.State(np.ones((3, 1)), np.ones((1, 3)), error=0.8)
        >>> sorted(relunmd.TSVD().to_arrays(state))
        ['H', 'W', 'error']
        """
        return states.to_arrays(self.keeps, state)

    def from_arrays(self, arrays: Mapping[str, Array]) -> State:
        """Rebuild a state from named arrays.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            What `to_arrays` returned.

        Returns
        -------
        State
            The state.

        Raises
        ------
        InputError
            If the arrays are not those of a state of this algorithm.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> method = relunmd.TSVD()
        >>> arrays = method.to_arrays(relunmd.State(np.ones((3, 1)), np.ones((1, 3)), error=0.8))
        >>> method.from_arrays(arrays).error
        0.8
        """
        return states.from_arrays(self.keeps, arrays)

    def misfit(self, state: State, problem: Problem) -> str | None:
        """Return what in a state cannot belong to a run on a problem, if anything.

        Parameters
        ----------
        state : State
            A state that was read from a file.
        problem : Problem
            X and the rank.

        Returns
        -------
        str or None
            The reason, without a period; None if the state fits.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> from relunmd.engine.executor import ThreadExecutor
        >>> from relunmd.engine.problem_setup import check_matrix, make_problem
        >>> with ThreadExecutor(1) as executor:
        ...     problem = make_problem(check_matrix(np.eye(6)), np.dtype(float), 2, executor)
        >>> relunmd.TSVD().misfit(relunmd.State(np.ones((5, 2)), np.ones((2, 6)), error=0.8), problem)
        "W is not an array 'mr' of the right size and type"
        """
        return states.misfit(self.keeps, state, problem)

    def bytes_per_entry(self, itemsize: int) -> int:
        """Return the number of bytes that a run takes for each entry of W and H.

        The arrays of a state count twice: the next state is made while the last one is there.

        Parameters
        ----------
        itemsize : int
            Size of the float type: 4 for float32, 8 for float64.

        Returns
        -------
        int
            Bytes for each entry.

        Examples
        --------
        >>> import relunmd
        >>> relunmd.ThreeBlockFactored().bytes_per_entry(8) < relunmd.QuasiNewton().bytes_per_entry(8)
        True
        """
        return (_OF_THE_RUN + 2 * states.count_factors(states.complete(self.keeps))) * itemsize
