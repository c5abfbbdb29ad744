"""The result of `select_rank`: the curve, the choice, and why."""

# Keep annotations as written, so that help() shows them and not NumPy's unions.
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from relunmd._util import need
from relunmd.result import Decomposition
from relunmd.selection.race_rules import NEGLIGIBLE

RULES = ("1se", "min")
_USELESS = 1.0
"""The error of predicting zeros."""


@dataclass(frozen=True)
class FoldFit:
    """Hold one fit of `select_rank`, which leaves out the entries of one fold.

    Attributes
    ----------
    fold : int
        Number of the fold, from 0.
    rank : int
        Rank of the fit.
    ridge : float
        Ridge of the fit.
    error : float
        Relative error on the entries that were left out.
    training_error : float
        Relative error on the others.
    stability : float or None
        Mean cosine of its components and those of the first fold, matched one to one; None for the first.
    n_iter : int
        Number of iterations.
    seconds : float
        Time of the fit.

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.synthetic(80, 60, 3, random_state=0)
    >>> seen = []
    >>> found = relunmd.select_rank(X, [2, 3], n_folds=2, refit=False, callback=seen.append, random_state=0)
    >>> [(fit.fold, fit.rank) for fit in seen]
    [(0, 2), (0, 3), (1, 3)]
    """

    fold: int
    rank: int
    ridge: float
    error: float
    training_error: float
    stability: float | None
    n_iter: int
    seconds: float


@dataclass(frozen=True)
class RankRow:
    """Hold a point of the curve of `select_rank`: means over the folds of one rank and ridge.

    Attributes
    ----------
    rank : int
        The rank.
    ridge : float
        The ridge.
    error : float
        Held-out error.
    standard_error : float
        Standard error of `error`; NaN after a single fold.
    training_error : float
        Error on the entries that were fitted.
    stability : float
        Mean cosine of the components of two folds, matched one to one; NaN after a single fold.
    n_folds : int
        Number of folds that were fitted. A point that cannot be chosen any more is not fitted further.
    complete : bool
        Whether no fold is missing.

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.synthetic(80, 60, 3, random_state=0)
    >>> found = relunmd.select_rank(X, [2, 3, 4], n_folds=2, refit=False, random_state=0)
    >>> [(row.rank, row.n_folds) for row in found.rows]
    [(2, 1), (3, 2), (4, 2)]
    """

    rank: int
    ridge: float
    error: float
    standard_error: float
    training_error: float
    stability: float
    n_folds: int
    complete: bool


