"""Which worker has which parts: neighbours together, so that a worker's sums are few nodes of the tree.

Parts that Dask has made already move for that. To leave them where they are would make every other block a node of its
own, and the last bits depend on where Dask put them.
"""

from collections.abc import Mapping, Sequence

__all__ = ["place", "place_again"]


def place(weights: Sequence[float], workers: Mapping[str, int]) -> list[str]:
    """An owner for each part: one worker after the other, by their number of threads.

    >>> place([1, 1, 1, 1], {"a": 1, "b": 1})
    ['a', 'a', 'b', 'b']
    >>> place([1, 1, 1, 1], {"a": 1, "b": 3})
    ['a', 'b', 'b', 'b']
    """
    addresses = sorted(workers)
    ends, reached = [], 0
    for address in addresses:
        reached += workers[address]
        ends.append(reached)
    owners, done, total = [], 0.0, sum(weights)
    for weight in weights:
        at = (done + weight / 2) / total * reached
        done += weight
        owners.append(addresses[next(i for i, end in enumerate(ends) if at < end)])
    return owners


def place_again(owners: Sequence[str], workers: Mapping[str, int]) -> list[str]:
    """The same where the worker is still there; the others' parts, in runs, to those with the least for each thread.

    >>> place_again(["a", "a", "b", "b"], {"b": 1, "c": 1})
    ['c', 'c', 'b', 'b']
    """
    load = {address: owners.count(address) / threads for address, threads in sorted(workers.items())}
    found = list(owners)
    fair = -(-len(owners) // len(workers))
    previous, new = None, ""
    for part, owner in enumerate(owners):
        if owner in workers:
            previous = None
            continue
        if owner != previous or load[new] >= fair:
            new = min(load, key=lambda address: load[address])
        previous = owner
        found[part] = new
        load[new] += 1 / workers[new]
    return found
