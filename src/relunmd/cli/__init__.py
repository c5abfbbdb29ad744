"""The command line: any matrix file in, a model out.

One file a group of commands. Nothing but click is imported before a command runs, so that help comes at once: what a
command needs, it imports itself.
"""

import os
import sys

import click

from relunmd.cli import shared
from relunmd.cli.compare_command import compare, reproduce
from relunmd.cli.data_command import data
from relunmd.cli.fit_command import fit
from relunmd.cli.matrix_commands import convert, info
from relunmd.cli.model_commands import reconstruct, transform
from relunmd.cli.small_commands import algorithms, completion, demo

__all__ = ["main", "run"]


@click.group(
    cls=shared.Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  relunmd data fetch digits -o digits.npy
  relunmd info digits.npy
  relunmd fit digits.npy --rank 16 --seed 0 -o model.npz
  relunmd transform model.npz digits.npy -o W.csv
  relunmd compare digits.npy --ranks 8,16 --max-time 1 -o digits-compared

\b
relunmd COMMAND --help tells more. For completion by the shell: relunmd completion --help.""",
)
@click.version_option(package_name="relunmd", prog_name="relunmd", message="%(prog)s %(version)s")
def main() -> None:
    """ReLU nonlinear matrix decomposition: X ≈ max(0, WH) for a sparse nonnegative matrix X.

    Reads .npy, .npz, .mtx, .mat, .csv, .tsv, .parquet, .h5, .hdf5, .h5ad, .zarr, IDX, and folders of grey images.
    """


for command in (fit, transform, reconstruct, info, compare, reproduce, convert, data, algorithms, demo, completion):
    main.add_command(command)


def run() -> None:
    """The command, with which the process ends. Output that cannot be written does not end it earlier.

    What a closed pipe did not take is dropped. If stdout fails for another reason, such as a full disk, the command
    still does all of its work, and the exit code is 1 in the place of 0.
    """
    shared.Presses.last_of_process = True
    for number in range(3):  # A matrix or a model must not be opened as a standard stream that is closed.
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    stdout, _ = shared.Survivor.replace("stdout"), shared.Survivor.replace("stderr")
    try:
        main(prog_name="relunmd")
    except SystemExit as end:
        lost = None if stdout is None else stdout.lost
        if lost is None or isinstance(lost, BrokenPipeError) or end.code:
            raise
        shared.echo(f"Error: stdout could not be written: {lost.strerror}.", err=True)
        sys.exit(1)
