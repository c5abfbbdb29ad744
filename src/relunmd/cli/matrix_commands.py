"""`relunmd info` and `relunmd convert`: what a file is, and the same matrix in another."""

import math
import shlex
from pathlib import Path
from typing import Any

import click

from relunmd.cli import shared

__all__ = ["convert", "info"]


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
    """Tell what a file holds.

    Of a matrix: its shape, zeros, range and memory, and what would suit it. Of a model: how it was made and how good it
    is. The matrix is read once from beginning to end, a part at a time.
    """
    from relunmd.io.archive import kind_of

    shared.check_input(file)
    kind = kind_of(Path(file))
    if kind is None:
        with shared.working(f"reading {file}", as_json):
            facts = _of_matrix(file, array, names)
    else:
        facts = {"model": _of_model, "checkpoint": _of_checkpoint}[kind](file)
    if as_json:
        import json

        shared.echo(json.dumps(facts, allow_nan=False))
        return
    told = {name: _told(name, value) for name, value in facts.items() if value not in (None, "", [])}
    width = max(len(name) for name in told)
    for name, lines in told.items():
        for number, line in enumerate(lines):
            shared.echo(f"{name.replace('_', ' ') if number == 0 else '':{width}}  {shared.spoken(line)}")


def _told(name: str, value: Any) -> list[str]:
    """A fact in words, one line or several."""
    from relunmd.memory import human_bytes

    if name == "zeros":
        return [f"{100 * value:.4g} %"]
    if name == "memory":
        return [", ".join(f"{human_bytes(size)} {what.replace('_', ' ')}" for what, size in value.items())]
    if name == "shape":
        return [" × ".join(map(str, value))]
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return [", ".join(f"{key} {_number(part)}" for key, part in value.items()) or "none"]
    return [_number(value)]


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _of_matrix(file: str, array: str | None, names: str | None) -> dict[str, Any]:
    from relunmd.inspection import survey
    from relunmd.io.readers import open_matrix

    with open_matrix(file, array, names) as opened:
        found = survey(opened.X)
    rank = found.suggested_rank
    chosen = ["--array", opened.entry.name] if len(opened.entries) > 1 else []
    said = ["--names", names] if names is not None else []
    command = ["relunmd", "fit", file, *chosen, *said, "--rank", str(rank), "-o", "model.npz"]
    return {
        "file": file,
        "format": opened.format,
        "array": opened.entry.name or None,
        "other_arrays": [str(entry) for entry in opened.entries if entry is not opened.entry],
        "note": opened.entry.note or None,
        "shape": list(found.shape),
        "dtype": found.dtype,
        "stored": opened.entry.stored,
        "nonzeros": found.nonzeros,
        "zeros": found.zeros,
        "negatives": found.negatives or None,
        "not_finite": found.not_finite or None,
        "smallest": None if math.isnan(found.smallest) else found.smallest,
        "largest": None if math.isnan(found.largest) else found.largest,
        "norm": found.norm,
        "memory": {"as_it_is": found.nbytes, "as_an_array": found.dense_nbytes, "sparse": found.sparse_nbytes}
        | ({} if found.obstacle else {"more_for_a_fit": found.fit_nbytes(rank)}),
        "decomposable": found.obstacle is None,
        "advice": found.advice(),
        "to_begin_with": None if found.obstacle else shlex.join(command),
    }


def _of_model(file: str) -> dict[str, Any]:
    import relunmd

    d = relunmd.Decomposition.load(file)
    facts: dict[str, Any] = {
        "file": file,
        "format": "relunmd model",
        "shape": list(d.shape),
        "rank": d.rank,
        "dtype": str(d.W.dtype),
        "error": d.error,
        "algorithm": d.algorithm,
        "settings": dict(d.settings),
        "init": d.init,
        "iterations": d.n_iter,
        "best_iteration": d.best_iter,
        "seconds": d.time,
        "status": d.status.name,
        "message": shared.spoken(d.message),
        "memory": {"for_W_and_H": d.W.nbytes + d.H.nbytes},
        "numbers_in_W_and_H": d.W.size + d.H.size,
    }
    if d.fingerprint is not None:
        X = d.fingerprint
        facts["of_a_matrix"] = {
            "dtype": X.dtype,
            "nonzeros": X.nonzeros,
            "zeros": round(1 - X.nonzeros / (X.shape[0] * X.shape[1]), 6),
            "norm": X.norm,
        }
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
@click.option("--sparse", is_flag=True, help="Leave the zeros out, in .npz, .mtx, .mat, .h5 or .zarr.")
@shared.matrix_options
@shared.force_option
@shared.quiet_option
def convert(
    source: str, target: str, sparse: bool, array: str | None, names: str | None, force: bool, quiet: bool
) -> None:
    """Write the matrix in IN to OUT, in the form that OUT's name ends in.

    Endings: .npy, .npz, .mtx, .mat, .csv, .tsv, .mtx.gz, .csv.gz, .tsv.gz, .parquet, .h5, .hdf5, .zarr. A sparse
    matrix stays sparse where OUT can hold one, and becomes an array in .npy, text and Parquet.
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
        shared.tell_note(opened, source, quiet)
        matrix = check_matrix(opened.X)

        whole = Parts(matrix.shape, np.dtype(matrix.dtype), matrix.sparse, (part for _, part in row_parts(matrix)))
        write_matrix(place, whole.without_zeros() if sparse else whole)
    if not quiet:
        shared.echo(f"{target}: {matrix.shape[0]} × {matrix.shape[1]}, {whole.usual().dtype}")
