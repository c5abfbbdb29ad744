"""A Dask preload that makes the workers of `relunmd fit --dask local` ignore Ctrl-C.

The terminal sends Ctrl-C to every process. Only the command handles it: it still needs the rows that its workers have.
"""

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Ignore SIGINT; Dask calls this when a worker starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
