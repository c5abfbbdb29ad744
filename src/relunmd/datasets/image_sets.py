"""Images, one a row: scikit-learn's digits, MNIST, and the faces of CBCL (one a column, as the paper has them)."""

import hashlib
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.datasets import store
from relunmd.errors import DatasetError, InputError
from relunmd.io.atomic import write_beside
from relunmd.io.readers.bounds import Bounds
from relunmd.io.readers.idx import read_idx
from relunmd.io.readers.matlab import read_variable

__all__ = ["cbcl", "digits", "mnist"]

log = logging.getLogger("relunmd")
Folder = str | os.PathLike[str] | None

_IMAGES, _LABELS = "mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz"
_OPENML = "mnist/openml.npz"
MNIST_FILES = (_IMAGES, _IMAGES.removesuffix(".gz"), _OPENML)
_CONTENT = "c2069063c1105f2bf96266aef1ff68c6e13bdda7a54e37bf19c16f1db24efc83"
"""SHA-256 of the 70 000 images' bytes and the labels' after them, training images first."""

CBCL = store.RemoteFile(
    "cbcl/CBCL.mat",
    source="the data sets of the NMF book's code, gitlab.com/ngillis/nmfbook",
    sha256="96c6356a2e99f65ce2194f3ce20a97f619ac89bdaf1c102ceaa74f2f742cfc1d",
    url="https://gitlab.com/ngillis/nmfbook/-/raw/master/data%20sets/CBCL.mat",
)


def digits() -> NDArray[np.float64]:
    """The 1797 digits of 8×8 pixels, values 0 to 16, that come with scikit-learn; 49 % zeros.

    >>> from relunmd import datasets
    >>> datasets.digits().shape
    (1797, 64)
    """
    from sklearn.datasets import load_digits

    X: NDArray[np.float64] = load_digits().data
    return X


def mnist(
    per_digit: int | None = None, every: int = 1, data: Folder = None, download: bool = True
) -> NDArray[np.uint8]:
    """Training images of MNIST, 28×28 pixels a row, values 0 to 255; 81 % zeros.

    Parameters
    ----------
    per_digit : how many of each digit, the digits then in order; all 60 000 in the file's order if None
    every : take every so-manieth image of a digit
    data : folder to look in first
    download : fetch it from OpenML through scikit-learn when it is in no folder

    Returns
    -------
    uint8 array of shape (10·per_digit, 784)
        The paper's 500 images are ``mnist(50, every=10)``, its 50 000 ``mnist(5000)``.
    """
    if every < 1 or (per_digit is not None and per_digit < 1):
        raise InputError(f"per_digit and every must be at least 1. Got {per_digit!r} and {every!r}.")
    images, labels = _mnist(data, download)
    if per_digit is None:
        return images[::every]
    chosen = [np.flatnonzero(labels == digit)[: per_digit * every : every] for digit in range(10)]
    fewest = min(len(places) for places in chosen)
    if fewest < per_digit:
        raise InputError(
            f"per_digit={per_digit!r} with every={every!r} asks for more than there are: "
            f"of the rarest digit {np.bincount(labels).min()} images, so {fewest} of them."
        )
    return images[np.concatenate(chosen)]


def cbcl(data: Folder = None, download: bool = True) -> NDArray[np.float64]:
    """The 2429 training faces of CBCL, one a column of 19×19 pixels in column-major order; no zeros.

    Returns an array of shape (361, 2429) with values in (0, 1].
    """
    X = read_mat(store.get(CBCL, data, download), "X")
    if X.shape != (361, 2429):
        raise DatasetError(f"{CBCL.path} must hold X of shape (361, 2429). Got {X.shape}.")
    return np.ascontiguousarray(X, dtype=np.float64)


def read_mat(path: Path, name: str) -> Any:
    """A variable of a MATLAB file."""
    try:
        return read_variable(path, name)
    except Exception as reason:  # A damaged file makes the reader raise all sorts of things.
        raise DatasetError(
            f"{path} must be a MATLAB file with a variable {name}. Reading it gave: {reason}"
        ) from reason


def _mnist(data: Folder, download: bool) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The training images and their labels, both from the same folder."""
    for folder in store.folders(data):
        found = [store.find_in(folder, path) or store.find_in(folder, path[:-3]) for path in (_IMAGES, _LABELS)]
        if found[0] is not None and found[1] is not None:
            return _checked(_read_idx(found[0]), _read_idx(found[1]), str(found[0]))
        kept = store.find_in(folder, _OPENML)
        if kept is not None:
            return _read_kept(kept)
    return _fetch_mnist(data, download)


def _checked(
    pictures: NDArray[np.uint8], labels: NDArray[np.uint8], place: str
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The first 60 000, the training images, one a row."""
    if pictures.shape not in ((len(labels), 28, 28), (len(labels), 784)) or labels.ndim != 1:
        raise DatasetError(
            f"{place} must hold MNIST, n images of 28×28, with n labels beside it. Got {pictures.shape} and "
            f"{labels.shape}."
        )
    return pictures.reshape(len(labels), 784)[:60000], labels[:60000]


def _read_kept(place: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    try:
        with np.load(place, allow_pickle=False) as arrays:
            pictures, labels = arrays["images"], arrays["labels"]
    except Exception as reason:  # A damaged archive makes the reader raise all sorts of things.
        raise DatasetError(f"{place} is damaged ({reason}). Delete it, and it will be fetched again.") from reason
    return _checked(pictures, labels, str(place))


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes from an IDX file."""
    try:
        found = read_idx(path, Bounds(path, path.stat().st_size))
        if found.dtype != np.uint8:
            raise ValueError(f"numbers of type {found.dtype}")
    except Exception as reason:  # A damaged file makes the decompression raise all sorts of things.
        raise DatasetError(
            f"{path} must be an IDX file of bytes, as MNIST comes. Reading it gave: {reason}"
        ) from reason
    return found


def _fetch_mnist(data: Folder, download: bool) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    how = (
        f"Put MNIST's original files into a folder as {_IMAGES} and {_LABELS}, and name that folder in "
        f"{store.VARIABLE} (or as `data`); or let scikit-learn's fetch_openml get mnist_784 where there is a network."
    )
    looked = ", ".join(str(folder) for folder in store.folders(data))
    if not download:
        raise DatasetError(f"MNIST is in none of {looked}. {how}")
    from sklearn.datasets import fetch_openml

    log.info("Fetching mnist_784 from OpenML")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of its retries; what counts is said below.
            table, labels = fetch_openml(
                "mnist_784",
                version=1,
                return_X_y=True,
                as_frame=False,
                parser="liac-arff",
                data_home=store.cache_folder(),
            )
    except Exception as reason:
        raise DatasetError(f"MNIST is in none of {looked} and OpenML did not give it ({reason}). {how}") from reason
    pictures, digits_shown = np.ascontiguousarray(table, dtype=np.uint8), np.asarray(labels, dtype=np.uint8)
    found = hashlib.sha256(pictures.tobytes() + digits_shown.tobytes()).hexdigest()
    if found != _CONTENT:
        raise DatasetError(f"What OpenML gave as mnist_784 has SHA-256 {found} and not {_CONTENT}. {how}")
    place = store.cache_folder() / _OPENML
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_beside(place, lambda out: np.savez(out, images=pictures, labels=digits_shown))
    except OSError as reason:
        log.warning("MNIST was fetched but could not be kept in %s: %s", place, reason)
    return _checked(pictures, digits_shown, "OpenML")
