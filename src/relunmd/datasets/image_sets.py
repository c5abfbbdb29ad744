"""Images, one per row: scikit-learn's digits, MNIST, and the faces of CBCL (one per column, as in the paper)."""

import hashlib
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.datasets.store import Folder, RemoteFile, cache_folder, downloaded, find_in, folders, get, reading
from relunmd.errors import DatasetError, InputError
from relunmd.io.atomic import write_beside
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.idx import read_idx
from relunmd.io.readers.matlab import read_variable

log = logging.getLogger("relunmd")
Bytes = NDArray[np.uint8]

_IMAGES, _LABELS = "mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz"
_OPENML = "mnist/openml.npz"
MNIST_FILES = (_IMAGES, _IMAGES.removesuffix(".gz"), _OPENML)
_CONTENT = "c2069063c1105f2bf96266aef1ff68c6e13bdda7a54e37bf19c16f1db24efc83"
"""SHA-256 of the bytes of the 70 000 images, training images first, and of the labels after them."""

CBCL = RemoteFile(
    "cbcl/CBCL.mat",
    source="the data sets of the NMF book's code, gitlab.com/ngillis/nmfbook",
    sha256="96c6356a2e99f65ce2194f3ce20a97f619ac89bdaf1c102ceaa74f2f742cfc1d",
    url="https://gitlab.com/ngillis/nmfbook/-/raw/master/data%20sets/CBCL.mat",
)


def digits() -> NDArray[np.float64]:
    """Load the digits that come with scikit-learn: 8×8 pixels, values 0 to 16, 49 % zeros.

    Returns
    -------
    ndarray of shape (1797, 64)
        One image per row, in float64.

    Examples
    --------
    >>> from relunmd import datasets
    >>> datasets.digits().shape
    (1797, 64)
    """
    from sklearn.datasets import load_digits

    X: NDArray[np.float64] = load_digits().data
    return X


def mnist(per_digit: int | None = None, every: int = 1, data: Folder = None, download: bool = True) -> Bytes:
    """Load training images of MNIST: 28×28 pixels, values 0 to 255, 81 % zeros.

    Parameters
    ----------
    per_digit : int, default=None
        Number of images of each digit, sorted by digit; by default all 60 000 in the order of the file.
    every : int, default=1
        Step between the images of a digit that are used.
    data : str or path-like, default=None
        A folder to search first.
    download : bool, default=True
        Whether to download MNIST from OpenML through scikit-learn if no folder has it.

    Returns
    -------
    ndarray of shape (10·per_digit, 784) and dtype uint8
        One image per row. The 500 images of Seraghiti et al. (MLSP 2023) are ``mnist(50, every=10)``, their 50 000
        ``mnist(5000)``.

    Examples
    --------
    >>> from relunmd import datasets
    >>> datasets.mnist(50, every=10).shape  # doctest: +SKIP
    (500, 784)
    """
    if every < 1 or (per_digit is not None and per_digit < 1):
        raise InputError(f"per_digit and every must be at least 1; got {per_digit!r} and {every!r}.")
    images, labels = _mnist(data, download)
    if per_digit is None:
        return images[::every]
    chosen = [np.flatnonzero(labels == digit)[: per_digit * every : every] for digit in range(10)]
    fewest = min(len(places) for places in chosen)
    if fewest < per_digit:
        raise InputError(
            f"per_digit must be at most {fewest} with every={every!r}, since there are {np.bincount(labels).min()} "
            f"images of the rarest digit; got {per_digit!r}."
        )
    return images[np.concatenate(chosen)]


def cbcl(data: Folder = None, download: bool = True) -> NDArray[np.float64]:
    """Load the training faces of CBCL, one per column of 19×19 pixels in column-major order; no zeros.

    Parameters
    ----------
    data : str or path-like, default=None
        A folder to search first.
    download : bool, default=True
        Whether to download the file if no folder has it.

    Returns
    -------
    ndarray of shape (361, 2429)
        One image per column, with values in (0, 1].

    Examples
    --------
    >>> from relunmd import datasets
    >>> datasets.cbcl().shape  # doctest: +SKIP
    (361, 2429)
    """
    X = read_mat(get(CBCL, data, download), "X")
    if X.shape != (361, 2429):
        raise DatasetError(f"{CBCL.path} must hold X of shape (361, 2429); got {X.shape}.")
    return np.ascontiguousarray(X, dtype=np.float64)


def read_mat(path: Path, name: str) -> Any:
    """Read a variable of a MATLAB file."""
    with reading(path, f"a MATLAB file with a variable {name}"):
        return read_variable(path, name)


def _mnist(data: Folder, download: bool) -> tuple[Bytes, Bytes]:
    """Return the training images and their labels, both from the same folder."""
    for folder in folders(data):
        found = [find_in(folder, path) or find_in(folder, path.removesuffix(".gz")) for path in (_IMAGES, _LABELS)]
        if found[0] is not None and found[1] is not None:
            return _training(_read_idx(found[0]), _read_idx(found[1]), found[0])
        kept = find_in(folder, _OPENML)
        if kept is not None:
            with (
                reading(kept, "the copy of MNIST that relunmd saved. Delete it to download it again"),
                np.load(kept, allow_pickle=False) as arrays,
            ):
                return _training(arrays["images"], arrays["labels"], kept)
    remedy = f"Save MNIST's original files as {_IMAGES} and {_LABELS} in a folder"
    return downloaded("MNIST", data, _download if download else None, remedy)


def _training(images: Bytes, labels: Bytes, place: str | Path) -> tuple[Bytes, Bytes]:
    """Return the first 60 000, the training images, as rows."""
    if images.shape not in ((len(labels), 28, 28), (len(labels), 784)) or labels.ndim != 1:
        raise DatasetError(
            f"{place} must hold MNIST, n images of 28×28 pixels, n labels; got {images.shape} and {labels.shape}."
        )
    return images.reshape(len(labels), 784)[:60000], labels[:60000]


def _read_idx(path: Path) -> Bytes:
    with reading(path, "an IDX file of bytes"):
        found = read_idx(path, Bounds(path, path.stat().st_size))
        if found.dtype != np.uint8:
            raise ValueError(f"its dtype is {found.dtype}")
        return found


def _download() -> tuple[Bytes, Bytes]:
    """Download MNIST from OpenML and save it in the cache."""
    from sklearn.datasets import fetch_openml

    log.info("Downloading mnist_784 from OpenML")
    options = {"return_X_y": True, "as_frame": False, "parser": "liac-arff", "data_home": cache_folder()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # About retries.
        table, labels = fetch_openml("mnist_784", version=1, **options)
    images, labels = np.ascontiguousarray(table, dtype=np.uint8), np.asarray(labels, dtype=np.uint8)
    found = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    if found != _CONTENT:
        raise ValueError(f"mnist_784 from OpenML has SHA-256 {found} instead of {_CONTENT}")
    place = cache_folder() / _OPENML
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_beside(place, lambda out: np.savez(out, images=images, labels=labels))
    except OSError as reason:
        log.warning("MNIST was downloaded but could not be saved to %s: %s", place, reason)
    return _training(images, labels, "OpenML")
