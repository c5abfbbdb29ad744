"""The option --dask: a matrix file on the workers of a running cluster, or of one started on this machine."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from relunmd.cli import shared
from relunmd.errors import ClusterError

if TYPE_CHECKING:
    from relunmd.engine.distributed import ClusterSource


_SECONDS = 15


@contextmanager
def on_dask(
    where: str, matrix: str, array: str | None, names: str | None, threads: int | None, quiet: bool
) -> Iterator["ClusterSource"]:
    """Open a matrix file with its rows on the workers of a cluster.

    Parameters
    ----------
    where : str
        The address of a scheduler; "local" starts a cluster on this machine for the time of the command.
    matrix, array, names : str
        As for `open_file`.
    threads : int or None
        The number of workers of a local cluster; None for the number of usable cores.
    quiet : bool
        Whether to print nothing.

    Yields
    ------
    ClusterSource
    """
    from relunmd._util import need
    from relunmd.engine.blas_threads import usable_cores
    from relunmd.engine.distributed.file_parts import open_file

    distributed = need("distributed", "--dask needs", "dask")
    with ExitStack() as stack:
        cluster: Any = where
        if where == "local":
            preload = "relunmd.engine.distributed.ignore_sigint"
            options = {"n_workers": threads or usable_cores(), "threads_per_worker": 1, "dashboard_address": ":0"}
            cluster = stack.enter_context(distributed.LocalCluster(preload=preload, **options))
        try:
            client = stack.enter_context(distributed.Client(cluster, timeout=_SECONDS))
        except (OSError, ValueError, distributed.TimeoutError) as reason:
            raise ClusterError(
                "--dask must be local, or the address of a scheduler such as tcp://10.0.0.1:8786. "
                f"No scheduler answers at {where!r}."
            ) from reason
        if not quiet:
            shared.echo(f"{len(client.nthreads())} workers; dashboard {client.dashboard_link}", err=True)
        source = open_file(matrix, array, names, client)
        stack.callback(source.close)
        yield source
