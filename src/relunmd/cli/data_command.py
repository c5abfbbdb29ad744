"""`relunmd data`: matrices to try things on."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from relunmd.cli import shared

__all__ = ["data"]


def _complete(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from relunmd import datasets

    return [CompletionItem(name) for name in datasets.LOADERS if name.startswith(incomplete)]


@click.group()
def data() -> None:
    """Matrices to try things on.

    Files are looked for in the folder named by RELUNMD_DATA and in a cache, and downloaded where there is a network.
    """


@data.command("list", epilog="\b\nExample:\n  relunmd data list")
def list_() -> None:
    """The data sets by name, and whether they are here."""
    from relunmd import datasets

    width = max(len(name) for name in datasets.LOADERS)
    for name, loader in datasets.LOADERS.items():
        where = datasets.where(name)
        line = (loader.__doc__ or "").partition("\n")[0].rstrip(".")  # There is none with python -OO.
        shared.echo(f"{name:{width}}  {line}")
        shared.echo(f"{'':{width}}  {'here: ' + where if where else 'not here; fetch gets it, or says how'}")


@data.command(epilog="\b\nExample:\n  relunmd data fetch digits -o digits.npy")
@click.argument("name", shell_complete=_complete)
@click.option("--output", "-o", metavar="FILE", type=click.Path(), help="Where to; NAME.npy or NAME.npz if not given.")
@shared.force_option
@shared.quiet_option
def fetch(name: str, output: str | None, force: bool, quiet: bool) -> None:
    """Write the data set NAME to a file, downloaded if need be and checked."""
    from scipy import sparse

    from relunmd import datasets
    from relunmd.io.writers import Parts, check_suffix, write_matrix

    if output is not None:
        check_suffix(shared.check_output(output, force))
    X: Any = datasets.load(name)
    stored = sparse.issparse(X)
    target = output if output is not None else f"{name}{'.npz' if stored else '.npy'}"
    place = shared.check_output(target, force)
    write_matrix(place, Parts(X.shape, X.dtype, True, iter([X.tocsr()])) if stored else Parts.of(X))
    if not quiet:
        shared.echo(f"{target}: {X.shape[0]} × {X.shape[1]}, {X.dtype}")
