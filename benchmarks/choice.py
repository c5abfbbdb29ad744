"""ReLUNMD, NMF or TruncatedSVD? Errors, features, topics and times behind the advice of the documentation.

    python -m benchmarks.choice [errors] [dense] [features] [topics] [time] [--picture PATH] [--quick]

errors    relative errors at equal rank, and the ranks NMF and the SVD need (4 minutes; --picture: 2 more)
dense     the same without zeros in X (15 s)
features  accuracy of two classifiers on W of unseen rows, by ridge (8 minutes)
topics    zeros of H; how well the largest components and k-means on W agree with classes of documents (5 minutes)
time      seconds of a fit, and multiples of TruncatedSVD; ReLUNMD uses all cores (5 minutes)

The minutes are those of one core but for `time`. Limits are numbers of iterations (`max_iter` is that of ReLUNMD), so
other results do not depend on the load. Missing data sets (see relunmd.datasets) are left out with a message.
"""

import argparse
import sys
import time
import warnings
from bisect import bisect_left

import numpy as np
from numpy.linalg import norm
from scipy import io, sparse
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF, TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from relunmd import ReLUNMD, datasets
from relunmd.datasets.store import RemoteFile, get
from relunmd.errors import DatasetError
from relunmd.plot.style import figure

LINES = {"NMF": "C7s--", "TruncatedSVD": "k^:", "ReLUNMD": "C3o-"}
METHODS = {"TruncatedSVD": {}, "NMF": {}} | {f"ReLUNMD, ridge {r:g}": {"ridge": r} for r in (0, 1e-4, 1e-3, 1e-2, 3e-2)}
ITERATIONS, FEW = 300, 60  # Few for texts, whose fits take longest, and for --quick.
MATRICES = {  # Divided by the largest entry: with values up to 255 NMF stops after two iterations at some ranks.
    "digits": (lambda: datasets.digits() / 16, 16, (2, 4, 8, 16, 24)),
    "MNIST, 6 000 images": (lambda: datasets.mnist(600, download=False) / 255, 32, (4, 8, 16, 32)),
    "kos, word counts": (lambda: (X := datasets.kos(download=False)) / X.max(), 32, (4, 8, 16, 32)),
}
DENSE = {
    "CBCL faces": (lambda: datasets.cbcl(download=False).T, 32, ()),
    "abs(randn)": (lambda: np.abs(np.random.default_rng(0).standard_normal((1000, 300))), 32, ()),
}


def fitted(name, rank, X, max_iter=ITERATIONS, **settings):
    """Fit the method before the comma of the name; the limit and the settings are those of ReLUNMD."""
    model = {
        "NMF": NMF(rank, init="nndsvda", max_iter=200, random_state=0),
        "TruncatedSVD": TruncatedSVD(rank, n_iter=10, random_state=0),
        "ReLUNMD": ReLUNMD(rank, max_iter=max_iter, tol=1e-4, random_state=0, **settings),
    }[name.partition(",")[0]]
    begin = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        W = model.fit_transform(X)
    model.seconds = time.perf_counter() - begin
    print(f"{name}, rank {rank}: {model.seconds:.1f} s", file=sys.stderr, flush=True)
    return model, W


def error_of(model, W, X):
    """Return ‖X − max(0, X̂)‖/‖X‖: negative entries are set to zero, which helps TruncatedSVD."""
    X = sparse.csr_array(X).toarray()
    return norm(X - np.maximum(0, W @ model.components_)) / norm(X)


def available(sources, quick=False):
    """Yield name, data and settings of each source, or of the first; print which are missing."""
    for name, (load, *settings) in list(sources.items())[: 1 if quick else None]:
        try:
            yield name, load(), *settings
        except DatasetError as reason:
            print(f"\n{name}: left out, {reason}")


def table(title, header, rows):
    lines = ["| " + " | ".join(row) + " |" for row in (header, ["---", *["---:"] * (len(header) - 1)], *rows)]
    print(f"\n{title}\n", *lines, sep="\n", flush=True)


def nmf_at_equal_nonzeros(X, rank):
    """Return the error and the rank at which W and H of NMF have rank·(m + n) nonzeros."""
    budget = rank * sum(X.shape)
    for _ in range(3):  # Its factors have zeros, more of them at larger ranks.
        model, W = fitted("NMF", rank, X)
        found = f"{error_of(model, W, X):.3f} (rank {rank})"
        rank = min(round(rank * budget / (np.count_nonzero(W) + np.count_nonzero(model.components_))), *X.shape)
    return found


def svd_rank_for(error, X):
    """Return the smallest rank at which max(0, X_r) has at most this error."""
    X = sparse.csr_array(X).toarray()
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    return bisect_left(range(len(s)), -error * norm(X), key=lambda r: -norm(X - (U[:, :r] * s[:r] @ Vt[:r]).clip(0)))


def errors(given, matrices=MATRICES):
    """Print the errors at equal rank; with --picture draw them by rank."""
    curves, rows, max_iter = {}, [], FEW if given.quick else ITERATIONS
    for name, X, rank, ranks in available(matrices, given.quick):
        ranks = (given.picture and ranks) or [rank]
        found = curves[name] = {m: {r: error_of(*fitted(m, r, X, max_iter), X) for r in ranks} for m in LINES}
        shape = f"{name}, {X.shape[0]} × {X.shape[1]}", f"{1 - (X != 0).sum() / np.prod(X.shape):.0%}", f"{rank}"
        others = nmf_at_equal_nonzeros(X, rank), f"{svd_rank_for(found['ReLUNMD'][rank], X)}"
        rows.append((*shape, *(f"{by_rank[rank]:.3f}" for by_rank in found.values()), *others))
    table(f"Relative errors, {max_iter=}", ("X", "zeros", "rank", *LINES, "NMF, equal nonzeros", "SVD rank"), rows)
    if given.picture and matrices is MATRICES:
        draw(curves, given.picture)


