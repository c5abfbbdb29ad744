"""Read matrix files of any supported format, without executing anything in them.

`open_matrix` opens NumPy's .npy and .npz (arrays or SciPy's sparse matrices), Matrix Market, MATLAB, CSV and TSV,
Parquet, HDF5 with .h5ad, Zarr, IDX, and folders of gray images. A wrong, truncated or malicious file raises a
`FileError` with one sentence; the memory that it may take is bounded by its size (`bounds`).
"""

from relunmd.io.readers.detection import Opened as Opened
from relunmd.io.readers.detection import open_matrix as open_matrix
