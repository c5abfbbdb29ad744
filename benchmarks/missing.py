"""Missing values, limits of detection and observed entries: accuracy against others, cost of a pass.

    python -m benchmarks.missing [planted] [images] [proteins] [stored]

Accuracy is the relative error on the entries that were hidden or censored. Times are of single passes, in one process.
The real data sets are those of relunmd.datasets; the proteins are proteomics/hela_protein_groups.csv.gz in the folder
that RELUNMD_DATA names (50 HeLa runs of Webel et al., 2024, doi:10.1038/s41597-024-02922-z).
"""

import argparse
import os
import resource
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import optimize, sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

import relunmd
from relunmd import LowRankImputer, datasets

STARTS = 20


def off(found, truth, where):
    return np.linalg.norm((found - truth)[where]) / np.linalg.norm(truth[where])


def oracle(X, seen, rank, random):
    """The best of 20 random starts of SciPy's L-BFGS on ‖X − max(0, WH)‖² over the entries that are seen."""
    (m, n), best = X.shape, (np.inf, None)
    x = np.where(seen, X, 0)

    def value(z):
        W, H = z[: m * rank].reshape(m, rank), z[m * rank :].reshape(rank, n)
        Theta = W @ H
        gap = np.where(seen, np.maximum(Theta, 0) - x, 0)
        G = gap * (Theta > 0)
        return 0.5 * (gap**2).sum(), np.concatenate([(G @ H.T).ravel(), (W.T @ G).ravel()])

    for _ in range(STARTS):
        start = random.standard_normal((m + n) * rank)
        found = optimize.minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "maxfun": 4000})
        if found.fun < best[0]:
            best = found.fun, np.maximum(0, found.x[: m * rank].reshape(m, rank) @ found.x[m * rank :].reshape(rank, n))
    return best


def planted():
    print("\nplanted rank 5 with noise, 300×200: relative error on the missing entries (objective on the seen ones)")
    for share in (0.2, 0.5, 0.8):
        random = np.random.default_rng(0)
        latent = random.standard_normal((300, 5)) @ random.standard_normal((5, 200))
        truth = np.maximum(0, latent)
        X = np.maximum(0, latent + 0.1 * random.standard_normal(latent.shape))
        hidden = random.random(X.shape) < share
        objective, expected = oracle(X, ~hidden, 5, random)
        d = relunmd.decompose(X, 5, mask=hidden, random_state=0)
        own = 0.5 * np.sum((d.reconstruct() - X)[~hidden] ** 2)
        ratio = off(d.reconstruct(), truth, hidden) / off(expected, truth, hidden)
        print(f"{share:.0%} missing: {off(d.reconstruct(), truth, hidden):.4f} ({own:.4g}), "
              f"oracle {off(expected, truth, hidden):.4f} ({objective:.4g}), ratio {ratio:.3f}")  # fmt: skip


def svd_imputed(X, rank):
    """Iterated truncated SVD: the missing entries are those of the last one."""
    missing, filled = np.isnan(X), SimpleImputer(keep_empty_features=True).fit_transform(X)
    for _ in range(200):
        U, s, Vt = np.linalg.svd(filled, full_matrices=False)
        filled = np.where(missing, np.maximum((U[:, :rank] * s[:rank]) @ Vt[:rank], 0), X)
    return filled


def images():
    X = datasets.mnist(50, every=10, download=False).astype(float)
    hidden = np.random.default_rng(0).random(X.shape) < 0.3
    holes, kept = np.where(hidden, np.nan, X), {"keep_empty_features": True}
    print("\nMNIST-500, 30 % of the pixels missing: relative error on these, seconds")
    methods = {
        "LowRankImputer, 16 components": LowRankImputer(16, random_state=0, **kept),
        "LowRankImputer, 16 components, ridge=0": LowRankImputer(16, ridge=0, random_state=0, **kept),
        "LowRankImputer, 50 components": LowRankImputer(50, random_state=0, **kept),
        "column means": SimpleImputer(**kept),
        "KNNImputer, 5 neighbors": KNNImputer(**kept),
        "IterativeImputer, 50 nearest features": IterativeImputer(
            n_nearest_features=50, max_iter=5, min_value=0, random_state=0, **kept
        ),
    }
    for name, method in methods.items():
        begin = time.perf_counter()
        error = off(method.fit_transform(holes), X, hidden)
        print(f"{name:45} {error:.3f} {time.perf_counter() - begin:6.1f}")
    print(f"{'iterated truncated SVD, 16 components':45} {off(svd_imputed(holes, 16), X, hidden):.3f}")


