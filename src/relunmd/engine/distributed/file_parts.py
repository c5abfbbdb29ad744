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
from relunmd.engine.matrix import RowLayout, Source
from relunmd.engine.problem_setup import check_matrix
from relunmd.errors import FileError, InputError
from relunmd.io.atomic import check_path
from relunmd.io.readers import open_matrix
from relunmd.io.readers.parquet import parquet_groups, parquet_rows

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
        parts = dict.fromkeys(_folder_parts(place, pieces, array), 1)
    elif _is_parquet(place):
        heights = parquet_groups(place)
        parts = {FilePart(str(place), group=group): n_rows for group, n_rows in enumerate(heights) if n_rows}
    else:
        parts = {FilePart(str(place), array, names, *cut): cut[1] - cut[0] for cut in _cuts(place, array, names)}
    return ClusterSource(current_client() if client is None else client, list(parts), {}, list(parts.values()))


def _folder_parts(place: Path, pieces: list[Path], array: str | None) -> list["FilePart"]:
    kinds = {file.suffix.lower() for file in pieces}
    if len(kinds) > 1:
        raise FileError(f"{place} must contain files of one kind; got {', '.join(sorted(kinds))} files.")

    def order(file: Path) -> list[int | str]:
        return [int(word) if word.isdecimal() else word for word in re.split(r"(\d+)", file.name)]

    return [FilePart(str(file), array) for file in sorted(pieces, key=order)]


def _is_parquet(place: Path) -> bool:
    if not place.is_file():
        return False
    with place.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def _cuts(place: Path, array: str | None, names: str | None) -> list[tuple[int, int]]:
    """Return the rows of each part: whole blocks, as threads have them, unless these are too large."""
    if not place.is_file() or place.suffix.lower() in _LAZY:
        with open_matrix(place, array, names) as opened:
            if opened.entry.lazy:
                return _block_cuts(check_matrix(opened.X))
    raise InputError(
        "On Dask a matrix must be in a Zarr store, an HDF5, .npy or Parquet file, or a folder of .npy, .npz or "
        f".parquet files with some rows each. {place} would be read whole; convert it by relunmd convert."
    )


def _block_cuts(source: Source) -> list[tuple[int, int]]:
    m, n = source.shape
    height = RowLayout(m, n, source.chunk_rows).blocks[0].stop
    most = _PART_BYTES // (n * source.dtype.itemsize)
    if height > most and not source.sparse:
        unit = max(source.chunk_rows, RowLayout(m, n).strip_rows)
        height = max(1, most // unit) * unit
    return [(start, min(start + height, m)) for start in range(0, m, height)]


@dataclass(frozen=True)
class FilePart:
    """Rows `start` to `stop` of a matrix file, by default all of them, or a row group of a Parquet file."""

    path: str
    array: str | None = None
    names: str | None = None
    start: int = 0
    stop: int | None = None
    group: int | None = None

    def load(self) -> Any:
        """Return the rows, as an array or a csr_array."""
        if self.group is not None:
            return parquet_rows(Path(self.path), [self.group])
        stamp = Path(self.path).stat()
        _, source = _opened(self.path, self.array, self.names, stamp.st_mtime_ns, stamp.st_size)
        rows = source.read(slice(self.start, source.shape[0] if self.stop is None else self.stop))
        return rows if sparse.issparse(rows) else np.require(rows, requirements="O")  # A copy of what is mapped.


@lru_cache(maxsize=4)
def _opened(path: str, array: str | None, names: str | None, *stamp: int) -> tuple[ExitStack, Source]:
    """Return a matrix whose file stays open: opening a store of thousands of chunks for each part takes long."""
    stack = ExitStack()
    return stack, check_matrix(stack.enter_context(open_matrix(path, array, names)).X)
