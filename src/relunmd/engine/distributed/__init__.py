"""The same algorithms where the rows are: X on Dask's workers.

A second executor and a source to go with it, and nothing else: rows of X, of W and of all that belongs to them stay on
the workers, one task a worker makes a pass over its blocks, and only H, coefficients and sums travel. Dask is imported
when X is found to be its.
"""

from relunmd.engine.distributed.cluster_executor import ClusterExecutor, remove_other_rows
from relunmd.engine.distributed.cluster_source import ClusterSource
from relunmd.engine.distributed.dask_input import is_distributed, open_distributed, refuse_distributed
from relunmd.engine.distributed.dask_results import Chunks, fetched

__all__ = [
    "Chunks",
    "ClusterExecutor",
    "ClusterSource",
    "fetched",
    "is_distributed",
    "open_distributed",
    "refuse_distributed",
    "remove_other_rows",
]
