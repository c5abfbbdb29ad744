"""Commands on files: `relunmd info` and `convert`; with a model, `relunmd transform` and `reconstruct`."""

import math
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click

import relunmd
from relunmd.cli import shared
from relunmd.cli.process import main
from relunmd.errors import InputError

_PART_BYTES = 2**25


@main.command()
@shared.input_argument("file")
@shared.options("array", "names", "json")
def info(file: str) -> None:
    """Describe a matrix, a model or a checkpoint.

    For a matrix: its shape, zeros, range, memory and a suitable algorithm and rank. For a model: its settings and
    error. The matrix is read once, in parts.

    Examples
    --------
      relunmd info digits.npy
      relunmd info model.npz
      relunmd info digits.npy --json
    """
    from relunmd.io.archive import kind_of

    facts = {"model": _of_model, "checkpoint": _of_checkpoint, None: _of_matrix}[kind_of(Path(file))](file)
    shown = {name: value for name, value in facts.items() if value not in (None, "", [])}
    lines = []
    for name, value in shown.items():
        texts = value if isinstance(value, list) and name != "shape" else [_formatted(name, value)]
        for label, text in zip_longest([name.replace("_", " ")], texts, fillvalue=""):
            lines.append(f"{label:{max(map(len, shown))}}  {shared.one_line(text)}")
    shared.report(facts, *lines)


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


def _of_matrix(file: str) -> dict[str, Any]:
    from relunmd.inspection import inspect_matrix
    from relunmd.io.readers import open_matrix

    names = shared.given("names")
    with shared.working(f"reading {file}"), open_matrix(file, shared.given("array"), names) as opened:
        found = inspect_matrix(opened.X)
    entry, rank, decomposable = opened.entry, found.suggested_rank, found.obstacle is None
    memory = {"as_stored": found.nbytes, "dense": found.dense_nbytes, "sparse": found.sparse_nbytes}
    memory |= {"additional_for_a_fit": found.fit_nbytes(rank)} if decomposable else {}
    options = ["--array", entry.name] if len(opened.entries) > 1 else []
    options += ["--names", names] if names is not None else []
    command = shlex.join(["relunmd", "fit", file, *options, "--rank", str(rank), "-o", "model.npz"])
    others = [str(other) for other in opened.entries if other is not entry]
    facts: dict[str, Any] = {"file": file, "format": opened.format, "array": entry.name or None, "other_arrays": others}
    facts |= {"note": entry.note or None, "stored": entry.stored, **asdict(found), "zeros": found.zeros}
    facts |= {"memory": memory, "decomposable": decomposable, "advice": found.advice()}
    return facts | {"suggested_command": command if decomposable else None}


def _of_model(file: str) -> dict[str, Any]:
    d = relunmd.Decomposition.load(file)
    facts = {"file": file, "format": "relunmd model"} | shared.model_facts(d)
    facts |= {"settings": dict(d.settings), "best_iteration": d.best_iter}
    facts |= {"memory": {"W_and_H": d.W.nbytes + d.H.nbytes}, "numbers_in_W_and_H": d.W.size + d.H.size}
    if d.fingerprint is not None:
        X = d.fingerprint
        zeros = round(1 - X.nonzeros / max(1, math.prod(X.shape) - X.missing), 6)
        facts["matrix"] = {"dtype": X.dtype, "nonzeros": X.nonzeros, "zeros": zeros, "norm": X.norm}
        facts["matrix"] |= {"missing": X.missing} if X.missing else {}
    return facts


def _of_checkpoint(file: str) -> dict[str, Any]:
    from relunmd.loop.checkpoint import described

    return {"file": file, "format": "relunmd checkpoint"} | described(Path(file))


@main.command()
@shared.input_argument("source", metavar="IN")
@click.argument("target", metavar="OUT", type=click.Path())
@shared.options("sparse", "array", "names", "force", "quiet")
def convert(source: str, target: str) -> None:
    """Write the matrix in IN to OUT, in the format of OUT's extension.

    Extensions: .npy, .npz, .mtx, .mat, .csv, .tsv, .mtx.gz, .csv.gz, .tsv.gz, .parquet, .h5, .hdf5, .zarr. A sparse
    matrix stays sparse where the format supports it; .npy, text and Parquet are dense.

    Examples
    --------
      relunmd convert digits.npy digits.mtx.gz --sparse
      relunmd convert digits.npy digits.csv
      relunmd convert digits.mtx.gz digits.h5
    """
    import numpy as np

    from relunmd.engine.problem_setup import check_matrix
    from relunmd.inspection import row_parts
    from relunmd.io.writers import Parts, check_suffix, write_matrix

    place = shared.check_output(target, source)
    check_suffix(place, shared.given("sparse"))
    with shared.opened(source) as opened, shared.working(f"writing {target}"):
        matrix = check_matrix(opened.X)
        whole = Parts(matrix.shape, np.dtype(matrix.dtype), matrix.sparse, (part for _, part in row_parts(matrix)))
        write_matrix(place, whole.without_zeros() if shared.given("sparse") else whole)
    shared.say(f"{target}: {matrix.shape[0]} × {matrix.shape[1]}, {whole.usual().dtype}")


