"""The exceptions of the library."""

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
    """An argument cannot be used; the message names it, what it must be and what was received."""


class InsufficientMemoryError(RelunmdError, MemoryError):
    """The computation needs more memory than is available; nothing has been allocated yet."""


class MissingDependencyError(RelunmdError, ImportError):
    """An optional package is needed for this; the message says how to install it."""


class DatasetError(RelunmdError, FileNotFoundError):
    """A data set is missing and cannot be downloaded, or is damaged; the message says how to get it."""


class FileError(RelunmdError, OSError):
    """A file does not exist, is damaged or of another kind, or cannot be read or written."""


class ClusterError(RelunmdError, RuntimeError):
    """A cluster or all of its workers were lost; the message says what to do."""
