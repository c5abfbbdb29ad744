"""`relunmd algorithms`, `relunmd demo` and `relunmd completion`."""

from typing import cast

import click

from relunmd.cli import shared


@click.command(epilog="\b\nExample:\n  relunmd algorithms")
def algorithms() -> None:
    """List the algorithms and initializations."""
    import relunmd

    for title, known in (("Algorithms", relunmd.algorithms()), ("Initializations", relunmd.inits())):
        shared.echo(f"{title}:")
        width = max(len(name) for name in known)
        for name, line in known.items():
            shared.echo(f"  {name:{width}}  {line}")


@click.command(epilog="\b\nExample:\n  relunmd demo -o demo-output")
@click.option("--output", "-o", default="demo-output", metavar="FOLDER", help="Folder for the figure.")
def demo(output: str) -> None:
    """Compare algorithms with a truncated SVD and NMF on digits and a synthetic matrix: tables and a figure."""
    from relunmd.cli.demo import run_demo

    run_demo(output)


@click.command(
    epilog="""\b
Examples:
  relunmd completion bash > relunmd.bash

\b
For bash, add `source relunmd.bash` to ~/.bashrc. For zsh, add it to ~/.zshrc
after compinit. For fish, write the script to
~/.config/fish/completions/relunmd.fish."""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script for shell completion of commands, options, algorithms and files."""
    from click.shell_completion import ShellComplete, get_completion_class

    from relunmd.cli import main

    complete = cast("type[ShellComplete]", get_completion_class(shell))
    click.echo(complete(main, {}, "relunmd", "_RELUNMD_COMPLETE").source())
