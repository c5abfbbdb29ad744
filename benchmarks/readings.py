"""Iteration counts of table 4 that differ from the paper's, by initialization and implementation.

    python -m benchmarks.readings

The authors' program initializes with three subgradient steps of length 0.7 from a full-rank Gaussian matrix, and its 3B
starts with Z⁰ = X. The NumPy versions use LAPACK's SVDs and nothing of the library.
"""

import numpy as np

from benchmarks import reference
from relunmd.comparison.timed_run import Evaluator, InitialFactors
from relunmd.datasets import synthetic
from relunmd.loop.criteria import Limits
from reproduction.experiment import SIX
from reproduction.paper import TABLE4
from tests.algorithm import oracles

N, TARGET, MOST = 1000, 1e-4, 150
SETTINGS = [(8, "3B-NMD"), (32, "A-EM"), (64, "EM"), (64, "A-EM")]
SEEDS = range(2)


def program_factors(X, rank, seed):
    """Return the initial factors of the authors' program."""
    random = np.random.default_rng([seed, 1])

    def feasible(Theta):
        return np.where(X > 0, X, np.minimum(0, Theta))

    Theta = feasible(random.standard_normal(X.shape))
    for _ in range(3):
        U, _, Vt = np.linalg.svd(Theta, full_matrices=False)
        Theta = feasible(Theta - 0.7 * U @ Vt)
    U, sigma, Vt = np.linalg.svd(Theta, full_matrices=False)
    return U[:, :rank], sigma[:rank, None] * Vt[:rank]


def first_below(errors):
    return next((i for i, error in enumerate(errors) if error <= TARGET), None)


def plain(X, label, W, H):
    """Return the number of iterations of the NumPy version."""
    rank = len(H)
    if label == "3B-NMD":
        return first_below(reference.three_block(X, W, H, target_error=TARGET, max_iter=MOST, Z=X.copy())[2])
    alpha = 0.6 if label == "A-EM" else 0.0
    return first_below(oracles.em(X, rank, W @ H, TABLE4[rank][label][1] + 40, alpha)[0])


def main():
    print(f"Iterations to E ≤ {TARGET:.0e}, {N}², by initialization: seeds {', '.join(map(str, SEEDS))}")
    print(f"{'':>16} {'paper':>6} {'nuclear':>14} {'tsvd':>14} {'authors’':>14} {'NumPy, authors’':>17}")
    by_label = {contender.label: contender for contender in SIX}
    for rank, label in SETTINGS:
        found = {"nuclear": [], "tsvd": [], "program": [], "plain": []}
        for seed in SEEDS:
            X = synthetic(N, N, rank, seed)
            evaluator = Evaluator(X)
            W, H = program_factors(X, rank, seed)
            starts = {init: evaluator.initialize(rank, init, 10 * seed) for init in ("nuclear", "tsvd")}
            starts["program"] = InitialFactors(W, H, evaluator.error(W, H), 0.0)
            for name, start in starts.items():
                trajectory = evaluator.run(by_label[label], start, Limits(TARGET, 0, MOST, None))
                found[name].append(first_below(trajectory.errors))
            found["plain"].append(plain(X, label, W, H))
        cells = [", ".join(str(count) for count in counts) for counts in found.values()]
        widths = (14, 14, 14, 17)
        shown = " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        print(f"r = {rank:2} {label:>9} {TABLE4[rank][label][1]:>6} {shown}", flush=True)


if __name__ == "__main__":
    main()
