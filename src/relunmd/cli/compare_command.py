"""`relunmd compare` and `relunmd reproduce`: algorithms side by side, on one's own matrix and on the paper's."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from relunmd.cli import shared
from relunmd.errors import FileError, InputError
from relunmd.memory import human_bytes

if TYPE_CHECKING:
    from relunmd.comparison.plan_display import Display

__all__ = ["compare", "reproduce"]

_MOST_NAMES = 1 << 27
_output = click.option(
    "--output",
    "-o",
    required=True,
    metavar="FOLDER",
    type=click.Path(),
    help="For the page and all else; resumed from.",
)


def _experiments(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from relunmd.experiments import EXPERIMENTS

    return [CompletionItem(name) for name in (*EXPERIMENTS, "all") if name.startswith(incomplete)]


@click.command(
    epilog="""\b
Examples:
  relunmd compare digits.npy --ranks 8,16 --max-time 1 -o digits-compared
  relunmd compare digits.npy --ranks 8 --algorithms qn,3b --starts 2 --max-iter 100 -o two

\b
FOLDER then has report.html, one file that can be mailed; report.md; the runs in
comparison.csv and comparison.json; the pictures; and what the charts show in
points.csv. After Ctrl-C the same command goes on where it stopped.
Exit codes: 0; 2 for what cannot be used; 130 after Ctrl-C; 1 if an algorithm
failed at every rank."""
)
@click.argument("matrix", metavar="INPUT", type=click.Path())
@click.option("--ranks", "-r", required=True, metavar="R,R,…", help="Numbers of components, as 8,16,32.")
@_output
@click.option(
    "--algorithms",
    metavar="NAME,…",
    help="Of `relunmd algorithms`; all if not given. A truncated SVD and scikit-learn's NMF always take part.",
)
@click.option(
    "--max-time",
    type=click.FloatRange(0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="For each run, without its start.",
)
@click.option("--max-iter", type=click.IntRange(min=1), metavar="N", help="Iterations of each run at most.")
@click.option(
    "--starts",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="K",
    help="From K seeds; means are shown. With --init shifted these are much alike.",
)
@click.option(
    "--init", default="shifted", show_default=True, metavar="NAME", help="The start that all algorithms have in common."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Of the first start."
)
@click.option(
    "--images",
    default="auto",
    show_default=True,
    metavar="HxW|auto|none",
    help="Height and width if the rows are images, as 28x28; none if they are not; auto finds out.",
)
@click.option(
    "--column-names", metavar="FILE", type=click.Path(), help="A text file, one name a line: what components are of."
)
@shared.matrix_options
@shared.json_option
@shared.quiet_option
def compare(
    matrix: str,
    ranks: str,
    output: str,
    algorithms: str | None,
    max_time: float,
    max_iter: int | None,
    starts: int,
    init: str,
    seed: int,
    images: str,
    column_names: str | None,
    array: str | None,
    names: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare algorithms on INPUT at several ranks, and make a page of it.

    Each has the same start, is timed alone, and is scored by the same relative error.
    """
    shared.check_input(matrix)
    chosen_ranks, shape = _ranks(ranks), _image_shape(images)
    chosen = None if algorithms is None else [name.strip() for name in algorithms.split(",") if name.strip()]
    labels = None if column_names is None else _lines(column_names)
    from relunmd.comparison import compare as compare_matrix
    from relunmd.io.readers import open_matrix

    with ExitStack() as stack, _resumable(output):
        with shared.working(f"opening {shared.one_line(matrix)}", quiet):
            opened = stack.enter_context(open_matrix(matrix, array, names))
        shared.echo_note(opened, matrix, quiet)
        entry = opened.entry
        if entry.columns is not None and labels is None and not quiet:
            shared.echo("The names of the columns are shown with the components.", err=True)
        found = compare_matrix(
            opened.X,
            chosen_ranks,
            output,
            algorithms=chosen,
            max_time=max_time,
            max_iter=max_iter,
            starts=starts,
            init=init,
            seed=seed,
            image_shape=entry.pixels if shape == "auto" and entry.pixels is not None else shape,
            column_names=entry.columns if labels is None else labels,
            name=opened.place.name if array is None else f"{opened.place.name}: {array}",
            display=_display(quiet),
        )
    from relunmd.comparison.comparison_report import finding

    if as_json:
        import json

        errors = {label: {str(rank): e for rank, e in by_rank.items()} for label, by_rank in found.errors().items()}
        told = {"page": str(found.page), "finding": finding(found), "errors": errors, "notes": list(found.notes)}
        shared.echo(json.dumps(told))
    elif not quiet:
        shared.echo(shared.one_line(finding(found)))
        shared.echo(str(found.page))
    made = {run["algorithm"] for run in found.runs}
    if any(label not in made for label in found.labels):  # It failed at every rank, as a note says.
        click.get_current_context().exit(1)