@dataclass(frozen=True, repr=False, eq=False)
class RankSelection:
    """Hold the result of `select_rank`: held-out error by rank and ridge, and the choice.

    Attributes
    ----------
    rank : int
        The chosen rank.
    ridge : float
        The chosen ridge.
    error : float
        Held-out error of the choice: ‖x − max(0, WH)‖ / ‖x‖ over the entries that were held out, mean over the folds.
    standard_error : float
        Standard error of that mean.
    turned : bool
        Whether the curve has a minimum within the ranks. If not, the smallest error is that of the largest rank tried,
        and a larger one may be better. True if only one rank was given.
    rows : tuple of RankRow
        The curve, by ridge and rank: ``rank``, ``ridge``, ``error``, ``standard_error``, ``training_error``,
        ``stability`` (mean cosine of the components of two folds, matched one to one), ``n_folds``, and ``complete``.
    best : RankRow
        The point with the smallest error.
    fits : tuple of FoldFit
        All fits.
    model : Decomposition or None
        The fit of all entries with the chosen rank and ridge; None without `refit`, or if interrupted before.
    settings : dict
        How it was measured: ``rule``, ``n_folds``, ``share``, ``zero_share``, ``symmetric``, ``seed``, …
    ended_by : str
        What ended the search early: "Ctrl-C", "callback" or "max_time"; empty if nothing did.

    See Also
    --------
    select_rank : Choose a rank and a ridge.
    relunmd.plot.rank_curve : Plot the curve.

    Examples
    --------
    >>> import relunmd
    >>> X = relunmd.datasets.synthetic(80, 60, 3, random_state=0)
    >>> found = relunmd.select_rank(X, [1, 2, 3, 4, 5], n_folds=3, random_state=0)
    >>> found.rank, found.turned, found.model.rank
    (3, True, 3)
    """

    rank: int
    ridge: float
    error: float
    standard_error: float
    turned: bool
    rows: tuple[RankRow, ...]
    best: RankRow
    fits: tuple[FoldFit, ...]
    model: Decomposition | None
    settings: Mapping[str, Any]
    ended_by: str = ""

    def __repr__(self) -> str:
        return (
            f"RankSelection(rank={self.rank}, ridge={self.ridge:g}, error={self.error:.4g}{self._spread}, "
            f"turned={self.turned}, {len(self.rows)} points)"
        )

    @property
    def _spread(self) -> str:
        return "" if math.isnan(self.standard_error) else f" ± {self.standard_error:.1g}"

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Return the choice in sentences, and the curve as a table of text.

        Returns
        -------
        str
            Several lines.

        Examples
        --------
        >>> import relunmd
        >>> X = relunmd.datasets.synthetic(80, 60, 3, random_state=0)
        >>> found = relunmd.select_rank(X, [2, 3, 4], n_folds=2, refit=False, random_state=0)
        >>> print(found.summary().splitlines()[0][:7])
        Rank 3:
        """
        head = f"{'rank':>6}{'ridge':>8}{'held-out':>10}{'± s.e.':>9}{'training':>10}{'stability':>11}{'folds':>7}"
        lines = [self.sentence, "", head]
        for row in self.rows:
            mark = " <" if (row.rank, row.ridge) == (self.rank, self.ridge) else ""
            spread = "–" if math.isnan(row.standard_error) else f"{row.standard_error:.4f}"
            stability = "–" if math.isnan(row.stability) else f"{row.stability:.2f}"
            lines.append(
                f"{row.rank:6}{row.ridge:8g}{row.error:10.4f}{spread:>9}{row.training_error:10.4f}{stability:>11}"
                f"{row.n_folds:7}{mark}"
            )
        return "\n".join(lines)

    @property
    def sentence(self) -> str:
        """The choice in a few sentences."""
        several = len({row.ridge for row in self.rows}) > 1
        choice = f"Rank {self.rank}" + (f", ridge {self.ridge:g}" if several or self.ridge else "")
        found = [f"{choice}: held-out error {self.error:.4g}{self._spread}."]
        best = self.best
        if (best.rank, best.ridge) != (self.rank, self.ridge):
            at = f"rank {best.rank}" + (f", ridge {best.ridge:g}" if several else "")
            found.append(
                f"The smallest error is {best.error:.4g}, at {at}; {self.rank} is the smallest rank within "
                f"{_margin(best):.1g} of it."
            )
        if not self.turned and not self.ended_by:
            found.append(
                f"The curve has not turned: the error still falls at {best.rank}, the largest rank. "
                "Try larger ranks, or choose by another criterion."
            )
        if several and best.ridge == max(row.ridge for row in self.rows):
            found.append(f"The best ridge is the largest, {best.ridge:g}: try larger ones.")
        if best.error >= _USELESS:
            found.append("No rank predicts the held-out entries better than zeros do.")
        if self.ended_by:
            found.append(f"The search was ended early by {self.ended_by}, after {len(self.fits)} fits.")
        return " ".join(found)

    def to_frame(self) -> Any:
        """Return the curve as a pandas frame, with a row for each rank and ridge.

        Returns
        -------
        pandas.DataFrame
            The columns are the attributes of `rows`, and ``chosen``.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.

        Examples
        --------
        >>> import relunmd
        >>> X = relunmd.datasets.synthetic(80, 60, 3, random_state=0)
        >>> found = relunmd.select_rank(X, [2, 3, 4], n_folds=2, refit=False, random_state=0)
        >>> frame = found.to_frame()
        >>> frame[frame.chosen]["rank"].tolist()
        [3]
        """
        pandas = need("pandas", "A frame needs", "pandas")
        return pandas.DataFrame(self.table())

    def table(self) -> list[dict[str, Any]]:
        """Return the curve as a list of dictionaries, with a key ``chosen``.

        Returns
        -------
        list of dict
            One for each rank and ridge.

        Examples
        --------
        >>> import relunmd
        >>> X = relunmd.datasets.synthetic(80, 60, 3, random_state=0)
        >>> found = relunmd.select_rank(X, [2, 3, 4], n_folds=2, refit=False, random_state=0)
        >>> [row["rank"] for row in found.table() if row["chosen"]]
        [3]
        """
        return [asdict(row) | {"chosen": (row.rank, row.ridge) == (self.rank, self.ridge)} for row in self.rows]


def rows_of(fits: Sequence[FoldFit], n_folds: int) -> tuple[RankRow, ...]:
    """Return the points of the curve; `n_folds` is the number of folds that a complete one has."""
    groups: dict[tuple[float, int], list[FoldFit]] = {}
    for fit in fits:
        groups.setdefault((fit.ridge, fit.rank), []).append(fit)
    return tuple(_row(group, n_folds) for _, group in sorted(groups.items()))


def _row(group: Sequence[FoldFit], n_folds: int) -> RankRow:
    errors = [fit.error for fit in group]
    stability = [fit.stability for fit in group if fit.stability is not None]
    return RankRow(
        rank=group[0].rank,
        ridge=group[0].ridge,
        error=fmean(errors),
        standard_error=stdev(errors) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan,
        training_error=fmean(fit.training_error for fit in group),
        stability=fmean(stability) if stability else math.nan,
        n_folds=len(group),
        complete=len(group) == n_folds,
    )


def choose(rows: Sequence[RankRow], rule: str) -> tuple[RankRow, RankRow]:
    """Return the point with the smallest error, and the chosen one, among those with the most folds.

    The rule "1se" chooses the smallest rank whose error is within one standard error, or 0.005, of the smallest.
    """
    most = max(row.n_folds for row in rows)
    able = [row for row in rows if row.n_folds == most]
    best = min(able, key=lambda row: (row.error, row.rank))
    if rule == "min":
        return best, best
    near = [row for row in able if row.error <= best.error + _margin(best)]
    rank = min(row.rank for row in near)
    return best, min((row for row in near if row.rank == rank), key=lambda row: row.error)


def _margin(best: RankRow) -> float:
    """Return how much larger than the smallest error that of the choice may be."""
    return NEGLIGIBLE if math.isnan(best.standard_error) else max(NEGLIGIBLE, best.standard_error)
