"""Time of an iteration and of the nuclear initialization, relative to the NumPy reference.

    python -m benchmarks.speed [--quick]

Each figure is the median of interleaved runs with two threads. A pause precedes each run, because the threads of
OpenBLAS spin for a while after the reference.
"""

import argparse
import time

import numpy as np

import relunmd
from benchmarks import reference
from relunmd.datasets import synthetic

RANK = 32
PAUSE = 0.5


def seconds_an_iteration(X, start, algorithm, iterations):
    """Return the median time of an iteration of relunmd."""
    time.sleep(PAUSE)
    d = relunmd.decompose(X, RANK, algorithm, init=start, tol=0, max_iter=iterations, n_jobs=2)
    return np.median(np.diff(d.history.time))


def reference_seconds_an_iteration(X, start, iterations):
    """Return the median time of an iteration of the reference."""
    time.sleep(PAUSE)
    stamps = [time.perf_counter()]
    reference.three_block(X, *start, max_iter=iterations, on_iteration=lambda _: stamps.append(time.perf_counter()))
    return np.median(np.diff(stamps))


def iterations_table(sizes, rounds, iterations):
    print(f"An iteration, float64, rank {RANK}, 2 threads: milliseconds, and as a multiple of 3b")
    names = [name for name in relunmd.algorithms() if name != "tsvd"]
    print(f"{'n':>6} {'reference 3B':>16} " + " ".join(f"{name:>16}" for name in names))
    for n in sizes:
        X = synthetic(n, n, RANK, 0)
        start = relunmd.decompose(X, RANK, max_iter=0, init="tsvd", random_state=0, n_jobs=-1)
        pair = (start.W, start.H)
        taken = {name: [] for name in ("reference", *names)}
        for _ in range(rounds):
            taken["reference"].append(reference_seconds_an_iteration(X, pair, iterations))
            for name in names:
                taken[name].append(seconds_an_iteration(X, pair, name, iterations))
        unit = np.median(taken["3b"])
        cells = [f"{np.median(taken[k]) * 1e3:9.2f} ({np.median(taken[k]) / unit:4.1f})" for k in taken]
        print(f"{n:>6} " + " ".join(cells), flush=True)


def nuclear_table(sizes):
    print("\nThe nuclear initialization, 3 steps: seconds, initial error")
    print(f"{'n':>6} {'reference':>18} {'ours':>18} {'ratio':>6}")
    for n in sizes:
        X = synthetic(n, n, RANK, 0)
        random = np.random.default_rng(1)
        begin = time.perf_counter()
        W, H = reference.nuclear_start(X, RANK, random)
        theirs = time.perf_counter() - begin
        their_error = np.linalg.norm(X - np.maximum(0, W @ H)) / np.linalg.norm(X)
        d = relunmd.decompose(X, RANK, init="nuclear", max_iter=0, random_state=1, n_jobs=2)
        print(
            f"{n:>6} {theirs:9.2f} s {their_error:7.4f} {d.init_time:9.2f} s {d.error:7.4f} "
            f"{theirs / d.init_time:6.2f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds")
    quick = parser.parse_args().quick
    relunmd.decompose(np.eye(20), 2, max_iter=1)
    iterations_table((500, 1000) if quick else (500, 1000, 2000), 2 if quick else 5, 20)
    nuclear_table((500,) if quick else (500, 1000, 2000))


if __name__ == "__main__":
    main()
