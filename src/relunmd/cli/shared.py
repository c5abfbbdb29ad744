"""What all commands share: messages on the terminal, options, and checks of input and output paths."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from relunmd._util import printable
from relunmd.errors import FileError, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from relunmd.io.readers import Opened
    from relunmd.result import Decomposition

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
ALL_CORES = -1
"""The library's `n_jobs` if --threads is not given."""
_LONGEST_LINE = 2000
_RENAMED = {"image_shape": "images", "n_jobs": "threads", "n_starts": "starts", "random_state": "seed"}
_ARGUMENTS = "|".join([*_RENAMED, "checkpoint_every", "column_names", "max_iter", "max_time", "target_error"])
"""Arguments of the library whose names differ from the options."""

Command = TypeVar("Command", bound=Callable[..., Any])

force_option = click.option("--force", is_flag=True, help="Overwrite the output if it exists.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print nothing but warnings and errors.")
sparse_option = click.option("--sparse", is_flag=True, help="Store only nonzeros: .npz, .mtx, .mat, .h5 or .zarr.")
threads_option = click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="Number of threads; all cores by default."
)


def matrix_options(command: Command) -> Command:
    """Add the options that say how a matrix file is read."""
    names = click.option(
        "--names",
        type=click.Choice(["none", "columns", "rows", "both"]),
        help="In a text table: what the first line and column name; detected by default.",
    )
    return click.option("--array", metavar="NAME", help="Which array, if the file holds several.")(names(command))


def echo(message: str = "", err: bool = False) -> None:
    """Print a message with control characters escaped, since file names may contain them."""
    click.echo(printable(message), err=err)


def echo_json(facts: dict[str, Any]) -> None:
    """Print facts as one line of JSON."""
    import json

    echo(json.dumps(facts))


def model_facts(d: "Decomposition") -> dict[str, Any]:
    """Return what `fit --json` and `info` print about a model."""
    return {
        "shape": list(d.shape),
        "rank": d.rank,
        "dtype": str(d.W.dtype),
        "algorithm": d.algorithm,
        "init": d.init,
        "error": d.error,
        "iterations": d.n_iter,
        "seconds": d.time,
        "status": d.status.name,
        "message": one_line(d.message),
    }


def one_line(message: str) -> str:
    r"""Return a message of the library as one line, with options instead of arguments and control characters escaped.

    >>> one_line("max_iter must be\n an integer; got \x1b[2J.")
    '--max-iter must be an integer; got \\x1b[2J.'
    """
    line = re.sub(r"\s*[\r\n\t]\s*", " ", message.strip())

    def option(found: re.Match[str]) -> str:
        return f"--{_RENAMED.get(found[0], found[0].replace('_', '-'))}"

    line = re.sub(rf"(?<![\w/\\.-])({_ARGUMENTS})(?![\w/\\-]|\.\w)", option, line)  # Not within a path.
    line = re.sub(
        r"^(rank|tol|dtype|init|checkpoint|ridge|names|algorithms|ranks|starts|seed) must", r"--\1 must", line
    )
    line = printable(line.replace("array=NAME", "--array NAME").replace("names=KIND", "--names"))
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …"


def console() -> "Console":
    """Return the console for progress: stderr, since stdout is for results."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


@contextmanager
def working(what: str, quiet: bool) -> Iterator[None]:
    """Show a spinner on stderr if it is a terminal."""
    shown = None if quiet else console()
    if shown is None or not shown.is_terminal or shown.is_dumb_terminal:
        yield
        return
    from rich.text import Text

    with shown.status(Text(printable(what))):
        yield


def echo_note(opened: "Opened", path: str, quiet: bool) -> None:
    """Print which part of a file was left out."""
    if opened.entry.note and not quiet:
        how = {"text": "; set --names to change this", "columns": ""}
        hint = how.get(opened.entry.stored, "; set --array to choose another")
        echo(f"{path}: {one_line(opened.entry.note)}{hint}.", err=True)


def check_input(path: str) -> None:
    """Raise FileError if a file does not exist."""
    if path not in ("-", "/dev/stdin") and not Path(path).exists():
        raise FileError(f"{path} does not exist.")


def check_output(output: str, force: bool, *inputs: str) -> Path:
    """Return the path of a file that may be written; raise before any work if it may not."""
    from relunmd.io.atomic import check_path
    from relunmd.io.readers.zarr_stores import is_zarr

    place = check_path("The output", output)
    for given in inputs:
        read = Path(given).resolve()
        if place.resolve() == read or place.resolve() in read.parents:
            raise InputError(f"The output must differ from {given} and from the folders that contain it; got {output}.")
    if not place.parent.is_dir():
        raise InputError(f"The output must be in an existing folder; got {place}.")
    if not os.access(place.parent, os.W_OK):
        raise InputError(f"The output must be in a writable folder; got {place}.")
    if place.is_dir() and not (is_zarr(place) and place.name.lower().endswith(".zarr")):
        raise InputError(f"The output must be a file; got {output}, which is a folder.")
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise InputError(f"The output must be a file; got {output}, which is a device or a pipe.")
    if place.exists() and not force:
        raise FileError(f"{output} already exists; use --force to overwrite it.")
    return place
