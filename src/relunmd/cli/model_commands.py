"""`relunmd transform` and `relunmd reconstruct`: apply a model."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from relunmd.cli import shared
from relunmd.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relunmd.result import Decomposition

_PART_BYTES = 2**25


@click.command(
    epilog="""\b
Examples:
  relunmd transform model.npz digits.npy -o W.npy
  relunmd transform model.npz digits.npy --json -o W.csv"""
)
@click.argument("model", type=click.Path())
@click.argument("matrix", metavar="INPUT", type=click.Path())
@click.option("--output", "-o", required=True, metavar="OUT", type=click.Path(), help="W, as .npy, .csv, .h5, …")
@shared.threads_option
@shared.matrix_options
@shared.force_option
@shared.json_option
@shared.quiet_option
def transform(
    model: str,
    matrix: str,
    output: str,
    threads: int | None,
    array: str | None,
    names: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find the rows of W that fit new data best with the model's H.

    INPUT must have as many columns as the matrix of the model. OUT has one row for each row of INPUT and one column for
    each component.
    """
    import relunmd
    from relunmd.engine.problem_setup import check_matrix
    from relunmd.io.readers import open_matrix
    from relunmd.io.writers import Parts, check_suffix, write_matrix

    shared.check_input(matrix)
    place = shared.check_output(output, force, model, matrix)
    check_suffix(place)
    d = relunmd.Decomposition.load(model)
    with open_matrix(matrix, array, names) as opened, shared.working("fitting rows", quiet):
        shared.echo_note(opened, matrix, quiet)
        shape = check_matrix(opened.X).shape
        if shape[1] != d.shape[1]:
            raise InputError(f"{matrix} must have {d.shape[1]} columns, as {model} has; got {shape[1]}.")
        n_jobs = threads or shared.ALL_CORES
        found = relunmd.fit_rows(opened.X, d.H, penalty=_penalty(d), candidates=d.W, dtype=d.H.dtype, n_jobs=n_jobs)
    write_matrix(place, Parts.of(found.W))
    rows = len(found.W)
    if found.limited:
        shared.echo(f"Warning: {found.limited} of {rows} rows did not converge.", err=True)
    if as_json:
        facts = {"model": model, "input": matrix, "output": output, "rows": rows, "rank": d.rank, "error": found.error}
        shared.echo_json(facts | {"not_converged": found.limited})
    elif not quiet:
        shared.echo(f"{output}: {rows} × {d.rank}, error {found.error:.6g}")


def _penalty(d: "Decomposition") -> float:
    """Return the ridge of the fit in units of the squared error of a row, as the estimator does."""
    ridge = float(d.settings.get("ridge") or 0.0)
    return ridge * d.fingerprint.norm if ridge and d.fingerprint is not None else 0.0


@click.command(
    epilog="""\b
Examples:
  relunmd reconstruct model.npz --rows 0:10 -o first.csv
  relunmd reconstruct model.npz --rows 3,5,8 --latent -o scores.npy
  relunmd reconstruct model.npz --sparse -o approximation.npz"""
)
@click.argument("model", type=click.Path())
@click.option("--rows", default="::", metavar="ROWS", help="Rows, counted from 0: 0:10, 3,5,8 or ::100.")
@click.option("--output", "-o", required=True, metavar="OUT", type=click.Path(), help="As .npy, .csv, .h5, …")
@click.option("--latent", is_flag=True, help="Write WH itself; the more negative an entry, the surer its zero.")
@shared.sparse_option
@shared.force_option
@shared.quiet_option
def reconstruct(model: str, rows: str, output: str, latent: bool, sparse: bool, force: bool, quiet: bool) -> None:
    """Write max(0, WH), the approximation of X, or some of its rows."""
    import numpy as np

    import relunmd
    from relunmd.io.writers import Parts, check_suffix, write_matrix

    place = shared.check_output(output, force, model)
    check_suffix(place, sparse)
    d = relunmd.Decomposition.load(model)
    chosen = _rows(rows, len(d.W))
    shape = len(chosen), d.H.shape[1]

    def parts() -> "Iterator[Any]":
        height = max(1, _PART_BYTES // (shape[1] * d.H.itemsize))
        for start in range(0, shape[0], height):
            yield d.reconstruct(np.asarray(chosen[start : start + height]), relu=not latent)

    whole = Parts(shape, np.dtype(d.H.dtype), False, parts())
    write_matrix(place, whole.without_zeros() if sparse else whole)
    if not quiet:
        shared.echo(f"{output}: {shape[0]} × {shape[1]}")


def _rows(text: str, count: int) -> "Sequence[int]":
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
