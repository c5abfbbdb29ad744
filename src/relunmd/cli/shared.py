"""What all commands share: errors as one sentence and an exit code, warnings, options, files that may be written."""

import errno
import io
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from relunmd._util import printable
from relunmd.errors import FileError, InputError, RelunmdError

if TYPE_CHECKING:
    from rich.console import Console

    from relunmd.io.readers import Opened

__all__ = [
    "Commands",
    "Presses",
    "Survivor",
    "check_input",
    "check_output",
    "console",
    "echo",
    "failed",
    "force_option",
    "json_option",
    "matrix_options",
    "quiet_option",
    "spoken",
    "tell_note",
    "threads_option",
    "working",
]

INTERRUPTED = 130
ALL_CORES = -1
"""The library's `n_jobs` where --threads is not given."""
_REFUSED = 2
_LONGEST = 2000
_PATIENCE = 10.0
"""Seconds after which a run that has not reacted to Ctrl-C can be ended by another."""
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""Windows has none."""

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = {
    "checkpoint_every": "--checkpoint-every",
    "column_names": "--column-names",
    "image_shape": "--images",
    "max_iter": "--max-iter",
    "max_time": "--max-time",
    "n_jobs": "--threads",
    "n_starts": "--starts",
    "random_state": "--seed",
    "target_error": "--target-error",
}


class Commands(click.Group):
    """Our refusals and Ctrl-C, in every command: a sentence on stderr, and an exit code."""

    def main(self, *args: Any, **options: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, ValueError):
                stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        return super().main(*args, **options)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _visible_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _visible_errors(), _told_to_end(), _warnings_told():
                return super().invoke(ctx)
        except RelunmdError as reason:
            raise _Refused(spoken(str(reason))) from reason
        except KeyboardInterrupt:
            echo("Interrupted; nothing was written.", err=True)
            ctx.exit(INTERRUPTED)
        except MemoryError as reason:
            raise _Refused("There is too little memory for this.") from reason
        except BrokenPipeError:
            raise
        except OSError as reason:
            raise _Refused(spoken(str(reason))) from reason


class _Refused(click.ClickException):
    exit_code = _REFUSED


class _Failed(click.ClickException):
    exit_code = 1


def failed(message: str) -> click.ClickException:
    """For a run that had something to save and could not: the message and exit code 1."""
    return _Failed(spoken(message))


@contextmanager
def _visible_errors() -> Iterator[None]:
    """What click says of arguments, which it quotes as they are."""
    try:
        yield
    except click.ClickException as reason:
        reason.message = printable(reason.message)  # type: ignore[misc]
        raise


class Survivor(io.RawIOBase):
    """Takes the place of stdout or stderr. What cannot be written (a closed pipe, a full disk) is dropped.

    Nothing that only talks about a run may end it. `lost` is the last reason why something was dropped.
    """

    def __init__(self, raw: Any) -> None:
        self.lost: OSError | None = None
        self._raw = raw

    @classmethod
    def replace(cls, name: str) -> "Survivor | None":
        """Replace sys.stdout or sys.stderr; None if it is closed or not a file."""
        stream = getattr(sys, name)
        buffer = getattr(stream, "buffer", None)
        if buffer is None:
            return None
        survivor = cls(getattr(buffer, "raw", buffer))  # With python -u there is no buffer.
        setattr(
            sys,
            name,
            io.TextIOWrapper(
                io.BufferedWriter(survivor),
                encoding=stream.encoding,
                errors="replace",
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            ),
        )
        return survivor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        return bool(self._raw.isatty())

    def write(self, data: Any) -> int:
        try:
            written = self._raw.write(data)
            if written is None:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        except OSError as reason:
            self.lost = reason
            return len(data)
        return int(written)


def echo(message: str = "", err: bool = False) -> None:
    """Print a message, with nothing in it that a terminal obeys: file names may hold anything."""
    click.echo(printable(message), err=err)


def spoken(message: str) -> str:
    r"""A message of the library as one line for the terminal: options for arguments, nothing that a terminal obeys.

    >>> spoken("max_iter must be\n an integer. Got \x1b[2J.")
    '--max-iter must be an integer. Got \\x1b[2J.'
    """
    line = re.sub(r"\s*[\r\n\t]\s*", " ", message.strip())
    # Not within a path.
    line = re.sub(rf"(?<![\w/\\.-])({'|'.join(_OPTIONS)})(?![\w/\\-]|\.\w)", lambda found: _OPTIONS[found[0]], line)
    line = re.sub(
        r"^(rank|tol|dtype|init|checkpoint|ridge|names|algorithms|ranks|starts|seed) must", r"--\1 must", line
    )
    line = printable(line.replace("array=NAME", "--array NAME").replace("names=KIND", "--names"))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


class _Told(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        word = "Warning: " if record.levelno >= logging.WARNING else ""
        # Not by click.echo, which would write past the progress display that has taken stderr's place.
        with suppress(AttributeError, OSError, ValueError):  # It is None, cannot be written or is closed: not an error.
            sys.stderr.write(f"{word}{spoken(record.getMessage())}\n")


@contextmanager
def _warnings_told() -> Iterator[None]:
    """What the library logs as a warning is said on stderr."""
    log, handler = logging.getLogger("relunmd"), _Told(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def _told_to_end() -> Iterator[None]:
    """SIGTERM, by which batch systems end a job, and SIGHUP, by which a terminal that closes does, count as Ctrl-C.

    Under nohup SIGHUP is ignored and stays so.
    """

    def end(*_: object) -> None:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.raise_signal(signal.SIGINT)
        elif _run:  # In a shell's background nobody hears that.
            _run[-1](signal.SIGTERM, None)
        else:
            raise KeyboardInterrupt

    numbers = [signal.SIGTERM]
    if _HANGUP is not None and signal.getsignal(_HANGUP) is not signal.SIG_IGN:
        numbers.append(_HANGUP)
    try:
        before = {number: signal.signal(number, end) for number in numbers}
    except ValueError:  # Not the main thread.
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is end:
                signal.signal(number, handler)


class Presses:
    """Ctrl-C in a run: raised while there is nothing to save, and noted from then on.

    While X is looked at, the library handles the first one itself; this is for the time between, for further ones and
    for saving. However often it is pressed, what there is is saved, and saving is not cut short. A run that has not
    come to saving `_PATIENCE` seconds after a Ctrl-C is interrupted wherever it is by the next one: what it waits for
    (a disk that does not answer) may never come. SIGQUIT ends it at any time, saving nothing.
    """

    deferrable = True
    last_of_process = False
    """Whether the process ends with the command."""

    def __init__(self) -> None:
        self.something_to_save = self.heard = self.saving = False
        self._first = 0.0

    def __call__(self, number: int, frame: object) -> None:
        if not self.something_to_save:
            raise KeyboardInterrupt
        if not self.heard:
            self.heard, self._first = True, time.monotonic()
        elif not self.saving and time.monotonic() - self._first > _PATIENCE:
            raise KeyboardInterrupt

    def __enter__(self) -> "Presses":
        _run.append(self)
        self._before: Any = None
        with suppress(ValueError):  # Not the main thread.
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before = signal.signal(signal.SIGINT, self)
        return self

    def __exit__(self, *failure: object) -> None:
        _run.remove(self)
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self.heard and self.last_of_process:  # The rest takes moments, and is not to be ended in the middle.
            for number in (signal.SIGINT, signal.SIGTERM, *([] if _HANGUP is None else [_HANGUP])):
                signal.signal(number, signal.SIG_IGN)


_run: list[Presses] = []
"""That of the run that is going on."""


@contextmanager
def working(what: str, quiet: bool) -> Iterator[None]:
    """Says on a terminal, and only there, that something is going on."""
    shown = None if quiet else console()
    if shown is None or not shown.is_terminal or shown.is_dumb_terminal:
        yield
        return
    from rich.text import Text

    with shown.status(Text(printable(what))):
        yield


def console() -> "Console":
    """The terminal that progress is shown on: stderr, since stdout is for results."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def check_input(path: str) -> None:
    """Whether there is a file, which is asked before anything else."""
    if path not in ("-", "/dev/stdin") and not Path(path).exists():
        raise FileError(f"There is no file {path}.")


