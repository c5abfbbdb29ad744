"""Example matrices: generated, shipped with scikit-learn, or real data in files.

Files are searched for in the folder given as `data`, in the folder given by the environment variable RELUNMD_DATA, and
in the cache. A file that is in none of them is downloaded into the cache, if its source is known, and checked against
its hash. `load(name)` loads any of the real data sets by name; `LOADERS` lists them.
"""

from collections.abc import Callable
from typing import Any

from relunmd.datasets import image_sets, store, text_sets
from relunmd.datasets.generated import planted, synthetic
from relunmd.datasets.image_sets import cbcl, digits, mnist
from relunmd.datasets.text_sets import classic, kos, newsgroups
from relunmd.errors import InputError

__all__ = ["LOADERS", "cbcl", "classic", "digits", "kos", "load", "mnist", "newsgroups",
           "planted", "synthetic", "where"]  # fmt: skip

LOADERS: dict[str, Callable[..., Any]] = {load.__name__: load for load in (digits, mnist, cbcl, kos, classic)}
"""The real data sets by name."""
LOADERS["20newsgroups"] = newsgroups

_REMOTE = (image_sets.CBCL, text_sets.KOS, text_sets.CLASSIC, text_sets.NEWSGROUPS)
_FILES = {"mnist": image_sets.MNIST_FILES} | {file.path.partition("/")[0]: (file.path,) for file in _REMOTE}


def load(name: str, **options: Any) -> Any:
    """Load a real data set by name.

    Parameters
    ----------
    name : str
        One of the keys of `LOADERS`.
    **options : object
        Arguments of its own function, such as `data` and `download`.

    Returns
    -------
    ndarray or csr_array
        The matrix, as its own function returns it.

    Examples
    --------
    >>> from relunmd import datasets
    >>> datasets.load("digits").shape
    (1797, 64)
    """
    _check_name(name)
    return LOADERS[name](**options)


def where(name: str) -> str | None:
    """Return where a data set is on this machine.

    Parameters
    ----------
    name : str
        One of the keys of `LOADERS`.

    Returns
    -------
    str or None
        The path of its file; None if it must be downloaded.

    Examples
    --------
    >>> from relunmd import datasets
    >>> datasets.where("digits")
    'comes with scikit-learn'
    """
    _check_name(name)
    if name not in _FILES:
        return "comes with scikit-learn"
    return next((str(place) for path in _FILES[name] if (place := store.find(path)) is not None), None)


def _check_name(name: str) -> None:
    if name not in LOADERS:
        raise InputError(f"name must be one of {', '.join(LOADERS)}; got {name!r}.")
