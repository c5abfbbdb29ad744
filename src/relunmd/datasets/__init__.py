"""Matrices to try things on: made by formula, shipped with scikit-learn, or real data kept in files.

Files are looked for in the folder given as `data`, in the one named by RELUNMD_DATA, and in the
cache; what is in none of them is downloaded into the cache, where its source is known, and checked
against its hash. `load(name)` gets any of the real ones by name, `LOADERS` lists them.
"""

from collections.abc import Callable
from typing import Any

from relunmd.datasets import image_sets, store, text_sets
from relunmd.datasets.generated import planted, synthetic
from relunmd.datasets.image_sets import cbcl, digits, mnist
from relunmd.datasets.text_sets import classic, kos, newsgroups
from relunmd.errors import InputError

__all__ = [
    "LOADERS",
    "cbcl",
    "classic",
    "digits",
    "kos",
    "load",
    "mnist",
    "newsgroups",
    "planted",
    "synthetic",
    "where",
]

LOADERS: dict[str, Callable[..., Any]] = {
    "digits": digits,
    "mnist": mnist,
    "cbcl": cbcl,
    "kos": kos,
    "classic": classic,
    "20newsgroups": newsgroups,
}
"""The real data sets by name."""

_FILES = {
    "mnist": image_sets.MNIST_FILES,
    "cbcl": (image_sets.CBCL.path,),
    "kos": (text_sets.KOS.path,),
    "classic": (text_sets.CLASSIC.path,),
    "20newsgroups": (text_sets.NEWSGROUPS.path,),
}


def load(name: str, **options: Any) -> Any:
    """The data set of that name, as its own function returns it: an array, or a csr_array of counts.

    >>> from relunmd import datasets
    >>> datasets.load("digits").shape
    (1797, 64)
    """
    _check_name(name)
    return LOADERS[name](**options)


def where(name: str) -> str | None:
    """Where the data set of that name is found on this machine; None if it is not.

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
        raise InputError(f"name must be one of {', '.join(LOADERS)}. Got {name!r}.")
