"""Benchmarks on Dask: agreement with threads, cost of a pass, bytes and memory of the driver, and a matrix of 21 GB.

    python -m benchmarks.distributed [SECTION …] [--quick]

Sections: 1 agreement, 2 overhead, 3 bytes and memory of the driver, 4 the driver's own work, 5 a matrix of 21 GB. A
LocalCluster of processes with 1 thread each, float64. MNIST and 20 newsgroups are read from RELUNMD_DATA. Killed
workers are tested by tests/engine/distributed/test_losses.py and benchmarks/kills.py.
"""

import argparse
import logging
import multiprocessing
import resource
import statistics
import time
from contextlib import contextmanager

import numpy as np
from dask import array as da
from dask import config, delayed
from distributed import Client, LocalCluster, get_task_stream
from scipy import sparse

import relunmd
from relunmd import datasets
from relunmd.algorithm import ALGORITHMS as ALGORITHMS_BY_NAME
from relunmd.engine import kernels
from relunmd.engine.distributed import ClusterExecutor, open_distributed
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.matrix import RowLayout
from relunmd.engine.passes import look
from relunmd.engine.problem_setup import check_matrix, make_problem
from relunmd.init import ShiftedInit

ALGORITHMS = ("3b-factored", "qn")
RANK = 32
FLOAT = np.dtype(np.float64)


@contextmanager
def cluster(n_workers, memory_limit="auto"):
    """Start workers that are processes with one thread."""
    with (
        config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}),
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", memory_limit=memory_limit
        ) as workers,
        Client(workers) as client,
    ):
        yield client


def rows_of(X):
    """Return X on Dask, in the blocks that threads use."""
    height = RowLayout(*X.shape).blocks[0].stop
    if sparse.issparse(X):
        X = sparse.csr_array(X)
        return [delayed(X[start : start + height]) for start in range(0, X.shape[0], height)]
    return da.from_array(X, chunks=(height, -1))


