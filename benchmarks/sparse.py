"""The default algorithm compared with an earlier version of the library, and on very sparse X.

    python -m benchmarks.sparse before COMMIT [NAME ...] [--seconds 30]
    python -m benchmarks.sparse tfidf [--seconds 300]
    python -m benchmarks.sparse growth [SIZE ...]
    python -m benchmarks.sparse large [--seconds 400]

before: the error that COMMIT reaches in some seconds at rank 32, and when this version reaches it, each in its own
process; times include the initialization. tfidf: `ReLUNMD(8).fit` on the tf-idf of classic beside TruncatedSVD, and a
run without limits of ten times as long, at most of `--seconds`. growth: seconds to half of the first error on random
matrices with 50 nonzeros a row. large: the same with 200 000 rows and 10⁷ nonzeros, and the peak memory of the process.
Two threads everywhere.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.decomposition import NMF, TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer

import relunmd
from benchmarks.flagship import best, when
from benchmarks.versions import ROOT, exported
from relunmd import ReLUNMD, datasets

SETS = ("classic", "20newsgroups", "k1b", "kos", "mnist", "mnist500")
RANK = 32


def matrix(name):
    """Return a data set; "mnist" has 50 000 images as bytes, "mnist500" the paper's 500 in float64."""
    if name == "mnist":
        return datasets.mnist(5000, download=False)
    if name == "mnist500":
        return datasets.mnist(50, every=10, download=False).astype(np.float64)
    if name != "k1b":
        return datasets.load(name)
    return sparse.load_npz(Path(os.environ.get("RELUNMD_DATA", ".")) / "k1b" / "k1b_terms.npz")


def history(name, seconds):
    """Print the times and errors of a run as JSON."""
    X = matrix(name)
    d = relunmd.decompose(X, RANK, random_state=0, n_jobs=2, tol=0, max_iter=None, max_time=seconds)
    print(json.dumps([d.history.time.tolist(), d.history.error.tolist()]))


def history_of(source, name, seconds):
    """Return times and smallest errors so far, with the library in `source`."""
    path = os.pathsep.join([str(source), str(ROOT)])
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.sparse", "history", name, "--seconds", str(seconds)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True)
    times, errors = (np.array(column) for column in json.loads(done.stdout.splitlines()[-1]))
    return times, np.minimum.accumulate(errors)


def before_table(commit, names, seconds):
    print(f"Error after {seconds:g} s at rank {RANK}, and the time to that of {commit}")
    with tempfile.TemporaryDirectory() as folder:
        before = exported(commit, Path(folder).resolve())
        for name in names or SETS:
            old_times, old = history_of(before, name, seconds)
            times, errors = history_of(ROOT / "src", name, seconds)
            goal = old[old_times <= seconds][-1]
            reached = times[errors <= goal]
            share = f"{reached[0] / seconds:.2f}" if len(reached) else "not reached"
            now = errors[times <= seconds][-1]
            print(f"  {name:13} {goal:.4f} → {now:.4f}   share of the time {share}", flush=True)


def tfidf_table(most):
    X = TfidfTransformer().fit_transform(matrix("classic"))
    ReLUNMD(2, max_iter=1).fit(X[:50, :60] + sparse.eye_array(50, 60, format="csr"))
    begin = time.perf_counter()
    TruncatedSVD(8, random_state=0).fit(X)
    svd = time.perf_counter() - begin
    begin = time.perf_counter()
    NMF(8, init="nndsvd", random_state=0).fit(X)
    nmf = time.perf_counter() - begin
    begin = time.perf_counter()
    model = ReLUNMD(8, random_state=0, n_jobs=2).fit(X)
    ours = time.perf_counter() - begin
    limit = min(10 * ours, most)
    free = relunmd.decompose(X, 8, random_state=0, n_jobs=2, tol=0, max_iter=None, max_time=limit)
    print(f"TruncatedSVD {svd:.2f} s, NMF {nmf:.2f} s")
    print(f"ReLUNMD {ours:.2f} s, {ours / svd:.1f} and {ours / nmf:.1f} times as long, error {model.error_:.4f}")
    print(f"without limits {free.error:.4f} after {limit:.0f} s: {model.error_ / free.error - 1:+.1%}")


def random_sparse(n, rank, per_row, seed=0):
    """Return n×n nonnegative data of low rank in the places where it is largest, about `per_row` of them a row."""
    rng = np.random.default_rng(seed)
    W, H = rng.standard_normal((n, rank)).astype("f4"), rng.standard_normal((rank, n)).astype("f4")
    bound = np.quantile(W[:200] @ H, 1 - per_row / n)
    parts = []
    for start in range(0, n, 500):
        T = W[start : start + 500] @ H - bound
        np.maximum(T, 0, out=T)
        parts.append(sparse.csr_array(T))
    return sparse.vstack(parts, format="csr")


def growth_table(sizes):
    print("Random sparse planted n×n, 50 nonzeros a row, rank 16: seconds to half of the first error")
    last = None
    for n in sizes:
        X = random_sparse(n, 16, 50)
        d = relunmd.decompose(X, 16, random_state=0, n_jobs=2, tol=0, max_iter=None, max_time=400, target_error=0.4)
        seconds = when(d, 0.5 * d.history.error[0])
        growth = "" if last is None else f", {seconds / last:.2f} times as long"
        fitted = f"{d.n_iter} iterations in {d.time:.0f} s, error {best(d, np.inf):.4f}"
        print(f"  n = {n}: {seconds:.1f} s{growth} ({fitted})", flush=True)
        last = seconds


def large_table(seconds):
    X = random_sparse(200_000, 16, 50)
    d = relunmd.decompose(X, 16, random_state=0, n_jobs=2, tol=0, max_iter=None, max_time=seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{X.nnz} nonzeros: {d.n_iter} iterations in {d.time:.0f} s, {peak:.1f} GB")
    for seconds, error in zip(d.history.time, d.history.error, strict=True):
        print(f"  {seconds:.0f} s: {error:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["before", "tfidf", "growth", "large", "history"])
    parser.add_argument("given", nargs="*", help="COMMIT and names of data sets for before; sizes for growth")
    parser.add_argument(
        "--seconds", type=float, help="of each run: 30 for before, at most 300 for tfidf, 400 for large"
    )
    given = parser.parse_args()
    if given.table == "history":
        history(given.given[0], given.seconds)
    elif given.table == "before":
        before_table(given.given[0], given.given[1:], given.seconds or 30)
    elif given.table == "tfidf":
        tfidf_table(given.seconds or 300)
    elif given.table == "large":
        large_table(given.seconds or 400)
    else:
        growth_table([int(n) for n in given.given] or (20_000, 40_000, 80_000))


if __name__ == "__main__":
    main()
