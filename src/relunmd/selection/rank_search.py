"""`select_rank`: fits without random entries, for several ranks and ridges, and the choice that predicts these best."""

# Keep annotations as written, so that help() shows them and not NumPy's unions.
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from relunmd.algorithm import Algorithm
from relunmd.api import Seed, result_of
from relunmd.arguments import check_callback, check_dtype, check_limits, check_threads
from relunmd.engine.matrix import Array
from relunmd.engine.observed import EntryOptions, opened
from relunmd.engine.problem import Problem
from relunmd.engine.problem_setup import executor_for, make_problem
from relunmd.errors import InputError
from relunmd.history import Status
from relunmd.init import Init
from relunmd.loop.criteria import Clock, Limits
from relunmd.loop.driver import solve
from relunmd.selection.folds import Fold, FoldPlan, agreement, fit_fold, folds, unit_rows
from relunmd.selection.race_rules import Setting, has_turned, survivors
from relunmd.selection.rank_selection import FoldFit, RankSelection, choose, rows_of
from relunmd.selection.search_options import SearchOptions
from relunmd.selection.selection_file import SelectionFile

_FOLD_TOL = 0.01

FitCallback = Callable[[FoldFit], bool | None]


def select_rank(
    X: ArrayLike,
    ranks: Iterable[int] | None = None,
    *,
    ridges: Iterable[float] | str = (0.0,),
    n_folds: int = 5,
    share: float = 0.1,
    rule: str = "1se",
    balance: bool = False,
    symmetric: bool | str = "auto",
    algorithm: str | Algorithm = "auto",
    init: str | Init = "auto",
    tol: float = 1e-3,
    max_iter: int | None = 300,
    max_time: float | None = None,
    refit: bool = True,
    random_state: Seed = None,
    missing_values: float | str | None = None,
    mask: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    n_jobs: int | None = None,
    callback: FitCallback | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> RankSelection:
    """Choose the rank, and the ridge, by how well entries that were left out are predicted.

    For each fold a random share of the entries of X, zeros and nonzeros alike, is treated as missing; each rank and
    ridge is fitted to the rest, and its relative error on the entries left out is measured. This estimates how well a
    model predicts an entry that it has not seen, given the others.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (m, n)
        As for `decompose`: in memory, in a file, or on Dask.
    ranks : iterable of int, optional
        Ranks to try. By default 1, 2, 3, …, 8, 10, 12, 14, 16, 20, … up to 64 and half of the smaller side of X.
    ridges : iterable of float or "auto", default=(0.0,)
        Ridges to try with each rank; "auto" is (0, 1e-3, 1e-2, 1e-1).
    n_folds : int, default=5
        Number of folds, at least 2.
    share : float, default=0.1
        Share of the entries that a fold holds out, at most 0.5. The folds are disjoint if n_folds·share ≤ 1.
    rule : {"1se", "min"}, default="1se"
        "min" chooses the smallest error; "1se" the smallest rank within one standard error, or 0.005, of it.
    balance : bool, default=False
        Hold out only as many zeros as nonzeros. The error then tells how well a nonzero and a zero drawn with equal
        probability are predicted; for very sparse X, where most held-out entries are zeros that any model predicts.
    symmetric : {"auto", True, False}, default="auto"
        Whether entries (i, j) and (j, i) are held out together: else one would give away the other. By default if X is
        symmetric, as the adjacency matrix of a graph is.
    algorithm : str or Algorithm, default="auto"
        See `decompose`; "qn", "3b-factored", "tsvd", "em" and "a-em" support missing entries.
    init : str or Init, default="auto"
        The initialization of every fit.
    tol : float, default=1e-3
        Tolerance of the refitted model; see `decompose`. The fits of the folds stop at 0.01 if `tol` is smaller and not
        0: at 0.001 their held-out errors differed by 1 to 2 %, and they took twice as long.
    max_iter : int or None, default=300
        Maximum number of iterations of a fit.
    max_time : float, optional
        Maximum number of seconds in all, checked after every iteration.
    refit : bool, default=True
        Whether to fit all entries with the chosen rank and ridge.
    random_state : int, Generator, RandomState or None, default=None
        Decides which entries are held out, and seeds the fits. The same integer gives the same result, wherever X is
        stored, whatever `n_jobs` is.
    missing_values, mask, weights, lower, upper : optional
        As for `decompose`. Missing entries are never held out, and errors are weighted.
    dtype : {float32, float64}, optional
        See `decompose`.
    n_jobs : int, optional
        Number of threads; −1 for all cores.
    callback : callable, optional
        Called after every fit with a `FoldFit` (fold, rank, ridge, error, …); the search ends if it returns True.
    progress : bool, default=False
        Show progress over all fits.
    checkpoint : path-like, optional
        File that is written atomically after every fit. If it exists and belongs to the same search, its fits are not
        repeated.

    Returns
    -------
    RankSelection
        The curve, the choice and the refitted model; ``print`` shows it. After Ctrl-C or `max_time`, the choice among
        the fits so far. Ctrl-C before the first fit has ended raises KeyboardInterrupt.

    See Also
    --------
    relunmd.plot.rank_curve : Plot the curve.
    held_out_score : A scorer of the same kind for GridSearchCV.

    Notes
    -----
    Nothing of the size of X is stored: whether an entry is held out follows from a hash of seed, fold, row and column.
    Memory is that of one fit, and the components of the first fold for `stability`.

    Not every fit is made. In the first fold larger ranks are skipped when the curve has turned: the last three ranks
    are worse than the best, which is at most half of the last. After every fold ranks and ridges that cannot be chosen
    any more are dropped: after the first those that are over 25 % worse than the best, or explain less than 60 % of
    what it explains; after two, smaller ranks that are over 5 % worse in each fold, and larger ones that are worse in
    each. `n_folds` of their rows is then smaller.

    All fits start from the same initialization: warm starts from other folds know the entries that are held out, and
    those from smaller ranks ended in local minima.

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.planted(120, 80, rank=4, zeros=0.7, random_state=0)
    >>> found = relunmd.select_rank(X, range(1, 9), n_folds=3, random_state=0)
    >>> found.rank, found.model.shape
    (4, (120, 80))
    """
    clock, limits = Clock(), check_limits(None, tol, max_iter, max_time)
    callbacks: Any = check_callback(callback)
    with ExitStack() as stack:
        A = stack.enter_context(opened(X, EntryOptions(missing_values, mask, weights, lower, upper)))
        float_type, threads = check_dtype(dtype, A), check_threads(n_jobs)
        folding = {"n_folds": n_folds, "share": share, "balance": balance, "symmetric": symmetric, "rule": rule}
        fitting = {"algorithm": algorithm, "init": init, "random_state": random_state}
        options = SearchOptions.check(A, float_type, ranks=ranks, ridges=ridges, **folding, **fitting)
        place = options.file(checkpoint)
        executor = stack.enter_context(executor_for(A, float_type, threads))
        executor.deadline = time.perf_counter() + (limits.max_time or np.inf)
        problem = make_problem(A, float_type, options.ranks[-1], executor)
        if progress:
            from relunmd.selection.selection_display import SelectionDisplay  # rich is slow to import

            count = len(options.ranks) * len(options.methods)
            callbacks.append(stack.enter_context(SelectionDisplay(count, options.n_folds)))
        return RankSearch(problem, options, limits, clock, callbacks).run(place, refit)


class RankSearch:
    """The fits of a search: fold by fold, in each fold by ridge and by increasing rank."""

    def __init__(
        self,
        problem: Problem,
        options: SearchOptions,
        limits: Limits,
        clock: Clock,
        callbacks: Sequence[FitCallback] = (),
    ) -> None:
        self._problem, self._options, self._limits, self._clock = problem, options, limits, clock
        self._callbacks = callbacks
        self._fits: dict[tuple[int, Setting], FoldFit] = {}
        self._components: dict[str, Array] = {}
        """The components of the first fold, scaled to unit length, by ridge and rank."""
        self._scored: list[int] = []
        """The folds that can be scored."""
        self._complete: list[int] = []
        """The folds of which no fit is missing."""
        self._ended_by = ""

    def run(self, place: Path | None, refit: bool) -> RankSelection:
        """Make the fits that the file does not have, and choose."""
        plan = self._options.plan(self._problem)
        identity = self._options.identity(plan, self._limits, self._problem.dtype)
        file = SelectionFile(place, self._problem.fingerprint, identity)
        with file.locked():
            known, self._components, seed = file.read()
            plan = plan if seed is None else replace(plan, seed=seed)
            self._fits = {(fit.fold, (fit.ridge, fit.rank)): fit for fit in known}
            try:
                for fold in folds(self._problem, plan):
                    self._scored.append(fold.number)
                    self._fit(fold, plan, file)
                    if self._ended_by:
                        break
                    self._complete.append(fold.number)
            except KeyboardInterrupt:
                if not self._fits or self._problem.executor.insisted:
                    raise
                self._ended_by = "Ctrl-C"
        if self._problem.executor.interrupted():  # After the last pass.
            self._ended_by = "Ctrl-C"
        found = self._result(identity | {"rule": self._options.rule, "seed": plan.seed})
        return self._refitted(found) if refit and not self._ended_by else found

    def _fit(self, fold: Fold, plan: FoldPlan, file: SelectionFile) -> None:
        """Make the fits of one fold."""
        first = len(self._scored) == 1
        left = None if first else survivors(self._errors(self._scored[:-1]), self._options.rule)
        for ridge in self._options.methods:
            tried: list[int] = []
            for rank in self._options.ranks:
                setting = ridge, rank
                if left is not None and setting not in left:
                    continue
                if (fold.number, setting) not in self._fits:
                    found = None if self._out_of_time() else self._fitted(fold, setting, plan)
                    if found is None:
                        return
                    self._fits[fold.number, setting] = found
                    if not self._ended_by:
                        file.write(list(self._fits.values()), self._components, plan.seed)
                    self._report(found)
                tried.append(rank)
                errors = [self._fits[fold.number, (ridge, each)].error for each in tried]
                if self._ended_by or (first and has_turned(tried, errors)):
                    break
            if self._ended_by:
                return

    def _fitted(self, fold: Fold, setting: Setting, plan: FoldPlan) -> FoldFit | None:
        """Return one fit; None if it was cut short, unless it is the first."""
        ridge, rank = setting
        begun, limits = self._clock.seconds(), self._limits
        limits = replace(limits, tol=max(limits.tol, _FOLD_TOL) if limits.tol else 0.0)
        if limits.max_time is not None:
            limits = replace(limits, max_time=limits.max_time - begun)
        parts = [plan.seed, fold.number, rank, list(self._options.methods).index(ridge)]
        found, error = fit_fold(
            fold, rank, self._options.methods[ridge], self._options.init, limits, lambda: np.random.default_rng(parts)
        )
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if found.status is Status.MAX_TIME:  # Its error is not comparable.
            self._ended_by = "max_time"
            if self._fits:
                return None
        if found.failure is not None:
            raise found.failure
        rows, name = unit_rows(found.H), f"{ridge!r} {rank}"
        stability = agreement(self._components[name], rows) if name in self._components else None
        self._components.setdefault(name, rows)
        seconds = self._clock.seconds() - begun
        return FoldFit(fold.number, rank, ridge, error, found.error, stability, len(found.history) - 1, seconds)

    def _out_of_time(self) -> bool:
        most = self._limits.max_time
        if self._fits and most is not None and self._clock.seconds() >= most:
            self._ended_by = "max_time"
        return bool(self._ended_by)

    def _report(self, fit: FoldFit) -> None:
        with self._problem.executor.users_code():
            for callback in self._callbacks:
                if callback(fit):
                    self._ended_by = "callback"

    def _errors(self, numbers: Sequence[int]) -> dict[Setting, list[float]]:
        """Return the errors in some folds, by setting."""
        found: dict[Setting, list[float]] = {}
        for (fold, setting), fit in self._fits.items():
            if fold in numbers:
                found.setdefault(setting, []).append(fit.error)
        return found

    def _result(self, settings: dict[str, Any]) -> RankSelection:
        if not self._fits:
            raise InputError(
                "X has too few positive entries: no fold holds out some of them and leaves others. Increase share."
            )
        fits = list(self._fits.values())
        # Of a fold that was not completed only the smaller ranks are known.
        compared = [fit for fit in fits if fit.fold in self._complete] or fits
        best, chosen = choose(rows_of(compared, len(self._complete)), self._options.rule)
        rows = rows_of(fits, self._options.n_folds if self._ended_by else len(self._scored))
        single = len(self._options.ranks) == 1
        return RankSelection(
            rank=chosen.rank,
            ridge=chosen.ridge,
            error=chosen.error,
            standard_error=chosen.standard_error,
            turned=best.rank < max(fit.rank for fit in fits) or best.rank == min(self._problem.shape) or single,
            rows=rows,
            best=best,
            fits=tuple(fits),
            model=None,
            settings=settings,
            ended_by=self._ended_by,
        )

    def _refitted(self, found: RankSelection) -> RankSelection:
        """Return the selection with the fit of all entries."""
        method, clock, limits = self._options.methods[found.ridge], Clock(), self._limits
        problem = replace(self._problem, rank=found.rank)
        if limits.max_time is not None:
            limits = replace(limits, max_time=max(1e-9, limits.max_time - self._clock.seconds()))
        problem.executor.passes = 0
        random = np.random.default_rng([found.settings["seed"], found.rank])
        try:
            outcome = solve(problem, method, [self._options.init], random, limits, clock, [])
        except KeyboardInterrupt:  # Before the first iteration.
            if problem.executor.insisted:
                raise
            return replace(found, ended_by="Ctrl-C")
        if outcome.status is Status.INTERRUPTED:
            return replace(found, ended_by="Ctrl-C")
        names = {"algorithm": method.name, "init": self._options.init.name, "settings": method.settings()}
        return replace(found, model=result_of(outcome, clock.seconds(), problem.fingerprint, names))
