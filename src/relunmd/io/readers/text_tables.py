"""Tables in text: .csv, .tsv and similar, compressed or not, parsed by numpy.loadtxt.

NumPy parses them, so that tables can be read with the required packages alone; the lines are checked first, since
neither NumPy nor pandas limits the length of a line. A header line and a column of names are recognized and omitted,
which is reported; `names` says explicitly what there is. A table that is mostly zeros becomes a sparse matrix.
"""

import csv
import io
import logging
import re
from collections.abc import Iterator
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import IO

import numpy as np

from relunmd.errors import FileError
from relunmd.io.npy_format import Array
from relunmd.io.readers.bounds import Bounds, opened, text_length
from relunmd.io.readers.contents import Entry, RowBlocks

log = logging.getLogger("relunmd")
NAMES = ("none", "columns", "rows", "both")
"""What has names: neither, the columns (in the first line), the rows (in the first column), or both."""
_BLOCK_BYTES = 1 << 24
_LONGEST_LINE = 1 << 23
_MOST_SKIPPED = 1 << 20
_BYTES_A_CELL = 64
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?|nan|inf(inity)?)", re.IGNORECASE)
_NAME = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?|\d+_\w*[A-Za-z]\w*")
"""Names that begin like numbers."""
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_CORNERS = {"id", "ids", "idx", "index", "key", "label", "name", "names", "row", "rows", "sample", "unnamed: 0"}
"""Words above a column of names, even if these names are numbers."""
_VALUES = {"", "-", ".", "?", "false", "missing", "n/a", "na", "none", "null", "true"}
_MISSING = {"", "n/a", "na", "null"}
"""What a missing value looks like; it is read as NaN."""


def looks_like_text(beginning: bytes) -> bool:
    """Return whether these can be the first bytes of a text file."""
    return bool(beginning) and not any(byte < 9 or 13 < byte < 32 for byte in beginning)


def looks_like_table(beginning: bytes) -> bool:
    """Return whether one of the first two lines of a text consists mostly of numbers."""
    lines = [line for line in beginning.decode("utf-8", "replace").splitlines() if line.strip()][:2]
    cells = [re.split(r"[,;\s]+", line.strip()) for line in lines]
    return any(2 * len(list(filter(_NUMBER.fullmatch, line))) >= len(line) for line in cells)


def text_entries(place: Path, bounds: Bounds, names: str | None) -> list[Entry]:
    """Read the table of a text file."""
    text_length(place, bounds.text())
    rows = RowBlocks()
    with opened(place) as stream:
        table = _Table(place, stream, names, bounds)
        for block in table.blocks():
            rows.add(block)
            bounds.memory(rows.nbytes + 4 * block.nbytes, "its table")
    if rows.height == 0:
        raise FileError(f"{place} must be a table of numbers. It has no rows of numbers.")
    if names is None:
        log.info("%s: assuming that %s; names= overrides it", place, table.note or "there are no names")
    X = rows.assemble()
    return [Entry("", X.shape, str(X.dtype), lambda: X, "text", note=table.note, columns=table.columns)]


