"""How X is seen: sources and blocks of rows, kernels, passes, executors (threads and Dask), small linear algebra."""
