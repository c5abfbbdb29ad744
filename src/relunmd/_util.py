"""Packages that few need: imported when they are, and if they are not there, said how to get them."""

from importlib import import_module
from typing import Any

from relunmd.errors import MissingDependencyError

__all__ = ["library_of", "need"]

_PACKAGES = {"PIL": "Pillow"}


def need(module: str, what: str, extra: str) -> Any:
    """An optional module; MissingDependencyError with what needs it and the extra that brings it.

    >>> need("no_such_module", "Stars need", "sky")
    Traceback (most recent call last):
    relunmd.errors.MissingDependencyError: Stars need no_such_module: pip install 'relunmd[sky]'.
    """
    top = module.partition(".")[0]
    try:
        import_module(top)
        return import_module(module)
    except ImportError as reason:
        raise MissingDependencyError(f"{what} {_PACKAGES.get(top, top)}: pip install 'relunmd[{extra}]'.") from reason


def library_of(X: object) -> str:
    """The package that X's class is from, which need not be installed for the question.

    >>> library_of(3)
    'builtins'
    """
    return type(X).__module__.partition(".")[0]