@main.command()
@click.argument("model", type=click.Path())
@shared.input_argument("matrix", metavar="INPUT")
@click.option("--output", "-o", required=True, metavar="OUT", type=click.Path(), help="W, as .npy, .csv, .h5, …")
@shared.threads_option
@shared.entry_options
@shared.options("array", "names", "force", "json", "quiet")
def transform(model: str, matrix: str, output: str, threads: int | None) -> None:
    """Find the rows of W that fit new data best with the model's H.

    INPUT must have as many columns as the matrix of the model. OUT has one row for each row of INPUT and one column for
    each component.

    Examples
    --------
      relunmd transform model.npz digits.npy -o W.npy
      relunmd transform model.npz digits.npy --json -o W.csv
    """
    from relunmd.engine.problem_setup import check_matrix
    from relunmd.io.writers import Parts, check_suffix, write_matrix

    place = shared.check_output(output, model, matrix)
    check_suffix(place)
    d = relunmd.Decomposition.load(model)
    with shared.opened(matrix) as opened, shared.entries() as entries, shared.working("fitting rows"):
        n = check_matrix(opened.X).shape[1]
        if n != d.shape[1]:
            raise InputError(f"{matrix} must have {d.shape[1]} columns, as {model} has; got {n}.")
        options: dict[str, Any] = {"penalty": _penalty(d), "candidates": d.W, "dtype": d.H.dtype} | entries
        found = relunmd.fit_rows(opened.X, d.H, n_jobs=threads or shared.ALL_CORES, **options)
    write_matrix(place, Parts.of(found.W))
    rows = len(found.W)
    if found.limited:
        shared.echo(f"Warning: {found.limited} of {rows} rows did not converge.", err=True)
    facts = {"model": model, "input": matrix, "output": output, "rows": rows, "rank": d.rank, "error": found.error}
    facts["not_converged"] = found.limited
    shared.report(facts, f"{output}: {rows} × {d.rank}, error {found.error:.6g}")


def _penalty(d: "relunmd.Decomposition") -> float:
    """Return the ridge of the fit in units of the squared error of a row, as the estimator does."""
    ridge = float(d.settings.get("ridge") or 0.0)
    return ridge * d.fingerprint.norm if ridge and d.fingerprint is not None else 0.0


@main.command()
@click.argument("model", type=click.Path())
@click.option("--rows", default="::", metavar="ROWS", help="Rows, counted from 0: 0:10, 3,5,8 or ::100.")
@click.option("--output", "-o", required=True, metavar="OUT", type=click.Path(), help="As .npy, .csv, .h5, …")
@click.option("--latent", is_flag=True, help="Write WH itself; the more negative an entry, the surer its zero.")
@shared.options("sparse", "force", "quiet")
def reconstruct(model: str, rows: str, output: str, latent: bool) -> None:
    """Write max(0, WH), the approximation of X, or some of its rows.

    Examples
    --------
      relunmd reconstruct model.npz --rows 0:10 -o first.csv
      relunmd reconstruct model.npz --rows 3,5,8 --latent -o scores.npy
      relunmd reconstruct model.npz --sparse -o approximation.npz
    """
    import numpy as np

    from relunmd.io.writers import Parts, check_suffix, write_matrix

    place = shared.check_output(output, model)
    check_suffix(place, shared.given("sparse"))
    d = relunmd.Decomposition.load(model)
    chosen = _rows(rows, len(d.W))
    shape = len(chosen), d.shape[1]
    height = max(1, _PART_BYTES // (shape[1] * d.H.itemsize))
    pieces = (np.asarray(chosen[start : start + height]) for start in range(0, shape[0], height))
    whole = Parts(shape, d.H.dtype, False, (d.reconstruct(piece, relu=not latent) for piece in pieces))
    write_matrix(place, whole.without_zeros() if shared.given("sparse") else whole)
    shared.say(f"{output}: {shape[0]} × {shape[1]}")


def _rows(text: str, count: int) -> Sequence[int]:
    """Parse row numbers such as 0:10, 3,5,8 or ::100; raise InputError if they are invalid.

    >>> _rows("2:5", 10), _rows("3,5,-1", 10)
    (range(2, 5), [3, 5, 9])
    """
    rows = range(count)
    with suppress(ValueError, IndexError, TypeError):
        if ":" in text:
            found: Sequence[int] = rows[slice(*(int(part) if part else None for part in text.split(":")))]
        else:
            found = [rows[int(part)] for part in text.split(",")]
        if found:
            return found
    raise InputError(f"--rows must be rows from 0 to {count - 1}, such as 0:10 or 3,5,8; got {text!r}.")
