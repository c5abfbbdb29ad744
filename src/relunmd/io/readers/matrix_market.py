"""Matrix Market files (.mtx and .mtx.gz), dense or sparse.

The header is parsed here and the numbers by numpy.loadtxt. scipy.io.mmread (SciPy 1.17) is faster, but a damaged file
with a line of some megabytes ends the process with a segmentation fault (compare scipy issue #19949), it fails for
comments between the entries, it fills up a truncated symmetric array with zeros, and it ignores what follows a number:
5.5 among integers is read as 5.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from scipy import sparse

from relunmd.errors import FileError
from relunmd.io.npy_format import Array
from relunmd.io.readers.bounds import Bounds, opened, text_length
from relunmd.io.readers.contents import Entry

BANNER = b"%%matrixmarket"
_TIMES = 30
"""The largest compression ratio: lines of numbers cannot be compressed better."""
_LONGEST_LINE = 1 << 16
_MOST_COMMENTS = 1 << 20
_BYTES_AN_ENTRY = 24
_FIELDS = dict.fromkeys(("real", "double", "pattern"), "float64") | {"integer": "int64", "unsigned-integer": "int64"}
_MOST_WHOLE = 2.0**53


class _Header(NamedTuple):
    shape: tuple[int, int]
    stored: int
    coordinate: bool
    field: str
    symmetric: bool

    @property
    def columns(self) -> int:
        """The number of numbers in a line."""
        return 1 if not self.coordinate else 2 if self.field == "pattern" else 3


def matrix_market_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """Describe the matrix."""
    length = text_length(place, bounds.text(_TIMES))
    with opened(place) as stream:
        header = _header(place, _lines(place, stream))
    if header.stored * 2 * header.columns > length + 2:  # A digit and a separator each.
        raise FileError(f"{place} is truncated or damaged: it is too short for the {header.stored} entries it claims.")

    def load() -> Any:
        if header.coordinate:
            bounds.memory(2 * header.stored * _BYTES_AN_ENTRY + 8 * sum(header.shape), "its matrix")
        else:
            bounds.memory(2 * header.shape[0] * header.shape[1] * 8, "its matrix")
        with opened(place) as stream:
            lines = _lines(place, stream)
            _header(place, lines)
            numbers = np.loadtxt(lines, np.float64, comments=None, ndmin=2, max_rows=header.stored)
            if len(numbers) < header.stored or next(lines, None) is not None:
                found = len(numbers) if len(numbers) < header.stored else "more"
                raise FileError(f"{place} must have {header.stored} entries by its header. It has {found}.")
        if header.stored and numbers.shape[1] != header.columns:
            raise FileError(f"{place} must have {header.columns} numbers in a line. It has {numbers.shape[1]}.")
        numbers = numbers.reshape(header.stored, header.columns)
        values = np.ones(header.stored) if header.field == "pattern" else numbers[:, -1]
        if _FIELDS[header.field] == "int64" and (np.abs(values) < _MOST_WHOLE).all() and not (values % 1).any():
            values = values.astype(np.int64)
        return _sparse(place, numbers[:, :2], values, header) if header.coordinate else _dense(values, header)

    return [Entry("", header.shape, _FIELDS[header.field], load, "sparse, COO" if header.coordinate else "array")]


def _lines(place: Path, stream: IO[bytes]) -> Iterator[str]:
    """Yield the first line and all lines of numbers, without comments and empty lines."""
    yield stream.readline(_LONGEST_LINE).decode("ascii", "replace")
    skipped, unfinished = 0, False
    while line := stream.readline(_LONGEST_LINE + 1):
        if unfinished or line.isspace() or line.lstrip().startswith(b"%"):
            unfinished = not line.endswith(b"\n")
            skipped += len(line)
            if skipped > _MOST_COMMENTS:
                raise FileError(f"{place} must have at most {_MOST_COMMENTS} bytes of comments. It has more.")
        elif len(line) > _LONGEST_LINE:
            raise FileError(f"{place} must have lines of at most {_LONGEST_LINE} bytes. It has a longer one.")
        else:
            yield line.decode("ascii")


def _header(place: Path, lines: Iterator[str]) -> _Header:
    words = next(lines, "").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"] or words[2] not in ("coordinate", "array"):
        raise FileError(f"{place} must begin with a line such as '%%MatrixMarket matrix coordinate real general'.")
    layout, field, symmetry = words[2:]
    if field not in _FIELDS or symmetry not in ("general", "symmetric"):
        raise FileError(f"{place} must hold real numbers, general or symmetric. Got {field[:40]!r}, {symmetry[:40]!r}.")
    line = next(lines, "")
    coordinate = layout == "coordinate"
    numbers = line.split()
    if len(numbers) != 2 + coordinate or not all(part.isdigit() and len(part) < 19 for part in numbers):
        raise FileError(f"{place} must have its size in integers after the comments. Got {line[:60]!r}.")
    m, n, *stored = map(int, numbers)
    if min(m, n) == 0:
        raise FileError(f"{place} must not be empty. Got a matrix of {m} × {n}.")
    if symmetry == "symmetric" and m != n:
        raise FileError(f"{place} must be square to be symmetric. It is {m} × {n}.")
    dense = m * n if symmetry == "general" else m * (m + 1) // 2
    return _Header((m, n), stored[0] if coordinate else dense, coordinate, field, symmetry == "symmetric")


def _sparse(place: Path, places: Array, values: Array, header: _Header) -> Any:
    inside = ((places >= 1) & (places <= header.shape) & (places == np.floor(places))).all(axis=1)
    if not inside.all():
        wrong = places[~inside][0].tolist()
        raise FileError(f"{place} must have entries in rows and columns from 1 to {header.shape}. Got one in {wrong}.")
    rows, columns = (places.T - 1).astype(np.int64 if max(header.shape) >= 2**31 else np.int32)
    if header.symmetric:
        off = rows != columns
        rows, columns = np.concatenate([rows, columns[off]]), np.concatenate([columns, rows[off]])
        values = np.concatenate([values, values[off]])
    return sparse.coo_array((values, (rows, columns)), shape=header.shape)


def _dense(values: Array, header: _Header) -> Array:
    """Return all entries, stored by columns; of a symmetric matrix the lower triangle is stored."""
    if not header.symmetric:
        return values.reshape(header.shape, order="F")
    A = np.zeros(header.shape, values.dtype, order="F")
    upper = np.triu_indices(header.shape[0])
    A.T[upper] = values
    A[upper] = values
    return A
