"""The block engine: cost of a pass relative to its bare products, scaling, and memory of a run.

    python -m benchmarks.engine [pass] [known] [scaling] [memory] [bits] [text] [--quick]

Times are ratios of medians of interleaved runs. Data sets that are missing (see relunmd.datasets) are skipped with a
message. Memory is measured in a separate process, above what it used after its imports and after X was loaded.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

import relunmd
from benchmarks import reference
from relunmd import datasets
from relunmd.algorithm.three_block_factored import ThreeBlockFactored
from relunmd.engine import kernels
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.observed import EntryOptions, open_observed
from relunmd.engine.problem_setup import check_matrix, make_problem
from relunmd.errors import DatasetError
from relunmd.init import ShiftedInit

RANK = 32
MINUTE = 60
SIX_GIGABYTES = (250_000, 6_000)


def images(per_digit=5000):
    return datasets.mnist(per_digit, download=False)


def newsgroups():
    return datasets.newsgroups()


CASES = {
    "MNIST 50 000×784 uint8, r=32": (images, None, 32),
    "MNIST 50 000×784 floats, r=32": (images, "float", 32),
    "synthetic 2000², r=32": (lambda: datasets.synthetic(2000, 2000, 32, 0), "float", 32),
    "synthetic 5000², r=64": (lambda: datasets.synthetic(5000, 5000, 64, 0), "float", 64),
    "20newsgroups 18846×30295 CSR, r=32": (newsgroups, "float", 32),
}


def loaded(name, load):
    try:
        return load()
    except DatasetError as reason:
        print(f"{name}: skipped, {reason}")
        return None


class TimedExecutor(ThreadExecutor):
    """Records how long the last pass took, without the work of the driver between passes."""

    last = 0.0

    def run(self, *given, **named):
        begin = time.perf_counter()
        found = super().run(*given, **named)
        self.last = time.perf_counter() - begin
        return found


@contextmanager
def problem_of(X, dtype, rank, n_threads=2):
    kernels.warm_up(np.dtype(np.float64))
    kernels.warm_up(np.dtype(dtype))
    with TimedExecutor(n_threads) as executor:
        yield make_problem(check_matrix(X), np.dtype(dtype), rank, executor)


def bare_products(x, rows, out, *, H, Ht):
    """Compute only the three products of a pass on its tiles."""
    rank = len(H)
    for at in x.strips:
        W = rows.W[at]
        tiles = []
        for columns in x.matrix.layout.columns:
            width = columns.stop - columns.start
            T = np.matmul(W, H[:, columns], out=x.strip_tile(len(tiles), len(W), width))
            np.matmul(T, Ht[columns], out=x.scratch_tile("AV", len(W), rank))
            tiles.append((T, width))
        for T, width in tiles:
            np.matmul(T.T, W, out=x.scratch_tile("AY", width, rank))
    return {}


class Run:
    """A run of 3b-factored that makes one step at a time, and the bare products of a step."""

    def __init__(self, problem):
        self.problem = problem
        self.algorithm = ThreeBlockFactored()
        self.W, self.H = ShiftedInit().make(problem, np.random.default_rng(0))
        self.state = self.algorithm.first_state(problem, self.W, self.H)
        self.taken = {"step": [], "pass": [], "bare": []}

    def step(self):
        begin = time.perf_counter()
        self.state = self.algorithm.next_state(self.problem, self.state)
        self.taken["step"].append(time.perf_counter() - begin)
        self.taken["pass"].append(self.problem.executor.last)

    def steps(self, count):
        """Make some steps; the first is not counted, because a core that was idle is slow at first."""
        self.step()
        for what in ("step", "pass"):
            self.taken[what].pop()
        for _ in range(count):
            self.step()

    def bare(self):
        self.problem.run(bare_products, {"W": self.W}, H=self.H, Ht=np.ascontiguousarray(self.H.T))
        self.taken["bare"].append(self.problem.executor.last)

    def median(self, what):
        return float(np.median(self.taken[what]))


def rounds_for(problem, quick):
    small = problem.shape[0] * problem.shape[1] < 10**8
    return (10 if quick else 40) if small else (5 if quick else 12)


def pass_table(quick):
    print("A pass of 3b-factored, and a whole step, against bare products on its tiles: milliseconds, ratio; 2 threads")
    print(f"{'':36} {'':8} {'bare':>8} {'pass':>8} {'ratio':>6} {'step':>8} {'ratio':>6}")
    for name, (load, kind, rank) in CASES.items():
        X = loaded(name, load)
        if X is None:
            continue
        for dtype in (np.float64, np.float32):
            with problem_of(X.astype(dtype) if kind else X, dtype, rank) as problem:
                run = Run(problem)
                for _ in range(rounds_for(problem, quick)):
                    run.step()
                    run.bare()
            b, p, s = (run.median(key) * 1e3 for key in ("bare", "pass", "step"))
            print(
                f"{name:36} {np.dtype(dtype).name:8} {b:8.1f} {p:8.1f} {p / b:6.2f} {s:8.1f} {s / b:6.2f}", flush=True
            )
    X = loaded("Against the reference", images)
    if X is not None:
        against_the_reference(X.astype(np.float64), 5 if quick else 9)


def against_the_reference(X, rounds):
    start = relunmd.decompose(X, RANK, "3b-factored", "random", max_iter=0, random_state=0, n_jobs=-1)
    ours, theirs = [], []
    for _ in range(rounds):
        time.sleep(0.5)  # The threads of OpenBLAS spin for a while.
        d = relunmd.decompose(X, RANK, "3b-factored", (start.W, start.H), tol=0, max_iter=5, n_jobs=2)
        ours.append(np.median(np.diff(d.history.time)))
        stamps = [time.perf_counter()]
        reference.three_block(
            X, start.W, start.H, max_iter=3, on_iteration=lambda _, stamps=stamps: stamps.append(time.perf_counter())
        )
        theirs.append(np.median(np.diff(stamps)))
    print(
        f"An iteration of the NumPy reference of 3B on MNIST 50 000×784, float64: {np.median(theirs) * 1e3:.0f} ms, "
        f"of 3b-factored {np.median(ours) * 1e3:.0f} ms: {np.median(theirs) / np.median(ours):.1f} times\n",
        flush=True,
    )


def scaling_table(quick):
    print("Two threads against one (a whole step), and twice the rows against once (its pass): ratios of times")
    for name, (load, kind, rank) in CASES.items():
        X = loaded(name, load)
        if X is None:
            continue
        for dtype in (np.float64, np.float32):
            A = X.astype(dtype) if kind else X
            with ExitStack() as stack:
                problems = [
                    stack.enter_context(problem_of(part, dtype, rank, n_threads))
                    for part, n_threads in ((A, 1), (A, 2), (A[: A.shape[0] // 2], 2))
                ]
                one, two, half = runs = [Run(problem) for problem in problems]
                for _ in range(rounds_for(problems[0], quick) // 4 + 1):
                    for run in runs:
                        run.steps(4)
            print(
                f"{name:36} {np.dtype(dtype).name:8} 1 → 2 threads {one.median('step') / two.median('step'):5.2f}   "
                f"m/2 → m {two.median('pass') / half.median('pass'):5.2f}",
                flush=True,
            )
    print()


def status_bytes():
    """Return the resident and anonymous bytes of this process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return [int(lines[key].split()[0]) * 1024 for key in ("VmRSS", "RssAnon")]


