"""Inspection of a matrix before it is decomposed: its size, sparsity, invalid entries, and a suitable rank.

One pass over X, about 32 MB of rows at a time, in plain NumPy: nothing is compiled.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from relunmd.engine.distributed import refuse_distributed
from relunmd.engine.matrix import Source
from relunmd.engine.problem_setup import check_matrix

_PART_BYTES = 2**25
_FEW_ZEROS = 0.1
_MOSTLY_ZEROS = 0.8


@dataclass(frozen=True)
class MatrixSummary:
    """Properties of a matrix.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
    sparse : bool
        Whether only nonzeros are stored.
    nonzeros, negatives, not_finite : int
        Numbers of such entries.
    smallest, largest : float or None
        The range of the finite entries; None if there are none.
    norm : float
        The Frobenius norm of the finite entries.
    """

    shape: tuple[int, int]
    dtype: str
    sparse: bool
    nonzeros: int
    negatives: int
    not_finite: int
    smallest: float | None
    largest: float | None
    norm: float

    @property
    def zeros(self) -> float:
        """The fraction of entries that are zero."""
        return 1 - self.nonzeros / math.prod(self.shape)

    @property
    def dense_nbytes(self) -> int:
        """Bytes of the matrix as an array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def sparse_nbytes(self) -> int:
        """Bytes of the matrix in CSR format."""
        return self.nonzeros * (np.dtype(self.dtype).itemsize + 4) + 4 * (self.shape[0] + 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix as it is stored."""
        return self.sparse_nbytes if self.sparse else self.dense_nbytes

    @property
    def obstacle(self) -> str | None:
        """Why the matrix cannot be decomposed, or None if it can."""
        count = self.not_finite or self.negatives
        entries = "1 entry" if count == 1 else f"{count} entries"
        if self.not_finite:
            return f"X has {entries} NaN or infinite; with missing_values=np.nan those that are NaN are missing."
        if self.negatives:
            return f"X has {entries} below zero, which max(0, WH) cannot represent."
        return None if self.nonzeros else "X is all zero."

    @property
    def break_even_rank(self) -> int:
        """The rank at which W and H have as many numbers as X has nonzeros."""
        return self.nonzeros // sum(self.shape)

    @property
    def suggested_rank(self) -> int:
        """A power of two to try first: 32, or less for a small matrix."""
        most = max(1, min(32, self.break_even_rank // 2, min(self.shape) // 4))
        return int(2 ** math.floor(math.log2(most)))

    def fit_nbytes(self, rank: int) -> int:
        """Return the bytes of a fit with the default algorithm besides X: about thirty arrays like W and H."""
        itemsize = 4 if self.dtype in ("float32", "float16") else 8
        return 30 * itemsize * rank * sum(self.shape) + 2**28

    def advice(self) -> list[str]:
        """Return sentences that say which options suit the matrix."""
        if self.obstacle:
            return [f"X cannot be decomposed. {self.obstacle}"]
        few = "X has few zeros: a truncated SVD (--algorithm tsvd) represents it as well."
        advice = [few if self.zeros < _FEW_ZEROS else 'The default algorithm, "qn", is suitable.']
        if not self.sparse and self.zeros > _MOSTLY_ZEROS and self.sparse_nbytes < self.nbytes / 2:
            advice.append("X is mostly zeros: relunmd convert --sparse makes it smaller.")
        if self.break_even_rank >= 2:
            advice.append(f"Below rank {self.break_even_rank}, W and H have fewer numbers than X has nonzeros.")
        else:
            advice.append("X is very sparse: at any rank, W and H have more numbers than X has nonzeros.")
        if self.dtype not in ("float32", "float16") and math.prod(self.shape) > 10**7:
            advice.append("--dtype float32 takes half the memory and about half the time.")
        return advice


def inspect_matrix(X: Any) -> MatrixSummary:
    """Summarize a matrix, which may have invalid entries.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (m, n)
        Any matrix that `relunmd.decompose` accepts, except on Dask.

    Returns
    -------
    MatrixSummary

    Notes
    -----
    One pass in one thread. Memory: X as it is, and a few times 32 MB.

    Examples
    --------
    >>> import numpy as np
    >>> summary = inspect_matrix(np.eye(4))
    >>> summary.nonzeros, summary.zeros, summary.largest, summary.suggested_rank
    (4, 0.75, 1.0, 1)
    """
    refuse_distributed(X, "inspect_matrix")
    source = check_matrix(X)
    nonzeros = negatives = not_finite = 0
    smallest, largest, norm = math.inf, -math.inf, 0.0
    for rows, part in row_parts(source):
        values = np.asarray(part.data if sparse.issparse(part) else part).ravel(order="K")
        if len(values) < (rows.stop - rows.start) * source.shape[1]:  # The rest of a sparse part is zero.
            smallest, largest = min(smallest, 0.0), max(largest, 0.0)
        if values.dtype.kind == "f" and values.dtype.itemsize > 8:
            with np.errstate(over="ignore", under="ignore"):  # As `decompose` converts them.
                values = values.astype(np.float64)
        nonzeros += int(np.count_nonzero(values))
        finite = np.isfinite(values)
        if not finite.all():
            not_finite += len(values) - int(np.count_nonzero(finite))
            values = values[finite]
        if len(values):
            low, high = float(values.min()), float(values.max())
            smallest, largest = min(smallest, low), max(largest, high)
            negatives += int(np.count_nonzero(values < 0))
            top = max(abs(low), abs(high)) or 1.0  # Squares of the values may overflow.
            norm = math.hypot(norm, top * float(np.linalg.norm(np.divide(values, top, dtype=np.float64))))
    ends: tuple[float | None, float | None] = (smallest, largest) if smallest <= largest else (None, None)
    return MatrixSummary(source.shape, str(source.dtype), source.sparse, nonzeros, negatives, not_finite, *ends, norm)


def row_parts(source: Source) -> Iterator[tuple[slice, Any]]:
    """Yield all rows of a matrix in order, about 32 MB at a time, as arrays or csr_arrays.

    >>> [rows for rows, part in row_parts(check_matrix(np.ones((3, 2))))]
    [slice(0, 3, None)]
    """
    m, n = source.shape
    width = n * max(8, source.dtype.itemsize)  # As float64, which a part may become.
    if source.sparse:
        width = max(1, width // 8)  # An estimate: most entries are zero.
    height = max(1, _PART_BYTES // width // source.chunk_rows) * source.chunk_rows
    for start in range(0, m, height):
        rows = slice(start, min(m, start + height))
        part = source.read(rows)
        if source.sparse:
            part.sum_duplicates()  # A file may have some.
        yield rows, part
