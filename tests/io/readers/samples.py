"""One small matrix in files of every format, and absurd files."""

import gzip
import io
import json
import struct
import sys
import zipfile
import zlib
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from PIL import Image
from scipy import sparse
from scipy.io import mmwrite, savemat


def matrix(m=30, n=20, seed=0):
    """Nonnegative, mostly zeros, whole numbers up to 255: every format can hold it."""
    random = np.random.default_rng(seed)
    return np.where(random.random((m, n)) < 0.2, random.integers(1, 256, (m, n)), 0).astype(np.uint8)


X = matrix()


def _npy(place):
    np.save(place, X.astype(np.float32))


def _npy_by_columns(place):
    np.save(place, np.asfortranarray(X.astype(np.float64)))


def _npz(place):
    np.savez_compressed(place, X=X, labels=np.arange(30))


def _sparse_npz(form):
    return lambda place: sparse.save_npz(place, getattr(sparse, f"{form}_array")(X.astype(np.float64)))


def _mtx(place):
    mmwrite(place, sparse.coo_array(X.astype(np.int64)))


def _dense_mtx(place):
    mmwrite(place, X.astype(np.float64))


def _gz(write, suffix):
    def packed(place):
        plain = place.with_name(f"plain{suffix}")
        write(plain)
        place.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()

    return packed


def _mat(place):
    savemat(place, {"X": X.astype(np.float64), "name": "digits", "labels": np.array([1, "a"], dtype=object)})


def _packed_mat(place):
    savemat(place, {"X": sparse.csc_array(X.astype(np.float64))}, do_compression=True)


def _mat_7_3(place):
    """As MATLAB writes it: HDF5 after 512 bytes of its own, matrices the other way round."""
    with h5py.File(place, "w", userblock_size=512) as file:
        file["X"] = X.T.astype(np.float64)
        file["X"].attrs["MATLAB_class"] = np.bytes_("double")
        file.create_group("#refs#")["a"] = np.ones((2, 2))
    with place.open("r+b") as out:
        out.write(b"MATLAB 7.3 MAT-file, made for a test".ljust(116) + bytes(8) + b"\x00\x02IM")


def _sparse_mat_7_3(place):
    S = sparse.csc_array(X.astype(np.float64))
    with h5py.File(place, "w", userblock_size=512) as file:
        group = file.create_group("S")
        group["data"], group["ir"], group["jc"] = S.data, S.indices.astype(np.uint64), S.indptr.astype(np.uint64)
        group.attrs["MATLAB_sparse"], group.attrs["MATLAB_class"] = np.uint64(len(X)), np.bytes_("double")
    with place.open("r+b") as out:
        out.write(b"MATLAB 7.3 MAT-file, made for a test".ljust(116) + bytes(8) + b"\x00\x02IM")


def _csv(place):
    np.savetxt(place, X, fmt="%d", delimiter=",")


def _named_csv(place):
    lines = [",".join(["", *(f'"word, {j}"' for j in range(20))])]
    lines += [",".join([f'"text {i}"', *(str(value) for value in row)]) for i, row in enumerate(X)]
    place.write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig")


def _tsv(place):
    np.savetxt(place, X, fmt="%d", delimiter="\t")


def _parquet(place):
    pq.write_table(pa.table({f"c{j}": X[:, j] for j in range(20)}), place)


def _h5(place):
    with h5py.File(place, "w") as file:
        file.create_dataset("group/X", data=X.astype(np.float32), chunks=(10, 20), compression="gzip")
        file["labels"] = np.arange(30)


def _h5ad(place):
    S = sparse.csr_array(X.astype(np.float32))
    with h5py.File(place, "w") as file:
        for name in ("X", "layers/counts"):
            group = file.create_group(name)
            group["data"], group["indices"], group["indptr"] = S.data, S.indices, S.indptr
            group.attrs["shape"], group.attrs["encoding-type"] = S.shape, "csr_matrix"
        file["obs/n"] = np.arange(30)


def _h5_by_columns(place):
    S = sparse.csc_array(X.astype(np.float32))
    with h5py.File(place, "w") as file:
        group = file.create_group("X")
        group["data"], group["indices"], group["indptr"] = S.data, S.indices, S.indptr
        group.attrs["shape"], group.attrs["encoding-type"] = S.shape, "csc_matrix"


