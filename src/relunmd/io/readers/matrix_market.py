"""Matrix Market files, .mtx and .mtx.gz, dense or with coordinates.

SciPy's reader is faster, but SciPy 1.17's writes past its arrays where a file has more numbers than its header says,
and ends the process on some damaged files. NumPy's parser of text takes about 0.7 µs a line and does neither.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunmd.errors import FileError
from relunmd.io.readers.bounds import Bounds, text_length, unpacked
from relunmd.io.readers.contents import Entry

__all__ = ["BANNER", "matrix_market_entries"]

Array = NDArray[Any]
BANNER = b"%%MatrixMarket"
_TIMES = 30
"""How many times its size a packed one may have; its lines are too different to be packed better."""
_LONGEST_LINE = 1 << 16
_MOST_COMMENTS = 1 << 20
_CHUNK = 1 << 22
_BYTES_AN_ENTRY = 24
_FIELDS = {
    "real": "float64",
    "double": "float64",
    "pattern": "float64",
    "integer": "int64",
    "unsigned-integer": "int64",
}
_EMPTY_LINES = re.compile(rb"\n\s*\n")
_SYMMETRIES = ("general", "symmetric")
_MOST_WHOLE = 2.0**53


class _Header(NamedTuple):
    shape: tuple[int, int]
    stored: int
    coordinate: bool
    field: str
    symmetry: str

    @property
    def columns(self) -> int:
        """How many numbers a line has."""
        return 1 if not self.coordinate else 2 if self.field == "pattern" else 3


def matrix_market_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """The matrix, sparse or not."""
    most = bounds.text(_TIMES)
    length = text_length(place, most)
    with unpacked(place, most) as stream:
        header = _header(place, stream)
    if header.stored * 2 * header.columns > length + 2:  # A digit and what ends it.
        raise FileError(
            f"{place} is cut short, or damaged: its header says {header.stored} entries, which do not fit into it."
        )

    def load() -> Any:
        if header.coordinate:
            bounds.memory(2 * header.stored * _BYTES_AN_ENTRY + 8 * sum(header.shape), "its matrix")
        else:
            bounds.memory(2 * header.shape[0] * header.shape[1] * 8, "its matrix")
        with unpacked(place, most) as stream:
            _header(place, stream)
            numbers = _numbers(place, stream, header)
        return _sparse(place, numbers, header) if header.coordinate else _dense(numbers[:, 0], header)

    form = "sparse, COO" if header.coordinate else "array"
    return [Entry("", header.shape, _FIELDS[header.field], load, form)]


def _numbers(place: Path, stream: IO[bytes], header: _Header) -> Array:
    """The numbers after the header, as many rows as it says."""
    found, filled = np.empty((header.stored, header.columns)), 0
    for lines in _lines(place, stream):
        part = np.loadtxt(lines, np.float64, comments="%", ndmin=2) if lines else np.empty((0, header.columns))
        if len(part) and part.shape[1] != header.columns:
            raise FileError(f"{place} must have {header.columns} numbers in a line. It has lines of {part.shape[1]}.")
        if filled + len(part) > len(found):
            raise FileError(f"{place} must have the {header.stored} entries that its header says. It has more.")
        found[filled : filled + len(part)] = part
        filled += len(part)
    if filled < len(found):
        raise FileError(f"{place} must have the {header.stored} entries that its header says. It has {filled}.")
    return found


def _lines(place: Path, stream: IO[bytes]) -> Iterator[list[str]]:
    """The lines after the header without empty ones, of which there may be many, and comments."""
    left, comments, more = b"", 0, True
    while more:
        part = stream.read(_CHUNK)
        more = bool(part)
        text = left + part
        end = text.rfind(b"\n") + 1 if more else len(text)
        left = text[end:]
        if len(left) > _LONGEST_LINE:
            raise FileError(f"{place} must have lines of at most {_LONGEST_LINE} bytes. It has a longer one.")
        lines = _EMPTY_LINES.sub(b"\n", text[:end]).strip().decode("ascii").split("\n")
        if b"%" in text:
            entries = [line for line in lines if not line.startswith("%")]
            comments += sum(map(len, lines)) - sum(map(len, entries)) + len(lines) - len(entries)
            _check_comments(place, comments)
            lines = entries
        yield [line for line in lines if line]


def _check_comments(place: Path, length: int) -> None:
    if length > _MOST_COMMENTS:
        raise FileError(f"{place} must have at most {_MOST_COMMENTS} bytes of comments and empty lines. It has more.")


def _sparse(place: Path, numbers: Array, header: _Header) -> Any:
    from scipy import sparse

    places = numbers[:, :2]
    inside = (places >= 1) & (places <= header.shape) & (places == np.floor(places))
    if not inside.all():
        wrong = places[~inside.all(axis=1)][0].tolist()
        raise FileError(
            f"{place} must have entries in rows and columns from 1 to {header.shape}. It has one in {wrong}."
        )
    rows, columns = (places.T - 1).astype(np.int64 if max(header.shape) >= 2**31 else np.int32)
    values = np.ones(len(numbers)) if header.field == "pattern" else _typed(numbers[:, 2], header)
    if header.symmetry == "symmetric":
        off = rows != columns
        rows, columns = np.concatenate([rows, columns[off]]), np.concatenate([columns, rows[off]])
        values = np.concatenate([values, values[off]])
    return sparse.coo_array((values, (rows, columns)), shape=header.shape)


def _dense(values: Array, header: _Header) -> Array:
    """All entries column by column; of a symmetric matrix those from the diagonal down."""
    A = np.zeros(header.shape, order="F")
    if header.symmetry == "general":
        A[...] = values.reshape(header.shape, order="F")
    else:
        upper = np.triu_indices(header.shape[0])
        A.T[upper] = values
        A[upper] = A.T[upper]
    return _typed(A, header)


def _typed(values: Array, header: _Header) -> Array:
    whole = _FIELDS[header.field] == "int64" and bool((np.abs(values) < _MOST_WHOLE).all())
    return values.astype(np.int64) if whole and (values == np.floor(values)).all() else values


def _header(place: Path, stream: IO[bytes]) -> _Header:
    words = stream.readline(_LONGEST_LINE).decode("ascii", "replace").lower().split()
    if (
        len(words) != 5
        or words[0] != "%%matrixmarket"
        or words[1] != "matrix"
        or words[2] not in ("coordinate", "array")
    ):
        raise FileError(f"{place} must begin with a line such as '%%MatrixMarket matrix coordinate real general'.")
    if words[3] not in _FIELDS or words[4] not in _SYMMETRIES:
        raise FileError(
            f"{place} must hold real numbers, general or symmetric. It says {words[3][:40]!r}, {words[4][:40]!r}."
        )
    comments = 0
    while (line := stream.readline(_MOST_COMMENTS + 1)) and (not line.strip() or line.lstrip().startswith(b"%")):
        comments += len(line)
        _check_comments(place, comments)
    coordinate = words[2] == "coordinate"
    numbers = line.split()
    if len(numbers) != (3 if coordinate else 2) or not all(part.isdigit() and len(part) < 19 for part in numbers):
        raise FileError(f"{place} must tell its size in whole numbers after its comments. Got {line[:60]!r}.")
    m, n = int(numbers[0]), int(numbers[1])
    if min(m, n) == 0:
        raise FileError(f"{place} must not be empty. Got a matrix of {m} × {n}.")
    if words[4] == "symmetric" and m != n:
        raise FileError(f"{place} must be square to be symmetric. It is {m} × {n}.")
    dense = m * n if words[4] == "general" else m * (m + 1) // 2
    return _Header((m, n), int(numbers[2]) if coordinate else dense, coordinate, words[3], words[4])
