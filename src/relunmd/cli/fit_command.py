"""`relunmd fit`: decompose a matrix file, with live progress; Ctrl-C saves the best factors so far."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import click
from click import FloatRange, IntRange, option
from click.shell_completion import CompletionItem

import relunmd
from relunmd.cli import shared
from relunmd.cli.process import InterruptHandler, main
from relunmd.errors import ClusterError, FileError, InputError

_NOTHING = 0.99
"""The error from which on a model represents nothing."""
_MATRIX_SUFFIXES = {".npy", ".mtx", ".mat", ".csv", ".tsv", ".txt", ".parquet", ".h5", ".hdf5", ".h5ad", ".zarr", ".gz"}
_SECONDS = 15
"""Time limit for a scheduler to answer."""
_LIMITS = ("target_error", "tol", "max_iter", "max_time")


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of algorithms or initializations; for --init also files."""
    known = relunmd.algorithms() if parameter.name == "algorithm" else relunmd.inits()
    names = ({"auto": "the default"} | known).items()
    found = [CompletionItem(name, help=summary) for name, summary in names if name.startswith(incomplete)]
    return found if found or parameter.name == "algorithm" else [CompletionItem(incomplete, type="file")]


@main.command()
@shared.input_argument("matrix", metavar="INPUT")
@click.option("--rank", "-r", type=IntRange(1), required=True, metavar="R", help="Number of components.")
@option("--output", "-o", required=True, metavar="MODEL", type=click.Path(), help="The model, a .npz file.")
@option("--algorithm", default="auto", metavar="NAME", shell_complete=_names, help="See `relunmd algorithms`.")
@option(
    "--init",
    default="auto",
    metavar="NAME|MODEL",
    shell_complete=_names,
    help="Initialization: see `relunmd algorithms`; or a model of the same or a smaller rank.",
)
@option("--target-error", type=FloatRange(0, 1), metavar="E", help="Stop when the relative error is at most E.")
@option(
    "--tol",
    type=FloatRange(0, 1, max_open=True),
    default=1e-3,
    metavar="FRACTION",
    help="Stop if the error decreases by less than this fraction in 10 iterations; 0 disables it.",
)
@option("--max-iter", type=IntRange(0), default=1000, metavar="N", help="Maximum number of iterations.")
@option("--max-time", type=shared.POSITIVE, metavar="SECONDS", help="Time limit; the current iteration is finished.")
@option("--seed", "random_state", type=IntRange(0), metavar="N", help="Same seed, same model, for any --threads.")
@option("--dtype", type=click.Choice(["float32", "float64"]), help="Floating-point type; by default as INPUT.")
@shared.threads_option
@option("--dask", metavar="ADDRESS|local", help="Use a Dask cluster: its address, or local for --threads processes.")
@option("--starts", "n_starts", type=IntRange(1), default=1, metavar="K", help="Race K initializations, keep the best.")
@option("--ridge", type=FloatRange(0), default=0.0, metavar="λ", help="Add λ‖X‖(‖W‖² + ‖H‖²); usual: 1e-3 to 1e-2.")
@option("--checkpoint", metavar="FILE", type=click.Path(), help="Save the run here, and resume from it.")
@option(
    "--checkpoint-every", type=FloatRange(0), default=60.0, metavar="SECONDS", help="Minimum time between checkpoints."
)
@shared.entry_options
@shared.options("array", "names", "force", "json", "quiet")
def fit(
    matrix: str,
    output: str,
    checkpoint: str | None,
    algorithm: str,
    ridge: float,
    dask: str | None,
    threads: int | None,
    **options: Any,
) -> None:
    """Find W and H of rank R with X ≈ max(0, WH), where X is the matrix in INPUT.

    INPUT is a matrix file of any supported format, a Zarr store or a folder of grayscale images. A .npy, .h5 or .zarr
    larger than memory is read in parts. With --dask it is a Zarr store, an HDF5, .npy or Parquet file, or a folder of
    .npy, .npz or .parquet files with some rows each, which the workers read.

    Ctrl-C, SIGTERM and SIGHUP save the best factors so far. With --checkpoint the same command resumes after them,
    after a kill or with a larger limit, and ends with the same model as an uninterrupted run; it overwrites its own
    MODEL without --force.

    Exit codes: 0; 2 for invalid input; 130 after Ctrl-C; 1 if the run failed or MODEL was saved in another folder.
    Messages that cannot be printed are dropped.

    Examples
    --------
      relunmd fit digits.npy --rank 16 --seed 0 -o model.npz
      relunmd fit digits.npy -r 16 --target-error 0.2 --json -q -o small.npz
      relunmd fit digits.npy -r 16 --max-time 60 --checkpoint run.npz -o long.npz
      relunmd fit digits.npy -r 20 --init model.npz --max-iter 50 -o better.npz
      relunmd fit digits.npy -r 16 --upper 16 -o saturated.npz
    """
    from relunmd.arguments import check_limits
    from relunmd.io.archive import kind_of
    from relunmd.loop.progress_display import ProgressDisplay

    method = _algorithm(algorithm, ridge)
    limits = check_limits(*(options[name] for name in _LIMITS))
    inputs = [matrix] if checkpoint is None else [matrix, checkpoint]
    place = shared.check_output(output, *inputs, force=_is_of_same_run(output, checkpoint))
    if Path(output).suffix in _MATRIX_SUFFIXES:
        raise InputError(f"--output must be a .npz file; got {output}.")
    options["init"] = _initial(options["init"], options["rank"])
    if checkpoint is not None and kind_of(Path(checkpoint)) == "checkpoint":
        shared.say(f"Resuming from {checkpoint}.", err=True)
    with InterruptHandler() as interrupts, _opened(matrix, dask, threads) as X, shared.entries() as entries:
        title = f"{method.name}, rank {options['rank']}"
        with nullcontext() if shared.given("quiet") else ProgressDisplay(title, limits, shared.console()) as display:

            def after_iteration(step: relunmd.Progress) -> bool:
                interrupts.can_save = True
                if display is not None:
                    display(step)
                if interrupts.interrupted:
                    raise KeyboardInterrupt
                return False

            options |= {"n_jobs": threads or shared.ALL_CORES, "checkpoint": checkpoint}
            d = relunmd.decompose(X, algorithm=method, callback=after_iteration, **entries, **options)
            interrupts.can_save = True  # A resumed run may end without an iteration.
        interrupts.interrupted |= d.status is relunmd.Status.INTERRUPTED
        interrupts.saving = True
        saved = _save(d, place, output, checkpoint)
        _report(d, matrix, saved, checkpoint)
        if ridge > 0 and d.error > _NOTHING:
            shared.echo("Warning: WH is almost zero; try a smaller --ridge.", err=True)
        if limits.target_error is not None and d.status is not relunmd.Status.TARGET:
            shared.say(f"--target-error {limits.target_error:g} was not reached.", err=True)
    codes = {"INTERRUPTED": shared.INTERRUPTED, "FAILED": 1, "READ_FAILED": 1}
    click.get_current_context().exit(codes.get(d.status.name, int(saved != output)))


