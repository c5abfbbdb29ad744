"""Tables: .csv, .tsv and other text with numbers, packed or not, and Parquet.

A first line of names, and a first column of names, are recognised and left out (a first line whose cells but the first
are numbers is taken for numbers). What is mostly zeros becomes a sparse
matrix.
"""

import csv
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import FileError, MissingDependencyError
from relunmd.readers.bounds import Bounds, text_length, unpacked
from relunmd.readers.collected import Collected
from relunmd.readers.contents import Entry

__all__ = ["looks_like_text", "parquet_entries", "text_entries"]

log = logging.getLogger("relunmd")
Array = NDArray[Any]
_CHUNK = 1 << 23
_LONGEST_LINE = 1 << 26
_INDEX = re.compile(r"__index_level_\d+__")
_BATCH_BYTES = 1 << 25
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?|nan|inf(inity)?)", re.IGNORECASE)


def looks_like_text(beginning: bytes) -> bool:
    """Whether bytes can be those of a table in a text file."""
    return bool(beginning) and b"\0" not in beginning and not any(byte < 9 or 13 < byte < 32 for byte in beginning)


def text_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """The table of a text file, which has to be read for that."""
    X = _read(place, bounds)
    return [Entry("", X.shape, str(X.dtype), lambda: X, "array" if isinstance(X, np.ndarray) else "sparse, CSR")]


def _read(place: Path, bounds: Bounds) -> Any:
    text_length(place, bounds.text())  # Before the first number is made of it: that takes ten times as long.
    with unpacked(place, bounds.text()) as stream:
        layout, rows = None, Collected()
        for text in _pieces(place, stream):
            lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
            if not lines:
                continue
            if layout is None:
                layout = _Layout(place, lines)
                lines = lines[1:] if layout.named_columns else lines
            if lines:
                block = layout.numbers(lines, rows.height)
                rows.add(block)
                bounds.memory(
                    rows.nbytes + 4 * block.nbytes, "the rest of its table"
                )  # Put together, it is there twice.
    if layout is None or rows.height == 0:
        raise FileError(f"{place} must be a table of numbers. It holds none.")
    return rows.whole()


def _pieces(place: Path, stream: IO[bytes]) -> Iterator[str]:
    """The text, cut at ends of lines."""
    left = b""
    while part := stream.read(_CHUNK):
        left += part
        end = max(left.rfind(b"\n"), left.rfind(b"\r")) + 1
        if end == 0 and len(left) > _LONGEST_LINE:
            raise FileError(f"{place} must be a table of numbers. It has a line of more than {_LONGEST_LINE} bytes.")
        if end:
            yield _decoded(place, left[:end])
            left = left[end:]
    if left:
        yield _decoded(place, left)


def _decoded(place: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as reason:
        raise FileError(f"{place} must be a table of numbers in UTF-8. Got {reason}.") from reason


class _Layout:
    """How the numbers of a text are laid out, told from its first two lines."""

    def __init__(self, place: Path, lines: list[str]) -> None:
        self._place = place
        first = lines[0]
        self._delimiter = next((mark for mark in ("\t", ";", ",") if mark in first), None)
        cells = self._cells(first)
        later = self._cells(lines[1]) if len(lines) > 1 else cells
        words, later_words = ([not _is_number(cell) for cell in line] for line in (cells, later))
        self.named_columns = any(words[1:]) or (words[0] and (cells[0] == "" or not later_words[0]))
        # A corner that is left empty, or out (as R does), is above names too, even if these are numbers.
        corner = self.named_columns and (cells[0] == "" or len(cells) == len(later) - 1)
        self._named_rows = len(later) > 1 and (later_words[0] or corner)
        self.width = len(later if self.named_columns else cells) - self._named_rows
        if self.named_columns and len(cells) not in (self.width, self.width + 1):
            raise FileError(
                f"{place} must be a table. Its first line has {len(cells)} cells and its second {len(later)}."
            )
        if self.named_columns or self._named_rows:
            log.info(
                "%s: the first %s taken as names",
                place,
                " and the first ".join(["line"] * self.named_columns + ["column"] * self._named_rows),
            )

    def _cells(self, line: str) -> list[str]:
        if self._delimiter is None:
            return [cell.strip('"') for cell in line.split()]
        return [cell.strip() for cell in next(csv.reader([line], delimiter=self._delimiter, skipinitialspace=True))]

    def numbers(self, lines: list[str], above: int) -> Array:
        """The numbers of some lines; a FileError that says where there is none."""
        columns = range(1, self.width + 1) if self._named_rows else None
        try:
            block = np.loadtxt(
                lines, np.float64, comments=None, delimiter=self._delimiter, quotechar='"', ndmin=2, usecols=columns
            )
        except (ValueError, IndexError) as reason:
            raise self._wrong(lines, above) from reason
        if block.shape != (len(lines), self.width):
            raise self._wrong(lines, above)
        return block

    def _wrong(self, lines: list[str], above: int) -> FileError:
        """What is wrong, by looking at the lines again one by one."""
        for number, line in enumerate(lines, above + 1):
            cells = self._cells(line)
            if len(cells) != self.width + self._named_rows:
                expected = self.width + self._named_rows
                return FileError(
                    f"{self._place} must have {expected} cells in every line. Row {number} has {len(cells)}."
                )
            for column, cell in enumerate(cells[self._named_rows :], 1):
                if not _is_number(cell):
                    what = repr(cell[:40]) if cell else "an empty cell"
                    return FileError(
                        f"{self._place} must be a table of numbers. Row {number}, column {column} has {what}."
                    )
        return FileError(f"{self._place} must be a table of numbers. Something in rows {above + 1} and after is none.")


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def parquet_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """The columns of a Parquet file as one matrix."""
    try:
        from pyarrow import parquet, types
    except ImportError as reason:
        raise MissingDependencyError(
            f"{place} is a Parquet file; it needs pyarrow: pip install 'relunmd[parquet]'."
        ) from reason
    with parquet.ParquetFile(place) as file:
        fields = [field for field in file.schema_arrow if not _INDEX.fullmatch(field.name)]
        height = int(file.metadata.num_rows)
    for field in fields:
        kind = field.type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise FileError(
                f"{place} must have columns of numbers alone. Its column {field.name!r} has the type {kind}; "
                "leave it out."
            )
    dtype = np.result_type(*(field.type.to_pandas_dtype() for field in fields)) if fields else np.dtype(np.float64)
    shape = height, len(fields)
    bounds.piecemeal(height * len(fields) * dtype.itemsize, f"its table of shape {shape}")

    def load() -> Any:
        rows = Collected()
        batch_rows = max(1, _BATCH_BYTES // (len(fields) * dtype.itemsize))
        with parquet.ParquetFile(place) as file:
            for batch in file.iter_batches(batch_rows, columns=[field.name for field in fields], use_threads=False):
                block = np.empty((batch.num_rows, len(fields)), dtype)
                for at, column in enumerate(batch.columns):
                    if column.null_count:
                        raise FileError(f"{place} must have no missing values. Column {fields[at].name!r} has some.")
                    block[:, at] = column.to_numpy(zero_copy_only=False)
                rows.add(block)
                bounds.memory(rows.nbytes + 4 * block.nbytes, "the rest of its table")
        if rows.height != height:
            raise FileError(f"{place} must have the {height} rows it tells. It has {rows.height}.")
        return rows.whole()

    return [Entry("", shape, str(dtype), load)]
