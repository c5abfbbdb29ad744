"""`relunmd info` and `relunmd convert`: describe a file, and write a matrix in another format."""

import math
import shlex
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click

from relunmd.cli import shared


@click.command(
    epilog="""\b
Examples:
  relunmd info digits.npy
  relunmd info model.npz
  relunmd info digits.npy --json"""
)
@click.argument("file", type=click.Path())
@shared.matrix_options
@shared.json_option
def info(file: str, array: str | None, names: str | None, as_json: bool) -> None:
    """Describe a matrix, a model or a checkpoint.

    For a matrix: its shape, zeros, range, memory and a suitable algorithm and rank. For a model: its settings and
    error. The matrix is read once, in parts.
    """
    from relunmd.io.archive import kind_of

    shared.check_input(file)
    kind = kind_of(Path(file))
    if kind is None:
        with shared.working(f"reading {file}", as_json):
            facts = _of_matrix(file, array, names)
    else:
        facts = _of_model(file) if kind == "model" else _of_checkpoint(file)
    if as_json:
        shared.echo_json(facts)
        return
    facts = {name: value for name, value in facts.items() if value not in (None, "", [])}
    width = max(map(len, facts))
    for name, value in facts.items():
        lines = value if isinstance(value, list) and name != "shape" else [_formatted(name, value)]
        for label, line in zip_longest([name.replace("_", " ")], lines, fillvalue=""):
            shared.echo(f"{label:{width}}  {shared.one_line(line)}")


def _formatted(name: str, value: Any) -> str:
    from relunmd.memory import human_bytes

    if name == "zeros":
        return f"{100 * value:.4g} %"
    if name == "memory":
        return ", ".join(f"{human_bytes(size)} {what.replace('_', ' ')}" for what, size in value.items())
    if name == "shape":
        return " × ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {_formatted('', part)}" for key, part in value.items()) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _of_matrix(file: str, array: str | None, names: str | None) -> dict[str, Any]:
    from relunmd.inspection import inspect_matrix
    from relunmd.io.readers import open_matrix

    with open_matrix(file, array, names) as opened:
        found = inspect_matrix(opened.X)
    entry, rank = opened.entry, found.suggested_rank
    memory = {"as_stored": found.nbytes, "dense": found.dense_nbytes, "sparse": found.sparse_nbytes}
    if found.obstacle is None:
        memory["additional_for_a_fit"] = found.fit_nbytes(rank)
    options = ["--array", entry.name] if len(opened.entries) > 1 else []
    options += ["--names", names] if names is not None else []
    command = shlex.join(["relunmd", "fit", file, *options, "--rank", str(rank), "-o", "model.npz"])
    return {
        "file": file,
        "format": opened.format,
        "array": entry.name or None,
        "other_arrays": [str(other) for other in opened.entries if other is not entry],
        "note": entry.note or None,
        "stored": entry.stored,
        **asdict(found),
        "zeros": found.zeros,
        "memory": memory,
        "decomposable": found.obstacle is None,
        "advice": found.advice(),
        "suggested_command": command if found.obstacle is None else None,
    }


def _of_model(file: str) -> dict[str, Any]:
    import relunmd

    d = relunmd.Decomposition.load(file)
    facts = {"file": file, "format": "relunmd model"} | shared.model_facts(d)
    facts |= {"settings": dict(d.settings), "best_iteration": d.best_iter}
    facts |= {"memory": {"W_and_H": d.W.nbytes + d.H.nbytes}, "numbers_in_W_and_H": d.W.size + d.H.size}
    if d.fingerprint is not None:
        X = d.fingerprint
        zeros = round(1 - X.nonzeros / math.prod(X.shape), 6)
        facts["matrix"] = {"dtype": X.dtype, "nonzeros": X.nonzeros, "zeros": zeros, "norm": X.norm}
    return facts


def _of_checkpoint(file: str) -> dict[str, Any]:
    from relunmd.loop.checkpoint import described

    return {"file": file, "format": "relunmd checkpoint"} | described(Path(file))


@click.command(
    epilog="""\b
Examples:
  relunmd convert digits.npy digits.mtx.gz --sparse
  relunmd convert digits.npy digits.csv
  relunmd convert digits.mtx.gz digits.h5"""
)
@click.argument("source", metavar="IN", type=click.Path())
@click.argument("target", metavar="OUT", type=click.Path())
@shared.sparse_option
@shared.matrix_options
@shared.force_option
@shared.quiet_option
def convert(
    source: str, target: str, sparse: bool, array: str | None, names: str | None, force: bool, quiet: bool
) -> None:
    """Write the matrix in IN to OUT, in the format of OUT's extension.

    Extensions: .npy, .npz, .mtx, .mat, .csv, .tsv, .mtx.gz, .csv.gz, .tsv.gz, .parquet, .h5, .hdf5, .zarr. A sparse
    matrix stays sparse where the format supports it; .npy, text and Parquet are dense.
    """
    import numpy as np

    from relunmd.engine.problem_setup import check_matrix
    from relunmd.inspection import row_parts
    from relunmd.io.readers import open_matrix
    from relunmd.io.writers import Parts, check_suffix, write_matrix

    shared.check_input(source)
    place = shared.check_output(target, force, source)
    check_suffix(place, sparse)
    with open_matrix(source, array, names) as opened, shared.working(f"writing {target}", quiet):
        shared.echo_note(opened, source, quiet)
        matrix = check_matrix(opened.X)
        whole = Parts(matrix.shape, np.dtype(matrix.dtype), matrix.sparse, (part for _, part in row_parts(matrix)))
        write_matrix(place, whole.without_zeros() if sparse else whole)
    if not quiet:
        shared.echo(f"{target}: {matrix.shape[0]} × {matrix.shape[1]}, {whole.usual().dtype}")