def _algorithm(name: str, ridge: float) -> "relunmd.Algorithm":
    """Return the algorithm of that name with the given ridge."""
    from relunmd.arguments import check_algorithm, check_ridge

    if name.lower() not in {"auto", *relunmd.algorithms()}:
        raise InputError(f"--algorithm must be one of auto, {', '.join(relunmd.algorithms())}; got {name!r}.")
    return check_ridge(check_algorithm(name), ridge)


def _is_of_same_run(output: str, checkpoint: str | None) -> bool:
    """Return whether an existing model was saved by the run of the checkpoint, which may then overwrite it."""
    if checkpoint is None or not Path(checkpoint).exists() or not Path(output).is_file():
        return False
    from relunmd.loop.checkpoint import written_by

    try:
        return written_by(Path(checkpoint), relunmd.Decomposition.load(output).history.columns)
    except FileError:
        return False


def _initial(init: str, rank: int) -> "str | relunmd.Decomposition":
    """Return the name of an initialization, or the model in a file."""
    if init.lower() in {"auto", *relunmd.inits()}:
        return init
    if not Path(init).exists():
        raise InputError(f"--init must be one of {', '.join(relunmd.inits())}, or a model file; got {init!r}.")
    model = relunmd.Decomposition.load(init)
    if model.rank > rank:
        raise InputError(f"--init must be a model of rank {rank} or less. {init} has rank {model.rank}.")
    return model


