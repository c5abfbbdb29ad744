"""Which ranks are tried, and which need no further fits: the curve has turned, or others are clearly better."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

_LARGEST = 64
_AN_OCTAVE = 4
"""Default ranks between a power of two and the next."""
_EXPLAINED, _BEYOND = 0.9, 3
_CLEARLY_WORSE, _FIRST_FOLDS = 1.05, 2
NEGLIGIBLE = 0.005
"""Errors that differ by less are equal: fits stop before they converge, and an exact rank has an error near 0."""

Setting = tuple[float, int]
"""A ridge and a rank."""


def default_ranks(shape: tuple[int, int]) -> list[int]:
    """Return the ranks that are tried by default: up to 64, at most half of the smaller side, four in an octave.

    >>> default_ranks((1000, 40))
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
    """
    most, found, rank = max(1, min(min(shape) // 2, _LARGEST)), [], 1
    while rank <= most:
        found.append(rank)
        rank += max(1, (1 << (rank.bit_length() - 1)) // _AN_OCTAVE)
    return found


def has_turned(ranks: Sequence[int], errors: Sequence[float]) -> bool:
    """Return whether larger ranks need not be tried, given the errors of the first fold by increasing rank.

    The last three are worse than the best, and the last rank is at least twice the best. Errors near 1, that of
    predicting zeros, prove nothing: on very sparse X they rise at first and fall when the rank is large enough.
    """
    best = min(range(len(errors)), key=errors.__getitem__)
    beyond = errors[best + 1 :][-_BEYOND:]
    clear = len(beyond) == _BEYOND and min(beyond) > errors[best]
    return clear and errors[best] < _EXPLAINED and ranks[len(errors) - 1] >= 2 * ranks[best]


def survivors(errors: Mapping[Setting, Sequence[float]]) -> set[Setting]:
    """Return the settings that may still be chosen, given their errors in the folds so far.

    After two folds those are dropped that are over 5 % (and 0.005) worse than the best in each of them, and by more
    than two standard errors on average.
    """
    folds = max(map(len, errors.values()), default=0)
    full = {setting: found for setting, found in errors.items() if len(found) == folds}
    if folds < _FIRST_FOLDS:
        return set(full)
    best = min(full.values(), key=fmean)
    margin = 2 * stdev(best) / folds**0.5
    return {
        setting
        for setting, found in full.items()
        if fmean(found) <= fmean(best) + margin
        or any(own <= _CLEARLY_WORSE * other + NEGLIGIBLE for own, other in zip(found, best, strict=True))
    }
