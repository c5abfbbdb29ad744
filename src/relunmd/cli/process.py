"""The command as a process: errors and signals become messages and exit codes, and broken output streams are tolerated.

Nothing that happens around a run may lose its result: Ctrl-C, SIGTERM and SIGHUP let the run save its best factors, and
output that cannot be written is dropped.
"""

import errno
import io
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import click

from relunmd._util import printable
from relunmd.cli.shared import INTERRUPTED, ExampleCommand, echo, one_line
from relunmd.errors import RelunmdError

_INSIST_AFTER = 10.0
"""Seconds after the first Ctrl-C from which another one ends a run that does not respond."""
_TERMINATIONS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals by which batch systems and closing terminals end a process. Windows has no SIGHUP."""


class CommandGroup(ExampleCommand, click.Group):
    """A group whose commands report the library's errors and Ctrl-C as one line on stderr and an exit code."""

    command_class = ExampleCommand
    group_class = click.Group

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _printable_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _printable_errors(), _terminations_as_ctrl_c(), _warnings_on_stderr():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            echo("Interrupted; nothing was written.", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            raise
        except (RelunmdError, OSError) as reason:
            raise _InvalidInput(one_line(str(reason))) from reason
        except MemoryError as reason:
            raise _InvalidInput("Not enough memory.") from reason


class _InvalidInput(click.ClickException):
    exit_code = 2


@contextmanager
def _printable_errors() -> Iterator[None]:
    """Escape control characters in the arguments that click quotes in its errors."""
    try:
        yield
    except click.ClickException as reason:
        reason.message = printable(reason.message)  # type: ignore[misc]
        raise


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # click.echo would write past the progress display, which replaces sys.stderr.
        with suppress(AttributeError, OSError, ValueError):  # sys.stderr is None, not writable or closed.
            sys.stderr.write(f"Warning: {one_line(record.getMessage())}\n")


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """Print the library's logged warnings to stderr."""
    log, handler = logging.getLogger("relunmd"), _StderrHandler(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def _terminations_as_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, unless they are ignored, as SIGHUP is under nohup."""

    def interrupt(*_: object) -> None:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.raise_signal(signal.SIGINT)
        elif InterruptHandler.active is not None:  # SIGINT is ignored in the background of a shell.
            InterruptHandler.active(signal.SIGTERM, None)
        else:
            raise KeyboardInterrupt

    caught = [number for number in _TERMINATIONS if signal.getsignal(number) is not signal.SIG_IGN]
    try:
        before = {number: signal.signal(number, interrupt) for number in caught}
    except ValueError:  # Not the main thread.
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is interrupt:
                signal.signal(number, handler)


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(package_name="relunmd", prog_name="relunmd", message="%(prog)s %(version)s")
def main() -> None:
    """ReLU nonlinear matrix decomposition: X ≈ max(0, WH) for a sparse nonnegative matrix X.

    Reads .npy, .npz, .mtx, .mat, .csv, .tsv, .parquet, .h5, .hdf5, .h5ad, .zarr, IDX, and folders of grayscale images.

    Examples
    --------
      relunmd data fetch digits -o digits.npy
      relunmd info digits.npy
      relunmd fit digits.npy --rank 16 --seed 0 -o model.npz
      relunmd transform model.npz digits.npy -o W.csv
      relunmd compare digits.npy --ranks 8,16 --max-time 1 -o digits-compared

    relunmd COMMAND --help describes a command, relunmd completion --help shell completion.
    """


class InterruptHandler:
    """Handle Ctrl-C during a run: raise while there is nothing to save, and only record it from then on.

    During a pass over X the library handles the first Ctrl-C itself. This handler covers the time between passes,
    further interrupts, and saving, which is never cut short. If a run has not begun to save `_INSIST_AFTER` seconds
    after the first Ctrl-C, the next one raises KeyboardInterrupt: the run may wait for a disk that never responds.
    SIGQUIT ends the process at any time and saves nothing.

    Attributes
    ----------
    can_save : bool
        Whether there are factors to save.
    interrupted : bool
        Whether Ctrl-C was pressed since then.
    saving : bool
        Whether the factors are being saved.
    """

    deferrable = True  # The executor defers this handler during a pass.
    ends_process = False
    """Whether the process ends with the command."""
    active: ClassVar["InterruptHandler | None"] = None

    def __init__(self) -> None:
        self.can_save = self.interrupted = self.saving = False
        self._first = 0.0

    def __call__(self, number: int, frame: object) -> None:
        if not self.can_save:
            raise KeyboardInterrupt
        if not self.interrupted:
            self.interrupted, self._first = True, time.monotonic()
        elif not self.saving and time.monotonic() - self._first > _INSIST_AFTER:
            raise KeyboardInterrupt

    def __enter__(self) -> "InterruptHandler":
        InterruptHandler.active = self
        self._before: Any = None
        with suppress(ValueError):  # Not the main thread.
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before = signal.signal(signal.SIGINT, self)
        return self

    def __exit__(self, *failure: object) -> None:
        InterruptHandler.active = None
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self.interrupted and self.ends_process:  # The process exits within moments; let it finish.
            for number in (signal.SIGINT, *_TERMINATIONS):
                signal.signal(number, signal.SIG_IGN)


class TolerantStream(io.FileIO):
    """Replace stdout or stderr by a stream that drops what cannot be written (closed pipe, full disk).

    Attributes
    ----------
    failure : OSError or None
        The last reason why output was dropped.
    """

    failure: OSError | None = None

    @classmethod
    def replace(cls, name: str) -> "TolerantStream | None":
        """Replace sys.stdout or sys.stderr. Return None if it is closed or not a file."""
        stream = getattr(sys, name)
        if getattr(stream, "buffer", None) is None:
            return None
        tolerant = cls(stream.fileno(), "w", closefd=False)
        flags = {flag: getattr(stream, flag) for flag in ("encoding", "line_buffering", "write_through")}
        setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(tolerant), errors="replace", **flags))
        return tolerant

    def write(self, data: Any) -> int:
        try:
            written: int | None = super().write(data)
            if written is None:  # A non-blocking pipe is full.
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        except OSError as reason:
            self.failure = reason
            return len(data)
        return written


def run() -> None:
    """Run the command and exit the process.

    Output to a closed pipe is dropped. If stdout fails for another reason, such as a full disk, the command still does
    all of its work, and the exit code is 1 instead of 0.
    """
    InterruptHandler.ends_process = True
    for number in range(3):  # Otherwise a matrix file could get the number of a standard stream that is closed.
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    stdout, _ = TolerantStream.replace("stdout"), TolerantStream.replace("stderr")
    try:
        main(prog_name="relunmd")
    except SystemExit as end:
        failure = None if stdout is None else stdout.failure
        if failure is None or isinstance(failure, BrokenPipeError) or end.code:
            raise
        echo(f"Error: stdout could not be written: {failure.strerror}.", err=True)
        sys.exit(1)
