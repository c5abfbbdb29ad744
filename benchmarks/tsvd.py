"""Accuracy and time of truncated SVDs, from scratch and during a run.

    python -m benchmarks.tsvd [--quick]

Cold: the rank-r TSVD of X from scratch. Accuracy is the excess of ‖X − X_r‖ over that of LAPACK.
Warm: during an A-NMD run, the excess of ‖Z − Z_r‖ with 1, 2 and 3 sweeps from the last vectors, and the number of
iterations to E ≤ 1e-4.
"""

import argparse
import time

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import svds
from sklearn.utils.extmath import randomized_svd

import relunmd
from relunmd.datasets import digits, synthetic
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.linalg.truncated_svd import truncated_svd
from relunmd.engine.passes import sweep_of_x
from relunmd.engine.problem_setup import check_matrix, make_problem


def lapack(X, rank):
    U, sigma, Vt = linalg.svd(X, full_matrices=False)
    return U[:, :rank], sigma[:rank, None] * Vt[:rank]


def gram(X, rank):
    k = X.shape[1]
    _, V = linalg.eigh(X.T @ X, subset_by_index=(k - rank, k - 1))
    return X @ V, V.T


def arpack(X, rank):
    U, sigma, Vt = svds(X, rank, random_state=0)
    return U, sigma[:, None] * Vt


def randomized(X, rank):
    U, sigma, Vt = randomized_svd(X, rank, random_state=0)
    return U, sigma[:, None] * Vt


def krylov(X, rank):
    with ThreadExecutor(2) as executor:
        problem = make_problem(check_matrix(X), X.dtype, rank, executor)
        found = truncated_svd(problem, lambda V: sweep_of_x(problem, V), rank, np.random.default_rng(0))
        return found.W, found.H / problem.matrix.scale


def cold(cases):
    print("Cold: seconds, and the excess of ‖X − X_r‖ over that of LAPACK")
    ways = {"LAPACK": lapack, "Gram": gram, "ARPACK": arpack, "randomized": randomized, "ours (Krylov)": krylov}
    print(f"{'':>22} " + " ".join(f"{way:>20}" for way in ways))
    for name, X, rank in cases:
        cells, best = [], None
        for way in ways.values():
            begin = time.perf_counter()
            W, H = way(X, rank)
            taken = time.perf_counter() - begin
            residual = np.linalg.norm(X - W @ H)
            best = residual if best is None else best
            cells.append(f"{taken:9.3f} s {residual / best - 1:8.0e}")
        print(f"{name:>22} " + " ".join(f"{cell:>20}" for cell in cells), flush=True)


def warm(n, rank):
    X = synthetic(n, n, rank, 0)
    start = relunmd.decompose(X, rank, init="nuclear", max_iter=0, random_state=1, n_jobs=-1)
    print(f"\nWarm: A-NMD, {n}², r = {rank}; excess of ‖Z − Z_r‖ over LAPACK's at iterations 1, 5, 10, 20")
    for sweeps in (1, 2, 3):
        algorithm = relunmd.ANMD(sweeps=sweeps)
        excess = []
        with ThreadExecutor(2) as executor:
            problem = make_problem(check_matrix(X), X.dtype, rank, executor)
            state = algorithm.first_state(problem, start.W * problem.matrix.scale, start.H)
            for iteration in range(1, 21):
                state = algorithm.next_state(problem, state)
                if iteration in (1, 5, 10, 20) and not state.rejected:
                    sigma = linalg.svdvals(state.Z)
                    best = np.sqrt(np.sum(sigma[rank:] ** 2))
                    excess.append(np.linalg.norm(state.Z - state.W @ state.H) / best - 1)
        d = relunmd.decompose(X, rank, algorithm, init=start, target_error=1e-4, tol=0, random_state=1, n_jobs=-1)
        shown = " ".join(f"{e:8.0e}" for e in excess)
        step = np.median(np.diff(d.history.time)) * 1e3
        print(f"  {sweeps} sweeps: {shown}   {d.n_iter} iterations of {step:.1f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    quick = parser.parse_args().quick
    cases = [("digits 1797×64 r=16", digits(), 16), ("500² r=32", synthetic(500, 500, 32, 0), 32)]
    if not quick:
        cases += [
            ("1000² r=32", synthetic(1000, 1000, 32, 0), 32),
            ("2000² r=32", synthetic(2000, 2000, 32, 0), 32),
            ("20000×784 r=32", synthetic(20000, 784, 32, 0), 32),
            ("500×784 r=40 of 32", synthetic(500, 784, 32, 0), 40),
        ]
    krylov(np.eye(20), 2)
    cold(cases)
    warm(500, 8)
    warm(500, 32)


if __name__ == "__main__":
    main()
