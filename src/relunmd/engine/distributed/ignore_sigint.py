"""Preloaded by the worker processes of `relunmd fit --dask local`: Ctrl-C on their terminal is for the command alone.

It goes to every process there is, and a worker that ended by it could not hand over what it has.
"""

import signal
from typing import Any

__all__ = ["dask_setup"]


def dask_setup(worker: Any) -> None:
    """What Dask calls when a worker begins."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
