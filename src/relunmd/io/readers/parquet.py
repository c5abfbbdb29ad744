"""Parquet files: columns of numbers as one matrix, sparse if it is mostly zeros."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from relunmd._util import need
from relunmd.errors import FileError
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.collected import Collected, least_bytes
from relunmd.io.readers.contents import Entry

__all__ = ["parquet_entries", "parquet_groups", "parquet_rows"]

_INDEX = re.compile(r"__index_level_\d+__")
_BATCH_BYTES = 1 << 25


def parquet_entries(place: Path, bounds: Bounds) -> list[Entry]:
    """The columns as one matrix, those that name the rows left out."""
    parquet = _parquet(place)
    with parquet.ParquetFile(place) as file:
        fields, left_out = _numeric(place, file.schema_arrow)
        height = int(file.metadata.num_rows)
        groups = [file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)]
    if height == 0:
        raise FileError(f"{place} must not be empty. It has no rows.")
    dtype = _dtype(fields)
    shape = height, len(fields)
    bounds.piecemeal(height * len(fields) * dtype.itemsize, f"its table of shape {shape}")
    bounds.memory(_working_bytes(shape, dtype) + least_bytes(shape, dtype), f"its table of shape {shape}")
    bounds.memory(max(groups), "a row group")  # Pages of all of its columns are decompressed at once.

    def load() -> Any:
        return _loaded(place, bounds, None, height)

    several = len(left_out) > 1
    names = ", ".join(map(repr, left_out))
    note = f"the column{'s' * several} {names} of names {'are' if several else 'is'} left out" if left_out else ""
    return [Entry("", shape, str(dtype), load, "columns", note=note, columns=tuple(field.name for field in fields))]


def parquet_groups(place: Path) -> list[int]:
    """How many rows each row group has that has any."""
    with _parquet(place).ParquetFile(place) as file:
        return [int(file.metadata.row_group(i).num_rows) for i in range(file.metadata.num_row_groups)]


def parquet_rows(place: Path, groups: list[int]) -> Any:
    """Some row groups as one matrix."""
    heights = parquet_groups(place)
    return _loaded(place, Bounds(place, place.stat().st_size), groups, sum(heights[group] for group in groups))


def _parquet(place: Path) -> Any:
    return need("pyarrow.parquet", f"{place} is a Parquet file; it needs", "parquet")


def _dtype(fields: list[Any]) -> np.dtype[Any]:
    return np.result_type(*(field.type.to_pandas_dtype() for field in fields))


def _batch_rows(width: int, dtype: np.dtype[Any]) -> int:
    return max(1, _BATCH_BYTES // (width * dtype.itemsize))


def _working_bytes(shape: tuple[int, int], dtype: np.dtype[Any]) -> int:
    """What a batch takes while it is read: as columns, as rows, and what is made of it."""
    return 4 * min(shape[0], _batch_rows(shape[1], dtype)) * shape[1] * dtype.itemsize


def _loaded(place: Path, bounds: Bounds, groups: list[int] | None, height: int) -> Any:
    rows = Collected()
    with _parquet(place).ParquetFile(place) as file:
        fields, _ = _numeric(place, file.schema_arrow)
        dtype = _dtype(fields)
        names = [field.name for field in fields]
        batches = file.iter_batches(_batch_rows(len(fields), dtype), groups, names, use_threads=False)
        for batch in batches:
            block = np.empty((batch.num_rows, len(fields)), dtype)
            for at, column in enumerate(batch.columns):
                if column.null_count:
                    raise FileError(f"{place} must have no missing values. Column {names[at]!r} has some.")
                block[:, at] = column.to_numpy(zero_copy_only=False)
            rows.add(block)
            bounds.memory(rows.nbytes + 4 * block.nbytes, "its table")
    if rows.height != height:
        raise FileError(f"{place} must have the {height} rows it tells. It has {rows.height}.")
    return rows.whole()


def _numeric(place: Path, schema: Any) -> tuple[list[Any], list[str]]:
    """The columns of numbers, and the names of those that name the rows: Pandas' index, or a first one of words."""
    from pyarrow import types

    index = {name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)}
    fields, left_out = [], []
    for at, field in enumerate(schema):
        kind = field.type
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
            if field.name not in index and not _INDEX.fullmatch(field.name):
                fields.append(field)
            else:
                left_out.append(field.name)
        elif field.name in index or at == 0:
            left_out.append(field.name)
        else:
            raise FileError(
                f"{place} must have columns of numbers alone. Its column {field.name!r} has the type {kind}; leave it "
                "out."
            )
    if not fields:
        raise FileError(f"{place} must have columns of numbers. It has none.")
    if len({field.name for field in fields}) < len(fields):
        raise FileError(f"{place} must have columns of different names. Some of its columns have the same.")
    return fields, left_out
