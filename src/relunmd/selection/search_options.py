"""The arguments of `select_rank`: checked, and what of them identifies a search."""

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relunmd.algorithm import ALGORITHMS, Algorithm
from relunmd.arguments import (
    check_algorithm,
    check_checkpoint,
    check_count,
    check_init,
    check_random_state,
    check_rank,
    check_ridge,
    check_share,
)
from relunmd.engine.distributed import ClusterSource
from relunmd.engine.matrix import Source
from relunmd.engine.problem import Problem
from relunmd.errors import InputError
from relunmd.init import INITS, GivenInit, Init
from relunmd.loop.criteria import Limits
from relunmd.memory_check import check_memory
from relunmd.selection.folds import FoldPlan, balanced_share, is_symmetric
from relunmd.selection.race_rules import default_ranks
from relunmd.selection.rank_selection import RULES

AUTO_RIDGES = (0.0, 1e-3, 1e-2, 1e-1)


@dataclass(frozen=True)
class SearchOptions:
    """How to search; `check` validates all of it before any work. See `select_rank` for the meaning."""

    ranks: list[int]
    methods: Mapping[float, Algorithm]
    """The algorithm with each ridge."""
    init: Init
    n_folds: int
    share: float
    rule: str
    balance: bool
    symmetric: bool | str
    seed: int
    seeded: bool
    """Whether the user gave the seed."""

    @classmethod
    def check(cls, X: Source, dtype: np.dtype[Any], **given: Any) -> "SearchOptions":
        """Return valid options; raise InputError for anything else."""
        ranks = _ranks(given["ranks"], X.shape)
        methods = _methods(given["algorithm"], given["ridges"])
        first = next(iter(methods.values()))
        init = check_init(given["init"], first, X.shape, ranks[-1], on_cluster=isinstance(X, ClusterSource))
        choices: Any = (("algorithm", first, ALGORITHMS), ("init", init, INITS))
        for name, chosen, known in choices:
            if not chosen.handles_missing and not isinstance(init, GivenInit):
                able = ", ".join(key for key, each in known.items() if each.handles_missing)
                raise InputError(f"{name} must be one of {able}, since entries are left out; got {chosen.name!r}.")
        if isinstance(init, GivenInit):
            raise InputError("init must not be given factors, which may know the entries that are held out.")
        n_folds, share, rule, symmetric = (given[name] for name in ("n_folds", "share", "rule", "symmetric"))
        if check_count(n_folds, "n_folds") < 2:
            raise InputError(f"n_folds must be at least 2; got {n_folds!r}.")
        if not isinstance(rule, str) or rule not in RULES:
            raise InputError(f"rule must be one of {', '.join(map(repr, RULES))}; got {rule!r}.")
        if not (isinstance(symmetric, bool | np.bool_) or symmetric == "auto"):
            raise InputError(f"symmetric must be True, False or 'auto'; got {symmetric!r}.")
        if symmetric is True and X.shape[0] != X.shape[1]:
            raise InputError(f"symmetric=True needs a square X; got shape {X.shape}.")
        check_memory(X, dtype, ranks[-1], first, init)
        seed = int(check_random_state(given["random_state"]).integers(2**63))
        rest = check_share(share, "share"), rule, bool(given["balance"]), symmetric
        return cls(ranks, methods, init, int(n_folds), *rest, seed, given["random_state"] is not None)

    def file(self, checkpoint: Any) -> Path | None:
        """Return the path of a checkpoint, if there is to be one."""
        found = check_checkpoint(checkpoint, 0, next(iter(self.methods.values())))
        return None if found is None else found[0]

    def plan(self, problem: Problem) -> FoldPlan:
        """Return which entries are held out; one pass if X is square."""
        symmetric = is_symmetric(problem) if self.symmetric == "auto" else bool(self.symmetric)
        zero_share = balanced_share(problem, self.share) if self.balance else self.share
        return FoldPlan(self.seed, self.n_folds, self.share, zero_share, symmetric)

    def identity(self, plan: FoldPlan, limits: Limits, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Return what makes two searches the same; the seed is None if any is accepted."""
        method = next(iter(self.methods.values()))
        return {
            "ranks": self.ranks,
            "ridges": list(self.methods),
            "n_folds": plan.n_folds,
            "share": plan.share,
            "zero_share": plan.zero_share,
            "symmetric": plan.symmetric,
            "algorithm": method.name,
            "algorithm_settings": method.settings() | ({"ridge": None} if hasattr(method, "ridge") else {}),
            "init": self.init.name,
            "init_settings": vars(self.init),
            "tol": limits.tol,
            "max_iter": limits.max_iter,
            "dtype": str(dtype),
            "seed": self.seed if self.seeded else None,
        }


def _ranks(given: Any, shape: tuple[int, int]) -> list[int]:
    """Return the ranks in increasing order."""
    if given is None:
        return default_ranks(shape)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"ranks must be integers such as [2, 4, 8], or None; got {reprlib.repr(given)}.")
    found = sorted({check_rank(rank, shape, "ranks") for rank in given})
    if not found:
        raise InputError("ranks must have at least one rank; got none.")
    return found


def _methods(algorithm: Any, ridges: Any) -> dict[float, Algorithm]:
    """Return the algorithm with each ridge, in increasing order."""
    method = check_algorithm(algorithm)
    if isinstance(ridges, str):
        if ridges != "auto":
            raise InputError(f"ridges must be numbers or 'auto'; got {ridges!r}.")
        ridges = AUTO_RIDGES
    if not isinstance(ridges, Iterable):
        raise InputError(f"ridges must be numbers such as [0, 1e-3], or 'auto'; got {reprlib.repr(ridges)}.")
    own = getattr(method, "ridge", 0.0)
    chosen = [check_ridge(method, ridge) for ridge in ridges]
    found = {float(getattr(each, "ridge", 0.0)): each for each in chosen}
    if not found or (own and len(found) > 1):
        what = f"none besides {own:g} of the algorithm" if own else "at least one number"
        raise InputError(f"ridges must be {what}; got {reprlib.repr(ridges)}.")
    return dict(sorted(found.items()))
