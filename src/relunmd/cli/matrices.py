"""`relunmd info` and `relunmd convert`: what a file is, and the same matrix in another."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relunmd.cli import running

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["convert", "info"]


@click.command(
    epilog="""\b
Examples:
  relunmd info digits.npy
  relunmd info model.npz
  relunmd info digits.npy --json"""
)
@click.argument("file", type=click.Path())
@running.array_option
@running.json_option
def info(file: str, array: str | None, as_json: bool) -> None:
    """Tell what a file holds.

    Of a matrix: its shape, zeros, range and memory, and what would suit it. Of a model: how it was made and how good it
    is. The matrix is read once from beginning to end, a part at a time.
    """
    from relunmd.archive import kind_of

    kind = kind_of(Path(file))
    facts = {"model": _of_model, "checkpoint": _of_checkpoint}[kind](file) if kind else _of_matrix(file, array)
    if as_json:
        import json

        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        lines = value if isinstance(value, list) and value and isinstance(value[0], str) else [_told(value)]
        for number, line in enumerate(lines):
            click.echo(f"{name.replace('_', ' ') if number == 0 else '':{width}}  {running.spoken(line)}")


def _told(value: Any) -> str:
    if isinstance(value, list):
        return " × ".join(str(part) for part in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items()) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _of_matrix(file: str, array: str | None) -> dict[str, Any]:
    from relunmd.memory import human_bytes
    from relunmd.readers import open_matrix
    from relunmd.survey import survey

    with open_matrix(file, array) as opened:
        found = survey(opened.X)
    facts: dict[str, Any] = {"file": file, "format": opened.format}
    if opened.entry.name:
        facts["array"] = opened.entry.name
    others = [str(entry) for entry in opened.entries if entry is not opened.entry]
    if others:
        facts["other_arrays"] = others
    facts |= {
        "shape": list(found.shape),
        "dtype": found.dtype,
        "stored": opened.entry.stored,
        "nonzeros": found.nonzeros,
        "zeros": f"{100 * found.zeros:.4g} %",
        "smallest": None if math.isnan(found.smallest) else found.smallest,
        "largest": None if math.isnan(found.largest) else found.largest,
        "norm": found.norm,
        "memory": f"{human_bytes(found.nbytes)} as it is; {human_bytes(found.dense_nbytes)} as an array, "
        f"{human_bytes(found.sparse_nbytes)} sparse",
        "advice": found.advice(),
    }
    if not found.obstacle:
        rank = found.suggested_rank
        facts["to_begin_with"] = (
            f"relunmd fit {file} --rank {rank} -o model.npz  (takes about {human_bytes(found.fit_nbytes(rank))} of "
            f"memory{'' if opened.entry.lazy else ' besides the matrix'})"
        )
    return facts


def _of_model(file: str) -> dict[str, Any]:
    import relunmd
    from relunmd.memory import human_bytes

    d = relunmd.Decomposition.load(file)
    numbers = d.W.size + d.H.size
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
        "iterations": f"{d.n_iter}, the best of them {d.best_iter}",
        "seconds": d.time,
        "status": f"{d.status.name}: {running.spoken(d.message)}",
        "memory": human_bytes(d.W.nbytes + d.H.nbytes),
    }
    if d.fingerprint is not None:
        X = d.fingerprint
        zeros = 1 - X.nonzeros / (X.shape[0] * X.shape[1])
        facts["of_a_matrix"] = f"{X.dtype}, {100 * zeros:.4g} % zeros, norm {X.squares**0.5:.6g}"
        facts["numbers"] = f"{numbers} in W and H for {X.nonzeros} nonzeros, {X.nonzeros / numbers:.3g} to 1"
    return facts


def _of_checkpoint(file: str) -> dict[str, Any]:
    from relunmd.checkpoint import described

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
@running.array_option
@running.force_option
@running.quiet_option
def convert(source: str, target: str, sparse: bool, array: str | None, force: bool, quiet: bool) -> None:
    """Write the matrix in IN to OUT, in the form that OUT's name ends in.

    Endings: .npy, .npz, .mtx, .mat, .csv, .tsv, .mtx.gz, .csv.gz, .tsv.gz, .parquet, .h5, .hdf5, .zarr. A sparse
    matrix stays sparse where OUT can hold one, and becomes an array in .npy, text and Parquet.
    """
    import numpy as np

    from relunmd.readers import open_matrix
    from relunmd.survey import row_parts
    from relunmd.validation import check_matrix
    from relunmd.writers import Parts, check_suffix, write_matrix

    place = running.check_output(target, force, source)
    check_suffix(place)
    with open_matrix(source, array) as opened:
        matrix = check_matrix(opened.X)

        def parts() -> "Iterator[Any]":
            from scipy.sparse import csr_array

            for _, part in row_parts(matrix):
                yield csr_array(part) if sparse and not matrix.sparse else part

        write_matrix(place, Parts(matrix.shape, np.dtype(matrix.dtype), sparse or matrix.sparse, parts()))
    if not quiet:
        click.echo(f"{target}: {matrix.shape[0]} × {matrix.shape[1]}, {matrix.dtype}")