class Timed:
    """A callback that records the time and the bytes moved after each iteration."""

    def __init__(self):
        self.stamps, self.moved = [], []

    def __call__(self, progress):
        self.stamps.append(time.perf_counter())
        self.moved.append(progress.bytes_moved)

    @property
    def a_pass(self):
        """Seconds per iteration in the second half; the first iterations of "qn" are of another kind."""
        return np.diff(self.stamps)[len(self.stamps) // 2 :]


def run(X, algorithm, iterations, rank=RANK, **more):
    timed = Timed()
    settings = {"random_state": 0, "tol": 0, "dtype": "float64", "n_jobs": -1} | more
    d = relunmd.decompose(X, rank, algorithm, max_iter=iterations, callback=timed, **settings)
    return d, timed


def matrices(quick):
    images = datasets.mnist()
    counts = datasets.newsgroups()
    return {"MNIST": images[:6000] if quick else images, "20newsgroups": counts[:3000] if quick else counts}


def agreement(quick):
    print(
        "1. The same X, seed and blocks: largest difference of the errors of 50 iterations, 2 workers against threads"
    )
    X = datasets.mnist(200, every=5)
    kinds = {"MNIST, 2000 images": X, "the same as CSR": sparse.csr_array(X), "kos, CSR": datasets.kos()}
    with cluster(2):
        for name, A in kinds.items():
            for algorithm in ALGORITHMS:
                here, there = (run(B, algorithm, 50)[0] for B in (A, rows_of(A)))
                apart = np.abs(here.history.error - there.history.error).max()
                bits = "the same bits" if np.array_equal(here.history.error, there.history.error) else "other bits"
                print(f"   {name:18} {algorithm:11} {apart:.1e}, {bits}; final error {there.error:.6f}", flush=True)


class Stepped:
    """An algorithm that makes one iteration at a time and records its seconds."""

    def __init__(self, source, executor, algorithm):
        self.problem = make_problem(source, FLOAT, RANK, executor)
        self.algorithm = ALGORITHMS_BY_NAME[algorithm]()
        W, H = ShiftedInit().make(self.problem, np.random.default_rng(0))
        self.state = self.algorithm.first_state(self.problem, W, H)
        self.seconds = []

    def step(self):
        begin = time.perf_counter()
        self.state = self.algorithm.next_state(self.problem, self.state)
        self.seconds.append(time.perf_counter() - begin)

    @property
    def median(self):
        """Median seconds of the last two thirds; the first steps of "qn" are those of "3b-factored"."""
        return statistics.median(self.seconds[len(self.seconds) // 3 :])


def overhead(quick):
    print(f"2. An iteration, r = {RANK}: median seconds of interleaved iterations")
    kernels.warm_up(FLOAT)
    with cluster(2), ThreadExecutor(2) as threads:
        for name, X in matrices(quick).items():
            two, one = open_distributed(rows_of(X)), open_distributed(rows_of(X))
            one.move([one.workers[0]] * len(one.owners))
            with ClusterExecutor(two, [FLOAT]) as both, ClusterExecutor(one, [FLOAT]) as single:
                single._checked_at = np.inf  # It must not use the other worker.
                for algorithm in ALGORITHMS:
                    places = [(check_matrix(X), threads), (two, both), (one, single)]
                    takers = [Stepped(source, executor, algorithm) for source, executor in places]
                    for _ in range(60 if name == "MNIST" and not quick else 12):
                        for taker in takers:
                            taker.step()
                    assert len({taker.state.error for taker in takers}) == 1  # All made the same iterations.
                    local, pair, alone = (taker.median for taker in takers)
                    print(
                        f"   {name:12} {algorithm:11} 2 threads {local:.3f}, 2 workers {pair:.3f}, 1 worker "
                        f"{alone:.3f}: 2 workers / 2 threads {pair / local:.2f}, 1 → 2 workers {alone / pair:.2f}×",
                        flush=True,
                    )
            two.close()
            one.close()


def block_of(seed, n_rows, n_columns, rank):
    """Return rows of max(0, AB − ½·√rank), of which about 30 % are positive; B is the same for all blocks."""
    B = np.random.default_rng(0).standard_normal((rank, n_columns))
    X = np.random.default_rng([1, seed]).standard_normal((n_rows, rank)) @ B
    X -= np.sqrt(rank) / 2
    return np.maximum(X, 0, out=X)


def generated(m, n, height, rank=16):
    return [
        delayed(block_of, pure=True)(seed, min(height, m - start), n, rank)
        for seed, start in enumerate(range(0, m, height))
    ]


def _driver(m, algorithm, answers):
    with cluster(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        _, timed = run(generated(m, 1000, 2000), algorithm, 12)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answers.put((int(np.median(np.diff(timed.moved)[-4:])), peak / 1024, (peak - before) / 1024))


def driver(quick):
    print("3. Bytes from and to the driver per pass, and its memory, n = 1000, r = 32")
    context = multiprocessing.get_context("spawn")
    for algorithm in ALGORITHMS:
        for m in (10_000, 40_000) if quick else (40_000, 400_000):
            answers = context.Queue()
            process = context.Process(target=_driver, args=(m, algorithm, answers))
            process.start()
            moved, peak, more = answers.get()
            process.join()
            print(
                f"   {algorithm:11} m = {m:7,}: {moved / 1e6:.3f} MB per pass; peak {peak:.0f} MB, {more:.0f} MB of it "
                f"since the cluster was started; W alone has {m * RANK * 8 / 1e6:.0f} MB",
                flush=True,
            )


def own_work(quick):
    print("4. The driver's own work: passes over a few hundred small blocks, n = 2000, r = 32")
    with cluster(2) as client:
        for blocks in (100, 400) if quick else (100, 400, 800):
            source = open_distributed(generated(blocks * 256, 2000, 256))
            with ClusterExecutor(source, [FLOAT]) as executor:
                problem = make_problem(source, FLOAT, RANK, executor)
                W = executor.normal_rows(problem.matrix, RANK, np.random.default_rng(0))
                H = np.random.default_rng(0).standard_normal((RANK, 2000))
                taken, worked, cpu = [], [], []
                for _ in range(10):
                    with get_task_stream(client) as stream:
                        begin, busy = time.perf_counter(), time.thread_time()
                        look(problem, W, H)
                        taken.append(time.perf_counter() - begin)
                        cpu.append(time.thread_time() - busy)
                    tasks = [span for task in stream.data for span in task["startstops"]]
                    worked.append(max(span["stop"] - span["start"] for span in tasks if span["action"] == "compute"))
            source.close()
            wall, own = statistics.median(taken), statistics.median(cpu)
            more = wall - statistics.median(worked)
            print(
                f"   {blocks} blocks: {wall * 1e3:.0f} ms per pass, {more * 1e3:.0f} ms ({more / wall:.1%}) more than "
                f"the slowest worker's; the driver's thread is busy for {own * 1e3:.1f} ms ({own / wall:.1%})",
                flush=True,
            )


def large(quick):
    m, n, height = (20_000, 10_240, 1024) if quick else (256_000, 10_240, 1024)
    print(f"5. {m:,} × {n:,} in float64, {m * n * 8 / 1e9:.1f} GB, computed from a seed; 4 GB per worker, r = 16")
    for algorithm in ALGORITHMS:
        with cluster(2, "4GB") as client:
            d, timed = run(generated(m, n, height), algorithm, 8, rank=16)
            peaks = client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
            print(
                f"   {algorithm:11} {d.history.passes[-1]:.0f} passes, {statistics.median(timed.a_pass):.1f} s per "
                f"iteration, error {d.history.error[0]:.4f} → {d.error:.4f}; peak memory of the workers "
                f"{', '.join(f'{peak:.2f}' for peak in peaks.values())} GB",
                flush=True,
            )


SECTIONS = {"1": agreement, "2": overhead, "3": driver, "4": own_work, "5": large}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", help="numbers of sections; by default all")
    parser.add_argument("--quick", action="store_true", help="smaller matrices, one turn")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("distributed").setLevel(logging.ERROR)
    for section in given.sections or SECTIONS:
        SECTIONS[section](given.quick)


if __name__ == "__main__":
    main()
