"""The default algorithm "qn", compared with "a-nmd", "3b", "3b-factored" and a NumPy 3B by error and time.

    python -m benchmarks.flagship [mnist500 mnist synthetic planted basis text identity float32] [--quick]

Times and passes include the initialization. Every algorithm uses its default initialization (`init="auto"`) unless
stated otherwise, two threads, and float64. Data sets that are missing are skipped with a message.
"""

import argparse
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from scipy import sparse

import relunmd
from benchmarks import reference
from relunmd import datasets
from relunmd.errors import RelunmdError
from reproduction.basis import FacesBasis
from reproduction.experiment import Setup

OTHERS = ("a-nmd", "3b", "3b-factored")
ALL = ("qn", *OTHERS)
RANK = 32


def loaded(name, load):
    """Return a data set; print a message and return None if it is missing."""
    try:
        return load()
    except RelunmdError as reason:
        print(f"{name}: skipped, {reason}", flush=True)
        return None


def run(X, rank, algorithm, init="auto", seed=0, **limits):
    return relunmd.decompose(
        X, rank, algorithm, init, random_state=seed, n_jobs=2, **({"tol": 0, "max_iter": None} | limits)
    )


def best(d, until, what="time"):
    """Return the smallest error while `what` of the history is at most `until`; NaN before the first iterate."""
    seen = getattr(d.history, what) <= until
    return float(d.history.error[seen].min()) if seen.any() else float("nan")


def when(d, error):
    """Return the seconds until an error is reached."""
    there = np.flatnonzero(d.history.error <= error)
    return float(d.history.time[there[0]]) if len(there) else float("inf")


