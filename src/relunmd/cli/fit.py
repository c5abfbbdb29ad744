"""`relunmd fit`: a decomposition of a matrix file, with live progress, that Ctrl-C cannot lose."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from relunmd.cli import running
from relunmd.errors import FileError, InputError

if TYPE_CHECKING:
    from relunmd.result import Decomposition

__all__ = ["fit"]


def _names(kind: str) -> Any:
    """Completes the names that the library knows, with a line on each."""

    def complete(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
        import relunmd

        known = {"auto": "the default"} | (relunmd.algorithms() if kind == "algorithm" else relunmd.inits())
        return [CompletionItem(name, help=line) for name, line in known.items() if name.startswith(incomplete)]

    return complete


@click.command(
    epilog="""\b
Examples:
  relunmd fit digits.npy --rank 16 --seed 0 -o model.npz
  relunmd fit digits.npy -r 16 --seed 0 --target-error 0.2 --json -q -o small.npz
  relunmd fit digits.npy -r 16 --seed 0 --max-time 60 --checkpoint run.npz -o long.npz
  relunmd fit digits.npy -r 20 --init model.npz --max-iter 50 -o better.npz

\b
Ctrl-C saves the best so far. With --checkpoint the same command goes on from there, after Ctrl-C,
a kill or a limit that was too small, and ends with the same model as if it had never stopped."""
)
@click.argument("matrix", metavar="INPUT", type=click.Path())
@click.option("--rank", "-r", type=int, required=True, metavar="R", help="Number of components.")
@click.option("--output", "-o", required=True, metavar="MODEL", type=click.Path(), help="The model, a .npz file.")
@click.option(
    "--algorithm",
    default="auto",
    metavar="NAME",
    shell_complete=_names("algorithm"),
    help="A name of `relunmd algorithms`; auto is the flagship, qn.",
)
@click.option(
    "--init",
    default="auto",
    metavar="NAME|MODEL",
    shell_complete=_names("init"),
    help="A start of `relunmd algorithms`, or a model of the same or a smaller rank to go on from.",
)
@click.option("--target-error", type=float, metavar="E", help="Stop once the relative error is at most this.")
@click.option(
    "--tol",
    type=float,
    default=1e-4,
    show_default=True,
    help="Stop once the error has fallen by less than this fraction in 10 iterations; 0 turns it off.",
)
@click.option("--max-iter", type=int, default=1000, show_default=True, metavar="N", help="Most iterations.")
@click.option("--max-time", type=float, metavar="SECONDS", help="Most seconds; an iteration begun is finished.")
@click.option("--seed", type=int, metavar="N", help="The same seed gives the same model, whatever --threads is.")
@click.option("--dtype", metavar="float32|float64", help="What to compute in; by default as the matrix is stored.")
@running.threads_option
@click.option("--starts", type=int, default=1, show_default=True, metavar="K", help="Race K starts, keep the best.")
@click.option("--ridge", type=float, default=0.0, metavar="λ", help="Adds λ‖X‖(‖W‖² + ‖H‖²) to the squared error.")
@click.option("--checkpoint", metavar="FILE", type=click.Path(), help="Write the run down here, and go on from it.")
@click.option(
    "--checkpoint-every",
    type=float,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Least number of seconds between two of them.",
)
@running.array_option
@running.force_option
@running.json_option
@running.quiet_option
def fit(
    matrix: str,
    rank: int,
    output: str,
    algorithm: str,
    init: str,
    target_error: float | None,
    tol: float,
    max_iter: int,
    max_time: float | None,
    seed: int | None,
    dtype: str | None,
    threads: int | None,
    starts: int,
    ridge: float,
    checkpoint: str | None,
    checkpoint_every: float,
    array: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find W and H of rank R with X ≈ max(0, WH), X being the matrix in INPUT.

    INPUT is a matrix file of any known kind, a Zarr store or a folder of grey images. A .npy, .h5 or .zarr larger than
    memory is read a part at a time.
    """
    from contextlib import nullcontext

    import relunmd
    from relunmd.progress import ProgressDisplay
    from relunmd.readers import open_matrix
    from relunmd.validation import check_algorithm, check_limits, check_ridge

    method = check_ridge(check_algorithm(algorithm), ridge)
    limits = check_limits(target_error, tol, max_iter, max_time)
    read = [matrix] if checkpoint is None else [matrix, checkpoint]
    place = running.check_output(output, force or _goes_on(output, checkpoint), *read)
    start = _start(init)
    if checkpoint is not None and Path(checkpoint).exists() and not quiet:
        click.echo(f"Going on from {checkpoint}.", err=True)
    with open_matrix(matrix, array) as opened:
        title = f"{method.name}, rank {rank}"
        display = nullcontext() if quiet else ProgressDisplay(title, limits, running.console())
        with display as callback:
            d = relunmd.decompose(
                opened.X,
                rank,
                method,
                start,
                target_error=target_error,
                tol=tol,
                max_iter=max_iter,
                max_time=max_time,
                random_state=seed,
                dtype=dtype,
                n_jobs=threads,
                n_starts=starts,
                callback=callback,
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every,
            )
    with running.interruptible_not():
        output = _saved(d, place, output)
    _tell(d, matrix, output, checkpoint, as_json, quiet)


