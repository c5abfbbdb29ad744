"""The result of a run: factors, error, history, and why it ended."""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunmd.engine.distributed import Chunks, fetched
from relunmd.engine.problem import Fingerprint
from relunmd.errors import InputError
from relunmd.history import MAIN_COLUMNS, History, Status
from relunmd.io.archive import amount, count, file_errors, plain, read_archive, write_archive
from relunmd.io.atomic import check_path, write_beside, writing

Array = NDArray[Any]

_MODEL = "model"
_VERSION = 1
"""Version of the file format of a saved model."""
_COLUMN = "history."
_MOST_MATLAB = 2**31


@dataclass(frozen=True, repr=False, eq=False)
class Decomposition:
    """Hold the result of `decompose`: X ≈ max(0, WH).

    Attributes
    ----------
    W : ndarray of shape (m, rank)
        Left factor. If X was on Dask, a Dask array in the same chunks of rows.
    H : ndarray of shape (rank, n)
        Right factor. W and H are the balanced SVD of WH, strongest component first; the largest entry of each row of H
        is positive.
    error : float
        Relative error ‖X − max(0, WH)‖ / ‖X‖.
    n_iter : int
        Number of iterations.
    time : float
        Seconds of the run, including the initialization.
    init_time : float
        Seconds of the initialization.
    status : Status
        Why the run ended.
    algorithm : str
        Name of the algorithm.
    init : str
        Name of the initialization.
    settings : dict
        Settings of the algorithm.
    history : History
        Iteration, time, error and passes, and the columns of the algorithm.
    fingerprint : Fingerprint or None
        What identifies X: shape, dtype, number of nonzeros, sum, Frobenius norm and a checksum.
    best_iter
    message
    rank
    shape

    See Also
    --------
    decompose : Compute a decomposition.
    fit_rows : Find W for new rows and the H of a decomposition.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> d = relunmd.decompose(np.eye(10), rank=5, random_state=0)
    >>> d.W.shape, d.H.shape, d.error < 0.5
    ((10, 5), (5, 10), True)
    >>> d.reconstruct(rows=slice(0, 2)).shape
    (2, 10)
    """

    W: Array
    H: Array
    error: float
    n_iter: int
    time: float
    init_time: float
    status: Status
    algorithm: str
    init: str
    settings: Mapping[str, Any]
    history: History
    fingerprint: Fingerprint | None = None

    @property
    def message(self) -> str:
        """Why the run ended, as a sentence."""
        return self.status.message

    @property
    def rank(self) -> int:
        """Number of rows of H."""
        return len(self.H)

    @property
    def best_iter(self) -> int:
        """Iteration of W and H, the one with the smallest error, or penalized error with a ridge."""
        return int(self.history.criterion.argmin())

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of X."""
        return self.W.shape[0], self.H.shape[1]

    def __repr__(self) -> str:
        return (
            f"Decomposition(shape={self.shape}, rank={self.rank}, error={self.error:.6g}, n_iter={self.n_iter}, "
            f"status={self.status.name}, algorithm={self.algorithm!r}, init={self.init!r}, time={self.time:.3g})"
        )

    def reconstruct(self, rows: slice | ArrayLike | None = None, relu: bool = True) -> Array:
        """Return max(0, WH), or WH itself, for some rows or all of them.

        Parameters
        ----------
        rows : slice, int or array-like of int, optional
            Which rows; by default all.
        relu : bool, default=True
            False returns WH; the more negative an entry, the more surely the entry of X is zero.

        Returns
        -------
        ndarray of shape (number of rows, n)
            The approximation of X. If W is a Dask array, a Dask array that is not computed yet.

        See Also
        --------
        scores : Some entries of WH, without forming the rest.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> X = relunmd.datasets.synthetic(60, 40, 4, random_state=0)
        >>> d = relunmd.decompose(X, rank=4, tol=0, max_iter=60, random_state=0)
        >>> bool(np.allclose(d.reconstruct(rows=[0, 7]), X[[0, 7]], atol=1e-2))
        True
        >>> bool((d.reconstruct(relu=False) < 0).any())
        True
        """
        part = self.W if rows is None else self.W[rows if isinstance(rows, slice) else np.atleast_1d(rows)]
        if not isinstance(part, np.ndarray):
            on_dask: Array = part @ self.H
            return np.maximum(on_dask, 0) if relu else on_dask
        Theta = part @ self.H
        if relu:
            np.maximum(Theta, 0, out=Theta)
        return np.asarray(Theta)

    def scores(self, rows: ArrayLike, columns: ArrayLike) -> Array:
        """Return the entries of WH at (rows[i], columns[i]), without forming the rest.

        Parameters
        ----------
        rows : int or array-like of shape (k,)
            Row indices.
        columns : int or array-like of shape (k,)
            Column indices.

        Returns
        -------
        ndarray of shape (k,)
            The entries; the more negative one is, the more surely the entry of X is zero.

        Examples
        --------
        >>> import numpy as np, relunmd
        >>> d = relunmd.decompose(np.eye(10), rank=5, random_state=0)
        >>> bool(np.allclose(d.scores([0, 3], [0, 4]), d.reconstruct(relu=False)[[0, 3], [0, 4]]))
        True
        """
        i, j = np.atleast_1d(rows), np.atleast_1d(columns)
        if i.shape != j.shape or i.ndim != 1:
            raise InputError(
                f"rows and columns must be two lists of the same length; got shapes {i.shape} and {j.shape}."
            )
        return np.asarray(np.einsum("ij,ji->i", fetched(self.W[i]), self.H[:, j]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one .npz file for `load`.

        The file is written atomically. ``numpy.load`` opens it too: W, H, the columns ``history.error`` …, and
        ``metadata``, which is JSON in bytes.

        Parameters
        ----------
        path : path-like
            Where to write. An existing file is replaced.

        See Also
        --------
        load : Read the file.

        Notes
        -----
        Takes the space of W and H on disk and no memory; a Dask array W is fetched chunk by chunk.

        Examples
        --------
        >>> import tempfile, numpy as np, relunmd
        >>> d = relunmd.decompose(np.eye(10), rank=3, random_state=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     d.save(f"{folder}/model.npz")
        ...     again = relunmd.Decomposition.load(f"{folder}/model.npz")
        >>> bool((again.W == d.W).all()), again.error == d.error
        (True, True)
        """
        place = check_path("path", path)
        about = {
            "algorithm": self.algorithm,
            "init": self.init,
            "settings": plain(self.settings),
            "status": self.status.name,
            "error": self.error,
            "n_iter": self.n_iter,
            "time": self.time,
            "init_time": self.init_time,
            "fingerprint": None if self.fingerprint is None else asdict(self.fingerprint),
        }
        columns = {_COLUMN + name: column for name, column in self.history.columns.items()}
        W: Any = self.W if isinstance(self.W, np.ndarray) else Chunks(self.W)
        with writing(place):
            write_archive(place, _MODEL, _VERSION, about, {"W": W, "H": self.H} | columns)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Decomposition":
        """Load a result from a file that `save` wrote; no code in it is executed.

        Parameters
        ----------
        path : path-like
            A file of this version of relunmd or an earlier one.

        Returns
        -------
        Decomposition
            The result, with the same bits.

        Raises
        ------
        FileError
            If the file does not exist, is damaged, is not a model, or is of a later version of relunmd.

        Notes
        -----
        Takes the memory of W and H.

        Examples
        --------
        >>> import relunmd
        >>> relunmd.Decomposition.load("nowhere.npz")
        Traceback (most recent call last):
        relunmd.errors.FileError: There is no model at ...nowhere.npz.
        """
        place = check_path("path", path)
        with file_errors(place, _MODEL):
            return _loaded(*read_archive(place, _MODEL, _VERSION))

    def export_mat(self, path: str | os.PathLike[str]) -> None:
        """Write W, H, the error, the settings and the history to a .mat file for MATLAB and Octave.

        Parameters
        ----------
        path : path-like
            Where to write. An existing file is replaced.

        Raises
        ------
        InputError
            If W or H takes 2 GiB or more, which such a file cannot hold.
        FileError
            If the file cannot be written; an existing file is unchanged then.

        Notes
        -----
        Takes the space of W and H on disk and, while it is written, in memory.

        Examples
        --------
        >>> import tempfile, numpy as np, relunmd, scipy.io
        >>> d = relunmd.decompose(np.eye(10), rank=3, random_state=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     d.export_mat(f"{folder}/model.mat")
        ...     found = scipy.io.loadmat(f"{folder}/model.mat")
        >>> found["W"].shape, found["H"].shape
        ((10, 3), (3, 10))
        """
        from scipy import io  # Slow to import.

        place = check_path("path", path)
        largest = max(self.W.nbytes, self.H.nbytes)
        if largest >= _MOST_MATLAB:
            raise InputError(
                f"A .mat file of version 5 holds arrays below 2 GiB; got W and H of up to {largest} bytes."
            )
        members: dict[str, Any] = {
            "W": fetched(self.W),
            "H": self.H,
            "error": self.error,
            "algorithm": self.algorithm,
            "init": self.init,
            "status": self.status.name,
            "time": self.time,
            "history": {_matlab_name(name): column for name, column in self.history.columns.items()},
        }
        known = {name: value for name, value in plain(self.settings).items() if value is not None}
        if known:
            members["settings"] = {_matlab_name(name): value for name, value in known.items()}
        with writing(place):
            write_beside(place, lambda out: io.savemat(out, members, long_field_names=True, oned_as="column"))


