"""Matrix files as parts that workers read by themselves: a cluster's workers see the same file system as the driver."""

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

__all__ = ["FileRows", "GroupRows", "open_file"]

_PART_BYTES = 2**26
_BLOCKS = (".npy", ".npz", ".parquet")
_LAZY = (".npy", ".h5", ".hdf5", ".hdf", ".h5ad")


def open_file(path: str, array: str | None = None, names: str | None = None, client: Any = None) -> ClusterSource:
    """A matrix file, or a folder of files with some rows each, as a source whose rows are on a cluster's workers.

    Parameters
    ----------
    path : a Zarr store, an HDF5 or .npy file, a Parquet file, or a folder of .npy, .npz or .parquet files, which are
        taken in the order of their names, numbers in them by their size
    array, names : as for `open_matrix`
    client : by default the active one
    """
    place = check_path("path", path)
    loaders, heights = _folder(place, array) if _is_folder_of_blocks(place) else _file(place, array, names)
    return ClusterSource(current_client() if client is None else client, loaders, {}, heights)


def _is_folder_of_blocks(place: Path) -> bool:
    return place.is_dir() and any(file.suffix.lower() in _BLOCKS for file in place.iterdir())


def _folder(place: Path, array: str | None) -> tuple[list[Any], None]:
    files = [file for file in place.iterdir() if file.suffix.lower() in _BLOCKS]
    kinds = {file.suffix.lower() for file in files}
    if len(kinds) > 1:
        raise FileError(f"{place} must have blocks of one kind. It has {', '.join(sorted(kinds))} files.")
    files.sort(key=lambda file: [int(word) if word.isdecimal() else word for word in re.split(r"(\d+)", file.name)])
    return [FileRows(str(file), array, None) for file in files], None


def _file(place: Path, array: str | None, names: str | None) -> tuple[list[Any], list[float]]:
    if _is_parquet(place):
        heights = parquet_groups(place)
        return [GroupRows(str(place), i) for i, rows in enumerate(heights) if rows], [float(r) for r in heights if r]
    if place.is_file() and place.suffix.lower() not in _LAZY:
        raise _whole(place)
    with open_matrix(place, array, names) as opened:
        if not opened.entry.lazy:
            raise _whole(place)
        source = _source(opened.X)
    m, n = source.shape
    # Whole blocks, as threads would have them, unless these are too large.
    height = RowLayout(m, n, source.chunk_rows).blocks[0].stop
    if height * n * source.dtype.itemsize > _PART_BYTES and not source.sparse:
        unit = max(source.chunk_rows, RowLayout(m, n).strip_rows)
        height = max(1, _PART_BYTES // (n * source.dtype.itemsize) // unit) * unit
    cuts = [(start, min(start + height, m)) for start in range(0, m, height)]
    loaders = [FileRows(str(place), array, names, *cut) for cut in cuts]
    return loaders, [float(stop - start) for start, stop in cuts]


def _is_parquet(place: Path) -> bool:
    if not place.is_file():
        return False
    with place.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def _whole(place: Path) -> InputError:
    return InputError(
        "On Dask a matrix must be in a Zarr store, an HDF5, .npy or Parquet file, or a folder of .npy, .npz or "
        f".parquet files with some rows each. Got {place}, which would be read whole; relunmd convert makes another."
    )


def _source(X: Any) -> Source:
    if is_stored_group(X):
        return StoredCsr(X)
    if X.ndim != 2:
        raise InputError(f"X must be two-dimensional. Got {X.ndim} dimension(s), shape {tuple(X.shape)}.")
    return StoredArray(X) if is_stored_array(X) else DenseSource(X)


@dataclass(frozen=True)
class FileRows:
    """Rows `start` to `stop` of a matrix file, or all of them."""

    path: str
    array: str | None
    names: str | None
    start: int = 0
    stop: int | None = None

    def load(self) -> Any:
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
    """A matrix whose file stays open: to look through a store of thousands of chunks for each part takes its time."""
    stack = ExitStack()
    return stack, stack.enter_context(open_matrix(path, array, names)).X


@dataclass(frozen=True)
class GroupRows:
    """A row group of a Parquet file."""

    path: str
    group: int

    def load(self) -> Any:
        return parquet_rows(Path(self.path), [self.group])
