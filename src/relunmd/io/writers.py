"""Write a matrix to .npy, .npz, .mtx, .mat, .csv, .tsv, .parquet, .h5 or .zarr, atomically.

The matrix comes in parts of some rows. All formats but .mtx, .mat and sparse .npz are written part by part.
"""

import errno
import gzip
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from scipy import io, sparse

from relunmd import memory
from relunmd._util import need
from relunmd.errors import InputError
from relunmd.io.atomic import write_beside, write_folder_beside, writing
from relunmd.io.npy_format import Array, write_array

_MOST_MATLAB = 2**31
_MARGIN = 2**23
_LARGEST_CHUNK = 2**31
"""HDF5 has no chunks of 4 GiB."""


@dataclass(frozen=True)
class Parts:
    """A matrix in parts of some rows.

    Attributes
    ----------
    shape : (int, int)
    dtype : dtype
    sparse : bool
    parts : iterator of ndarray, or of csr_array if `sparse`
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    sparse: bool
    parts: Iterator[Any]

    @classmethod
    def of(cls, A: Array) -> "Parts":
        """Return an array as one part."""
        return cls((A.shape[0], A.shape[1]), A.dtype, False, iter([A]))

    def usual(self) -> "Parts":
        """Return the matrix in a dtype that every format supports: half precision as float32, long double as float64.

        Raises
        ------
        InputError
            When a part is consumed that has numbers beyond float64.
        """
        dtype = self.dtype.newbyteorder("=")
        if dtype.kind == "f" and dtype.itemsize not in (4, 8):
            dtype = np.dtype(np.float32 if dtype.itemsize == 2 else np.float64)
        return replace(self, dtype=dtype, parts=(_converted(part, dtype) for part in self.parts))

    def without_zeros(self) -> "Parts":
        """Return the matrix as a sparse one."""
        usual = self.usual()
        return self if self.sparse else replace(usual, sparse=True, parts=map(sparse.csr_array, usual.parts))

    def arrays(self) -> Iterator[Array]:
        """Return the parts as C-ordered arrays."""
        return (np.ascontiguousarray(part.toarray() if self.sparse else part) for part in self.parts)

    def together(self) -> Any:
        """Return all rows as one ndarray or csr_array."""
        if self.sparse:
            return sparse.vstack(list(self.parts), format="csr")
        what = f"An array of {self.shape[0]} × {self.shape[1]}"
        remedy = "Use .npy, .h5 or .zarr, which are written in parts."
        memory.require(prod(self.shape) * self.dtype.itemsize, what, remedy)
        A = np.empty(self.shape, self.dtype)
        _fill(A, self)
        return A

    def while_disk_has_space(self, folder: Path) -> "Parts":
        """Return parts that raise OSError if the disk is full: HDF5 would end the process, and Zarr leave tasks."""

        def checked() -> Iterator[Any]:
            for part in self.parts:
                needed = _MARGIN + 2 * (part.data.nbytes + 8 * part.nnz if self.sparse else part.nbytes)
                if shutil.disk_usage(folder).free < needed:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                yield part

        return replace(self, parts=checked())


def write_matrix(place: Path, matrix: Parts) -> None:
    """Write a matrix in the format given by the extension.

    Parameters
    ----------
    place : Path
        The file, or the folder for .zarr.
    matrix : Parts
        A part is in memory at a time; for .mtx, .mat and sparse .npz the whole matrix.

    Raises
    ------
    FileError
        If the file cannot be written; an existing one is unchanged.
    InputError
        If the extension is not supported, or the format cannot hold the matrix.
    """
    suffix = check_suffix(place)
    write, matrix = _WRITERS[suffix.removesuffix(".gz")], matrix.usual()
    if write in (_hdf5, _zarr):
        matrix = matrix.while_disk_has_space(place.parent)
    if suffix.endswith(".gz"):
        write = partial(_compressed, write)
    with writing(place):
        if write is _zarr:
            write_folder_beside(place, lambda folder: write(folder, matrix))
        else:
            write_beside(place, lambda out: write(out, matrix))


def check_suffix(place: Path, sparse: bool = False) -> str:
    """Return the extension that determines the format.

    Raises
    ------
    InputError
        If it is not supported, or if `sparse` and the format has no sparse matrices.
    MissingDependencyError
        If the format needs a package that is not installed.

    Examples
    --------
    >>> check_suffix(Path("counts.mtx.gz"))
    '.mtx.gz'
    """
    suffix = next((suffix for suffix in SUFFIXES if place.name.lower().endswith(suffix)), None)
    if suffix is None:
        raise InputError(f"The name of the output must end in one of {', '.join(SUFFIXES)}. Got {place.name!r}.")
    if sparse and suffix not in _SPARSE:
        raise InputError(f"A sparse matrix can be written to {', '.join(_SPARSE)}. Got {place.name!r}.")
    if suffix in _NEEDS:
        module, extra = _NEEDS[suffix]
        need(module, f"{suffix} needs", extra)
    return suffix


def _converted(part: Any, dtype: np.dtype[Any]) -> Any:
    try:
        with np.errstate(over="raise"):
            return part.astype(dtype, copy=False)
    except FloatingPointError as reason:
        raise InputError(
            f"The matrix must fit into {dtype} to be written. Got {part.dtype} with entries beyond "
            f"{np.finfo(dtype).max:.3g}; scale it down first."
        ) from reason


def _compressed(write: Callable[[Any, Parts], None], out: IO[bytes], matrix: Parts) -> None:
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=6, mtime=0, filename="") as compressed:
        write(compressed, matrix)


def _npy(out: IO[bytes], matrix: Parts) -> None:
    write_array(out, matrix.shape, matrix.dtype, matrix.arrays())


def _npz(out: IO[bytes], matrix: Parts) -> None:
    if matrix.sparse:
        sparse.save_npz(out, matrix.together(), compressed=True)
        return
    about = zipfile.ZipInfo("X.npy")  # Its date is constant.
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as members, members.open(about, "w", force_zip64=True) as member:
        _npy(member, matrix)


def _mtx(out: IO[bytes], matrix: Parts) -> None:
    io.mmwrite(out, matrix.together(), symmetry="general")


def _mat(out: IO[bytes], matrix: Parts) -> None:
    A = matrix.together()
    if A.data.nbytes >= _MOST_MATLAB:
        raise InputError(f"A .mat file of version 5 holds arrays below 2 GiB. Got {matrix.shape} of {matrix.dtype}.")
    io.savemat(out, {"X": A.tocsc() if matrix.sparse else A})


def _text(delimiter: str, out: IO[bytes], matrix: Parts) -> None:
    digits = 9 if matrix.dtype.itemsize <= 4 else 17  # Enough to restore the same bits.
    cell = "%d" if matrix.dtype.kind in "biu" else f"%.{digits}g"
    line = delimiter.join([cell] * matrix.shape[1]) + "\n"
    for part in matrix.arrays():
        for row in part.tolist():
            out.write((line % tuple(row)).encode("ascii"))


def _parquet(out: IO[bytes], matrix: Parts) -> None:
    import pyarrow
    from pyarrow import parquet

    kind = pyarrow.from_numpy_dtype(matrix.dtype)
    schema = pyarrow.schema([(str(column), kind) for column in range(matrix.shape[1])])
    with parquet.ParquetWriter(out, schema) as writer:
        for part in matrix.arrays():
            writer.write_table(pyarrow.table([pyarrow.array(column) for column in part.T], schema=schema))


def _hdf5(out: IO[bytes], matrix: Parts) -> None:
    import h5py

    with h5py.File(out.name, "w") as file:
        extendable = {"maxshape": (None,)} if matrix.sparse else {}
        _fill_group(file, partial(file.create_dataset, **extendable), matrix, 2**20, 2**16)


def _zarr(folder: Path, matrix: Parts) -> None:
    import zarr

    group = zarr.open_group(str(folder), mode="w")
    _fill_group(group, group.create_array, matrix, 2**23, 2**18)


def _fill_group(group: Any, create: Callable[..., Any], matrix: Parts, size: int, length: int) -> None:
    """Write X in chunks of whole rows of about `size` bytes, or as CSR as AnnData stores it."""
    if not matrix.sparse:
        columns = min(matrix.shape[1], _LARGEST_CHUNK // matrix.dtype.itemsize)
        rows = max(1, min(matrix.shape[0], size // (columns * matrix.dtype.itemsize)))
        _fill(create("X", shape=matrix.shape, dtype=matrix.dtype, chunks=(rows, columns)), matrix)
        return
    data = create("X/data", shape=(0,), dtype=matrix.dtype, chunks=(length,))
    indices = create("X/indices", shape=(0,), dtype=np.dtype(np.int64), chunks=(length,))
    indptr, stored = [np.zeros(1, np.int64)], 0
    for part in matrix.parts:
        count = stored + len(part.data)
        for array, values in ((data, part.data), (indices, part.indices)):
            array.resize((count,))
            array[stored:count] = values
        indptr.append(part.indptr[1:].astype(np.int64) + stored)
        stored = count
    create("X/indptr", data=np.concatenate(indptr))
    group["X"].attrs.update({"shape": list(matrix.shape), "encoding-type": "csr_matrix", "encoding-version": "0.1.0"})


def _fill(stored: Any, matrix: Parts) -> None:
    at = 0
    for part in matrix.arrays():
        stored[at : at + len(part)] = part
        at += len(part)


_H5PY = ("h5py", "files")
_NEEDS = {".parquet": ("pyarrow", "parquet"), ".h5": _H5PY, ".hdf5": _H5PY, ".zarr": ("zarr", "files")}
_WRITERS: dict[str, Callable[[Any, Parts], None]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".mtx": _mtx,
    ".mat": _mat,
    ".csv": partial(_text, ","),
    ".tsv": partial(_text, "\t"),
    ".parquet": _parquet,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".zarr": _zarr,
}
_SPARSE = (".npz", ".mtx", ".mtx.gz", ".mat", ".h5", ".hdf5", ".zarr")
SUFFIXES = (*_WRITERS, ".mtx.gz", ".csv.gz", ".tsv.gz")
