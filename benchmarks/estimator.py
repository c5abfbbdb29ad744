"""The estimator: agreement of transform with fit, throughput, and partial_fit.

    python -m benchmarks.estimator [grid] [agreement] [held-out] [throughput] [batches]

Data sets that are missing (see relunmd.datasets) are skipped with a message.
"""

import argparse
import time
import warnings

import numpy as np
from scipy.optimize import minimize
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import relunmd
from relunmd import ReLUNMD, datasets
from relunmd.errors import DatasetError

RANK = 32
LOOPED = 2000
"""Rows on which the loop over SciPy's L-BFGS is timed: all 10 000 would take minutes."""
BATCH, ROUNDS = 1000, 3


def relative(X, W, H):
    X = X.toarray() if hasattr(X, "toarray") else X
    return float(np.linalg.norm(X - np.maximum(0, W @ H)) / np.linalg.norm(X))


def sparse_noise(kind, density, seed, shape):
    """Return independent entries of which a fraction is nonzero: row problems with many local minima."""
    random = np.random.default_rng(seed)
    nonzero = random.random(shape) < density
    if kind == "counts":
        return nonzero * (1.0 + random.poisson(1.0, shape))
    return nonzero * (1.0 if kind == "binary" else random.random(shape))


def grid(seeds=10):
    """Print error_ relative to the best iteration, and the error of transform(training rows) relative to error_."""
    print(f"\nfit over iterations, transform over fit; ranks 4, 10, 20, {seeds} seeds each")
    all_fits, all_transforms = [], []
    for shape in ((200, 60), (300, 200)):
        for kind in ("binary", "counts", "reals"):
            for density in (0.02, 0.05, 0.08, 0.1, 0.2):
                fits, transforms = [], []
                for rank in (4, 10, 20):
                    for seed in range(seeds):
                        X = sparse_noise(kind, density, seed, shape)
                        model = ReLUNMD(rank, random_state=seed, n_jobs=-1).fit(X)
                        floor = 1e-13  # Exact fits.
                        fits.append(max(model.error_, floor) / max(model.history_.error.min(), floor))
                        transforms.append(max(-model.score(X), floor) / max(model.error_, floor))
                print(
                    f"{shape[0]}×{shape[1]} {kind:6} {density:4.2f}: fit worst {max(fits):.4f}, median "
                    f"{np.median(fits):.4f}; transform worst {max(transforms):.4f}, median {np.median(transforms):.4f}",
                    flush=True,
                )
                all_fits += fits
                all_transforms += transforms
    print(
        f"all {len(all_fits)} fits: fit worst {max(all_fits):.4f}, median {np.median(all_fits):.4f}; "
        f"transform worst {max(all_transforms):.4f}, median {np.median(all_transforms):.4f}"
    )


def agreement():
    """Print the errors of fit_transform(X) and fit(X).transform(X), and how much W differs."""
    cases = {
        "digits, r=16": (datasets.digits, 16),
        "MNIST-500, r=32": (lambda: datasets.mnist(50, every=10, download=False), 32),
        "kos, r=16": (datasets.kos, 16),
    }
    print("\nfit_transform(X) against fit(X).transform(X)")
    for name, (load, rank) in cases.items():
        try:
            X = load()
        except DatasetError as reason:
            print(f"{name}: skipped, {reason}")
            continue
        model = ReLUNMD(rank, random_state=0, n_jobs=-1)
        together = model.fit_transform(X)
        apart = model.transform(X)
        H = model.components_
        one, two = relative(X, together, H), relative(X, apart, H)
        print(
            f"{name:18} E {one:.6f} and {two:.6f}, relative difference {abs(one - two) / one:.1e}; "
            f"W differ by {np.abs(together - apart).max():.1e}; "
            f"best error of the iterations {model.history_.error.min():.6f}"
        )


def held_out():
    """Print E of 1000 held-out images relative to that of 5000 fitted ones: split by digit, and at random."""
    images = datasets.mnist(600, download=False)
    digit = np.arange(len(images)) % 600
    splits = {"first 500 of each digit, next 100": (images[digit < 500], images[digit >= 500])}
    for seed in range(5):
        shuffled = images[np.random.default_rng(seed).permutation(len(images))]
        splits[f"random split {seed}"] = shuffled[:5000], shuffled[5000:]
    print(f"\nE of 5000 fitted and 1000 held-out images of MNIST, r={RANK}")
    for name, (seen, unseen) in splits.items():
        model = ReLUNMD(RANK, random_state=0, n_jobs=-1).fit(seen)
        svd = TruncatedSVD(RANK, random_state=0).fit(seen)
        fitted, other = -model.score(seen), -model.score(unseen)
        of_svd = [
            float(np.linalg.norm(X - svd.inverse_transform(svd.transform(X))) / np.linalg.norm(X))
            for X in (seen, unseen)
        ]
        print(
            f"{name:34} {fitted:.4f} and {other:.4f}, ratio {other / fitted:.4f}   "
            f"(TruncatedSVD {of_svd[0]:.4f} and {of_svd[1]:.4f}, ratio {of_svd[1] / of_svd[0]:.4f})"
        )


