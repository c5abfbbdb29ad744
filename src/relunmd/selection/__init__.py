"""Choosing the rank and the ridge: leave out random entries, predict them, and compare the errors."""

from relunmd.selection.rank_search import select_rank
from relunmd.selection.rank_selection import FoldFit, RankRow, RankSelection
from relunmd.selection.scorer import held_out_score

__all__ = ["FoldFit", "RankRow", "RankSelection", "held_out_score", "select_rank"]
