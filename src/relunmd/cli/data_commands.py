"""`relunmd data`: example data sets; `relunmd algorithms`, `relunmd demo` and `relunmd completion`."""

from typing import Any, cast

import click
from click.shell_completion import CompletionItem

import relunmd
from relunmd.cli import shared
from relunmd.cli.process import main


def _names(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in relunmd.datasets.LOADERS if name.startswith(incomplete)]


@main.group()
def data() -> None:
    """List and fetch example data sets.

    Files are searched in the folder named by RELUNMD_DATA and in a cache, and downloaded otherwise.
    """


@data.command("list", cls=shared.ExampleCommand)
def list_() -> None:
    """List the data sets and whether they are available locally.

    Examples
    --------
      relunmd data list
    """
    width = max(map(len, relunmd.datasets.LOADERS))
    for name, loader in relunmd.datasets.LOADERS.items():
        where = relunmd.datasets.where(name)
        line = (loader.__doc__ or "").partition("\n")[0].rstrip(".")  # python -OO removes docstrings.
        shared.echo(f"{name:{width}}  {line}")
        shared.echo(f"{'':{width}}  {f'available: {where}' if where else 'not available; use fetch to download it'}")


@data.command(cls=shared.ExampleCommand)
@click.argument("name", shell_complete=_names)
@click.option("--output", "-o", metavar="FILE", type=click.Path(), help="NAME.npy or NAME.npz by default.")
@shared.options("force", "quiet")
def fetch(name: str, output: str | None) -> None:
    """Write the data set NAME to a file; download and verify it if necessary.

    Examples
    --------
      relunmd data fetch digits -o digits.npy
    """
    from scipy import sparse

    from relunmd.io.writers import Parts, check_suffix, write_matrix

    if output is not None:
        check_suffix(shared.check_output(output))
    X: Any = relunmd.datasets.load(name)
    stored = sparse.issparse(X)
    target = output or f"{name}{'.npz' if stored else '.npy'}"
    place = shared.check_output(target)
    write_matrix(place, Parts(X.shape, X.dtype, True, iter([X.tocsr()])) if stored else Parts.of(X))
    shared.say(f"{target}: {X.shape[0]} × {X.shape[1]}, {X.dtype}")


@main.command()
def algorithms() -> None:
    """List the algorithms and initializations.

    Examples
    --------
      relunmd algorithms
    """
    for title, known in (("Algorithms", relunmd.algorithms()), ("Initializations", relunmd.inits())):
        shared.echo(f"{title}:")
        for name, line in known.items():
            shared.echo(f"  {name:{max(map(len, known))}}  {line}")


@main.command()
@click.option("--output", "-o", default="demo-output", metavar="FOLDER", help="Folder for the figure.")
def demo(output: str) -> None:
    """Compare algorithms with a truncated SVD and NMF on digits and a synthetic matrix: tables and a figure.

    Examples
    --------
      relunmd demo -o demo-output
    """
    from relunmd.cli.demo import run_demo

    run_demo(output)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script for shell completion of commands, options, algorithms and files.

    Examples
    --------
      relunmd completion bash > relunmd.bash

    For bash, add `source relunmd.bash` to ~/.bashrc. For zsh, add it to ~/.zshrc
    after compinit. For fish, write the script to
    ~/.config/fish/completions/relunmd.fish.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    complete = cast("type[ShellComplete]", get_completion_class(shell))
    click.echo(complete(main, {}, "relunmd", "_RELUNMD_COMPLETE").source())
