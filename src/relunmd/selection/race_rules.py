"""Which ranks are tried, and which need no further fits: the curve has turned, or others are clearly better."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

_LARGEST = 64
_AN_OCTAVE = 4
"""Default ranks between a power of two and the next."""
_EXPLAINED, _BEYOND = 0.9, 3
_FAR_WORSE, _EXPLAINED_SHARE, _CLEARLY_WORSE, _WORSE = 1.25, 0.6, 1.05, 1.01
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


def survivors(errors: Mapping[Setting, Sequence[float]], rule: str) -> set[Setting]:
    """Return the settings that may still be chosen, given their errors in the folds so far.

    - After one fold those are dropped that are over 25 % worse than the best, or explain less than 60 % of what it
      explains: on planted matrices, images and texts no fold differed that much from the others.
    - After two, those of smaller ranks that are over 5 % worse in each fold, and by more than two standard errors on
      average. Those of other ranks are dropped if they are worse in each fold, with rule "min" by over 1 %: with "1se"
      a larger rank would have to be clearly better to be chosen.
    """
    folds = max(map(len, errors.values()), default=0)
    full = {setting: found for setting, found in errors.items() if len(found) == folds}
    best = min(full, key=lambda setting: fmean(full[setting]))
    return {setting for setting in full if _may_win(setting, best, full, rule)}


def _may_win(setting: Setting, best: Setting, errors: Mapping[Setting, Sequence[float]], rule: str) -> bool:
    own, least = errors[setting], errors[best]
    if setting == best:
        return True
    if len(own) == 1:
        explained = 1 - own[0] ** 2 >= _EXPLAINED_SHARE * (1 - least[0] ** 2) or least[0] >= 1
        return own[0] <= _FAR_WORSE * least[0] + NEGLIGIBLE and explained
    if setting[1] < best[1]:
        near = fmean(own) <= fmean(least) + 2 * stdev(least) / len(least) ** 0.5
        return near or any(a <= _CLEARLY_WORSE * b + NEGLIGIBLE for a, b in zip(own, least, strict=True))
    factor = _WORSE if rule == "min" else 1.0
    return any(a <= factor * b for a, b in zip(own, least, strict=True))
