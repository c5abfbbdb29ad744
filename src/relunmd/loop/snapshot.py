"""A run at some moment, as JSON values and named arrays."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Snapshot:
    """A run, or one of its trajectories, at some moment."""

    about: dict[str, Any]
    """What JSON can hold."""
    arrays: dict[str, NDArray[Any]]

    def part(self, prefix: str, about: dict[str, Any]) -> "Snapshot":
        """The arrays whose names begin with a prefix, without it."""
        arrays = {name.removeprefix(prefix): a for name, a in self.arrays.items() if name.startswith(prefix)}
        return Snapshot(about, arrays)