def _matlab_name(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def _loaded(about: dict[str, Any], arrays: dict[str, Array]) -> Decomposition:
    """Build the result from the members of a file; raise an exception if they are inconsistent."""
    W, H = arrays.pop("W"), arrays.pop("H")
    columns = {name.removeprefix(_COLUMN): column for name, column in arrays.items()}
    history, length = History.from_columns(columns), len(columns["error"])
    wrong = {
        "the history lacks a column": not columns.keys() >= {*MAIN_COLUMNS},
        "W and H are not factors": W.ndim != 2 or H.ndim != 2 or W.shape[1] != len(H) or 0 in (*W.shape, *H.shape),
        "W and H differ in float type": W.dtype != H.dtype or W.dtype not in (np.float32, np.float64),
        "W or H is not finite": not (np.isfinite(W).all() and np.isfinite(H).all()),
        "the columns of the history differ in length": {c.shape for c in columns.values()} != {(length,)},
        "the history has another number of iterations": count(about["n_iter"], "n_iter") != length - 1,
    }
    for what, so in wrong.items():
        if so:
            raise ValueError(what)
    found = about["fingerprint"]
    return Decomposition(
        W=W,
        H=H,
        error=amount(about["error"], "error"),
        n_iter=length - 1,
        time=amount(about["time"], "time"),
        init_time=amount(about["init_time"], "init_time"),
        status=Status[about["status"]],
        algorithm=str(about["algorithm"]),
        init=str(about["init"]),
        settings=dict(about["settings"]),
        history=history,
        fingerprint=None if found is None else Fingerprint.from_json(found),
    )