def looped(X, H, least_squares_first):
    """Return W by SciPy's L-BFGS row by row: from 0 with the latent residual first, or from least squares."""

    def latent(w, x, positive):
        gap = x - w @ H
        gap = np.where(positive, gap, np.minimum(gap, 0))
        return gap @ gap / 2, -(H @ gap)

    def error(w, x):
        theta = w @ H
        residual = x - np.maximum(theta, 0)
        return residual @ residual / 2, -(H @ (residual * (theta > 0)))

    W = np.zeros((len(X), len(H)))
    starts = np.linalg.lstsq(H.T, X.T, rcond=None)[0].T if least_squares_first else W
    for i, x in enumerate(X):
        w = starts[i]
        if not least_squares_first:
            w = minimize(latent, w, (x, x > 0), jac=True, method="L-BFGS-B").x
        W[i] = minimize(error, w, (x,), jac=True, method="L-BFGS-B").x
    return W


def mean_error(X, W, H):
    return float(np.mean(np.linalg.norm(X - np.maximum(0, W @ H), axis=1) / np.linalg.norm(X, axis=1)))


def throughput():
    """Print the time of transform per row, and that of a loop over rows."""
    images = datasets.mnist(download=False)
    model = ReLUNMD(RANK, random_state=0, n_jobs=-1).fit(images[:5000])
    X, H = images[50_000:].astype(np.float64), model.components_
    model.transform(X[:100])
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        W = model.transform(X)
        taken.append(time.perf_counter() - begin)
    ours = float(np.median(taken)) / len(X)
    some = np.linspace(0, len(X) - 1, LOOPED).astype(int)
    print(
        f"\ntransform of 10 000 images of MNIST, r={RANK}: {1e3 * ours:.3f} ms per row, all rows {ours * len(X):.2f} s"
    )
    for name, direct in (("latent residual, then E", False), ("E from least squares", True)):
        with threadpool_limits(1):
            begin = time.perf_counter()
            theirs_W = looped(X[some], H, direct)
            theirs = (time.perf_counter() - begin) / len(some)
        errors = [mean_error(X[some], factor, H) for factor in (theirs_W, W[some])]
        print(
            f"  SciPy's L-BFGS, {name}: {1e3 * theirs:.2f} ms per row ({LOOPED} rows), ratio {theirs / ours:.0f}; "
            f"mean error of these rows {errors[0]:.5f}, ours {errors[1]:.5f}"
        )


def batches():
    """Print the error of partial_fit in batches and of the full fit by the number of passes."""
    X = datasets.mnist(download=False)
    print(f"\npartial_fit of {len(X)} images in batches of {BATCH}, r={RANK}")
    model, ends, begin = ReLUNMD(RANK, random_state=0, n_jobs=-1), [], time.perf_counter()
    for turn in range(ROUNDS):
        for start in range(0, len(X), BATCH):
            model.partial_fit(X[start : start + BATCH])
        seconds = time.perf_counter() - begin
        ends.append(-model.score(X))
        begin += time.perf_counter() - begin - seconds  # The time of the score does not count.
        print(f"  after pass {turn + 1}: E {ends[-1]:.4f}, {seconds:.0f} s")
    begin = time.perf_counter()
    d = relunmd.decompose(X, RANK, random_state=0, max_iter=1000, n_jobs=-1)
    h = d.history
    for passes in (ROUNDS, ROUNDS + h.passes[0], 20, 50, 100):
        if passes < h.passes[0]:
            print(f"  the full fit has no factors after {passes} passes: its initialization takes {h.passes[0]:.0f}")
            continue
        at = int(np.flatnonzero(h.passes <= passes)[-1])
        print(
            f"  the full fit after {passes:.0f} passes ({at} iterations): "
            f"E {h.error[: at + 1].min():.4f}, {h.time[at]:.0f} s"
        )
    print(f"  the full fit to the end ({d.n_iter} iterations): E {d.error:.4f}, {d.time:.0f} s")
    for turn, end in enumerate(ends):
        reached = np.flatnonzero(h.error <= end)
        when = f"{h.passes[reached[0]]:.0f} passes, {h.time[reached[0]]:.0f} s" if len(reached) else "never"
        print(f"  it reaches the error of {turn + 1} pass(es) of partial_fit after: {when}")


PARTS = {"grid": grid, "agreement": agreement, "held-out": held_out, "throughput": throughput, "batches": batches}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    warnings.simplefilter("ignore", ConvergenceWarning)
    for part in parser.parse_args().parts or PARTS:
        try:
            PARTS[part]()
        except DatasetError as reason:
            print(f"\n{part}: skipped, {reason}")


if __name__ == "__main__":
    main()
