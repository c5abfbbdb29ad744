"""What all commands share: examples in the help, options, messages, and checks of input and output paths."""

import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
POSITIVE = click.FloatRange(0, min_open=True)
_LONGEST_LINE = 2000
_RENAMED = {
    "image_shape": "images",
    "missing_values=np.nan": "missing nan",
    "n_jobs": "threads",
    "n_starts": "starts",
    "random_state": "seed",
}
_SAME_NAMES = ("checkpoint_every", "column_names", "max_iter", "max_time", "target_error")
_ARGUMENTS = "|".join([*_RENAMED, *_SAME_NAMES])
"""Arguments of the library whose names differ from the options."""


class ExampleCommand(click.Command):
    """A command whose help shows the section "Examples" of the docstring below the options."""

    def __init__(self, name: str | None, help: str | None = None, **options: Any) -> None:  # noqa: A002
        text, _, examples = inspect.cleandoc(help or "").partition("Examples\n--------\n")
        super().__init__(name, help=text, **options)
        if examples:  # click keeps the lines of a paragraph after \b.
            self.epilog = f"\b\nExamples:\n{examples}".replace("\n\n", "\n\n\b\n")


def given(option: str) -> Any:
    """Return the value of one of `_OPTIONS`, or None for a command that does not have it."""
    return click.get_current_context().meta.get(option)


def _keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    context.meta[str(option.name)] = value


def _existing(context: click.Context, argument: click.Parameter, path: str) -> str:
    if path not in ("-", "/dev/stdin") and not Path(path).exists():
        raise FileError(f"{path} does not exist.")
    return path


_option = partial(click.option, expose_value=False, callback=_keep)
_OPTIONS = {
    "array": _option("--array", metavar="NAME", help="Which array, if the file holds several."),
    "names": _option(
        "--names",
        type=click.Choice(["none", "columns", "rows", "both"]),
        help="In a text table: what the first line and column name; detected by default.",
    ),
    "sparse": _option("--sparse", is_flag=True, help="Store only nonzeros: .npz, .mtx, .mat, .h5 or .zarr."),
    "force": _option("--force", is_flag=True, help="Overwrite the output if it exists."),
    "json": _option("--json", is_flag=True, help="Print one JSON object on stdout."),
    "quiet": _option("--quiet", "-q", is_flag=True, help="Print nothing but warnings and errors."),
}
_COUNT = click.IntRange(1)
threads_option = click.option("--threads", type=_COUNT, metavar="N", help="Number of threads; all cores by default.")


def entry_options(command: Any) -> Any:
    """Add the options on missing, weighted and limited entries to a command; `entries` reads them."""
    for name, text in (
        ("upper", "Ceilings: of an entry from its limit on only that is known."),
        ("lower", "Limits of detection: of an entry up to its limit only that is known."),
    ):
        text += " A number, or a file with one for each column or entry."
        command = _option(f"--{name}", metavar="LIMIT|FILE", help=text)(command)
    weights = "A matrix of the shape of INPUT: how much each squared error counts."
    command = _option("--weights", metavar="FILE", type=click.Path(), help=weights)(command)
    mask = "A matrix of the shape of INPUT, nonzero where an entry is missing."
    command = _option("--mask", metavar="FILE", type=click.Path(), help=mask)(command)
    missing = "Which entries are missing: NaN and empty cells, or what a sparse matrix does not store."
    return _option("--missing", type=click.Choice(["nan", "unstored"]), help=missing)(command)


@contextmanager
def entries() -> Iterator[dict[str, Any]]:
    """Context manager: the options of `entry_options` as arguments of `decompose`, with their files open."""
    import numpy as np

    from relunmd.io.readers import open_matrix

    missing = given("missing")
    found: dict[str, Any] = {} if missing is None else {"missing_values": np.nan if missing == "nan" else missing}
    with ExitStack() as stack:
        for name in ("mask", "weights"):
            if given(name) is not None:
                found[name] = stack.enter_context(open_matrix(_existing_file(name, given(name)))).X
        found |= {name: limit(name, given(name)) for name in ("lower", "upper") if given(name) is not None}
        yield found


def limit(name: str, value: str | None) -> Any:
    """Return a limit that is given as a number or as a file."""
    import numpy as np

    from relunmd.io.readers import open_matrix

    if value is None:
        return None
    with suppress(ValueError):
        return float(value)
    with open_matrix(_existing_file(name, value)) as found:
        A = found.X.toarray() if hasattr(found.X, "toarray") else np.asarray(found.X[...])
    return A.ravel() if 1 in A.shape else A