def peak_above(action):
    """Return the result of `action`, and by how much resident and anonymous memory increased."""
    before = peak = status_bytes()
    done = threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.005):
            peak = [max(pair) for pair in zip(peak, status_bytes(), strict=True)]

    watcher = threading.Thread(target=watch)
    watcher.start()
    found = action()
    done.set()
    watcher.join()
    return found, [high - low for high, low in zip(peak, before, strict=True)]


def six_gigabytes(folder):
    """Write a .npy file of 6 GB in float32, 90 % zeros, block by block from a seed."""
    path = Path(folder) / "six.npy"
    m, n = SIX_GIGABYTES
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(m, n))
    random = np.random.default_rng(0)
    W, H = random.standard_normal((1000, 8), np.float32), random.standard_normal((8, n), np.float32)
    for start in range(0, m, 1000):
        np.maximum(0, W[random.permutation(1000)] @ H - 4, out=X[start : start + 1000])
    X.flush()
    return path


def measured(job, folder):
    """Make one run in this process and print the results as JSON; data sets by name run for at most a minute."""
    settings = {"algorithm": "3b-factored", "random_state": 0, "tol": 0, "max_iter": 20, "n_jobs": 2}
    if job == "six":
        X, settings = np.load(Path(folder) / "six.npy", mmap_mode="r"), settings | {"init": "random", "max_iter": 3}
    elif job == "images":
        X = images()
    elif job == "posts":
        X = newsgroups()
    else:
        X, settings = datasets.load(job), settings | {"tol": 1e-4, "max_iter": 1000, "max_time": MINUTE}
    d, (resident, anonymous) = peak_above(lambda: relunmd.decompose(X, RANK, **settings))
    found = {"resident": resident, "anonymous": anonymous, "error": d.error, "seconds": d.time, "iterations": d.n_iter}
    found |= {"passes": int(d.history.passes[-1]), "start": d.init_time, "shape": list(d.shape)}
    if job in datasets.LOADERS:
        found["tsvd"] = relunmd.decompose(X, RANK, "tsvd", random_state=0, n_jobs=2).error
    print(json.dumps(found))


