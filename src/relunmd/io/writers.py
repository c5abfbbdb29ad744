"""A matrix out: to .npy, .npz, .mtx, .mat, .csv, .tsv, .parquet, .h5 or .zarr, whole or not at all.

It comes as parts, some rows at a time; .npy, .csv, .tsv, .parquet, .h5 and .zarr are written as they come, the others
put them together first.
"""

import errno
import gzip
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from relunmd import memory
from relunmd._util import need
from relunmd.errors import InputError
from relunmd.io.atomic import write_beside, write_folder_beside, writing

__all__ = ["SUFFIXES", "Parts", "check_suffix", "write_matrix"]

Array = NDArray[Any]
_MOST_MATLAB = 2**31
_CHUNK_BYTES = 2**20
_MARGIN = 2**23
_PYARROW = ("pyarrow", "Parquet files need", "parquet")
_H5PY = ("h5py", "HDF5 files need", "files")
_ZARR = ("zarr", "Zarr stores need", "files")


@dataclass(frozen=True)
class Parts:
    """A matrix as rows that come one part after the other.

    Attributes
    ----------
    parts : arrays, or csr_arrays if `sparse`
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    sparse: bool
    parts: Iterator[Any]

    @classmethod
    def of(cls, A: Array) -> "Parts":
        """An array in one part."""
        return cls((A.shape[0], A.shape[1]), A.dtype, False, iter([A]))

    def usual(self) -> "Parts":
        """The same in numbers that every format knows: half precision as float32, long doubles as float64.

        Raises InputError, when the part comes, for numbers that float64 cannot hold.
        """
        dtype = _usual(self.dtype)
        return Parts(self.shape, dtype, self.sparse, (_narrowed(part, dtype) for part in self.parts))

    def without_zeros(self) -> "Parts":
        """The same as a sparse matrix."""
        from scipy import sparse

        if self.sparse:
            return self
        usual = self.usual()
        return replace(usual, sparse=True, parts=map(sparse.csr_array, usual.parts))

    def arrays(self) -> Iterator[Array]:
        """The parts as C-ordered arrays."""
        return (np.ascontiguousarray(part.toarray() if self.sparse else part) for part in self.parts)

    def together(self, place: Path) -> Any:
        """All rows: an array, or a csr_array."""
        if self.sparse:
            from scipy import sparse

            return sparse.vstack(list(self.parts), format="csr")
        memory.require(
            prod(self.shape) * self.dtype.itemsize,
            f"An array of {self.shape[0]} × {self.shape[1]} for {place}",
            "To .npy, .h5 and .zarr it would be written a part at a time.",
        )
        A, at = np.empty(self.shape, self.dtype), 0
        for part in self.arrays():
            A[at : at + len(part)] = part
            at += len(part)
        return A


def write_matrix(place: Path, matrix: Parts) -> None:
    """Write a matrix in the form that the name's ending says; FileError if the disk refuses.

    Memory: a part of it, or all of it for .npz (sparse), .mtx and .mat.
    """
    write = _WRITERS[check_suffix(place)]
    matrix = matrix.usual()
    with writing(place):
        if write is _zarr:
            matrix = replace(matrix, parts=_while_there_is_room(matrix.parts, place.parent))
            write_folder_beside(place, lambda folder: _zarr(folder, matrix))
        else:
            write_beside(place, lambda out: write(out, place, matrix))


def check_suffix(place: Path, sparse: bool = False) -> str:
    """The ending that says how a matrix is to be written; InputError if it says nothing, or cannot hold a sparse one.

    >>> check_suffix(Path("counts.mtx.gz"))
    '.mtx.gz'
    """
    name = place.name.lower()
    for suffix in sorted(_WRITERS, key=len, reverse=True):
        if name.endswith(suffix):
            if sparse and suffix not in _SPARSE:
                raise InputError(f"A sparse matrix can be written to {', '.join(_SPARSE)}. Got {place.name!r}.")
            if suffix in _NEEDS:
                need(*_NEEDS[suffix])
            return suffix
    raise InputError(f"The name of the output must end in one of {', '.join(SUFFIXES)}. Got {place.name!r}.")


def _usual(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype(np.float32 if dtype.itemsize == 2 else np.float64)
    return dtype.newbyteorder("=")


def _narrowed(part: Any, dtype: np.dtype[Any]) -> Any:
    try:
        with np.errstate(over="raise"):
            return part.astype(dtype, copy=False)
    except FloatingPointError as reason:
        raise InputError(
            f"The matrix must fit into {dtype} to be written. Got {part.dtype} with entries beyond "
            f"{np.finfo(dtype).max:.3g}; scale it down first."
        ) from reason


def _npy(out: IO[bytes], place: Path, matrix: Parts) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(matrix.dtype), "fortran_order": False, "shape": matrix.shape}
    np.lib.format.write_array_header_1_0(out, header)
    for part in matrix.arrays():
        out.write(part.reshape(-1).view(np.uint8).data)


def _npz(out: IO[bytes], place: Path, matrix: Parts) -> None:
    if matrix.sparse:
        from scipy import sparse

        sparse.save_npz(out, matrix.together(place), compressed=True)
        return
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as members:
        about = zipfile.ZipInfo("X.npy", (1980, 1, 1, 0, 0, 0))
        with members.open(about, "w", force_zip64=True) as member:
            _npy(member, place, matrix)


def _mtx(out: IO[bytes], place: Path, matrix: Parts) -> None:
    from scipy import io as scipy_io

    A = matrix.together(place)
    scipy_io.mmwrite(out, A, symmetry="general")


def _mat(out: IO[bytes], place: Path, matrix: Parts) -> None:
    from scipy import io as scipy_io

    A = matrix.together(place)
    A = A.tocsc() if matrix.sparse else A
    if (A.data.nbytes if matrix.sparse else A.nbytes) >= _MOST_MATLAB:
        raise InputError(f"A .mat file of version 5 holds arrays below 2 GiB. Got {matrix.shape} for {place.name}.")
    scipy_io.savemat(out, {"X": A})


def _text(delimiter: str) -> Callable[[IO[bytes], Path, Parts], None]:
    def write(out: IO[bytes], place: Path, matrix: Parts) -> None:
        kind = matrix.dtype.kind
        form = "%d" if kind in "biu" else "%.9g" if matrix.dtype.itemsize <= 4 else "%.17g"  # Enough for the same bits.
        line = delimiter.join([form] * matrix.shape[1]) + "\n"
        for part in matrix.arrays():
            for row in part.tolist():
                out.write((line % tuple(row)).encode("ascii"))

    return write


def _packed(write: Callable[[IO[bytes], Path, Parts], None]) -> Callable[[IO[bytes], Path, Parts], None]:
    def pack(out: IO[bytes], place: Path, matrix: Parts) -> None:
        with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=6, mtime=0, filename="") as packed:
            write(packed, place, matrix)  # type: ignore[arg-type]

    return pack


def _parquet(out: IO[bytes], place: Path, matrix: Parts) -> None:
    pyarrow, parquet = need(*_PYARROW), need("pyarrow.parquet", *_PYARROW[1:])
    kind = pyarrow.from_numpy_dtype(matrix.dtype)
    schema = pyarrow.schema([(str(column), kind) for column in range(matrix.shape[1])])
    with parquet.ParquetWriter(out, schema) as writer:
        for part in matrix.arrays():
            writer.write_table(pyarrow.table([pyarrow.array(column) for column in part.T], schema=schema))


def _hdf5(out: IO[bytes], place: Path, matrix: Parts) -> None:
    h5py = need(*_H5PY)
    matrix = replace(matrix, parts=_while_there_is_room(matrix.parts, place.parent))
    with h5py.File(out.name, "w") as file:
        if matrix.sparse:
            group = file.create_group("X")
            for name, length, dtype in (("data", 0, matrix.dtype), ("indices", 0, np.int64)):
                group.create_dataset(name, (length,), dtype, maxshape=(None,), chunks=(2**16,))
            _fill_csr(group, matrix)
        else:
            rows = max(1, min(matrix.shape[0], _CHUNK_BYTES // (matrix.shape[1] * matrix.dtype.itemsize)))
            chunks = (rows, matrix.shape[1]) if matrix.shape[1] * matrix.dtype.itemsize < 2**31 else True
            _fill(file.create_dataset("X", matrix.shape, matrix.dtype, chunks=chunks), matrix)


def _while_there_is_room(parts: Iterator[Any], folder: Path) -> Iterator[Any]:
    """The parts, as long as the disk can take them: if not, HDF5 ends the process, and Zarr leaves tasks behind."""
    for part in parts:
        needed = _MARGIN + 2 * (part.data.nbytes + 8 * part.nnz if hasattr(part, "nnz") else part.nbytes)
        if shutil.disk_usage(folder).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield part


def _zarr(folder: Path, matrix: Parts) -> None:
    zarr = need(*_ZARR)
    store = zarr.open_group(str(folder), mode="w")
    if matrix.sparse:
        group = store.create_group("X")
        for name, dtype in (("data", matrix.dtype), ("indices", np.dtype(np.int64))):
            group.create_array(name, shape=(0,), dtype=dtype, chunks=(2**18,))
        _fill_csr(group, matrix)
    else:
        rows = max(1, min(matrix.shape[0], 8 * _CHUNK_BYTES // (matrix.shape[1] * matrix.dtype.itemsize)))
        _fill(store.create_array("X", shape=matrix.shape, dtype=matrix.dtype, chunks=(rows, matrix.shape[1])), matrix)


def _fill(stored: Any, matrix: Parts) -> None:
    at = 0
    for part in matrix.arrays():
        stored[at : at + len(part)] = part
        at += len(part)


def _fill_csr(group: Any, matrix: Parts) -> None:
    """CSR as AnnData has it, which our own reader and others take."""
    starts, stored = [np.zeros(1, np.int64)], 0
    for part in matrix.parts:
        count = len(part.data)
        for name, values in (("data", part.data), ("indices", part.indices)):
            group[name].resize((stored + count,))
            group[name][stored : stored + count] = values
        starts.append(part.indptr[1:].astype(np.int64) + stored)
        stored += count
    indptr = np.concatenate(starts)
    if hasattr(group, "create_dataset") and not hasattr(group, "create_array"):
        group.create_dataset("indptr", data=indptr)
    else:
        group.create_array("indptr", data=indptr)
    group.attrs["shape"] = list(matrix.shape)
    group.attrs["encoding-type"] = "csr_matrix"
    group.attrs["encoding-version"] = "0.1.0"


_WRITERS: dict[str, Any] = {
    ".npy": _npy,
    ".npz": _npz,
    ".mtx": _mtx,
    ".mtx.gz": _packed(_mtx),
    ".mat": _mat,
    ".csv": _text(","),
    ".csv.gz": _packed(_text(",")),
    ".tsv": _text("\t"),
    ".tsv.gz": _packed(_text("\t")),
    ".parquet": _parquet,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".zarr": _zarr,
}
_NEEDS = {".parquet": _PYARROW, ".h5": _H5PY, ".hdf5": _H5PY, ".zarr": _ZARR}
_SPARSE = (".npz", ".mtx", ".mtx.gz", ".mat", ".h5", ".hdf5", ".zarr")
SUFFIXES = tuple(_WRITERS)
