"""Any matrix file in: what it is by its content and its name, and X from it, without executing anything.

`open_matrix` opens NumPy's .npy and .npz (arrays, or SciPy's sparse matrices), Matrix Market, MATLAB, CSV and TSV,
Parquet, HDF5 with .h5ad, Zarr, IDX, and folders of grey images. A file that is wrong, cut short or hostile gives a
`FileError` with one sentence; how much memory it may take is bounded by its size (`bounds`).
"""

from relunmd.io.readers.contents import Entry
from relunmd.io.readers.detection import Opened, open_matrix

__all__ = ["Entry", "Opened", "open_matrix"]
