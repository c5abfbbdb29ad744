"""Matrix files as parts that workers read: they see the same file system as the driver."""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from relunmd.engine.distributed.cluster_source import ClusterSource
from relunmd.engine.distributed.dask_input import current_client
from relunmd.engine.matrix import (
    DenseSource,
    RowLayout,
    Source,
    StoredArray,
    StoredCsr,
    is_stored_array,
    is_stored_group,
)
from relunmd.errors import FileError, InputError
from relunmd.io.atomic import check_path
from relunmd.io.readers import open_matrix
from relunmd.io.readers.parquet import parquet_groups, parquet_rows

__all__ = ["open_file"]

_PART_BYTES = 2**26
_PIECES = (".npy", ".npz", ".parquet")
_LAZY = (".npy", ".h5", ".hdf5", ".hdf", ".h5ad")


def open_file(path: str, array: str | None = None, names: str | None = None, client: Any = None) -> ClusterSource:
    """Return a matrix file, or a folder of files with some rows each, as a source on the workers of a cluster.

    Parameters
    ----------
    path : str
        A Zarr store, an HDF5, .npy or Parquet file, or a folder of .npy, .npz or .parquet files, which are ordered by
        name, with numbers in names compared as numbers.
    array, names : str, optional
        As for `open_matrix`.
    client : distributed.Client, optional
        By default the active one.

    Returns
    -------
    ClusterSource

    Raises
    ------
    FileError
        The file does not exist or cannot be read.
    InputError
        The file can only be read as a whole.
    """
    place = check_path("path", path)
    pieces = [file for file in place.iterdir() if file.suffix.lower() in _PIECES] if place.is_dir() else []
    if pieces:
        loaders, heights = _folder_parts(place, pieces, array), None
    elif _is_parquet(place):
        groups = [(group, n_rows) for group, n_rows in enumerate(parquet_groups(place)) if n_rows]
        loaders, heights = [ParquetPart(str(place), group) for group, _ in groups], [float(n) for _, n in groups]
    else:
        cuts = _cuts(place, array, names)
        loaders, heights = [FilePart(str(place), array, names, *cut) for cut in cuts], [float(b - a) for a, b in cuts]
    return ClusterSource(current_client() if client is None else client, loaders, {}, heights)


def _folder_parts(place: Path, pieces: list[Path], array: str | None) -> list[Any]:
    kinds = {file.suffix.lower() for file in pieces}
    if len(kinds) > 1:
        raise FileError(f"{place} must contain files of one kind. It contains {', '.join(sorted(kinds))} files.")

    def order(file: Path) -> list[int | str]:
        return [int(word) if word.isdecimal() else word for word in re.split(r"(\d+)", file.name)]

    return [FilePart(str(file), array, None) for file in sorted(pieces, key=order)]


def _is_parquet(place: Path) -> bool:
    if not place.is_file():
        return False
    with place.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def _cuts(place: Path, array: str | None, names: str | None) -> list[tuple[int, int]]:
    """Return the rows of each part: whole blocks, as threads have them, unless these are too large."""
    if place.is_file() and place.suffix.lower() not in _LAZY:
        raise _whole_file_error(place)
    with open_matrix(place, array, names) as opened:
        if not opened.entry.lazy:
            raise _whole_file_error(place)
        source = _source(opened.X)
    m, n = source.shape
    height = RowLayout(m, n, source.chunk_rows).blocks[0].stop
    row_bytes = n * source.dtype.itemsize
    if height * row_bytes > _PART_BYTES and not source.sparse:
        unit = max(source.chunk_rows, RowLayout(m, n).strip_rows)
        height = max(1, _PART_BYTES // row_bytes // unit) * unit
    return [(start, min(start + height, m)) for start in range(0, m, height)]


def _whole_file_error(place: Path) -> InputError:
    return InputError(
        "On Dask a matrix must be in a Zarr store, an HDF5, .npy or Parquet file, or a folder of .npy, .npz or "
        f".parquet files with some rows each. {place} would be read whole; convert it by relunmd convert."
    )


def _source(X: Any) -> Source:
    if is_stored_group(X):
        return StoredCsr(X)
    if X.ndim != 2:
        raise InputError(f"X must be two-dimensional. Got {X.ndim} dimension(s), shape {tuple(X.shape)}.")
    return StoredArray(X) if is_stored_array(X) else DenseSource(X)


@dataclass(frozen=True)
class FilePart:
    """Rows `start` to `stop` of a matrix file, by default all of them."""

    path: str
    array: str | None
    names: str | None
    start: int = 0
    stop: int | None = None

    def load(self) -> Any:
        """Return the rows, as an array or a csr_array."""
        stamp = Path(self.path).stat()
        _, X = _opened(self.path, self.array, self.names, stamp.st_mtime_ns, stamp.st_size)
        if is_stored_group(X):
            stored = StoredCsr(X)
            return stored.read(slice(self.start, stored.shape[0] if self.stop is None else self.stop))
        if sparse.issparse(X):
            return sparse.csr_array(X)[self.start : self.stop]
        return np.array(X[self.start : self.stop])


@lru_cache(maxsize=4)
def _opened(path: str, array: str | None, names: str | None, *stamp: int) -> tuple[ExitStack, Any]:
    """Return a matrix whose file stays open: opening a store of thousands of chunks for each part takes long."""
    stack = ExitStack()
    return stack, stack.enter_context(open_matrix(path, array, names)).X


@dataclass(frozen=True)
class ParquetPart:
    """A row group of a Parquet file."""

    path: str
    group: int

    def load(self) -> Any:
        """Return the rows of the group."""
        return parquet_rows(Path(self.path), [self.group])
