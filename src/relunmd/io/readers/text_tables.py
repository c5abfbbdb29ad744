"""Tables in text: .csv, .tsv and others, packed or not.

A first line and a first column of names are recognised and left out, and that is told. What is mostly zeros becomes a
sparse matrix.
"""

import codecs
import csv
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import FileError
from relunmd.io.readers.bounds import Bounds, text_length, unpacked
from relunmd.io.readers.collected import Collected
from relunmd.io.readers.contents import Entry

__all__ = ["NAMES", "looks_like_table", "looks_like_text", "text_entries"]

Array = NDArray[Any]
NAMES = ("none", "columns", "rows", "both")
"""What the first line and the first column may be said to be."""
_CHUNK = 1 << 23
_LONGEST_LINE = 1 << 23
_MOST_COMMENTS = 1 << 20
_BYTES_A_CELL = 64
_EMPTY_LINES = re.compile(r"\n[ \n]*\n")
_ABOVE = re.compile(rb"(?: *[\r\n]|#[^\r\n]*(?:[\r\n]|\Z))*+")
_BETWEEN = re.compile(rb"[ \r\n]*")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?|nan|inf(inity)?)", re.IGNORECASE)
_NAME = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?|\d+_\w*[A-Za-z]\w*")
"""Names that begin like numbers."""
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_CORNERS = {"id", "ids", "idx", "index", "key", "label", "name", "names", "row", "rows", "sample", "unnamed: 0"}
"""What stands above a column of names, even if these are numbers."""
_VALUES = {"", "-", ".", "?", "false", "missing", "n/a", "na", "none", "null", "true"}


def looks_like_text(beginning: bytes) -> bool:
    """Whether bytes can be those of a table in a text file."""
    return bool(beginning) and b"\0" not in beginning and not any(byte < 9 or 13 < byte < 32 for byte in beginning)


def looks_like_table(beginning: bytes) -> bool:
    """Whether a text, of which nothing else tells what it is, has a line that is mostly numbers among its first two."""
    lines = [line for line in beginning.decode("utf-8", "replace").splitlines() if line.strip()][:2]
    cells = [re.split(r"[,;\s]+", line.strip()) for line in lines]
    return any(2 * sum(map(_is_number, line)) >= len(line) for line in cells)


def text_entries(place: Path, bounds: Bounds, names: str | None) -> list[Entry]:
    """The table of a text file, which has to be read for that."""
    text_length(place, bounds.text())  # Before the first number is made of it: that takes ten times as long.
    layout, rows, above = None, Collected(), 0
    with unpacked(place, bounds.text()) as stream:
        for text in _pieces(place, stream):
            lines = _lines(text, first=above == 0)
            if layout is None:
                if not lines:
                    above += text.count("\n")
                    continue
                layout = _Layout(place, lines, names, bounds)
                lines = lines[1:] if layout.named_columns else lines
            if lines:
                block = layout.numbers(lines, text, above)
                rows.add(block)
                bounds.memory(rows.nbytes + 4 * block.nbytes, "its table")
            above += text.count("\n")
    if layout is None or rows.height == 0:
        raise FileError(f"{place} must be a table of numbers. It holds none.")
    X = rows.whole()
    return [Entry("", X.shape, str(X.dtype), lambda: X, "text", note=layout.note, columns=layout.columns)]


def _lines(text: str, first: bool) -> list[str]:
    """The lines that are not empty; at the beginning of a file without the comments there."""
    lines = [line for line in _EMPTY_LINES.sub("\n", text).split("\n") if _counts(line)]
    comments = next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines)) if first else 0
    return lines[comments:]


def _counts(line: str) -> bool:
    return line.strip(" ") != ""  # Tabs are cells.


def _pieces(place: Path, stream: IO[bytes]) -> Iterator[str]:
    """The text, cut at ends of lines; in the first piece there are at least two that are no comments, if there are."""
    left, above = b"", 0
    while part := stream.read(_CHUNK):
        left += part
        end = left.rfind(b"\n") + 1
        if above == 0 and not _has_two_lines(place, left):
            end = 0
        if end == 0 and len(left) > 2 * _LONGEST_LINE:
            raise _too_long(place)
        if end:
            yield _decoded(place, left[:end], above)
            above += left.count(b"\n", 0, end)
            left = left[end:]
    if left:
        yield _decoded(place, left, above)


