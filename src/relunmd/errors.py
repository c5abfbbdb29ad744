"""The exceptions of the library. Each is also one of Python's exceptions, so that ``except ValueError`` works too."""

__all__ = [
    "ClusterError",
    "DatasetError",
    "FileError",
    "InputError",
    "InsufficientMemoryError",
    "MissingDependencyError",
    "RelunmdError",
]


class RelunmdError(Exception):
    """Base class of every exception that relunmd raises on purpose.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> try:
    ...     relunmd.decompose(-np.eye(3), rank=1)
    ... except relunmd.RelunmdError as reason:
    ...     print(type(reason).__name__)
    InputError
    """


class InputError(RelunmdError, ValueError):
    """Raised if an argument cannot be used.

    The message names the argument, what it must be and what was received.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> relunmd.decompose(np.eye(3), rank=4)
    Traceback (most recent call last):
    relunmd.errors.InputError: rank must be an integer between 1 and min(m, n) = 3; got 4.
    """


class InsufficientMemoryError(RelunmdError, MemoryError):
    """Raised if a computation needs more memory than is available, before anything is allocated.

    Examples
    --------
    >>> import numpy as np, relunmd
    >>> huge = np.broadcast_to(np.float32(1), (10_000_000, 1_000_000))
    >>> try:
    ...     relunmd.decompose(huge, rank=2, algorithm="3b")
    ... except relunmd.InsufficientMemoryError as reason:
    ...     print(str(reason).partition(",")[0])
    algorithm='3b'
    """


class MissingDependencyError(RelunmdError, ImportError):
    """Raised if an optional package is missing; the message says how to install it.

    Examples
    --------
    >>> import relunmd
    >>> try:
    ...     ax = relunmd.plot.convergence(relunmd.decompose([[1.0, 0.0], [0.0, 1.0]], rank=1))
    ... except relunmd.MissingDependencyError as reason:
    ...     print(reason)
    >>> issubclass(relunmd.MissingDependencyError, ImportError)
    True
    """


class DatasetError(RelunmdError, FileNotFoundError):
    """Raised if a data set is missing and cannot be downloaded, or is damaged.

    The message says how to get it.

    Examples
    --------
    >>> import pathlib, tempfile, relunmd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = pathlib.Path(folder, "CBCL.mat").write_text("not a MATLAB file")
    ...     try:
    ...         relunmd.datasets.cbcl(data=folder)
    ...     except relunmd.DatasetError as reason:
    ...         print("must be a MATLAB file" in str(reason))
    True
    """


class FileError(RelunmdError, OSError):
    """Raised if a file does not exist, is damaged or of another kind, or cannot be read or written.

    Examples
    --------
    >>> import relunmd
    >>> with relunmd.open_matrix("nowhere.npy") as opened:
    ...     print(opened.X.shape)
    Traceback (most recent call last):
    relunmd.errors.FileError: There is no file ...nowhere.npy.
    """


class ClusterError(RelunmdError, RuntimeError):
    """Raised if a cluster or all of its workers were lost; the message says what to do.

    Examples
    --------
    A run with a checkpoint resumes on a new cluster:

    >>> import numpy as np, relunmd
    >>> try:
    ...     d = relunmd.decompose(np.eye(12), rank=4, random_state=0)  # X on Dask, checkpoint="run.npz"
    ... except relunmd.ClusterError as reason:
    ...     print("Start a new cluster and call again:", reason)
    >>> d.rank
    4
    """
