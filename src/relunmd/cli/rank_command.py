"""`relunmd rank`: choose the rank and the ridge by held-out entries."""

import re
from contextlib import nullcontext
from typing import Any

import click
from click import IntRange, option

from relunmd.cli import shared
from relunmd.cli.process import main
from relunmd.errors import InputError


@main.command()
@shared.input_argument("matrix", metavar="INPUT")
@option("--output", "-o", required=True, metavar="FOLDER", type=click.Path(), help="New folder, or one to resume.")
@option("--ranks", "-r", metavar="R,R,…|A:B[:STEP]", help="Ranks to try, such as 2:40 or 4,8,16; by default up to 64.")
@option("--ridges", default="0", metavar="λ,λ,…|auto", help="Ridges to try with each rank; auto is 0,1e-3,1e-2,1e-1.")
@option("--folds", "n_folds", type=IntRange(2), default=5, metavar="N", help="Number of folds.")
@option("--share", type=click.FloatRange(0, 0.5, min_open=True), default=0.1, help="Share of entries in a fold.")
@option("--rule", type=click.Choice(["1se", "min"]), default="1se", help="Smallest rank within one s.e., or the best.")
@option("--balance", is_flag=True, help="Hold out as many zeros as nonzeros; for very sparse data.")
@option("--algorithm", default="auto", metavar="NAME", help="Name of `relunmd algorithms`.")
@option("--tol", type=float, default=1e-3, help="Tolerance of the model; fits of the folds stop at 0.01.")
@option("--max-iter", type=IntRange(1), default=300, metavar="N", help="Maximum number of iterations of each fit.")
@option("--max-time", type=shared.POSITIVE, metavar="SECONDS", help="Time limit of the whole search.")
@option("--seed", type=IntRange(0), default=0, metavar="N", help="Seed: which entries are held out.")
@shared.threads_option
@shared.entry_options
@shared.options("array", "names", "json", "quiet")
def rank(matrix: str, output: str, ranks: str | None, ridges: str, threads: int | None, **options: Any) -> None:
    """Choose the rank of INPUT by predicting entries that were left out.

    Each rank is fitted without a random share of the entries, which it then predicts. The choice is the smallest rank
    whose error is within one standard error of the smallest.

    Examples
    --------
      relunmd rank digits.npy -o digits-rank
      relunmd rank digits.npy --ranks 2:32:2 --ridges auto --folds 3 -o with-ridge

    FOLDER then holds report.html, a single self-contained file; report.md; the
    curve in rank.csv; everything in rank.json; and model.npz, the model of the
    chosen rank. After Ctrl-C the same command resumes.
    Exit codes: 0; 2 for invalid input; 130 after Ctrl-C.
    """
    chosen, strengths = _ranks(ranks), _ridges(ridges)
    import relunmd
    from relunmd.comparison.rank_report import write_selection
    from relunmd.selection.selection_display import SelectionDisplay

    folder = shared.check_folder(output)
    options |= {"ridges": strengths, "random_state": options.pop("seed"), "n_jobs": threads or shared.ALL_CORES}
    with shared.opened(matrix) as opened, shared.entries() as entries:
        n_settings = len(chosen or []) or 20
        n_settings *= 4 if strengths == "auto" else len(strengths)
        display = SelectionDisplay(n_settings, options["n_folds"], shared.console())
        try:
            with nullcontext() if shared.given("quiet") else display as callback:
                found = relunmd.select_rank(
                    opened.X, chosen, callback=callback, checkpoint=folder / "fits.npz", **entries, **options
                )
        except KeyboardInterrupt:
            shared.echo(f"Interrupted. The same command resumes from {output}.", err=True)
            click.get_current_context().exit(shared.INTERRUPTED)
        except InputError as reason:
            other = "checkpoint must be of the same search."
            raise InputError(str(reason).replace(other, "FOLDER must be new or of the same search.")) from reason
        page = write_selection(found, folder, opened.place.name)
    facts: dict[str, Any] = {
        "rank": found.rank,
        "ridge": found.ridge,
        "error": found.error,
        "standard_error": found.standard_error,
    }
    facts |= {"turned": found.turned, "page": str(page), "sentence": found.sentence}
    shared.report(facts, found.sentence, str(page))
    if found.ended_by == "Ctrl-C":
        shared.echo(f"Interrupted. The same command resumes from {output}.", err=True)
        click.get_current_context().exit(shared.INTERRUPTED)


def _ranks(given: str | None) -> list[int] | None:
    """Return ranks from a list such as 4,8,16 or a range such as 2:40 or 2:40:2, which includes its end."""
    if given is None:
        return None
    found: list[int] = []
    for word in given.split(","):
        parts = re.fullmatch(r"\s*([0-9]{1,6})(?::([0-9]{1,6})(?::([0-9]{1,6}))?)?\s*", word)
        if parts is None or int(parts[3] or 1) == 0:
            raise InputError(f"--ranks must be integers such as 4,8,16 or a range such as 2:40; got {given!r}.")
        first, step = int(parts[1]), int(parts[3] or 1)
        found += range(first, int(parts[2] or first) + 1, step)
    return found


def _ridges(given: str) -> Any:
    if given.strip() == "auto":
        return "auto"
    try:
        return [float(word) for word in given.split(",")]
    except ValueError as reason:
        raise InputError(f"--ridges must be numbers such as 0,1e-3 or auto; got {given!r}.") from reason
