"""`relunmd algorithms`, `relunmd demo` and `relunmd completion`."""

import click

from relunmd.cli import shared

__all__ = ["algorithms", "completion", "demo"]


@click.command(epilog="\b\nExample:\n  relunmd algorithms")
def algorithms() -> None:
    """The algorithms and starts by name, with a line on each."""
    import relunmd

    for title, known in (("Algorithms", relunmd.algorithms()), ("Starts", relunmd.inits())):
        shared.echo(f"{title}:")
        width = max(len(name) for name in known)
        for name, line in known.items():
            shared.echo(f"  {name:{width}}  {line}")


@click.command(epilog="\b\nExample:\n  relunmd demo -o demo-output")
@click.option(
    "--output", "-o", default="demo-output", show_default=True, metavar="FOLDER", help="Where the picture goes."
)
def demo(output: str) -> None:
    """Decompose digits and a synthetic matrix beside a truncated SVD and NMF: a table and a picture."""
    from relunmd.cli.demo import main

    main(["-o", output])


@click.command(
    epilog="""\b
Examples:
  relunmd completion bash > relunmd.bash

\b
For bash, `source relunmd.bash`, in ~/.bashrc for every shell. For zsh, `source`
it in ~/.zshrc after compinit. For fish, put it into
~/.config/fish/completions/relunmd.fish."""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete commands, options, algorithms and files."""
    from click.shell_completion import get_completion_class

    from relunmd.cli import main

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    click.echo(kind(main, {}, "relunmd", "_RELUNMD_COMPLETE").source())
