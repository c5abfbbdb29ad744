"""The library's own exceptions, so that a caller can tell our refusals from a bug."""

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
    """Base class of every exception that relunmd raises on purpose."""


class InputError(RelunmdError, ValueError):
    """An argument cannot be used; the message names it, what it must be and what was given."""


class InsufficientMemoryError(RelunmdError, MemoryError):
    """The computation would need more memory than there is; nothing has been allocated yet."""


class MissingDependencyError(RelunmdError, ImportError):
    """An optional package is needed for this; the message says how to install it."""


class DatasetError(RelunmdError, FileNotFoundError):
    """A data set is not there and could not be fetched, or is not what it should be; the message says how to get it."""


class FileError(RelunmdError, OSError):
    """A file is not there, is not what it should be, or cannot be read or written; the message says which and why."""


class ClusterError(RelunmdError, RuntimeError):
    """A cluster, or all of its workers, are gone; the message says what to do."""
