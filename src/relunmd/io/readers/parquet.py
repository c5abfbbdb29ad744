"""Parquet files: columns of numbers as one matrix, sparse if it is mostly zeros."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from relunmd._util import need
from relunmd.errors import FileError
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.contents import Entry, RowBlocks

_INDEX = re.compile(r"__index_level_\d+__")
_BATCH_BYTES = 1 << 25


def parquet_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """Describe the columns as one matrix, without those that hold names of rows."""
    with _opened(place) as file:
        names, omitted, dtype = _numeric(place, file.schema_arrow)
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        shape = int(file.metadata.num_rows), len(names)
        largest = max((group.total_byte_size for group in groups), default=0)
    if shape[0] == 0:
        raise FileError(f"{place} must not be empty. It has no rows.")
    table = f"its table of shape {shape}"
    size = shape[0] * shape[1] * dtype.itemsize
    bounds.piecemeal(size, table)
    # A batch is in memory as columns, as rows, and as a part of the matrix.
    batch = 4 * min(shape[0], _batch_rows(shape[1], dtype)) * shape[1] * dtype.itemsize
    bounds.memory(batch + min(size, 4 * (shape[0] + 1)), table)  # At least as an array, or as a sparse matrix of zeros.
    bounds.memory(largest, "a row group")  # Pages of all of its columns are decompressed at once.
    listed = ", ".join(map(repr, omitted))
    note = f"the column{'s'[: len(omitted) > 1]} {listed} of names {'are' if len(omitted) > 1 else 'is'} left out"
    load = lambda: _load(place, bounds, None, shape[0])  # noqa: E731
    return [Entry("", shape, str(dtype), load, "columns", note=note if omitted else "", columns=tuple(names))]


def parquet_groups(place: Path) -> list[int]:
    """Return the number of rows of each row group."""
    with _opened(place) as file:
        return [int(file.metadata.row_group(i).num_rows) for i in range(file.metadata.num_row_groups)]


def parquet_rows(place: Path, groups: list[int]) -> Any:
    """Read some row groups as one matrix."""
    heights = parquet_groups(place)
    return _load(place, Bounds(place, place.stat().st_size), groups, sum(heights[group] for group in groups))


def _opened(place: Path) -> Any:
    return need("pyarrow.parquet", f"{place} is a Parquet file; it needs", "parquet").ParquetFile(place)


def _batch_rows(width: int, dtype: np.dtype[Any]) -> int:
    return max(1, _BATCH_BYTES // (width * dtype.itemsize))


def _load(place: Path, bounds: Bounds, groups: list[int] | None, height: int) -> Any:
    rows = RowBlocks()
    with _opened(place) as file:
        names, _, dtype = _numeric(place, file.schema_arrow)
        for batch in file.iter_batches(_batch_rows(len(names), dtype), groups, names, use_threads=False):
            block = np.empty((batch.num_rows, len(names)), dtype)
            for at, column in enumerate(batch.columns):
                if column.null_count and dtype.kind != "f":  # They become NaN.
                    dtype = np.result_type(dtype, np.float32)
                    block = block.astype(dtype)
                block[:, at] = column.to_numpy(zero_copy_only=False)
            rows.add(block)
            bounds.memory(rows.nbytes + 4 * block.nbytes, "its table")
    if rows.height != height:
        raise FileError(f"{place} must have {height} rows by its metadata. It has {rows.height}.")
    return rows.assemble()


def _numeric(place: Path, schema: Any) -> tuple[list[str], list[str], np.dtype[Any]]:
    """Return the names of the columns of numbers, those of the columns of row names, and the common dtype.

    Row names are in pandas' index, or in a first column of text.
    """
    from pyarrow import types

    index = {name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)}
    names, omitted, dtypes = [], [], []
    for at, field in enumerate(schema):
        kind = field.type
        numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        if field.name in index or (_INDEX.fullmatch(field.name) if numeric else at == 0):
            omitted.append(field.name)
        elif numeric:
            names.append(field.name)
            dtypes.append(kind.to_pandas_dtype())
        else:
            raise FileError(f"{place} must have columns of numbers. Its column {field.name!r} has the type {kind}.")
    if not names:
        raise FileError(f"{place} must have columns of numbers. It has no such column.")
    if len(set(names)) < len(names):
        raise FileError(f"{place} must have columns of different names. Some of its columns have the same.")
    return names, omitted, np.result_type(*dtypes)