def _too_long(place: Path) -> FileError:
    return FileError(
        f"{place} must be a table of numbers. It has a line of more than {_LONGEST_LINE} bytes; store wide tables as "
        ".npz, .parquet, .h5 or .zarr."
    )


def _has_two_lines(place: Path, text: bytes) -> bool:
    """Whether the first two lines with cells are complete; FileError if too much else comes before or between them."""
    start = len(codecs.BOM_UTF8) if text.startswith(codecs.BOM_UTF8) else 0
    first = _end(_ABOVE, place, text, start)
    end = text.find(b"\n", first)
    return end >= 0 and text.find(b"\n", _end(_BETWEEN, place, text, end)) >= 0


def _end(pattern: re.Pattern[bytes], place: Path, text: bytes, start: int) -> int:
    """Where what the pattern matches ends."""
    found = pattern.match(text, start, start + _MOST_COMMENTS + 1)
    end = found.end() if found else start
    if end - start > _MOST_COMMENTS:
        raise FileError(
            f"{place} must have at most {_MOST_COMMENTS} bytes of comments and empty lines at its beginning. It has "
            "more."
        )
    return end


def _decoded(place: Path, raw: bytes, above: int) -> str:
    try:
        return raw.decode("utf-8-sig" if above == 0 else "utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as reason:
        line = above + raw.count(b"\n", 0, reason.start) + 1
        raise FileError(f"{place} must be text in UTF-8. Line {line} is not; save it as UTF-8.") from reason


class _Layout:
    """How the numbers of a text are laid out, told from its first two lines, or by the user."""

    def __init__(self, place: Path, lines: list[str], names: str | None, bounds: Bounds) -> None:
        self._place = place
        if max(map(len, lines[:2])) > _LONGEST_LINE:
            raise _too_long(place)
        first = lines[0]
        unquoted = re.sub(r'"[^"]*"', "", first)
        self._delimiter = next((mark for mark in ("\t", ";", ",") if mark in unquoted), None)
        bounds.memory(_BYTES_A_CELL * sum(line.count(self._delimiter or " ") for line in lines[:2]), "its first lines")
        cells = self._cells(first)
        later = self._cells(lines[1]) if len(lines) > 1 else cells
        self.named_columns, self._named_rows = _named(cells, later) if names is None else _as_said(names)
        basis = later if self.named_columns else cells
        self._ends = len(basis) > 1 and self._delimiter is not None and basis[-1] == "" and cells[-1] == ""
        """Whether every line ends with a delimiter."""
        self._count = len(basis)
        self.width = len(basis) - self._named_rows - self._ends
        last = len(cells) - self._ends
        self.columns = tuple(cells[max(0, last - self.width) : last]) if self.named_columns else None
        """Their names, if they have any."""
        if self.named_columns and len(cells) not in (len(later), len(later) - 1):
            raise FileError(
                f"{place} must be a table. Its first line has {len(cells)} cells and its second {len(later)}."
            )

    @property
    def note(self) -> str:
        """What was left out."""
        parts = ["line"] * self.named_columns + ["column"] * self._named_rows
        verb = "are names and are" if len(parts) > 1 else "is names and is"
        return f"the first {' and the first '.join(parts)} {verb} left out" if parts else ""

    def _cells(self, line: str) -> list[str]:
        if self._delimiter is None:
            return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', line)]
        try:
            cells = next(csv.reader([line], delimiter=self._delimiter, skipinitialspace=True))
        except csv.Error as reason:
            raise FileError(
                f"{self._place} must be a table of numbers. It has a line that is none: {reason}."
            ) from reason
        return [cell.strip() for cell in cells]

    def numbers(self, lines: list[str], text: str, above: int) -> Array:
        """The numbers of some lines of a text, of which so many are above; a FileError says where there is none."""
        try:
            block = np.loadtxt(
                self._without_names(lines), np.float64, comments=None, delimiter=self._delimiter, quotechar='"', ndmin=2
            )
        except (ValueError, IndexError) as reason:
            raise self._wrong(text, above) from reason
        if block.shape != (len(lines), self.width):
            raise self._wrong(text, above)
        return block

    def _without_names(self, lines: list[str]) -> list[str]:
        """The lines without their first cell, and without a delimiter at their end."""
        if self._ends:
            lines = [line.rstrip(" ").removesuffix(str(self._delimiter)) for line in lines]
        if not self._named_rows:
            return lines
        return [self._without_name(line) for line in lines]

    def _without_name(self, line: str) -> str:
        if line.lstrip().startswith('"'):
            cells = self._cells(line)[1:]
            return " ".join(cells) if self._delimiter is None else self._delimiter.join(cells)
        if self._delimiter is None:
            return " ".join(line.split()[1:])
        return line.partition(self._delimiter)[2]

    def _wrong(self, text: str, above: int) -> FileError:
        """What is wrong, by looking at the lines again one by one."""
        lines = [(number, line) for number, line in enumerate(text.split("\n"), above + 1) if _counts(line)]
        counted = _lines(text, first=above == 0)
        for number, line in lines[len(lines) - len(counted) + (above == 0 and self.named_columns) :]:
            cells = self._cells(line)
            if len(cells) != self._count:
                return FileError(
                    f"{self._place} must have {self._count} cells in every line. Line {number} has {len(cells)}."
                )
            if self._ends and cells[-1]:
                return FileError(
                    f"{self._place} must have nothing after the last delimiter of a line. Line {number} has."
                )
            for column, cell in enumerate(cells[: len(cells) - self._ends][self._named_rows :], 1 + self._named_rows):
                if not _is_number(cell):
                    what = repr(cell[:40]) if cell else "an empty cell"
                    place = f"Line {number}, cell {column}"
                    return FileError(
                        f"{self._place} must be a table of numbers. {place} has {what}.{_hint(cell, number, column)}"
                    )
        return FileError(f"{self._place} must be a table of numbers. Something after line {above + 1} is none.")


def _hint(cell: str, line: int, column: int) -> str:
    if _DECIMAL_COMMA.fullmatch(cell):
        return " Write numbers with a decimal point."
    return " If these are names, say so with names=KIND." if 1 in (line, column) else ""


def _named(cells: list[str], later: list[str]) -> tuple[bool, bool]:
    """Whether the first line is names, and whether the first column is; where it may be either, they are numbers."""
    words = any(map(_is_word, cells[1:]))
    counting = _consecutive(cells[1:])
    corner = (words or counting or _is_word(later[0])) if cells[0] == "" else cells[0].casefold() in _CORNERS
    columns = words or corner or (_is_word(cells[0]) and (not _is_word(later[0]) or (counting and len(cells) > 3)))
    if not columns:
        return False, len(later) > 1 and _is_word(cells[0]) and _is_word(later[0])
    # A corner that is left empty, or out (as R does), is above names too, even if these are numbers.
    return True, len(later) > 1 and (_is_word(later[0]) or corner or len(cells) == len(later) - 1)


def _is_word(cell: str) -> bool:
    """Whether a cell is a name for sure: one that begins like no number (but a date does) and stands for no value."""
    if "_" not in cell and _is_float(cell):  # Ten times as fast as what follows.
        return False
    if _NAME.fullmatch(cell):
        return True
    return not re.match(r"[-+.,]*\d", cell) and not _is_number(cell) and cell.casefold() not in _VALUES


def _is_float(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _consecutive(cells: list[str]) -> bool:
    """Whether cells count 0, 1, … or, three or more of them, 2001, 2002, 2003 …, as names do."""
    whole = [int(cell) for cell in cells if cell.isdecimal() and len(cell) < 10]
    if not whole or len(whole) < len(cells) or (len(whole) < 3 and whole[0] != 0):
        return False
    return all(after == before + 1 for before, after in pairwise(whole))


def _as_said(names: str) -> tuple[bool, bool]:
    return names in ("columns", "both"), names in ("rows", "both")


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None
