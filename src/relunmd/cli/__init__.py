"""The command line interface: read a matrix file, write a model.

Each file holds a group of commands. Commands import what they need when they run: only click is imported before, so
that help is immediate.
"""

import os
import sys

import click

from relunmd.cli.compare_command import compare, reproduce
from relunmd.cli.data_command import data
from relunmd.cli.fit_command import fit
from relunmd.cli.matrix_commands import convert, info
from relunmd.cli.model_commands import reconstruct, transform
from relunmd.cli.process import CommandGroup, InterruptHandler, TolerantStream
from relunmd.cli.shared import echo
from relunmd.cli.small_commands import algorithms, completion, demo

__all__ = ["main", "run"]


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    epilog="""\b
Examples:
  relunmd data fetch digits -o digits.npy
  relunmd info digits.npy
  relunmd fit digits.npy --rank 16 --seed 0 -o model.npz
  relunmd transform model.npz digits.npy -o W.csv
  relunmd compare digits.npy --ranks 8,16 --max-time 1 -o digits-compared

\b
relunmd COMMAND --help describes a command, relunmd completion --help shell completion.""",
)
@click.version_option(package_name="relunmd", prog_name="relunmd", message="%(prog)s %(version)s")
def main() -> None:
    """ReLU nonlinear matrix decomposition: X ≈ max(0, WH) for a sparse nonnegative matrix X.

    Reads .npy, .npz, .mtx, .mat, .csv, .tsv, .parquet, .h5, .hdf5, .h5ad, .zarr, IDX, and folders of grayscale images.
    """


for command in (fit, transform, reconstruct, info, compare, reproduce, convert, data, algorithms, demo, completion):
    main.add_command(command)


def run() -> None:
    """Run the command and exit the process.

    Output to a closed pipe is dropped. If stdout fails for another reason, such as a full disk, the command still does
    all of its work, and the exit code is 1 instead of 0.
    """
    InterruptHandler.ends_process = True
    for number in range(3):  # Otherwise a matrix file could get the number of a standard stream that is closed.
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    stdout, _ = TolerantStream.replace("stdout"), TolerantStream.replace("stderr")
    try:
        main(prog_name="relunmd")
    except SystemExit as end:
        failure = None if stdout is None else stdout.failure
        if failure is None or isinstance(failure, BrokenPipeError) or end.code:
            raise
        echo(f"Error: stdout could not be written: {failure.strerror}.", err=True)
        sys.exit(1)