def in_a_process(job, folder=""):
    command = [sys.executable, "-m", "benchmarks.engine", "--measure", job, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    if done.returncode:
        print(f"{job}: skipped, {done.stderr.strip().splitlines()[-1]}")
        return None
    return json.loads(done.stdout)


def memory_table(quick):
    print("Peak memory above the interpreter's after its imports and loading X; rank 32, 20 iterations (3 of the file)")
    jobs = {"posts": "20newsgroups, CSR", "images": "MNIST 50 000×784, uint8"}
    with tempfile.TemporaryDirectory() as folder:
        if not quick:
            six_gigabytes(folder)
            jobs["six"] = "6 GB memory map, float32"
        for job, name in jobs.items():
            found = in_a_process(job, folder)
            if found:
                print(
                    f"{name:28} resident {found['resident'] / 1e6:7.0f} MB  anonymous {found['anonymous'] / 1e6:6.0f} "
                    f"MB  {found['passes']} passes in {found['seconds']:.1f} s",
                    flush=True,
                )
    print()


def bits_table(quick):
    print("The same bits")
    few = {"max_iter": 10, "tol": 0, "random_state": 0}
    X = datasets.planted(5000, 9000, 8, 0.97, 0)
    from scipy import sparse

    runs = {
        f"{kind} {jobs} threads": relunmd.decompose(A, 8, "3b-factored", n_jobs=jobs, **few)
        for kind, A in {"dense": X, "CSR": sparse.csr_array(X)}.items()
        for jobs in (1, 2, 5)
    }
    different = {d.W.tobytes() + d.H.tobytes() + d.history.error.tobytes() for d in runs.values()}
    print(f"{', '.join(runs)} (planted 5000×9000, 97 % zeros): {len(different)} different result(s)")
    images_500 = loaded("MNIST-500", lambda: datasets.mnist(50, every=10, download=False))
    if images_500 is not None:
        errors = [
            relunmd.decompose(
                images_500, RANK, "3b-factored", dtype=dtype, max_iter=1000, random_state=0, n_jobs=-1
            ).error
            for dtype in (np.float64, np.float32)
        ]
        print(f"MNIST-500, rank 32: float64 {errors[0]:.7f}, float32 {errors[1]:.7f}, {errors[1] - errors[0]:+.1e}")
    print()


def text_table(quick):
    print("Term counts as CSR, rank 32, default initialization, at most a minute, 2 threads")
    for name in ("kos", "classic", "20newsgroups"):
        found = in_a_process(name)
        if found:
            m, n = found["shape"]
            print(
                f"{name:14} {m}×{n}  error {found['error']:.4f}, TSVD {found['tsvd']:.4f}; {found['iterations']} "
                f"iterations, {found['seconds']:.1f} s (init {found['start']:.1f}), {found['resident'] / 1e6:.0f} MB",
                flush=True,
            )


def known_table(quick):
    print("A pass of 3b-factored with missing, limited or weighted entries: ratio to that with a plain X, and memory")
    heads = f"{'plain':>8} {'NaN':>6} {'mask':>6} {'limits':>6} {'weights':>6}"
    print(f"{'':36} {'':8} {heads}   MB that a step takes, from the left")
    for name in ("MNIST 50 000×784 floats, r=32", "synthetic 2000², r=32"):
        load, _, rank = CASES[name]
        X = loaded(name, load)
        for dtype in (np.float64, np.float32) if X is not None else ():
            X = X.astype(dtype)
            random = np.random.default_rng(0)
            hidden, weights = random.random(X.shape) < 0.3, random.random(X.shape).astype(dtype)
            cases = {
                "plain": (X, {}),
                "NaN": (np.where(hidden, dtype(np.nan), X), {"missing_values": np.nan}),
                "mask": (X, {"mask": hidden}),
                "limits": (X, {"lower": np.full(X.shape[1], X.max() / 100)}),
                "weights": (X, {"weights": weights}),
            }
            compare_known(name, dtype, rank, cases, quick)
    print()


def compare_known(name, dtype, rank, cases, quick):
    with ExitStack() as stack:
        executor = stack.enter_context(TimedExecutor(2))
        kernels.warm_up(np.dtype(dtype))
        runs, memory = {}, []
        for case, (X, options) in cases.items():
            source = open_observed(X, EntryOptions(**options))
            runs[case] = Run(make_problem(source, np.dtype(dtype), rank, executor))
        for _ in range(rounds_for(runs["plain"].problem, quick)):
            for run in runs.values():
                run.step()
        for run in runs.values():
            run.step()
            memory.append(peak_above(run.step)[1][0] / 1e6)
    plain = runs["plain"].median("pass")
    ratios = "".join(f" {runs[case].median('pass') / plain:6.2f}" for case in list(cases)[1:])
    more = ", ".join(f"{found:.0f}" for found in memory)
    print(f"{name:36} {np.dtype(dtype).name:8} {plain * 1e3:8.1f}{ratios}   {more}", flush=True)


TABLES = {
    "pass": pass_table,
    "known": known_table,
    "scaling": scaling_table,
    "memory": memory_table,
    "bits": bits_table,
    "text": text_table,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], help="tables to print; by default all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and no file of 6 GB")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measured(given.measure, given.folder)
        return
    for name in given.tables or TABLES:
        TABLES[name](given.quick)


if __name__ == "__main__":
    main()
