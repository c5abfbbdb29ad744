"""Small helpers for every layer: optional packages, and text that is safe to print."""

import re
import unicodedata
from importlib import import_module
from typing import Any

from relunmd.errors import MissingDependencyError

__all__ = ["library_of", "need", "printable"]

_PACKAGES = {"PIL": "Pillow"}
_BIDI = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
"""Characters that reverse the direction of text, so that one name looks like another."""


def need(module: str, what: str, extra: str) -> Any:
    """Import an optional module.

    Parameters
    ----------
    module : str
        The module, such as ``"pyarrow.parquet"``.
    what : str
        The beginning of the error message: what needs the module.
    extra : str
        The extra of relunmd that installs it.

    Returns
    -------
    module

    Raises
    ------
    MissingDependencyError
        If the package is not installed.

    Examples
    --------
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
    """Return the name of the package that defines the class of X, without importing that package.

    >>> library_of(3)
    'builtins'
    """
    return type(X).__module__.partition(".")[0]


def printable(text: object) -> str:
    r"""Return text in one line, with control characters escaped.

    File names and messages from files may hold sequences that a terminal or a page would obey.

    >>> printable("a\nb \x1b[2J.npy")
    'a b \\x1b[2J.npy'
    """
    line = re.sub(r"[\t\r\n]+", " ", str(text))
    return "".join(
        ascii(char)[1:-1] if char in _BIDI or unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") else char
        for char in line
    )
