"""Loaded by the worker processes of `relunmd fit --dask local`: Ctrl-C on their terminal is for the command alone.

It goes to every process there is, and a worker that ended by it could not hand over what it has.
"""

import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)
