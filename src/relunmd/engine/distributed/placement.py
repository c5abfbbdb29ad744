"""Which worker owns which parts of X.

A worker owns consecutive parts, so that its sums are few nodes of the tree of sums. Parts that Dask has computed
already are moved for that.
"""

from collections.abc import Mapping, Sequence

import numpy as np


def place(weights: Sequence[float], workers: Mapping[str, float]) -> list[str]:
    """Return an owner for each part, in proportion to the workers' numbers of threads.

    >>> place([1, 1, 1, 1], {"a": 1, "b": 1})
    ['a', 'a', 'b', 'b']
    >>> place([1, 1, 1, 1], {"a": 1, "b": 3})
    ['a', 'b', 'b', 'b']
    """
    addresses = sorted(workers)
    ends = np.cumsum([workers[address] for address in addresses])
    middles = np.cumsum(weights) - np.asarray(weights) / 2
    return [addresses[i] for i in np.searchsorted(ends, middles / sum(weights) * ends[-1], side="right")]


def place_again(owners: Sequence[str], workers: Mapping[str, int]) -> list[str]:
    """Return the owners with the parts of lost workers assigned to the others, by the room that these have.

    >>> place_again(["a", "a", "b", "b"], {"b": 1, "c": 1})
    ['c', 'c', 'b', 'b']
    """
    fair = len(owners) / sum(workers.values())
    room = {address: max(fair * threads - owners.count(address), 0.0) for address, threads in workers.items()}
    lost = [owner for owner in owners if owner not in workers]
    new = iter(place([1.0] * len(lost), room))
    return [owner if owner in workers else next(new) for owner in owners]


def neighbors(owners: Sequence[str]) -> list[str]:
    """Return for each part the worker after its owner, which keeps the copies; the owner if it is alone.

    >>> neighbors(["a", "a", "b", "c"])
    ['b', 'b', 'c', 'a']
    """
    workers = list(dict.fromkeys(owners))
    following = dict(zip(workers, [*workers[1:], workers[0]], strict=True))
    return [following[owner] for owner in owners]