def _goes_on(output: str, checkpoint: str | None) -> bool:
    """Whether the model that is there is of the run that the checkpoint is of: its continuation may replace it."""
    if checkpoint is None or not Path(checkpoint).exists() or not Path(output).is_file():
        return False
    from relunmd.checkpoint import written_by
    from relunmd.result import Decomposition

    try:
        model = Decomposition.load(output)
    except FileError:
        return False
    return written_by(Path(checkpoint), model.history.columns)


def _start(init: str) -> "str | Decomposition":
    """A start by its name, or the model in a file."""
    import relunmd
    from relunmd.init import INITS

    if init.lower() in INITS or init.lower() == "auto":
        return init
    if not Path(init).exists():
        raise InputError(f"--init must be one of {', '.join(INITS)}, or a model file. Got {init!r}.")
    return relunmd.Decomposition.load(init)


def _saved(d: "Decomposition", place: Path, output: str) -> str:
    """Save the model; where that fails, somewhere else: hours may have gone into it."""
    import tempfile

    try:
        d.save(place)
    except FileError as reason:
        refuge = Path(tempfile.mkdtemp(prefix="relunmd-")) / place.name
        d.save(refuge)
        click.echo(f"Warning: {running.spoken(str(reason))} The model is saved in {refuge} instead.", err=True)
        return str(refuge)
    return output


def _tell(d: "Decomposition", matrix: str, output: str, checkpoint: str | None, as_json: bool, quiet: bool) -> None:
    from relunmd.result import Status

    interrupted = d.status is Status.INTERRUPTED
    if as_json:
        import json

        click.echo(json.dumps(_summary(d, matrix, output, checkpoint), ensure_ascii=False))
    elif not quiet:
        unit = "iteration" if d.n_iter == 1 else "iterations"
        why = "" if interrupted else f" {running.spoken(d.message)}"
        click.echo(f"error {d.error:.6g} after {d.n_iter} {unit} in {d.time:.3g} s.{why}")
        click.echo(f"{output}: W {d.W.shape[0]} × {d.rank}, H {d.rank} × {d.H.shape[1]}, {d.W.dtype}")
    if interrupted:
        again = f"The same command goes on from {checkpoint}." if checkpoint else (
            f"To go on from it, give --init {output} and another -o; with --checkpoint FILE a run goes on as it was."
        )  # fmt: skip
        click.echo(f"Interrupted: the best so far is saved in {output}. {again}", err=True)
    code = running.INTERRUPTED if interrupted else 1 if d.status is Status.FAILED else 0
    click.get_current_context().exit(code)


def _summary(d: "Decomposition", matrix: str, output: str, checkpoint: str | None) -> dict[str, Any]:
    import relunmd

    return {
        "input": matrix,
        "model": output,
        "checkpoint": checkpoint,
        "shape": list(d.shape),
        "rank": d.rank,
        "dtype": str(d.W.dtype),
        "algorithm": d.algorithm,
        "init": d.init,
        "error": d.error,
        "iterations": d.n_iter,
        "passes": int(d.history.passes[-1]),
        "seconds": d.time,
        "seconds_of_the_start": d.init_time,
        "status": d.status.name,
        "message": running.spoken(d.message),
        "relunmd": relunmd.__version__,
    }
