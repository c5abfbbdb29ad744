"""The parts of a sparse matrix in a group of HDF5 or Zarr: its shape, its format and its members."""

from typing import Any

import numpy as np

from relunmd._util import library_of

__all__ = ["SHAPES", "own_member", "stored_form", "stored_shape"]

SHAPES = ("shape", "h5sparse_shape")
"""Names under which groups have their shape."""


def own_member(group: Any, name: str) -> Any | None:
    """A member of a group; None if it is missing, and in HDF5 also if it is a link, which may lead to another file."""
    if name not in group:
        return None
    if library_of(group) == "h5py":
        import h5py

        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            return None
    return group[name]


def stored_form(group: Any) -> str:
    """What a group with the parts of a sparse matrix says it is: "csr…" or "csc…".

    Read only where nothing else tells: of a damaged file, HDF5 may take gigabytes for such a text before it fails.
    """
    form = group.attrs.get("encoding-type", None) or group.attrs.get("h5sparse_format", None)
    if form is None:  # 10x Genomics says nothing and stores by columns.
        form = "csc" if "barcodes" in group else "csr"
    return form.decode("ascii", "replace") if isinstance(form, bytes) else str(form)


def stored_shape(group: Any) -> tuple[int, int] | None:
    """The number of rows and columns of such a group, from an attribute or an array; None if it has neither."""
    for name in SHAPES:
        found = group.attrs.get(name, None)
        member = own_member(group, name) if found is None else None
        if member is not None and getattr(member, "shape", None) == (2,):
            found = member[:]
        if found is not None and np.size(found) == 2:
            return int(found[0]), int(found[1])
    return None
