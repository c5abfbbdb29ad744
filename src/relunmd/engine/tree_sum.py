"""Sums over blocks along a fixed binary tree: the same bits for any number of threads or workers."""

import threading
from collections.abc import Callable
from typing import Any

Sums = dict[str, Any]


class Tree:
    """Adds n shares along a fixed binary tree, each pair as soon as both are known.

    A node is a range of shares, and its children are its halves. A worker of a cluster that has the first half of all
    shares, or a quarter, has one node.
    """

    def __init__(self, count: int, done: Callable[[Sums], None]) -> None:
        self.nodes: dict[tuple[int, int], Sums] = {}
        """Sums that wait for their sibling, by their range of shares; at the end only the total."""
        self._count = count
        self._done = done
        self._lock = threading.Lock()

    def add(self, share: Sums, start: int, stop: int | None = None) -> None:
        """Add the share of a block, or the sum of those below a node."""
        node = start, start + 1 if stop is None else stop
        above = self._above(node)
        while above:
            parent = above.pop()
            middle = sum(parent) // 2
            sibling = (middle, parent[1]) if node[1] == middle else (parent[0], middle)
            with self._lock:
                other = self.nodes.pop(sibling, None)
                if other is None:
                    self.nodes[node] = share
                    return
            for name, value in other.items():
                share[name] += value  # In place: a share is its block's alone, and may be as large as H.
            self._done(other)
            node = parent
        self.nodes[node] = share

    def _above(self, node: tuple[int, int]) -> list[tuple[int, int]]:
        """The ancestors of a node, the root first."""
        path, (start, stop) = [], (0, self._count)
        while (start, stop) != node:
            path.append((start, stop))
            middle = (start + stop) // 2
            start, stop = (start, middle) if node[1] <= middle else (middle, stop)
        return path

    @property
    def total(self) -> Sums:
        """The sum of all shares."""
        (whole,) = self.nodes.values()
        return whole
