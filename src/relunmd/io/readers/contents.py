"""What a file holds: arrays by name, of which one is to be X; how it is chosen, and what is said when it cannot be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relunmd.errors import FileError, InputError

__all__ = ["Entry", "chosen", "listing"]

_SHOWN = 20


@dataclass(frozen=True)
class Entry:
    """An array in a file, of which only the description has been read.

    Attributes
    ----------
    name : "" where the file holds nothing else
    shape, dtype : of the array; the dtype by its name, or a word for what else it is
    load : gives it: an array, a memory map, a sparse matrix, or what reads itself row by row
    stored : "array", or how else it is stored
    lazy : whether `load` leaves the numbers in the file
    note : what else is to be told of it, in a few words
    columns : the names of its columns, if the file has them
    pixels : height and width of the images that its rows are, if the file says so
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], Any]
    stored: str = "array"
    lazy: bool = False
    note: str = ""
    columns: tuple[str, ...] | None = None
    pixels: tuple[int, int] | None = None

    @property
    def suits(self) -> bool:
        """Whether it can be X at all."""
        return len(self.shape) == 2 and min(self.shape) > 0 and self.numeric

    @property
    def numeric(self) -> bool:
        return self.dtype.startswith(("bool", "int", "uint", "float"))

    def __str__(self) -> str:
        size = " × ".join(str(side) for side in self.shape) or "a single value"
        return f"{self.name!r} ({size}, {self.dtype}{'' if self.stored == 'array' else f', {self.stored}'})"


def listing(entries: Sequence[Entry]) -> str:
    """The arrays in a sentence's words, not all of them if they are many."""
    shown = ", ".join(str(entry) for entry in entries[:_SHOWN])
    return f"{shown} and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else shown


def chosen(place: Path, entries: Sequence[Entry], name: str | None, usual: Sequence[str] = ()) -> Entry:
    """The array of that name, or the only one that can be X, or the one that is X by the format's own rules."""
    if not entries:
        raise FileError(f"{place} must hold a matrix. There is no array in it.")
    if name is not None:
        if [entry.name for entry in entries] == [""]:
            raise InputError(f"{place} holds one matrix, which has no name; leave {name!r} out.")
        wanted = [entry for entry in entries if entry.name.strip("/") == name.strip("/")]
        if not wanted:
            raise InputError(f"{place} has no array {name!r}. It holds {listing(entries)}.")
        return wanted[0]
    candidates = [entry for entry in entries if entry.suits]
    if usual:
        wanted = [entry for entry in entries if entry.name in usual]
        if wanted:
            return wanted[0]  # Whoever takes it says what is wrong with it.
        raise InputError(
            f"{place} has no {usual[0]!r}; say what to take instead with array=NAME. It holds {listing(entries)}."
        )
    if len(candidates) == 1:
        return candidates[0]
    if len(entries) == 1:
        return entries[0]  # Whoever takes it says what is wrong with it.
    if not candidates:
        raise FileError(f"{place} must hold a matrix of numbers with two dimensions. It holds {listing(entries)}.")
    raise InputError(f"{place} holds several matrices; say which with array=NAME. It holds {listing(candidates)}.")