class _Table:
    """The lines of a text file and their layout, which the first two lines or the user define.

    Attributes
    ----------
    columns : tuple of str or None
        The names of the columns.
    note : str
        What is omitted.
    """

    def __init__(self, place: Path, stream: IO[bytes], names: str | None, bounds: Bounds) -> None:
        self._place = place
        self._number, self._line = 0, ""
        lines = self._read(stream)
        start = list(islice(lines, 2))
        if not start:
            raise FileError(f"{place} must be a table of numbers. It is empty.")
        first = start[0][1]
        self._delimiter = _delimiter(*(re.sub(r'"[^"]*"', "", line) for _, line in (start[0], start[-1])))
        mark = self._delimiter or " "
        self._hole = re.compile(rf'(^|{mark}) *"?(n/a|na|null|)"? *(?={mark}|$)', re.IGNORECASE)
        bounds.memory(_BYTES_A_CELL * sum(line.count(self._delimiter or " ") for _, line in start), "its first lines")
        cells, later = self._cells(first), self._cells(start[-1][1])
        if names is None:
            named_columns, self._named_rows = _guess_names(cells, later)
        else:
            named_columns, self._named_rows = names in ("columns", "both"), names in ("rows", "both")
        basis = later if named_columns else cells
        self._ends = self._delimiter is not None and len(basis) > 1 and basis[-1] == cells[-1] == ""
        """Whether every line ends with a delimiter."""
        self._count = len(basis)
        self._width = len(basis) - self._named_rows - self._ends
        last = len(cells) - self._ends
        self.columns = tuple(cells[max(0, last - self._width) : last]) if named_columns else None
        if named_columns and len(cells) not in (len(later), len(later) - 1):
            raise FileError(f"{place} must be a table. Line 1 has {len(cells)} cells and line 2 has {len(later)}.")
        parts = ["line"] * named_columns + ["column"] * self._named_rows
        verb = "are names and are" if len(parts) > 1 else "is names and is"
        self.note = f"the first {' and the first '.join(parts)} {verb} left out" if parts else ""
        self._lines = chain(start[named_columns:], lines)

    def _read(self, stream: IO[bytes]) -> Iterator[tuple[int, str]]:
        """Yield lines with cells and their numbers."""
        number, skipped, started = 0, 0, False
        with io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape") as text:
            while line := text.readline(_LONGEST_LINE + 2):
                number += 1
                if (line.startswith("#") and not started) or not line.strip(" \n"):
                    skipped += len(line)
                    if skipped > _MOST_SKIPPED:
                        most = f"{_MOST_SKIPPED} bytes of comments and empty lines at a time"
                        raise FileError(f"{self._place} must have at most {most}. It has more.")
                    continue
                if len(line) > _LONGEST_LINE:
                    remedy = "store wide tables as .npz, .parquet, .h5 or .zarr"
                    raise FileError(f"{self._place} has a line of more than {_LONGEST_LINE} bytes; {remedy}.")
                if not line.isascii() and any("\udc80" <= char <= "\udcff" for char in line):
                    raise FileError(f"{self._place} must be text in UTF-8. Line {number} is not; save it as UTF-8.")
                skipped, started = 0, True
                yield number, line.rstrip("\n")

    def _cells(self, line: str) -> list[str]:
        if self._delimiter is None:
            return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', line)]
        try:
            cells = next(csv.reader([line], delimiter=self._delimiter, skipinitialspace=True))
        except csv.Error as reason:
            raise FileError(f"{self._place} must be a table of numbers. A line cannot be split: {reason}.") from reason
        return [cell.strip() for cell in cells]

    def blocks(self) -> Iterator[Array]:
        """Yield the numbers, some rows at a time; FileError names the first line that is wrong."""
        height = max(1, _BLOCK_BYTES // (8 * max(1, self._width)))
        lines = map(self._numbers_of, self._lines)
        for first in lines:
            number, line = self._number, self._line
            try:
                text, mark = chain([first], lines), self._delimiter
                block = np.loadtxt(text, comments=None, delimiter=mark, quotechar='"', ndmin=2, max_rows=height)
            except (ValueError, IndexError) as reason:
                raise self._error(self._number, self._line) from reason
            if block.shape[1] != self._width:
                raise self._error(number, line)
            yield block

    def _numbers_of(self, numbered: tuple[int, str]) -> str:
        """Return a line without its name and without a delimiter at its end."""
        self._number, self._line = numbered
        line = self._line
        if self._ends:
            line = line.rstrip(" ").removesuffix(str(self._delimiter))
            if len(line) == len(self._line):
                raise self._error(*numbered)
        if self._named_rows and (self._delimiter is None or line.lstrip().startswith('"')):
            line = (self._delimiter or " ").join(self._cells(line)[1:])
        elif self._named_rows:
            line = line.partition(str(self._delimiter))[2]
        if self._hole.search(line):
            cells = self._cells(line) if line else [""]
            line = (self._delimiter or " ").join("nan" if c.casefold() in _MISSING else c for c in cells)
        if not line.strip(" "):  # NumPy would skip it.
            raise self._error(*numbered)
        return line

    def _error(self, number: int, line: str) -> FileError:
        """Describe what is wrong in a line."""
        place, cells = self._place, self._cells(line)
        if len(cells) != self._count:
            return FileError(f"{place} must have {self._count} cells in every line. Line {number} has {len(cells)}.")
        if self._ends and cells.pop():
            return FileError(f"{place} must have nothing after the last delimiter of a line. Line {number} has.")
        for column, cell in enumerate(cells[self._named_rows :], 1 + self._named_rows):
            if not _NUMBER.fullmatch(cell) and cell.casefold() not in _MISSING:
                what = repr(cell[:40])
                hint = " If these are names, use names=KIND." if 1 in (number, column) else ""
                hint = " Write numbers with a decimal point." if _DECIMAL_COMMA.fullmatch(cell) else hint
                return FileError(f"{place} must be a table of numbers. Line {number}, cell {column} has {what}.{hint}")
        return FileError(f"{place} must be a table of numbers. Line {number}, or one before it, is not.")


def _delimiter(first: str, second: str) -> str | None:
    """Return the delimiter that both lines have about as often (names may contain others), else the first found."""
    found = [mark for mark in ("\t", ";", ",") if mark in first]
    alike = [mark for mark in found if mark in second and abs(first.count(mark) - second.count(mark)) <= 1]
    return next(iter(alike or found), None)


def _guess_names(cells: list[str], later: list[str]) -> tuple[bool, bool]:
    """Return whether the first line is names, and whether the first column is; if unclear, they are numbers."""
    words = any(map(_is_word, cells[1:]))
    counting = _consecutive(cells[1:])
    corner = (words or counting or _is_word(later[0])) if cells[0] == "" else cells[0].casefold() in _CORNERS
    columns = words or corner or (_is_word(cells[0]) and (not _is_word(later[0]) or (counting and len(cells) > 3)))
    if not columns:
        return False, len(later) > 1 and _is_word(cells[0]) and _is_word(later[0])
    # A corner that is empty or missing (as R writes it) is above names too, even if these are numbers.
    return True, len(later) > 1 and (_is_word(later[0]) or corner or len(cells) == len(later) - 1)


def _is_word(cell: str) -> bool:
    """Return whether a cell is certainly a name: not a number, not like one (unless it is a date), no missing value."""
    if re.match(r"[-+.,]*\d", cell):
        return _NAME.fullmatch(cell) is not None
    return not _NUMBER.fullmatch(cell) and cell.casefold() not in _VALUES


def _consecutive(cells: list[str]) -> bool:
    """Return whether cells count 0, 1, … or, if there are at least three, 2001, 2002, 2003 …, as names do."""
    whole = [int(cell) for cell in cells if cell.isdecimal() and len(cell) < 10]
    if not whole or len(whole) < len(cells) or (len(whole) < 3 and whole[0] != 0):
        return False
    return all(after == before + 1 for before, after in pairwise(whole))
