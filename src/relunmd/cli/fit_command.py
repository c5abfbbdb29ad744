"""`relunmd fit`: a decomposition of a matrix file, with live progress, that Ctrl-C cannot lose."""

from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from relunmd.cli import shared
from relunmd.errors import FileError, InputError

if TYPE_CHECKING:
    from relunmd.algorithm import Algorithm
    from relunmd.result import Decomposition

__all__ = ["fit"]

_OTHER_SUFFIXES = {".npy", ".mtx", ".mat", ".csv", ".tsv", ".txt", ".parquet", ".h5", ".hdf5", ".h5ad", ".zarr", ".gz"}
"""Of files that a model is not."""


def _names(kind: str) -> Any:
    """Completes the names that the library knows, with a line on each."""

    def complete(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
        import relunmd

        known = {"auto": "the default"} | (relunmd.algorithms() if kind == "algorithm" else relunmd.inits())
        found = [CompletionItem(name, help=line) for name, line in known.items() if name.startswith(incomplete)]
        return found if found or kind == "algorithm" else [CompletionItem(incomplete, type="file")]

    return complete


@click.command(
    epilog="""\b
Examples:
  relunmd fit digits.npy --rank 16 --seed 0 -o model.npz
  relunmd fit digits.npy -r 16 --target-error 0.2 --json -q -o small.npz
  relunmd fit digits.npy -r 16 --max-time 60 --checkpoint run.npz -o long.npz
  relunmd fit digits.npy -r 20 --init model.npz --max-iter 50 -o better.npz

\b
Ctrl-C, SIGTERM and SIGHUP save the best so far. With --checkpoint the same
command resumes after them, a kill or a limit that was too small, and ends with
the same model as if it had never stopped; its own MODEL it overwrites without
--force. Exit codes: 0; 2 for what cannot be used; 130 after Ctrl-C; 1 if it
failed, or saved MODEL in another folder. Messages that cannot be printed are
dropped."""
)
@click.argument("matrix", metavar="INPUT", type=click.Path())
@click.option("--rank", "-r", type=click.IntRange(min=1), required=True, metavar="R", help="Number of components.")
@click.option("--output", "-o", required=True, metavar="MODEL", type=click.Path(), help="The model, a .npz file.")
@click.option(
    "--algorithm",
    default="auto",
    metavar="NAME",
    shell_complete=_names("algorithm"),
    help="One of `relunmd algorithms`; auto, the default, is the best in general.",
)
@click.option(
    "--init",
    default="auto",
    metavar="NAME|MODEL",
    shell_complete=_names("init"),
    help="A start of `relunmd algorithms`, or a model of the same or a smaller rank to go on from.",
)
@click.option(
    "--target-error", type=click.FloatRange(0, 1), metavar="E", help="Stop once the relative error is at most this."
)
@click.option(
    "--tol",
    type=click.FloatRange(0, 1, max_open=True),
    default=1e-4,
    show_default=True,
    metavar="SHARE",
    help="Stop once the error has fallen by less than this share in 10 iterations; 0 turns it off.",
)
@click.option(
    "--max-iter",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    metavar="N",
    help="Maximum number of iterations.",
)
@click.option(
    "--max-time",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Maximum time; an iteration that has begun is finished.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="The same seed gives the same model, with any --threads."
)
@click.option(
    "--dtype", type=click.Choice(["float32", "float64"]), help="What to compute in; by default as the matrix is stored."
)
@shared.threads_option
@click.option(
    "--dask",
    "dask",
    metavar="ADDRESS|local",
    help="Compute on a Dask cluster: its scheduler's address, or local for worker processes here, --threads of them.",
)
@click.option(
    "--starts",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="K",
    help="Race K starts and keep the best.",
)
@click.option(
    "--ridge",
    type=click.FloatRange(0),
    default=0.0,
    metavar="λ",
    help="Adds λ‖X‖(‖W‖² + ‖H‖²) to the squared error; 1e-4 to 1e-2 is usual.",
)
@click.option("--checkpoint", metavar="FILE", type=click.Path(), help="Save the run here, and resume from it.")
@click.option(
    "--checkpoint-every",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two checkpoints, at least.",
)
@shared.matrix_options
@shared.force_option
@shared.json_option
@shared.quiet_option
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
    dask: str | None,
    starts: int,
    ridge: float,
    checkpoint: str | None,
    checkpoint_every: float,
    array: str | None,
    names: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find W and H of rank R with X ≈ max(0, WH), X being the matrix in INPUT.

    INPUT is a matrix file of any known kind, a Zarr store or a folder of grey images. A .npy, .h5 or .zarr larger than
    memory is read a part at a time. With --dask it is a Zarr store, an HDF5, .npy or Parquet file, or a folder of .npy,
    .npz or .parquet files with some rows each, which the workers read.
    """
    import relunmd
    from relunmd.arguments import check_limits
    from relunmd.io.archive import kind_of
    from relunmd.io.readers import open_matrix
    from relunmd.loop.progress_display import ProgressDisplay

    shared.check_input(matrix)
    method = _method(algorithm, ridge)
    limits = check_limits(target_error, tol, max_iter, max_time)
    read = [matrix] if checkpoint is None else [matrix, checkpoint]
    place = shared.check_output(output, force or _goes_on(output, checkpoint), *read)
    if Path(output).suffix in _OTHER_SUFFIXES:
        raise InputError(f"The model is a .npz file. Got {output}, by its name something else.")
    start = _start(init, rank)
    if checkpoint is not None and kind_of(Path(checkpoint)) == "checkpoint" and not quiet:
        shared.echo(f"Going on from {checkpoint}.", err=True)
    with shared.Presses() as presses, ExitStack() as stack:
        if dask is None:
            opened = stack.enter_context(open_matrix(matrix, array, names))
            shared.tell_note(opened, matrix, quiet)
            X = opened.X
        else:
            from relunmd.cli.dask_option import on_dask

            X = stack.enter_context(on_dask(dask, matrix, array, names, threads, quiet))
        title = f"{method.name}, rank {rank}"
        with nullcontext() if quiet else ProgressDisplay(title, limits, shared.console()) as display:

            def after_iteration(step: relunmd.Progress) -> bool:
                presses.something_to_save = True
                if display is not None:
                    display(step)
                if presses.heard:
                    raise KeyboardInterrupt
                return False

            d = relunmd.decompose(
                X,
                rank,
                method,
                start,
                target_error=target_error,
                tol=tol,
                max_iter=max_iter,
                max_time=max_time,
                random_state=seed,
                dtype=dtype,
                n_jobs=threads or shared.ALL_CORES,
                n_starts=starts,
                callback=after_iteration,
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every,
            )
            presses.something_to_save = True  # A run that was resumed may have ended without an iteration.
        presses.heard = presses.heard or d.status is relunmd.Status.INTERRUPTED
        presses.saving = True
        output, elsewhere = _saved(d, place, output, checkpoint)
        _tell(d, matrix, output, checkpoint, as_json, quiet)
        if ridge > 0 and d.best_iter == 0 < d.n_iter:
            shared.echo("Warning: no iteration was better than the start; a smaller --ridge may be.", err=True)
        if target_error is not None and d.status is not relunmd.Status.TARGET and not quiet:
            shared.echo(f"--target-error {target_error:g} was not reached.", err=True)
    codes = {relunmd.Status.INTERRUPTED: shared.INTERRUPTED, relunmd.Status.FAILED: 1, relunmd.Status.READ_FAILED: 1}
    click.get_current_context().exit(codes.get(d.status, int(elsewhere)))


def _method(name: str, ridge: float) -> "Algorithm":
    """The algorithm of that name, with a ridge if one is given."""
    import relunmd
    from relunmd.arguments import check_algorithm, check_ridge

    if name.lower() not in {"auto", *relunmd.algorithms()}:
        raise InputError(f"--algorithm must be one of auto, {', '.join(relunmd.algorithms())}. Got {name!r}.")
    return check_ridge(check_algorithm(name), ridge)


def _goes_on(output: str, checkpoint: str | None) -> bool:
    """Whether the model that is there is of the run that the checkpoint is of: its continuation may replace it."""
    if checkpoint is None or not Path(checkpoint).exists() or not Path(output).is_file():
        return False
    from relunmd.loop.checkpoint import written_by
    from relunmd.result import Decomposition

    try:
        model = Decomposition.load(output)
    except FileError:
        return False
    return written_by(Path(checkpoint), model.history.columns)


def _start(init: str, rank: int) -> "str | Decomposition":
    """A start by its name, or the model in a file."""
    import relunmd
    from relunmd.init import INITS

    if init.lower() in INITS or init.lower() == "auto":
        return init
    if not Path(init).exists():
        raise InputError(f"--init must be one of {', '.join(INITS)}, or a model file. Got {init!r}.")
    model = relunmd.Decomposition.load(init)
    if model.rank > rank:
        raise InputError(f"--init must be a model of rank {rank} or less. {init} has rank {model.rank}.")
    return model


def _saved(d: "Decomposition", place: Path, output: str, checkpoint: str | None) -> tuple[str, bool]:
    """Save the model; where that fails, in another folder: hours may have gone into it.

    Returns its path and whether it is another than `output`. Raises a ClickException if no folder takes it.
    """
    import tempfile

    try:
        d.save(place)
        return output, False
    except (FileError, OSError) as failure:
        reason = str(failure)
    folders = _other_folders(place, checkpoint)
    for folder in folders:
        try:
            with ExitStack() as stack:
                made = Path(tempfile.mkdtemp(prefix="relunmd-", dir=folder))
                stack.callback(made.rmdir)
                d.save(made / place.name)
                stack.pop_all()
        except (FileError, OSError):
            continue
        other = str(made / place.name)
        shared.echo(f"Warning: {shared.spoken(reason)} The model is saved in {other} instead.", err=True)
        return other, True
    rest = "It is lost; --checkpoint FILE would have kept the run."
    if checkpoint is not None and Path(checkpoint).exists():
        rest = f"The run is kept in {checkpoint}: make room, and give the same command again."
    raise shared.failed(f"{reason} The model cannot be saved in {', '.join(map(str, folders))} either. {rest}")


def _other_folders(place: Path, checkpoint: str | None) -> list[Path]:
    """Where a model may go that its own folder does not take, best first."""
    import tempfile

    found = []
    with suppress(OSError):  # None is writable.
        found.append(Path(tempfile.gettempdir()))
    found.append(Path.cwd())
    with suppress(RuntimeError):  # There is none.
        found.append(Path.home())
    if checkpoint is not None:
        found.append(Path(checkpoint).parent)
    resolved = dict.fromkeys(folder.resolve() for folder in found)
    return [folder for folder in resolved if folder != place.parent.resolve()]


def _tell(d: "Decomposition", matrix: str, output: str, checkpoint: str | None, as_json: bool, quiet: bool) -> None:
    from relunmd.result import Status

    cut = {
        Status.INTERRUPTED: "Interrupted",
        Status.READ_FAILED: f"Error: {matrix} could not be read any more",
    }.get(d.status)
    if as_json:
        import json

        shared.echo(json.dumps(_summary(d, matrix, output, checkpoint)))
    elif not quiet:
        unit = "iteration" if d.n_iter == 1 else "iterations"
        why = "" if cut else f" {shared.spoken(d.message)}"
        shared.echo(f"error {d.error:.6g} after {d.n_iter} {unit} in {d.time:.3g} s.{why}")
        shared.echo(f"{output}: W {d.W.shape[0]} × {d.rank}, H {d.rank} × {d.H.shape[1]}, {d.W.dtype}")
    if cut:
        again = f"The same command goes on from {checkpoint}." if checkpoint else (
            f"To go on from it, give --init {output}; to resume a run as it was, --checkpoint FILE."
        )  # fmt: skip
        shared.echo(f"{cut}: the best so far is saved in {output}. {again}", err=True)


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
        "message": shared.spoken(d.message),
        "relunmd": relunmd.__version__,
    }