def tell_note(opened: "Opened", path: str, quiet: bool) -> None:
    """Say what of a file was left out."""
    if opened.entry.note and not quiet:
        how = {"text": "; --names tells otherwise", "columns": ""}.get(opened.entry.stored, "; --array takes another")
        echo(f"{path}: {spoken(opened.entry.note)}{how}.", err=True)


def check_output(output: str, force: bool, *inputs: str) -> Path:
    """The path of a file that may be written, found out before any work."""
    from relunmd.io.atomic import check_path
    from relunmd.io.readers.zarr_stores import is_zarr

    place = check_path("The output", output)
    for given in inputs:
        read = Path(given).resolve()
        if place.resolve() == read or place.resolve() in read.parents:
            raise InputError(f"The output must be another file than {given}, and not a folder that it is in.")
    if not place.parent.is_dir():
        raise InputError(f"The output must be in a folder that is there. Got {place}.")
    if not os.access(place.parent, os.W_OK):
        raise InputError(f"The output must be in a folder that can be written to. Got {place}.")
    if place.is_dir() and not (is_zarr(place) and place.name.lower().endswith(".zarr")):
        raise InputError(f"The output must be a file. Got {output}, which is a folder.")
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise InputError(f"The output must be a file. Got {output}, which is a device or a pipe.")
    if place.exists() and not force:
        raise FileError(f"{output} is there already; --force replaces it.")
    return place


def matrix_options(command: Command) -> Command:
    """How a matrix is read."""
    names = click.option(
        "--names",
        type=click.Choice(["none", "columns", "rows", "both"]),
        help="In a text table: what the first line and column name; found out if not given.",
    )
    return click.option("--array", metavar="NAME", help="Which array, if the file holds several.")(names(command))


def force_option(command: Command) -> Command:
    return click.option("--force", is_flag=True, help="Overwrite the output if it exists.")(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of words.")(command)


def quiet_option(command: Command) -> Command:
    return click.option("--quiet", "-q", is_flag=True, help="Say nothing but warnings and errors.")(command)


def threads_option(command: Command) -> Command:
    kind = click.IntRange(min=1)
    return click.option("--threads", type=kind, metavar="N", help="Number of threads; all cores if not given.")(command)
