"""The command line interface: read a matrix file, write a model.

Each file holds a group of commands. Commands import what they need when they run: only click is imported before, so
that help is immediate.
"""

from relunmd.cli import (  # noqa: F401
    compare_command,
    data_commands,
    file_commands,
    fit_command,
    impute_command,
    rank_command,
)
from relunmd.cli.process import main as main
from relunmd.cli.process import run as run
