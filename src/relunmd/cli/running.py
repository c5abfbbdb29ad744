"""What all commands share: errors as one sentence and an exit code, warnings, options, files that may be written."""

import logging
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from relunmd.errors import FileError, InputError, RelunmdError

if TYPE_CHECKING:
    from rich.console import Console

    from relunmd.readers import Opened

__all__ = [
    "Commands",
    "Presses",
    "check_input",
    "check_output",
    "console",
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
_REFUSED = 2
_LONGEST = 2000

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

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _told_to_end(), _warnings_told():
                return super().invoke(ctx)
        except RelunmdError as reason:
            raise _Refused(spoken(str(reason))) from reason
        except KeyboardInterrupt:
            click.echo("Interrupted; nothing was written.", err=True)
            ctx.exit(INTERRUPTED)
        except MemoryError as reason:
            raise _Refused("There is too little memory for this.") from reason
        except BrokenPipeError:
            raise
        except OSError as reason:
            raise _Refused(spoken(str(reason))) from reason


class _Refused(click.ClickException):
    exit_code = _REFUSED


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
    line = line.replace("array=NAME", "--array NAME").replace("names=KIND", "--names")
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


class _Told(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        word = "Warning: " if record.levelno >= logging.WARNING else ""
        # Not by click.echo, which would write past the progress display that has taken stderr's place.
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
    """SIGTERM, by which batch systems end a job, is taken as Ctrl-C: what there is is saved."""

    def end(*_: object) -> None:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.raise_signal(signal.SIGINT)
        elif _run:  # In a shell's background nobody hears that.
            _run[-1](signal.SIGTERM, None)
        else:
            raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # Not the main thread.
        yield
        return
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, before)


class Presses:
    """Ctrl-C in a run: raised while there is nothing to save, and noted from then on, however often it is pressed.

    While X is looked at, the library listens itself; this is for the time between, and for that of saving.
    """

    deferrable = True
    last_of_process = False
    """Whether the process ends with the command."""

    def __init__(self) -> None:
        self.something_to_save = self.heard = False

    def __call__(self, number: int, frame: object) -> None:
        if not self.something_to_save:
            raise KeyboardInterrupt
        self.heard = True

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
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


_run: list[Presses] = []
"""That of the run that is going on."""


@contextmanager
def working(what: str, quiet: bool) -> Iterator[None]:
    """Says on a terminal, and only there, that something is going on."""
    shown = None if quiet else console()
    if shown is None or not shown.is_terminal or shown.is_dumb_terminal:
        yield
        return
    with shown.status(what):
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
        click.echo(f"{path}: {spoken(opened.entry.note)}{how}.", err=True)


def check_output(output: str, force: bool, *inputs: str) -> Path:
    """The path of a file that may be written, found out before any work."""
    import os

    from relunmd.files import check_path
    from relunmd.readers.zarr_stores import is_zarr

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
