"""`relunmd compare`: algorithms side by side on a matrix; and where `relunmd reproduce` has moved."""

import re
from pathlib import Path
from typing import Any

import click
from click import IntRange, option

from relunmd.cli import shared
from relunmd.cli.process import main
from relunmd.errors import FileError, InputError
from relunmd.memory import human_bytes

_MOST_NAMES = 1 << 27
"""Bytes of a file of column names."""


@main.command()
@shared.input_argument("matrix", metavar="INPUT")
@click.option("--ranks", "-r", required=True, metavar="R,R,…", help="Numbers of components, such as 8,16,32.")
@option("--output", "-o", required=True, metavar="FOLDER", type=click.Path(), help="New folder, or one to resume.")
@option("--algorithms", metavar="NAME,…", help="Names of `relunmd algorithms`; all by default.")
@option(
    "--max-time", type=shared.POSITIVE, default=5.0, metavar="SECONDS", help="Time limit of a run after initialization."
)
@option("--max-iter", type=IntRange(1), metavar="N", help="Maximum number of iterations of each run.")
@option("--starts", type=IntRange(1), default=1, metavar="K", help="Number of seeds; means are shown.")
@option("--init", default="shifted", metavar="NAME", help="Initialization of all algorithms.")
@option("--seed", type=IntRange(0), default=0, metavar="N", help="Seed of the first initialization.")
@option("--images", default="auto", metavar="HxW|auto|none", help="Size of the rows as images, such as 28x28.")
@option("--column-names", metavar="FILE", type=click.Path(), help="Text file with one column name per line.")
@shared.options("array", "names", "json", "quiet")
def compare(
    matrix: str, ranks: str, output: str, algorithms: str | None, images: str, column_names: str | None, **options: Any
) -> None:
    """Compare algorithms on INPUT at several ranks, and write a report.

    All algorithms have the same initial factors, are timed alone, and are scored by the same relative error. A
    truncated SVD (TSVD) and scikit-learn's NMF always take part. With --init shifted, seeds differ little.

    Examples
    --------
      relunmd compare digits.npy --ranks 8,16 --max-time 1 -o digits-compared
      relunmd compare digits.npy --ranks 8 --algorithms qn,3b --starts 2 --max-iter 100 -o two

    FOLDER then holds report.html, a single self-contained file; report.md; the runs
    in comparison.csv and comparison.json; the pictures; and the points of the
    charts in points.csv. After Ctrl-C the same command resumes.
    Exit codes: 0; 2 for invalid input; 130 after Ctrl-C; 1 if an algorithm failed
    at every rank.
    """
    chosen_ranks, shape = _ranks(ranks), _image_shape(images)
    chosen = None if algorithms is None else [name.strip() for name in algorithms.split(",") if name.strip()]
    labels = None if column_names is None else _lines(column_names)
    from relunmd.comparison.comparison_display import ComparisonDisplay
    from relunmd.comparison.comparison_report import finding
    from relunmd.comparison.matrix_comparison import compare as compare_matrix

    console = shared.console()
    console.quiet = bool(shared.given("quiet"))
    try:
        with shared.opened(matrix) as opened:
            entry, name, array = opened.entry, opened.place.name, shared.given("array")
            if entry.columns is not None and labels is None:
                shared.say("The column names are shown with the components.", err=True)
            options["name"] = name if array is None else f"{name}: {array}"
            options["image_shape"] = entry.pixels if shape == "auto" and entry.pixels is not None else shape
            options["column_names"] = entry.columns if labels is None else labels
            display = ComparisonDisplay(console)
            found = compare_matrix(opened.X, chosen_ranks, output, algorithms=chosen, display=display, **options)
    except KeyboardInterrupt:
        shared.echo(f"Interrupted. The same command resumes from {output}.", err=True)
        click.get_current_context().exit(shared.INTERRUPTED)
    facts = {"page": str(found.page), "finding": finding(found), "errors": found.errors(), "notes": found.notes}
    shared.report(facts, shared.one_line(finding(found)), str(found.page))
    if set(found.labels) - {run["algorithm"] for run in found.runs}:  # It failed at every rank, as a note says.
        click.get_current_context().exit(1)


@main.command(hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def reproduce(arguments: tuple[str, ...]) -> None:
    """Print how to reproduce the paper's tables and figures.

    Examples
    --------
    See reproduction/README.md in the repository.
    """
    raise InputError(
        "The reproduction of the paper is not part of the installed package. Clone the repository and run there: "
        f'make reproduce ARGS="{" ".join(arguments) or "all -o results"}"'
    )


def _ranks(given: str) -> list[int]:
    words = [word.strip() for word in given.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", word) for word in words):
        raise InputError(f"--ranks must be integers separated by commas, such as 8,16,32; got {given!r}.")
    return list(map(int, words))


def _image_shape(given: str) -> Any:
    word = given.strip().lower()
    if word in ("auto", "none"):
        return "auto" if word == "auto" else None
    found = re.fullmatch(r"([0-9]{1,6})\s*[x×]\s*([0-9]{1,6})", word)
    if found is None:
        raise InputError(f"--images must be a height and a width such as 28x28, auto or none; got {given!r}.")
    return int(found[1]), int(found[2])


def _lines(path: str) -> list[str]:
    """Return the lines of a text file of limited size."""
    from relunmd.io.readers.bounds import check_regular

    check_regular(Path(path))
    with Path(path).open(encoding="utf-8-sig", errors="replace") as stream:
        text = stream.read(_MOST_NAMES + 1)  # Some system files have more to read than their size says.
    if len(text) > _MOST_NAMES:
        raise FileError(f"{path} must be a list of names of at most {human_bytes(_MOST_NAMES)}; it is larger.")
    return text.removesuffix("\n").split("\n") if text else []
