"""A pytest plugin that registers one more algorithm, as a new file of `relunmd.algorithm` would: `-p tests.newest`."""

from dataclasses import dataclass

from relunmd.algorithm import ALGORITHMS
from relunmd.algorithm.three_block_factored import ThreeBlockFactored

__all__ = ["Newest"]


@dataclass(frozen=True)
class Newest(ThreeBlockFactored):
    """As "3b-factored", under a name of its own: it takes a ridge, any kind of X, and keeps nothing of its size.

    Parameters
    ----------
    beta, adapt, ridge : see `ThreeBlockFactored`
    """

    name = "newest"
    summary = "an algorithm that was added"


ALGORITHMS["newest"] = Newest
