"""The command line of the reproduction: ``python -m reproduction table1 --quick -o results``."""

import signal

import click
from rich.console import Console

from relunmd.comparison.comparison_display import ComparisonDisplay
from relunmd.errors import RelunmdError
from relunmd.io.atomic import printable
from reproduction import EXPERIMENTS, reproduce

_INTERRUPTED = 130


class _Refused(click.ClickException):
    exit_code = 2


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  make reproduce ARGS="table1 --quick -o results"
  python -m reproduction table3 fig1a -o results

\b
On two cores, all experiments take about 80 minutes, or 8 with --quick. FOLDER
then holds report.html, a single self-contained file, report.md and the
pictures. After Ctrl-C the same command resumes.""",
)
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--quick", is_flag=True, help="Use smaller data, fewer repetitions and shorter runs.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="Folder of data sets that is searched before RELUNMD_DATA and the cache.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of all matrices and initializations.",
)
@click.option(
    "--output",
    "-o",
    required=True,
    metavar="FOLDER",
    type=click.Path(),
    help="Folder for the report and the results; an existing one is resumed.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print only warnings and errors.")
def main(names: tuple[str, ...], quick: bool, data: str | None, seed: int, output: str, quiet: bool) -> None:
    """Reproduce tables and figures of the paper.

    NAME is table1, table2, table3, table4, fig1a, fig1b, fig2, fig3, fig4 or all. The default is all.
    """
    unknown = [name for name in names if name not in (*EXPERIMENTS, "all")]
    if unknown:
        raise _Refused(printable(f"NAME must be one of {', '.join(EXPERIMENTS)} or all; got {unknown[0]!r}."))
    display = ComparisonDisplay(Console(stderr=True, highlight=False, quiet=quiet))
    try:
        page = reproduce(names or "all", output, quick=quick, seed=seed, data=data, display=display)
    except RelunmdError as reason:
        raise _Refused(printable(str(reason))) from reason
    except KeyboardInterrupt:
        click.echo(printable(f"Interrupted. The same command resumes from {output}."), err=True)
        click.get_current_context().exit(_INTERRUPTED)
    if not quiet:
        click.echo(printable(str(page)))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Batch systems end a job with it.
    main(prog_name="python -m reproduction")
