"""X on the workers of a Dask cluster: the same algorithms where the rows are.

The package adds a source, `ClusterSource`, and an executor, `ClusterExecutor`. Rows of X, of W and of all arrays like W
stay on the workers; one task per worker makes a pass over its blocks; only H, coefficients and sums are sent. Dask is
imported when X is found to be on Dask.
"""

from relunmd.engine.distributed.cluster_executor import ClusterExecutor as ClusterExecutor
from relunmd.engine.distributed.cluster_source import ClusterSource as ClusterSource
from relunmd.engine.distributed.dask_input import is_distributed as is_distributed
from relunmd.engine.distributed.dask_input import open_distributed as open_distributed
from relunmd.engine.distributed.dask_input import refuse_distributed as refuse_distributed
from relunmd.engine.distributed.dask_results import Chunks as Chunks
from relunmd.engine.distributed.dask_results import fetched as fetched