@contextmanager
def _opened(matrix: str, dask: str | None, threads: int | None) -> Iterator[Any]:
    """Open the matrix here or, with --dask, on the workers of a cluster."""
    if dask is None:
        with shared.opened(matrix) as opened:
            yield opened.X
        return
    from relunmd._util import need
    from relunmd.engine.blas_threads import usable_cores
    from relunmd.engine.distributed.file_parts import open_file

    distributed = need("distributed", "--dask needs", "dask")
    with ExitStack() as stack:
        cluster: Any = dask
        if dask == "local":
            preload = "relunmd.engine.distributed.ignore_sigint"
            options = {"n_workers": threads or usable_cores(), "threads_per_worker": 1, "dashboard_address": ":0"}
            cluster = stack.enter_context(distributed.LocalCluster(preload=preload, **options))
        try:
            client = stack.enter_context(distributed.Client(cluster, timeout=_SECONDS))
        except (OSError, ValueError, distributed.TimeoutError) as reason:
            raise ClusterError(
                "--dask must be local, or the address of a scheduler such as tcp://10.0.0.1:8786. "
                f"No scheduler answers at {dask!r}."
            ) from reason
        shared.say(f"{len(client.nthreads())} workers; dashboard {client.dashboard_link}", err=True)
        source = open_file(matrix, shared.given("array"), shared.given("names"), client)
        stack.callback(source.close)
        yield source


def _save(d: "relunmd.Decomposition", place: Path, output: str, checkpoint: str | None) -> str:
    """Save the model and return its path, which is in another folder if it cannot be written to `place`.

    Raises a ClickException if it cannot be saved anywhere.
    """
    try:
        d.save(place)
        return output
    except OSError as failure:
        reason = str(failure)
    folders = _other_folders(place, checkpoint)
    for folder in folders:
        with suppress(OSError), ExitStack() as stack:
            new = Path(tempfile.mkdtemp(prefix="relunmd-", dir=folder))
            stack.callback(new.rmdir)
            d.save(new / place.name)
            stack.pop_all()
            saved = str(new / place.name)
            shared.echo(f"Warning: {shared.one_line(reason)} The model is saved in {saved} instead.", err=True)
            return saved
    rest = "The result is lost; use --checkpoint FILE to keep a run."
    if checkpoint is not None and Path(checkpoint).exists():
        rest = f"The run is kept in {checkpoint}: free some space and repeat the command."
    tried = ", ".join(map(str, folders))
    raise click.ClickException(shared.one_line(f"{reason} The model cannot be saved in {tried} either. {rest}"))


def _other_folders(place: Path, checkpoint: str | None) -> list[Path]:
    """Return the folders to try if a model cannot be written to its own, best first."""
    found = []
    for folder in (tempfile.gettempdir, Path.cwd, Path.home):
        with suppress(OSError, RuntimeError):  # It does not exist or is not writable.
            found.append(Path(folder()))
    if checkpoint is not None:
        found.append(Path(checkpoint).parent)
    resolved = dict.fromkeys(folder.resolve() for folder in found)
    return [folder for folder in resolved if folder != place.parent.resolve()]


def _report(d: "relunmd.Decomposition", matrix: str, output: str, checkpoint: str | None) -> None:
    """Print the result, and how to resume a run that was cut short."""
    cut = {"INTERRUPTED": "Interrupted", "READ_FAILED": f"Error: {matrix} can no longer be read"}.get(d.status.name)
    facts = {"input": matrix, "model": output, "checkpoint": checkpoint} | shared.model_facts(d)
    facts |= {"passes": int(d.history.passes[-1]), "init_seconds": d.init_time, "relunmd": relunmd.__version__}
    unit = "iteration" if d.n_iter == 1 else "iterations"
    why = "" if cut else f" {shared.one_line(d.message)}"
    shared.report(
        facts,
        f"error {d.error:.6g} after {d.n_iter} {unit} in {d.time:.3g} s.{why}",
        f"{output}: W {d.W.shape[0]} × {d.rank}, H {d.rank} × {d.H.shape[1]}, {d.W.dtype}",
    )
    if cut:
        how = f"Use --init {output} to continue from these factors, and --checkpoint FILE to make a run resumable."
        resume = f"The same command resumes from {checkpoint}." if checkpoint else how
        shared.echo(f"{cut}: the best factors so far are saved in {output}. {resume}", err=True)
