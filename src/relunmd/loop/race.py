"""The race of several initializations.

After a round of iterations the worse half is dropped, and the next round is twice as long, until one trajectory is
left, which runs on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relunmd.algorithm import Algorithm
from relunmd.engine.problem import Problem
from relunmd.history import Status
from relunmd.init import Init
from relunmd.io.archive import count, plain
from relunmd.loop.snapshot import Snapshot
from relunmd.loop.trajectory import Trajectory

FIRST_ROUND = 100
"""Iterations that each initialization is given before the worse half is dropped.

On the identity, rank 3, the best one was dropped after 25: it was behind others at that time.
"""


class Race:
    """The initializations of a run, the trajectories from them, and the random numbers they use."""

    def __init__(self, inits: Sequence[Init], random: np.random.Generator) -> None:
        self.inits = inits
        self.random = random
        self.trajectories: list[Trajectory] = []
        self._begun = 0
        self._round = FIRST_ROUND
        self._first_random = plain(random.bit_generator.state)

    @property
    def leader(self) -> Trajectory:
        return min(self.trajectories, key=lambda trajectory: trajectory.best.criterion)

    @property
    def waiting(self) -> Trajectory | None:
        """The first trajectory that may run on in this round."""
        able = (t for t in self.trajectories if t.status is None and t.iteration < t.goal)
        return next(able, None)

    @property
    def next_init(self) -> Init | None:
        """The initialization that comes next."""
        return self.inits[self._begun] if self._begun < len(self.inits) else None

    def add(self, trajectory: Trajectory) -> None:
        """Add the trajectory from the next initialization."""
        if len(self.inits) > 1:
            trajectory.goal = FIRST_ROUND
        self.trajectories.append(trajectory)
        self._begun += 1

    def halve(self) -> bool:
        """Drop the worse half; return False if one is left, or if with more iterations others might still win."""
        if len(self.trajectories) == 1 or any(t.status is Status.MAX_ITER for t in self.trajectories):
            return False
        self.trajectories.sort(key=lambda trajectory: trajectory.best.criterion)
        del self.trajectories[(len(self.trajectories) + 1) // 2 :]
        self._round *= 2
        for trajectory in self.trajectories:
            trajectory.goal = trajectory.iteration + self._round if len(self.trajectories) > 1 else np.inf
        return True

    def start_again(self) -> None:
        """Forget everything, and draw the same random numbers again."""
        self.trajectories, self._begun, self._round = [], 0, FIRST_ROUND
        self.random.bit_generator.state = self._first_random

    @property
    def mark(self) -> list[float]:
        """Identifies a moment of the run: no two have the same times."""
        return [self._begun, *(x for t in self.trajectories for x in (t.iteration, t.seconds))]

    def flatten(self) -> Snapshot:
        """All of it but the random numbers; the arrays are its own."""
        parts = [trajectory.flatten() for trajectory in self.trajectories]
        about = {
            "mark": self.mark,
            "trajectories": [part.about for part in parts],
            "begun": self._begun,
            "round": self._round,
        }
        arrays = {f"{i}.{name}": array for i, part in enumerate(parts) for name, array in part.arrays.items()}
        return Snapshot(about, arrays)

    def restore(self, snapshot: Snapshot, algorithm: Algorithm, problem: Problem) -> None:
        """Return to a snapshot of the same run; raise an exception if it is not one."""
        about = snapshot.about
        trajectories = [
            Trajectory.restore(snapshot.part(f"{i}.", part), algorithm, problem)
            for i, part in enumerate(about["trajectories"])
        ]
        begun, length = count(about["begun"], "begun"), count(about["round"], "round")
        if not 1 <= len(trajectories) <= begun <= len(self.inits):
            raise ValueError(f"{len(trajectories)} trajectories of {begun} initializations")
        _check_positions(about["random"])
        self.random.bit_generator.state = about["random"]
        self.trajectories, self._begun, self._round = trajectories, begun, length


def _check_positions(random: Mapping[str, Any]) -> None:
    """Check the positions in the buffers of MT19937 and Philox, which NumPy does not."""
    inner = random.get("state")
    for place, last in ((random.get("buffer_pos", 0), 4), (inner.get("pos", 0) if isinstance(inner, dict) else 0, 624)):
        if not 0 <= place <= last:
            raise ValueError("an impossible random state")
