"""`relunmd data`: example data sets."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from relunmd.cli import shared


def _complete_names(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from relunmd import datasets

    return [CompletionItem(name) for name in datasets.LOADERS if name.startswith(incomplete)]


@click.group()
def data() -> None:
    """List and fetch example data sets.

    Files are searched in the folder named by RELUNMD_DATA and in a cache, and downloaded otherwise.
    """


@data.command("list", epilog="\b\nExample:\n  relunmd data list")
def list_() -> None:
    """List the data sets and whether they are available locally."""
    from relunmd import datasets

    width = max(len(name) for name in datasets.LOADERS)
    for name, loader in datasets.LOADERS.items():
        where = datasets.where(name)
        line = (loader.__doc__ or "").partition("\n")[0].rstrip(".")  # python -OO removes docstrings.
        shared.echo(f"{name:{width}}  {line}")
        shared.echo(f"{'':{width}}  {f'available: {where}' if where else 'not available; use fetch to download it'}")


@data.command(epilog="\b\nExample:\n  relunmd data fetch digits -o digits.npy")
@click.argument("name", shell_complete=_complete_names)
@click.option("--output", "-o", metavar="FILE", type=click.Path(), help="NAME.npy or NAME.npz by default.")
@shared.force_option
@shared.quiet_option
def fetch(name: str, output: str | None, force: bool, quiet: bool) -> None:
    """Write the data set NAME to a file; download and verify it if necessary."""
    from scipy import sparse

    from relunmd import datasets
    from relunmd.io.writers import Parts, check_suffix, write_matrix

    if output is not None:
        check_suffix(shared.check_output(output, force))
    X: Any = datasets.load(name)
    stored = sparse.issparse(X)
    target = output or f"{name}{'.npz' if stored else '.npy'}"
    place = shared.check_output(target, force)
    write_matrix(place, Parts(X.shape, X.dtype, True, iter([X.tocsr()])) if stored else Parts.of(X))
    if not quiet:
        shared.echo(f"{target}: {X.shape[0]} × {X.shape[1]}, {X.dtype}")
