"""A look at a matrix before it is decomposed: how large, how sparse, what is wrong with it, and what would suit it.

One pass, some 32 MB of rows at a time, in plain NumPy: nothing is compiled for it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from relunmd.engine.distributed import refuse_distributed
from relunmd.engine.matrix import Source
from relunmd.engine.problem_setup import check_matrix

__all__ = ["Survey", "row_parts", "survey"]

Array = NDArray[Any]
_PART_BYTES = 2**25
_FEW_ZEROS = 0.1
_MOSTLY_ZEROS = 0.8


@dataclass(frozen=True)
class Survey:
    """What a matrix is like.

    Attributes
    ----------
    shape, dtype : as it is
    sparse, in_memory : whether its zeros are not stored, and whether it has been read already
    nonzeros, negatives, not_finite : numbers of such entries
    smallest, largest : of the finite entries
    norm : ‖X‖, of the finite entries
    nbytes : what it takes as it is
    """

    shape: tuple[int, int]
    dtype: str
    sparse: bool
    in_memory: bool
    nonzeros: int
    negatives: int
    not_finite: int
    smallest: float
    largest: float
    norm: float
    nbytes: int

    @property
    def zeros(self) -> float:
        """The share of entries that are zero."""
        return 1 - self.nonzeros / math.prod(self.shape)

    @property
    def dense_nbytes(self) -> int:
        """What it takes as an array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def sparse_nbytes(self) -> int:
        """What it takes in CSR."""
        return self.nonzeros * (np.dtype(self.dtype).itemsize + 4) + 4 * (self.shape[0] + 1)

    @property
    def obstacle(self) -> str | None:
        """Why it cannot be decomposed, if it cannot."""
        if self.not_finite:
            return f"It has {_entries(self.not_finite)} NaN or infinite, which must be filled or left out first."
        if self.negatives:
            return f"It has {_entries(self.negatives)} below zero, which max(0, WH) cannot represent."
        if self.nonzeros == 0:
            return "It is all zero."
        return None

    @property
    def break_even_rank(self) -> int:
        """The rank at which W and H have as many numbers as X has nonzeros."""
        return self.nonzeros // sum(self.shape)

    @property
    def suggested_rank(self) -> int:
        """A power of two to begin with: 32, or less for a small matrix."""
        most = max(1, min(32, self.break_even_rank // 2, min(self.shape) // 4))
        return int(2 ** math.floor(math.log2(most)))

    def fit_nbytes(self, rank: int) -> int:
        """What a fit with the default algorithm takes besides X: some thirty arrays like W and H, and scratch."""
        itemsize = 4 if self.dtype in ("float32", "float16") else 8
        return 30 * itemsize * rank * sum(self.shape) + 2**28

    def advice(self) -> list[str]:
        """What would suit it, in sentences."""
        if self.obstacle:
            return [f"It cannot be decomposed as it is. {self.obstacle}"]
        told = []
        if self.zeros < _FEW_ZEROS:
            told.append("It has hardly any zeros: a truncated SVD (--algorithm tsvd) represents it as well.")
        else:
            told.append('The default algorithm, "qn", suits it.')
        if not self.sparse and self.zeros > _MOSTLY_ZEROS and self.sparse_nbytes < self.nbytes / 2:
            told.append("It is mostly zeros: stored sparse (relunmd convert --sparse) it takes less.")
        if self.break_even_rank >= 2:
            told.append(f"Below rank {self.break_even_rank} W and H have fewer numbers than X has nonzeros.")
        else:
            told.append("It is so sparse that W and H have more numbers than X has nonzeros, at any rank.")
        if self.dtype not in ("float32", "float16") and math.prod(self.shape) > 10**7:
            told.append("--dtype float32 takes half the memory and about half the time.")
        return told


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def survey(X: Any) -> Survey:
    """Look at every entry of X once.

    Parameters
    ----------
    X : matrix of any kind that `relunmd.decompose` takes except on Dask; entries may be wrong

    Notes
    -----
    One pass in one thread. Memory: X as it is, and a few times 32 MB.

    Examples
    --------
    >>> import numpy as np
    >>> found = survey(np.eye(4))
    >>> found.nonzeros, found.zeros, found.largest, found.suggested_rank
    (4, 0.75, 1.0, 1)
    """
    refuse_distributed(X, "survey")
    source = check_matrix(X)
    nonzeros = negatives = not_finite = stored = 0
    smallest, largest, scale, squares = math.inf, -math.inf, 0.0, 0.0
    for rows, part in row_parts(source):
        whole = (rows.stop - rows.start) * source.shape[1]  # Of which a sparse part has not all.
        values = np.asarray(part.data if sparse.issparse(part) else part).ravel(order="K")
        stored += values.nbytes
        some_left_out = sparse.issparse(part) and len(values) < whole
        if values.dtype.kind == "f" and values.dtype.itemsize > 8:
            with np.errstate(over="ignore", under="ignore"):  # Converted as `decompose` does.
                values = values.astype(np.float64)
        nonzeros += int(np.count_nonzero(values))
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            bad = len(values) - int(np.count_nonzero(finite))
            not_finite += bad
            values = values[finite] if bad else values
        if len(values):
            smallest, largest = min(smallest, float(values.min())), max(largest, float(values.max()))
            if values.dtype.kind in "fi":
                negatives += int(np.count_nonzero(values < 0))
            scale, squares = _added(scale, squares, values)
        if some_left_out:
            smallest, largest = min(smallest, 0.0), max(largest, 0.0)
    return Survey(
        shape=source.shape,
        dtype=str(source.dtype),
        sparse=source.sparse,
        in_memory=source.in_memory,
        nonzeros=nonzeros,
        negatives=negatives,
        not_finite=not_finite,
        smallest=smallest if smallest < math.inf else math.nan,
        largest=largest if largest > -math.inf else math.nan,
        norm=scale * math.sqrt(squares),
        nbytes=stored if not source.sparse else nonzeros * (source.dtype.itemsize + 4) + 4 * (source.shape[0] + 1),
    )


def _added(scale: float, squares: float, values: Array) -> tuple[float, float]:
    """A norm as scale·√squares, with more values: their squares may be beyond float64."""
    top = float(np.abs(values.astype(np.float64, copy=False)).max())
    if top == 0:
        return scale, squares
    if top > scale:
        squares *= (scale / top) ** 2
        scale = top
    scaled = values.astype(np.float64) / scale
    return scale, squares + float(scaled @ scaled)


def row_parts(source: Source) -> Iterator[tuple[slice, Any]]:
    """All rows of a matrix in order, some 32 MB at a time, as arrays or csr_arrays.

    >>> [rows for rows, part in row_parts(check_matrix(np.ones((3, 2))))]
    [slice(0, 3, None)]
    """
    m, n = source.shape
    width = n * max(8, source.dtype.itemsize)  # As float64, which a part may become.
    if source.sparse:
        width = max(1, width // 8)  # Few of them are there.
    height = max(1, _PART_BYTES // width // source.chunk_rows) * source.chunk_rows
    for start in range(0, m, height):
        rows = slice(start, min(m, start + height))
        part = source.read(rows)
        if source.sparse:
            part.sum_duplicates()  # Which a file may have.
        yield rows, part