def draw(curves, path):
    """Draw errors by rank, one panel per X."""
    made, panels = figure(3.6 * len(curves) + 0.4, 3.4, len(curves))
    for ax, (name, methods) in zip(panels, curves.items(), strict=True):
        for method, found in methods.items():
            ax.plot(list(found), list(found.values()), LINES[method], markersize=5, label=method)
        ax.set(xscale="log", xlabel="rank", ylabel="relative error" * (ax is panels[0]), ylim=(0, None), title=name)
        ax.set_xticks(list(found), list(map(str, found)))
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.9")
    panels[0].legend(frameon=False)
    made.savefig(path)


def k1b():
    place = get(RemoteFile("k1b/k1b_terms.npz", "CLUTO's data sets", ""), download=False)
    return sparse.csr_array(sparse.load_npz(place)).astype(np.float64), np.load(place.with_name("k1b_labels.npy"))


def classic():
    """Return counts and classes of 3000 of 7094 abstracts, with the words that occur in them."""
    some = np.random.default_rng(0).permutation(7094)[:3000]
    X = datasets.classic(download=False)[some]
    return X[:, np.flatnonzero(X.sum(axis=0))], np.ravel(io.loadmat(datasets.where("classic"))["classid"])[some]


TEXTS = {"k1b tf-idf": (k1b, 16), "classic tf-idf": (classic, 16)}
LABELED = {
    "digits": (lambda: (datasets.digits() / 16, load_digits().target), 16),
    "MNIST": (lambda: (datasets.mnist(1000, download=False) / 255, np.arange(10_000) // 1000), 32),
} | TEXTS


def scores(X, X_new, y, y_new, metric):
    linear = make_pipeline(StandardScaler(with_mean=not sparse.issparse(X)), LogisticRegression(max_iter=2000))
    return [f"{model.fit(X, y).score(X_new, y_new):.3f}" for model in (linear, KNeighborsClassifier(5, metric=metric))]


def features(given):
    """Print the accuracy on W of unseen rows, and the error of the training rows."""
    for name, (X, y), rank in available(LABELED, given.quick):
        X, X_new, *labels = train_test_split(X, y, train_size=0.6, random_state=0, stratify=y)
        max_iter, metric = FEW if given.quick else ITERATIONS, "euclidean"
        if sparse.issparse(X):
            weights = TfidfTransformer().fit(X)
            X, X_new, max_iter, metric = weights.transform(X), weights.transform(X_new), FEW, "cosine"
        rows = [("all columns", "", *scores(X, X_new, *labels, metric))]
        for method, settings in METHODS.items():
            model, W = fitted(method, rank, X, max_iter, **settings)
            rows.append((method, f"{error_of(model, W, X):.3f}", *scores(W, model.transform(X_new), *labels, metric)))
        title = f"Accuracy on {X_new.shape[0]} unseen of {len(y)} rows: {name}, rank {rank}, {max_iter=}"
        table(title, ("features", "E", "logistic regression", f"5 neighbors, {metric}"), rows)


def agreement(y, labelings):
    return f"{np.mean([normalized_mutual_info_score(y, labels) for labels in labelings]):.3f}"


def topics(given):
    """Print the normalized mutual information with classes of as many components and clusters as classes."""
    for name, (counts, y), _ in available(TEXTS, given.quick):
        X, rank = TfidfTransformer().fit_transform(counts), len(np.unique(y))
        means = [KMeans(rank, n_init=10, random_state=seed) for seed in range(5)]
        rows = [("all columns", "", "", agreement(y, [each.fit_predict(X) for each in means]))]
        for method, settings in METHODS.items():
            model, W = fitted(method, rank, X, FEW, **settings)
            largest = agreement(y, [np.argmax(W * norm(model.components_, axis=1), axis=1)])
            clusters = agreement(y, [each.fit_predict(normalize(W)) for each in means])
            rows.append((method, f"{np.mean(model.components_ == 0):.0%}", largest, clusters))
        title = f"Topics: {name}, {X.shape[0]} × {X.shape[1]}, rank {rank}, max_iter={FEW}"
        table(title, ("", "zeros of H", "NMI, largest component", "NMI, k-means"), rows)


def times(given):
    """Print the shortest of three times of a fit, and multiples of TruncatedSVD."""
    limits = {"ReLUNMD, 50 iterations": {"max_iter": 50, "tol": 0}, "ReLUNMD, at most 200": {"max_iter": 200}}
    cases, rows = {"TruncatedSVD": {}, "NMF": {}} | limits, []
    fitted("ReLUNMD", 2, datasets.digits())  # The first fit imports and compiles.
    for name, X, rank, _ in available(MATRICES, given.quick):
        seconds = [min(fitted(c, rank, X, n_jobs=-1, **k)[0].seconds for _ in range(3)) for c, k in cases.items()]
        rows.append((f"{name}, rank {rank}", *(f"{each:.2f} s ({each / seconds[0]:.1f}×)" for each in seconds)))
    table("Time of a fit", ("X", *cases), rows)


PARTS = {"errors": errors, "dense": lambda g: errors(g, DENSE), "features": features, "topics": topics, "time": times}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--picture", metavar="PATH", help="file for the picture of errors by rank")
    parser.add_argument("--quick", action="store_true", help="errors and features of digits, with fewer iterations")
    given = parser.parse_args(arguments)
    for part in given.parts or (["errors", "features"] if given.quick else PARTS):
        PARTS[part](given)


if __name__ == "__main__":
    main()