def _zarr(place):
    zarr.open_group(str(place), mode="w").create_array("X", data=X.astype(np.float32), chunks=(10, 20))


def _zarr_2(place):
    zarr.save_array(str(place), X.astype(np.float32), zarr_format=2)


def _zarr_csr(place):
    S = sparse.csr_array(X.astype(np.float32))
    group = zarr.open_group(str(place), mode="w").create_group("S")
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(S, name))
    group.attrs["shape"] = list(S.shape)


def _idx(place):
    place.write_bytes(struct.pack(">HBBIII", 0, 8, 3, 30, 4, 5) + X.tobytes())


def _images(place):
    place.mkdir()
    for i, row in enumerate(X):
        Image.fromarray(row.reshape(4, 5)).save(place / f"{i}.{('png', 'pgm', 'tif', 'bmp')[i % 4]}")


SAMPLES = {
    "a.npy": _npy,
    "columns.npy": _npy_by_columns,
    "a.npz": _npz,
    "csr.npz": _sparse_npz("csr"),
    "csc.npz": _sparse_npz("csc"),
    "coo.npz": _sparse_npz("coo"),
    "bsr.npz": _sparse_npz("bsr"),
    "dia.npz": _sparse_npz("dia"),
    "a.mtx": _mtx,
    "dense.mtx": _dense_mtx,
    "a.mtx.gz": _gz(_mtx, ".mtx"),
    "a.mat": _mat,
    "packed.mat": _packed_mat,
    "7.3.mat": _mat_7_3,
    "sparse7.3.mat": _sparse_mat_7_3,
    "a.csv": _csv,
    "named.csv": _named_csv,
    "a.csv.gz": _gz(_csv, ".csv"),
    "a.tsv": _tsv,
    "a.parquet": _parquet,
    "a.h5": _h5,
    "a.h5ad": _h5ad,
    "csc.hdf5": _h5_by_columns,
    "a.zarr": _zarr,
    "b.zarr": _zarr_2,
    "csr.zarr": _zarr_csr,
    "a-idx3-ubyte": _idx,
    "a-idx3-ubyte.gz": _gz(_idx, "-ubyte"),
    "images": _images,
}
"""By the names that they get; those without a suffix are folders."""


def write_all(folder):
    folder.mkdir(exist_ok=True)
    for name, write in SAMPLES.items():
        write(folder / name)
    return folder


def _npy_bytes(shape, dtype="<f8", content=b""):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue() + content


def _zipped(members, compression=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression, compresslevel=1) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return out.getvalue()


