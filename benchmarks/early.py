"""The first 100 passes: "qn" beside plain NumPy versions of eBCD and NMD-TM.

    python -m benchmarks.early [NAME ...] [--most 100]

Smallest error after 5, 10, 30 and 100 passes. Those of "qn" include its initialization, two passes. eBCD and NMD-TM
make one pass an iteration, from Gaussian factors or from the exact truncated SVD, which counts as none or, like the
rough one of "qn", as two. X is made dense for them, in float32.
"""

import argparse

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds
from sklearn.datasets import load_digits

import relunmd
from benchmarks.flagship import best
from benchmarks.sparse import matrix
from relunmd import datasets

SETS = {"kos": 32, "k1b": 32, "classic": 32, "digits": 16, "planted": 16}
PASSES = (5, 10, 30, 100)


def loaded(name):
    if name == "digits":
        return load_digits().data
    return datasets.planted(600, 600, 16, 0.95, 0) if name == "planted" else matrix(name)


def initial(X, rank, kind):
    """Return the truncated SVD of X, split evenly, or Gaussian factors of Frobenius norm √‖X‖ each."""
    if kind == "tsvd":
        U, sigma, Vt = svds(X.astype(np.float64), rank, random_state=0)
        return (U * np.sqrt(sigma)).astype(np.float32), (np.sqrt(sigma)[:, None] * Vt).astype(np.float32)
    rng, norm = np.random.default_rng(0), np.sqrt(sparse.linalg.norm(X) if sparse.issparse(X) else np.linalg.norm(X))
    factors = (rng.standard_normal(shape, dtype=np.float32) for shape in ((X.shape[0], rank), (rank, X.shape[1])))
    return tuple(A * np.float32(norm / np.linalg.norm(A)) for A in factors)


def ebcd(X, W, H, mu=0.3, most=4.0, bound=0.8):
    """Yield the relative error of W and H before each iteration of Seraghiti et al. (2025)."""
    alpha, last, positive, kept = 1.0, np.inf, X > 0, None
    Theta = W @ H
    while True:
        yield np.linalg.norm(X - np.maximum(Theta, 0)) / np.linalg.norm(X)
        gap = np.where(positive, X, np.minimum(Theta, 0)) - Theta
        size = np.linalg.norm(gap)
        if size >= last:
            alpha, (W, H, Theta, gap, size) = 1.0, kept
        elif size > bound * last:
            mu = max(mu, (alpha - 1) / 4)
            alpha = alpha + mu if alpha + mu < most else 1.0
        last, kept = size, (W, H, Theta, gap, size)
        Z = Theta + np.float32(alpha) * gap
        W = np.linalg.qr(Z @ H.T)[0]
        H = W.T @ Z
        Theta = W @ H


def nmd_tm(X, W, H, of_latent=0.95, of_factors=-0.05, ridge=1e-4):
    """Yield the relative error of W and H before each iteration of Wang et al., with momentum."""
    positive, eye = X > 0, np.eye(len(H), dtype=np.float32)
    Theta = W @ H
    Z = np.where(positive, X, np.minimum(Theta, 0))
    old = Z, W, H, Theta
    while True:
        yield np.linalg.norm(X - np.maximum(W @ H, 0)) / np.linalg.norm(X)
        Z = (1 + of_latent) * np.where(positive, X, np.minimum(Theta, 0)) - of_latent * old[0]
        W = (1 + of_factors) * np.linalg.solve(H @ H.T + ridge * eye, H @ Z.T).T - of_factors * old[1]
        H = (1 + of_factors) * np.linalg.solve(W.T @ W + ridge * eye, W.T @ Z) - of_factors * old[2]
        Theta = (1 + of_latent) * (W @ H) - of_latent * old[3]
        old = Z, W, H, Theta


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(SETS))
    parser.add_argument("--most", type=int, default=PASSES[-1], help="passes of eBCD and NMD-TM")
    given = parser.parse_args()
    for name in given.names or SETS:
        X, rank = loaded(name), SETS[name]
        d = relunmd.decompose(X, rank, random_state=0, n_jobs=2, tol=0, max_iter=PASSES[-1])
        print(name, "qn".ljust(24), *(f"{best(d, most, 'passes'):.4f}" for most in PASSES), sep="  ", flush=True)
        dense = (X.toarray() if sparse.issparse(X) else X).astype(np.float32)
        for method, kind in ((ebcd, "tsvd"), (ebcd, "gaussian"), (nmd_tm, "tsvd")):
            errors = [e for e, _ in zip(method(dense, *initial(X, rank, kind)), range(given.most + 1), strict=False)]
            for free in (0, 2) if kind == "tsvd" else (0,):
                label = f"{method.__name__} {kind} ({free} passes)".ljust(24)
                found = (f"{min(errors[: most - free + 1]):.4f}" for most in PASSES if most <= given.most)
                print(name, label, *found, sep="  ", flush=True)


if __name__ == "__main__":
    main()