def table(columns, rows):
    widths = [max(len(str(row[i])) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        print("  ".join(str(cell).rjust(width) for cell, width in zip(row, widths, strict=True)))
    print(flush=True)


def verdict(errors):
    """Return the error of the best other algorithm relative to that of qn."""
    return f"{min(error for name, error in errors.items() if name != 'qn') / errors['qn'] - 1:+.1%}"


def mnist500_table(quick):
    print("1. MNIST, the paper's 500 images, r = 32: error by passes, and after 10 s")
    X = loaded("MNIST", lambda: datasets.mnist(50, every=10, download=False))
    if X is None:
        return
    seconds = 3 if quick else 10
    marks, rows, errors = (100, 300, 1000), [], {}
    for name in ALL:
        d = run(X, RANK, name, max_time=seconds)
        if d.history.passes[-1] < marks[-1]:
            d = run(X, RANK, name, max_iter=marks[-1])
        errors[name] = best(d, seconds)
        rows.append([name, *(f"{best(d, mark, 'passes'):.4f}" for mark in marks), f"{errors[name]:.4f}"])
    seeds = [run(X, RANK, "qn", seed=seed, max_iter=marks[-1]) for seed in range(1, 2 if quick else 5)]
    rows += [
        [f"qn, seed {seed}", *(f"{best(d, mark, 'passes'):.4f}" for mark in marks), "–"]
        for seed, d in enumerate(seeds, 1)
    ]
    table(["", *(f"{mark} passes" for mark in marks), f"{seconds} s"], rows)
    few = {"max_iter": 50}
    dense, csr = run(X, RANK, "qn", **few), run(sparse.csr_array(X), RANK, "qn", **few)
    same = dense.W.tobytes() == csr.W.tobytes() and dense.H.tobytes() == csr.H.tobytes()
    print(f"Best other: {verdict(errors)}. As CSR, 50 iterations: {'the same bits' if same else 'DIFFERENT'}")
    print()


def reference_history(X, rank, seconds):
    """Return the times and errors of the NumPy 3B from a truncated SVD, whose time counts."""
    begin = time.perf_counter()
    start = relunmd.decompose(X, rank, "tsvd", random_state=0, n_jobs=2)
    X = np.asarray(X, dtype=np.float64)
    history = []

    def record(error):
        history.append((time.perf_counter() - begin, error))
        if history[-1][0] > seconds:
            raise StopIteration

    with suppress(StopIteration):
        reference.three_block(X, start.W, start.H, max_iter=10**9, on_iteration=record)
    return np.array([step for step in history if step[0] <= seconds])


def mnist_table(quick):
    per_digit, seconds = (500, 3) if quick else (5000, 20)
    X = loaded("MNIST", lambda: datasets.mnist(per_digit, download=False))
    print(f"2. MNIST, {10 * per_digit} images: error after {seconds} s")
    if X is None:
        return
    rows = []
    for rank in (8, 16, 32, 64, 128, 256):
        found = {name: run(X, rank, name, max_time=seconds) for name in ALL}
        errors = {name: best(d, seconds) for name, d in found.items()}
        starts = f"{found['qn'].init_time:.1f} s, {found['qn'].history.passes[-1]} passes"
        rows.append([rank, *(f"{error:.4f}" for error in errors.values()), verdict(errors), starts])
        print(f"   r = {rank} done", flush=True)
        if rank == RANK:
            theirs = reference_history(X, rank, seconds)
            reached, qn = theirs[-1, 1], found["qn"]
            theirs_when = theirs[np.flatnonzero(theirs[:, 1] <= reached)[0], 0]
            print(
                f"   NumPy 3B from a truncated SVD: {reached:.4f} after {len(theirs)} iterations; qn has "
                f"{errors['qn'] / reached:.3f} of it, and reached that error after {when(qn, reached):.2f} s "
                f"(1/{theirs_when / when(qn, reached):.1f} of the time)"
            )
    table(["rank", *ALL, "best other", "qn: initialization, passes"], rows)


def synthetic_table(quick):
    print("3. Synthetic n×n, r = 32: milliseconds to E ≤ 1e-4, initialization included, medians of 5 runs (nuclear: 1)")
    starts = ("random", "tsvd", "mean-corrected", "shifted", "nuclear")
    rows = []
    for n in (500, 1000) if quick else (500, 1000, 1500, 2000):
        X = datasets.synthetic(n, n, RANK, random_state=0)
        times = {}
        for turn in range(2 if quick else 5):
            for name, init in [("qn", "auto"), *((name, init) for name in OTHERS for init in starts)]:
                if turn == 0 or init != "nuclear":
                    d = run(X, RANK, name, init, target_error=1e-4, max_iter=500)
                    reached = d.history.time[-1] if d.status is relunmd.Status.TARGET else np.inf
                    times.setdefault((name, init), []).append(reached)
        medians = {key: float(np.median(found)) for key, found in times.items()}
        theirs = reference_seconds(X, 1e-4)
        ours = medians.pop(("qn", "auto"))
        bests = [min((medians[name, init], init) for init in starts) for name in OTHERS]
        rows.append(
            [n, f"{1e3 * ours:.0f}"]
            + [f"{1e3 * seconds:.0f} ({init})" for seconds, init in bests]
            + [f"{min(bests)[0] / ours:.2f}", f"{1e3 * theirs:.0f}", f"{theirs / ours:.1f}"]
        )
    table(["n", "qn", *(f"{name}, best init" for name in OTHERS), "next / qn", "NumPy 3B, tsvd", "NumPy 3B / qn"], rows)


def reference_seconds(X, target):
    """Return the seconds of the NumPy 3B from LAPACK's full SVD to that error."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        U, sigma, Vt = np.linalg.svd(X, full_matrices=False)
        reference.three_block(X, U[:, :RANK], sigma[:RANK, None] * Vt[:RANK], target_error=target)
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def planted_table(quick):
    seeds, seconds = (2, 3) if quick else (5, 10)
    print(f"4. Planted rank 16, 600², {seconds} s: median error of qn over {seeds} seeds, range; the others on seed 0")
    rows = []
    for zeros in (0.90, 0.95, 0.99):
        matrices = [datasets.planted(600, 600, 16, zeros, seed) for seed in range(seeds)]
        ours = [best(run(X, 16, "qn", max_time=seconds, target_error=1e-12), seconds) for X in matrices]
        csr = best(run(sparse.csr_array(matrices[0]), 16, "qn", max_time=seconds, target_error=1e-12), seconds)
        others = [best(run(matrices[0], 16, name, max_time=seconds), seconds) for name in OTHERS]
        rows.append([f"{zeros:.0%} zeros", f"{np.median(ours):.1e}", f"{min(ours):.1e}–{max(ours):.1e}", f"{csr:.1e}"])
        rows[-1] += [f"{error:.1e}" for error in others]
    table(["", "qn", "range", "as CSR, seed 0", *OTHERS], rows)


def basis_table(quick):
    seconds = 3 if quick else 20
    print(f"5. The 361×100 sparse NMF basis of CBCL: error after {seconds} s")
    with tempfile.TemporaryDirectory() as folder:
        U = loaded("CBCL", lambda: FacesBasis(Setup(Path(folder))).load())
    if U is None:
        return
    rows = []
    for rank in (8, 12, 16, 20, 24):
        found = {name: run(U, rank, name, max_time=seconds) for name in ALL}
        errors = {name: best(d, seconds) for name, d in found.items()}
        stopped = relunmd.decompose(U, rank, random_state=0, n_jobs=2)
        by_tol = f"{stopped.error:.4f} in {stopped.time:.2f} s"
        rows.append([rank, *(f"{error:.4f}" for error in errors.values()), verdict(errors), by_tol])
    table(["rank", *ALL, "best other", "qn with its default tol"], rows)


def text_table(quick):
    marks = (3, 5) if quick else (10, 20, 30)
    print("6. Term counts as CSR, r = 32: error by seconds, qn / 3b-factored")
    rows = []
    for name in ("kos", "classic", "20newsgroups"):
        X = loaded(name, lambda name=name: datasets.load(name))
        if X is None:
            continue
        ours, theirs = (run(X, RANK, algorithm, max_time=marks[-1]) for algorithm in ("qn", "3b-factored"))
        rows.append([name, *(f"{best(ours, mark):.4f} / {best(theirs, mark):.4f}" for mark in marks)])
        rows[-1] += [f"{ours.init_time:.1f} / {theirs.init_time:.1f} s"]
    table(["", *(f"{mark} s" for mark in marks), "initialization"], rows)


def identity_table(quick):
    starts = 20 if quick else 100
    print(f"7. The identity: share of {starts} random initializations that reach E ≤ 1e-3, at most 1500 iterations")
    rows = []
    for n, rank in ((10, 3), (20, 4), (25, 5)):
        found = [
            run(np.eye(n), rank, "qn", "random", seed=seed, target_error=1e-3, max_iter=1500) for seed in range(starts)
        ]
        there = [d for d in found if d.error <= 1e-3]
        first = [d for d in there if not (np.diff(d.history.leak) > 0).any()]
        rows.append([f"n = {n}, r = {rank}", f"{len(there) / starts:.0%}", f"{len(first) / starts:.0%}"])
        rows[-1] += [f"{np.median([d.n_iter for d in there]):.0f}" if there else "–"]
    table(["", "share", "in the first round", "iterations, median"], rows)
    print("   Rank 3 by n_starts: error, seconds; the default initialization first, at most 10 000 iterations")
    rows = []
    for n in (10, 20, 30, 50, 100):
        cells = []
        for count in (1, 8) if quick else (1, 8, 32):
            d = run(np.eye(n), 3, "qn", target_error=1e-3, max_iter=10_000, n_starts=count)
            cells.append(f"{d.error:.1e}, {d.time:.1f} s")
        rows.append([f"n = {n}", *cells])
    table(["", "1 start", "8", "32"][: len(rows[0])], rows)


def float32_table(quick):
    print("float32 and float64: error after 500 iterations")
    rows = []
    sets = {
        "digits": (datasets.digits, 16),
        "MNIST-500": (lambda: datasets.mnist(50, every=10, download=False), RANK),
        "synthetic 500² with noise": (noisy, RANK),
    }
    for name, (load, rank) in sets.items():
        X = loaded(name, load)
        if X is not None:
            wide, narrow = (run(X, rank, "qn", dtype=dtype, max_iter=500) for dtype in (np.float64, np.float32))
            seconds = f"{narrow.time / wide.time:.2f}"
            rows.append(
                [name, f"{wide.error:.7f}", f"{narrow.error:.7f}", f"{narrow.error - wide.error:+.1e}", seconds]
            )
    table(["", "float64", "float32", "difference", "time / float64"], rows)


def noisy():
    return datasets.synthetic(500, 500, RANK, 0) + 0.1 * datasets.synthetic(500, 500, 200, 1)


TABLES = {
    "mnist500": mnist500_table,
    "mnist": mnist_table,
    "synthetic": synthetic_table,
    "planted": planted_table,
    "basis": basis_table,
    "text": text_table,
    "identity": identity_table,
    "float32": float32_table,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], help="tables to print; by default all")
    parser.add_argument("--quick", action="store_true", help="smaller data, shorter runs")
    given = parser.parse_args()
    for name in given.tables or TABLES:
        TABLES[name](given.quick)


if __name__ == "__main__":
    main()