def _mat_element(shape, content, kind=6, packed=True, tell=None):
    """A MATLAB file with one variable, of whatever shape and content."""
    dims = struct.pack(f"<II{len(shape)}i", 5, 4 * len(shape), *shape).ljust(8 + -(-4 * len(shape) // 8) * 8, b"\0")
    body = struct.pack("<IIII", 6, 8, kind, 0) + dims + struct.pack("<HH4s", 1, 1, b"X\0\0\0")
    body += struct.pack("<II", 9, len(content) if tell is None else tell) + content
    element = struct.pack("<II", 14, len(body) if tell is None else tell) + body
    if packed:
        squeezed = zlib.compress(element, 1)
        element = struct.pack("<II", 15, len(squeezed)) + squeezed
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + element


def absurd_files():
    """Names of files whose headers promise what cannot be, and of bombs, with functions that make their content."""
    zeros = bytes(1 << 20)
    yield "shape.npy", lambda: _npy_bytes((2**40, 2**20))
    yield "product.npy", lambda: _npy_bytes((2**62, 2**62, 0))
    yield "negative.npy", lambda: _npy_bytes((-3, 5), content=zeros)
    yield "objects.npy", lambda: _npy_bytes((3,), "|O", b"cos\nsystem\n(S'echo EXECUTED'\ntR.")
    yield "words.npy", lambda: _npy_bytes((3, 3), "<U9", bytes(324))
    yield "complex.npy", lambda: _npy_bytes((3, 3), "<c16", bytes(144))
    yield "nested.npy", lambda: b"\x93NUMPY\x01\x00" + struct.pack("<H", 60000) + b"{" * 60000
    yield "bomb.npz", lambda: _zipped({"X.npy": _npy_bytes((257, 2**20), "|u1", zeros * 257)})
    yield "promise.npz", lambda: _zipped({"X.npy": _npy_bytes((2**40, 4))})
    yield "object.npz", lambda: _zipped({"X.npy": _npy_bytes((3,), "|O", b"cos\nsystem\n(S'echo EXECUTED'\ntR.")})
    for form in ("csr", "csc", "coo", "dia"):
        S = getattr(sparse, f"{form}_array")(sparse.eye_array(5))
        out = io.BytesIO()
        sparse.save_npz(out, S)
        members = {name: zipfile.ZipFile(out).read(name) for name in zipfile.ZipFile(out).namelist()}
        header = io.BytesIO()
        np.lib.format.write_array(header, np.array([10**13, 10**13]))
        yield f"huge {form}.npz", partial(_zipped, members | {"shape.npy": header.getvalue()})
    yield "rows.mtx", lambda: b"%%MatrixMarket matrix coordinate real general\n100000000000 5 1\n1 1 1.0\n"
    yield "entries.mtx", lambda: b"%%MatrixMarket matrix coordinate real general\n5 5 99999999999\n1 1 1.0\n"
    yield "dense.mtx", lambda: b"%%MatrixMarket matrix array real general\n1000000 1000000\n1.0\n"
    yield "symmetric.mtx", lambda: b"%%MatrixMarket matrix array real symmetric\n4000000000 4000000000\n1.0\n"
    yield "outside.mtx", lambda: b"%%MatrixMarket matrix coordinate real general\n5 5 2\n7 1 1.0\n0 1 1.0\n"
    yield "digits.mtx", lambda: b"%%MatrixMarket matrix coordinate real general\n" + b"9" * 5000 + b" 1 1\n"
    yield "comments.mtx", lambda: b"%%MatrixMarket matrix coordinate real general\n" + b"%\n" * 200_000
    yield (
        "bomb.mtx.gz",
        lambda: gzip.compress(
            b"%%MatrixMarket matrix coordinate pattern general\n9 9 17000000\n" + b"1 1\n" * (17 << 20), 1
        ),
    )
    yield "bomb.csv.gz", lambda: gzip.compress(b"0,0\n" * (17 << 20), 1)
    yield "line.csv.gz", lambda: gzip.compress(b"0," * (34 << 20), 1)
    yield "line.csv", lambda: b"1," * (1 << 20)
    yield "lines.csv", lambda: b"1\n" * (1 << 19)
    yield "digits.csv", lambda: b"9" * (1 << 20) + b",1\n2,3\n"
    yield "quotes.csv", lambda: b'"' * 100_000 + b"\n1,2\n"
    yield "nothing.csv", lambda: b"\n" * 100_000
    yield "names.csv", lambda: b"a,b,c\n"
    yield "escape.csv", lambda: b"1,2\n3,\x1b[2Jx\n"
    yield "bomb-idx3-ubyte.gz", lambda: gzip.compress(struct.pack(">HBBIII", 0, 8, 3, 257, 1024, 1024) + zeros * 257, 1)
    yield "promise-idx3-ubyte", lambda: struct.pack(">HBBIII", 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1) + bytes(100)
    yield "labels-idx1-ubyte", lambda: struct.pack(">HBBI", 0, 8, 1, 5) + bytes(5)
    yield "gzip.gz", lambda: gzip.compress(gzip.compress(gzip.compress(zeros * 50, 1), 1), 1)
    yield "bomb.mat", lambda: _mat_element((257, 1 << 20), zeros * 257, tell=len(zeros * 257))
    yield "promise.mat", lambda: _mat_element((2**30, 2**30), b"", tell=2**32 - 200)
    yield "cell.mat", lambda: _mat_element((2**31 - 1, 2**31 - 1), b"", kind=1)
    yield "sparse.mat", lambda: _mat_element((2**31 - 1, 5), bytes(8), kind=5)
    yield "struct.mat", lambda: _mat_element((2**31 - 1, 1000), b"", kind=2, packed=False)
    yield "PK.npz", lambda: b"PK\x03\x04" + bytes(100)
    yield "PAR1.parquet", lambda: b"PAR1" + b"\xff" * 60 + struct.pack("<I", 2**31) + b"PAR1"
    yield "hdf.h5", lambda: b"\x89HDF\r\n\x1a\n" + b"\xff" * 500
    yield "empty.npy", lambda: b""
    yield "empty.csv", lambda: b""
    yield "a.unknown", lambda: bytes(range(256)) * 4
    yield "old.mat", lambda: struct.pack("<iiiii", 0, 2**30, 2**30, 0, 2) + b"X\0" + bytes(64)
    yield "latin.csv", lambda: "Fluß,Höhe\n1,2\n".encode("latin-1")


def absurd_stores(folder):
    """HDF5 files, Zarr stores and folders of the same kind, which libraries have to write."""
    options = {"chunks": (1 << 10, 1 << 10), "compression": "gzip", "dtype": "u1"}
    with h5py.File(folder / "promise.h5", "w") as file:
        file.create_dataset("X", (2**40, 2**20), **options)
    with h5py.File(folder / "chunk.h5", "w") as file:
        file.create_dataset("X", (2**14, 17_000), chunks=(2**14, 17_000), compression="gzip", dtype="u1")
        file["X"][0, :5] = 1
    with h5py.File(folder / "links.h5", "w") as file:
        file["X"] = h5py.ExternalLink("a.h5", "/group/X")
        file["Y"] = h5py.SoftLink("/nowhere")
    with h5py.File(folder / "outside.h5", "w") as file:
        file.create_dataset("X", (3, 5), "u1", external=[(__file__, 0, 15)])
    with h5py.File(folder / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((3, 5), "f8")
        layout[:] = h5py.VirtualSource("elsewhere.h5", "X", (3, 5))
        file.create_virtual_dataset("X", layout)
    with h5py.File(folder / "loop.h5", "w") as file:
        file.create_group("a")["again"] = file["/"]
    with h5py.File(folder / "rows.h5ad", "w") as file:
        group = file.create_group("X")
        group["data"], group["indices"], group["indptr"] = np.ones(1), np.zeros(1, int), np.arange(2)
        group.attrs["shape"] = (2**50, 2**50)
    with h5py.File(folder / "words.h5", "w") as file:
        file["X"] = np.array([[b"a", b"b"]], dtype="S1")
    zarr.create_array(folder / "promise.zarr", shape=(2**40, 2**20), chunks=(2**10, 2**10), dtype="u1")
    zarr.create_array(folder / "chunk.zarr", shape=(2**16, 2**16), chunks=(2**16, 2**16), dtype="u1")
    pickled = folder / "pickle.zarr"
    pickled.mkdir()
    about = {"zarr_format": 2, "shape": [3, 3], "chunks": [3, 3], "dtype": "|O", "compressor": None, "fill_value": None}
    (pickled / ".zarray").write_text(json.dumps(about | {"order": "C", "filters": [{"id": "pickle"}]}))
    (pickled / "0.0").write_bytes(b"cos\nsystem\n(S'echo EXECUTED'\ntR.")
    hidden = folder / "hidden.zarr"
    hidden.mkdir()
    (hidden / ".zarray").write_text(
        json.dumps(about | {"order": "C", "dtype": "<f8", "fill_value": 0, "filters": [{"id": "pickle"}]})
    )
    (hidden / "0.0").write_bytes(b"cos\nsystem\n(S'echo EXECUTED'\ntR.")
    (folder / "nothing.zarr").mkdir()
    (folder / "nothing").mkdir()
    large = folder / "large"
    large.mkdir()
    Image.new("L", (9_000, 9_000)).save(large / "0.png")
    mixed = folder / "mixed"
    mixed.mkdir()
    Image.new("L", (4, 4)).save(mixed / "0.png")
    Image.new("L", (4, 5)).save(mixed / "1.png")
    coloured = folder / "coloured"
    coloured.mkdir()
    Image.new("RGB", (4, 4), (255, 0, 0)).save(coloured / "0.png")


def write_absurd(folder):
    folder.mkdir()
    for name, make in absurd_files():
        (folder / name).write_bytes(make())
    absurd_stores(folder)


if __name__ == "__main__":
    write_absurd(Path(sys.argv[1]))