def _existing_file(name: str, path: str) -> str:
    if not Path(path).exists():
        raise FileError(f"--{name}: {path} does not exist.")
    return path


input_argument = partial(click.argument, type=click.Path(), callback=_existing)


def options(*names: str) -> Callable[[Any], Any]:
    """Return a decorator that adds some of `_OPTIONS` to a command, in this order; `given` returns their values."""
    return lambda command: reduce(lambda decorated, name: _OPTIONS[name](decorated), reversed(names), command)


def echo(message: str = "", err: bool = False) -> None:
    """Print a message with control characters escaped, since file names may contain them."""
    click.echo(printable(message), err=err)


def say(message: str, err: bool = False) -> None:
    """Print a message unless --quiet is given."""
    if not given("quiet"):
        echo(message, err)


def report(facts: dict[str, Any], *lines: str) -> None:
    """Print facts as one line of JSON if --json is given, else lines of text."""
    if given("json"):
        echo(json.dumps(facts))
    else:
        for line in lines:
            say(line)


def model_facts(d: "Decomposition") -> dict[str, Any]:
    """Return what `fit --json` and `info` print about a model."""
    facts = {"shape": list(d.shape), "rank": d.rank, "dtype": str(d.W.dtype), "algorithm": d.algorithm}
    facts |= {"init": d.init, "error": d.error, "iterations": d.n_iter, "seconds": d.time}
    return facts | {"status": d.status.name, "message": one_line(d.message)}


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
        r"^(rank|tol|dtype|init|checkpoint|ridge|ridges|names|algorithms|ranks|share|rule|starts|seed) must",
        r"--\1 must",
        line,
    )
    line = printable(line.replace("array=NAME", "--array NAME").replace("names=KIND", "--names"))
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …"


def console() -> "Console":
    """Return the console for progress: stderr, since stdout is for results."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner on stderr if it is a terminal, unless --quiet is given."""
    from rich.text import Text

    with ExitStack() as stack:
        shown = console()
        if shown.is_terminal and not shown.is_dumb_terminal and not given("quiet"):
            stack.enter_context(shown.status(Text(printable(what))))
        yield


@contextmanager
def opened(path: str) -> Iterator["Opened"]:
    """Open a matrix file with --array and --names, and print which part of it was left out."""
    from relunmd.io.readers import open_matrix

    with ExitStack() as stack:
        with working(f"opening {one_line(path)}"):
            found = stack.enter_context(open_matrix(path, given("array"), given("names")))
        if found.entry.note:
            how = {"text": "; set --names to change this", "columns": ""}
            hint = how.get(found.entry.stored, "; set --array to choose another")
            say(f"{path}: {one_line(found.entry.note)}{hint}.", err=True)
        yield found


def check_folder(output: str) -> Path:
    """Return the path of a folder that exists or can be created; raise otherwise."""
    from relunmd.io.atomic import check_path

    place = check_path("The output", output)
    if place.exists() and not place.is_dir():
        raise InputError(f"The output must be a folder; got {output}, which is a file.")
    try:
        place.mkdir(exist_ok=True)
    except OSError as reason:
        raise InputError(
            f"The output must be a folder in an existing folder that is writable; got {place}."
        ) from reason
    return place


def check_output(output: str, *inputs: str, force: bool = False) -> Path:
    """Return the path of a file that may be written, with --force or `force` also one that exists; raise otherwise."""
    from relunmd.io.atomic import check_path
    from relunmd.io.readers.zarr_stores import is_zarr

    place = check_path("The output", output)
    for path in inputs:
        if place.resolve() in (Path(path).resolve(), *Path(path).resolve().parents):
            raise InputError(f"The output must differ from {path} and from the folders that contain it; got {output}.")
    if not (place.parent.is_dir() and os.access(place.parent, os.W_OK)):
        raise InputError(f"The output must be in an existing folder that is writable; got {place}.")
    store = is_zarr(place) and place.name.lower().endswith(".zarr")
    if place.exists() and not (place.is_file() or store):
        kind = "folder" if place.is_dir() else "device or a pipe"
        raise InputError(f"The output must be a file; got {output}, which is a {kind}.")
    if place.exists() and not (force or given("force")):
        raise FileError(f"{output} already exists; use --force to overwrite it.")
    return place