@click.command(
    epilog="""\b
Examples:
  relunmd reproduce table1 --quick -o results

\b
With --quick, all takes some eight minutes on two cores; without it, as in the
paper, 80. FOLDER then has report.html, one file that can be mailed,
report.md and the pictures. After Ctrl-C the same command goes on where it
stopped."""
)
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=_experiments)
@click.option("--quick", is_flag=True, help="Smaller data, fewer repetitions, shorter runs.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="Data sets to look in first, before RELUNMD_DATA and the cache.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="For all matrices and starts."
)
@_output
@shared.quiet_option
def reproduce(names: tuple[str, ...], quick: bool, data: str | None, seed: int, output: str, quiet: bool) -> None:
    """Make tables and figures of the paper again.

    NAME is table1, table2, table3, table4, fig1a, fig1b, fig2, fig3, fig4, or all, which none means too.
    """
    from relunmd.experiments import reproduce as reproduce_paper

    with _resumable(output):
        page = reproduce_paper(names or "all", output, quick=quick, seed=seed, data=data, display=_display(quiet))
    if not quiet:
        shared.echo(str(page))


@contextmanager
def _resumable(output: str) -> Iterator[None]:
    """Ctrl-C loses nothing, and says so."""
    try:
        yield
    except KeyboardInterrupt:
        shared.echo(f"Interrupted. The same command resumes from {output}.", err=True)
        click.get_current_context().exit(shared.INTERRUPTED)


def _display(quiet: bool) -> "Display":
    from relunmd.comparison.plan_display import Display

    shown = shared.console()
    shown.quiet = quiet
    return Display(shown)


def _ranks(given: str) -> list[int]:
    words = [word.strip() for word in given.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", word) for word in words):
        raise InputError(f"--ranks must be numbers with commas between them, as 8,16,32. Got {given!r}.")
    return [int(word) for word in words]


def _image_shape(given: str) -> Any:
    word = given.strip().lower()
    if word in ("auto", "none"):
        return "auto" if word == "auto" else None
    found = re.fullmatch(r"([0-9]{1,6})\s*[x×]\s*([0-9]{1,6})", word)
    if found is None:
        raise InputError(f"--images must be a height and a width as 28x28, auto or none. Got {given!r}.")
    return int(found[1]), int(found[2])


def _lines(path: str) -> list[str]:
    """The lines of a text file of limited size."""
    from relunmd.io.readers.bounds import check_regular

    try:
        place = Path(path)
        too_large = place.stat().st_size > _MOST_NAMES
        check_regular(place)
        with place.open(encoding="utf-8-sig", errors="replace") as stream:
            text = "" if too_large else stream.read(_MOST_NAMES + 1)
    except FileError:
        raise
    except (OSError, ValueError) as reason:  # ValueError for a null byte in the path.
        raise FileError(f"{path} cannot be read: {getattr(reason, 'strerror', None) or reason}.") from reason
    if too_large or len(text) > _MOST_NAMES:  # Some files of the system have more to read than their size says.
        raise FileError(f"{path} must be a list of names of at most {human_bytes(_MOST_NAMES)}. It has more.")
    lines = text.split("\n")
    return [line.rstrip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
