"""The parts of a sparse matrix in a group of HDF5 or Zarr: its shape, its format and its members."""

from typing import Any

import numpy as np

from relunmd._util import library_of

CSR = ("data", "indices", "indptr")
SHAPES = ("shape", "h5sparse_shape")
"""Names under which groups store their shape."""


def is_group(member: Any) -> bool:
    """Return whether a member of an HDF5 file or a Zarr store is a group."""
    return not hasattr(member, "shape")


def own_member(group: Any, name: str) -> Any | None:
    """Return a dataset or group within a group.

    Returns None if it is missing, and in HDF5 also for types and for links, which may lead to another file.
    """
    if name not in group:
        return None
    if library_of(group) == "h5py":
        import h5py

        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            return None
        return group[name] if isinstance(group[name], h5py.Dataset | h5py.Group) else None
    return group[name]


def stored_form(group: Any) -> str:
    """Return the format of a sparse matrix in a group: "csr…" or "csc…".

    Call it only if nothing else gives the format: HDF5 may take gigabytes for such a text in a damaged file.
    """
    form = group.attrs.get("encoding-type", None) or group.attrs.get("h5sparse_format", None)
    if form is None:  # 10x Genomics stores by columns, without an attribute.
        form = "csc" if "barcodes" in group else "csr"
    return form.decode("ascii", "replace") if isinstance(form, bytes) else str(form)


def stored_shape(group: Any) -> tuple[int, int] | None:
    """Return the number of rows and columns of such a group, from an attribute or an array; None if it has neither."""
    for name in SHAPES:
        found = group.attrs.get(name, None)
        member = own_member(group, name) if found is None else None
        if member is not None and getattr(member, "shape", None) == (2,):
            found = member[:]
        if found is not None and np.size(found) == 2:
            return int(found[0]), int(found[1])
    return None
