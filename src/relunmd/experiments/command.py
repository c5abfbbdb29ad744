"""The command line of the experiments."""

import logging
import sys
from pathlib import Path

import click

from relunmd.errors import RelunmdError
from relunmd.experiments.reproduction import EXPERIMENTS, reproduce

__all__ = ["main"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, required=True, type=click.Choice([*EXPERIMENTS, "all"]), metavar="NAME...")
@click.option("--quick", is_flag=True, help="Smaller data, fewer repetitions: about seven minutes for all.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of data sets to look in first, before RELUNMD_DATA and the cache.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For all matrices and starts.")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="Folder for results, pictures and report. What it has is not run again.",
)
def main(names: tuple[str, ...], quick: bool, data: Path | None, seed: int, output: Path) -> None:
    """Make tables and figures of the paper again: table1 … table4, fig1a, fig1b, fig2, fig3, fig4, or all."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        reproduce(names, output, quick=quick, seed=seed, data=data)
    except RelunmdError as reason:
        click.echo(str(reason), err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        click.echo(f"Interrupted. The same command goes on from what is in {output}.", err=True)
        sys.exit(130)