def chosen(fit, errors_of, grid):
    """The fit of a grid with the least error on held-out entries."""
    fits = [fit(*settings) for settings in grid]
    return fits[int(np.argmin([errors_of(found) for found in fits]))]


def proteins():
    path = Path(os.environ.get("RELUNMD_DATA", ".")) / "proteomics" / "hela_protein_groups.csv.gz"
    if not path.is_file():
        print(f"proteins: skipped, there is no {path}")
        return
    with relunmd.open_matrix(path, names="both") as opened:
        table = np.asarray(opened.X)
    X = np.log2(table[:, ~np.isnan(table).any(axis=0)])[:, :400] - 20
    ranks, ridges = (1, 2, 3, 4, 6, 8), (0.0, 1e-3, 3e-3, 1e-2, 3e-2)
    grid = [(rank, ridge) for rank in ranks for ridge in ridges]
    print("\nHeLa proteins, log₂ − 20, 50×400: relative error on the entries below the limit, mean of five hold-outs")
    print("quantile  LOD/√2  LOD/2    SVD    LOD  missing interval clipped  em    KNN  iterative")
    for q in (0.1, 0.25, 0.5):
        limit = np.quantile(X, q, axis=0)
        below = limit > X
        rows = []
        for seed in range(5):
            held = (np.random.default_rng(seed).random(X.shape) < 0.1) & ~below
            rows.append(compared(X, limit, below, held, grid))
        print(f"{q:8}  " + "  ".join(f"{value:.3f}" for value in np.mean(rows, axis=0)))


def compared(X, limit, below, held, grid):
    zeros, holes = np.where(below, 0, X), np.where(below, np.nan, X)
    hidden, both = np.where(held, np.nan, zeros), np.where(held, np.nan, holes)
    halves = np.where(below, limit / np.sqrt(2), X)

    def truncated(rank, _):
        U, s, Vt = np.linalg.svd(np.where(held, halves.mean(axis=0), halves), full_matrices=False)
        return (U[:, :rank] * s[:rank]) @ Vt[:rank]

    def at_random(rank, ridge):
        return LowRankImputer(rank, ridge=ridge, random_state=0).fit(both)

    def interval(rank, ridge):
        return LowRankImputer(rank, ridge=ridge, lower=limit, random_state=0).fit(hidden)

    def em(rank, _):
        method = relunmd.EM(nonnegative=True)
        return LowRankImputer(rank, algorithm=method, lower=limit, max_iter=300, random_state=0).fit(hidden)

    ranks = [(rank, 0.0) for rank in sorted({rank for rank, _ in grid})]
    svd = chosen(truncated, lambda T: off(T, X, held), ranks)
    missing = chosen(at_random, lambda m: off(m.transform(both), X, held), grid)
    limited = chosen(interval, lambda m: off(m.transform(hidden), X, held), grid)
    noisy = chosen(em, lambda m: off(m.transform(hidden), X, held), ranks)
    inside = limited.transform(zeros)
    latent = np.maximum(limited.model_._latent(zeros, limited._center), 0)
    iterative = IterativeImputer(max_iter=5, n_nearest_features=50, min_value=0, random_state=0)
    return (
        off(limit / np.sqrt(2), X, below),
        off(limit / 2, X, below),
        off(svd, X, below),
        off(np.broadcast_to(limit, X.shape), X, below),
        off(np.minimum(missing.transform(holes), limit), X, below),
        off(inside, X, below),
        off(np.minimum(latent, limit), X, below),
        off(noisy.transform(zeros), X, below),
        off(np.minimum(KNNImputer().fit_transform(holes), limit), X, below),
        off(np.minimum(iterative.fit_transform(holes), limit), X, below),
    )


def stored():
    print("\nonly stored entries are known, 200 000×50 000, rank 16, float64: seconds of a pass of qn (median of ten)")
    random = np.random.default_rng(0)
    for count in (5_000_000, 10_000_000, 20_000_000):
        i, j = random.integers(0, 200_000, count), random.integers(0, 50_000, count)
        X = sparse.csr_array((random.random(count) + 0.5, (i, j)), shape=(200_000, 50_000))
        del i, j
        times = []
        relunmd.decompose(
            X,
            16,
            missing_values="unstored",
            max_iter=12,
            tol=0,
            n_jobs=2,
            random_state=0,
            callback=lambda _: times.append(time.perf_counter()),  # noqa: B023
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{X.nnz:>11} entries: {np.median(np.diff(times)[1:]):.3f} s, peak of the process so far {peak:.2f} GB")


PARTS = {"planted": planted, "images": images, "proteins": proteins, "stored": stored}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all by default")
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in parser.parse_args().parts or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
