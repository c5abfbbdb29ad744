"""Choosing the rank and the ridge: does it find the truth, where do curves turn, and what does it cost.

    python -m benchmarks.rank [planted] [data] [cost] [graphs] [ridge] [folds] [grid]

planted: matrices of known rank with noise. data: the curves of digits, MNIST, kos and k1b. cost: the time of a search
as a multiple of that of one fit. graphs: hidden edges. ridge: what a ridge costs and gains. folds: how entries that are
held out slow down a pass. grid: a grid search on digits. RELUNMD_DATA must name the folder of the data sets for data,
cost, graphs and ridge.
"""

import os
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigsh
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

import relunmd
from relunmd import datasets
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.passes import look
from relunmd.engine.problem_setup import check_matrix, held_out_problem, make_problem
from relunmd.selection.folds import FoldPlan, agreement, unit_rows

GRAPHS = ("celegans", "ecoli", "ns", "usair", "power")
RANKS = [2, 4, 8, 16, 32]
LARGE, MOST_PAIRS = 3000, 2_000_000
"""Nodes from which on fewer ranks and ridges are tried, and pairs without an edge that are ranked, a random sample."""
FOLDER = Path(os.environ.get("RELUNMD_DATA", "."))
THREADS = 2


def noisy(rank, zeros, seed, shape=(400, 300)):
    """A planted matrix whose entries, before the ReLU, have noise of a tenth of the root mean square of positive ones.

    With half of the entries zero W and H are Gaussian; with more zeros the last component is constant.
    """
    random = np.random.default_rng(seed)
    own = rank if zeros == 0.5 else rank - 1
    Theta = random.standard_normal((shape[0], own)) @ random.standard_normal((own, shape[1]))
    level = 0.0 if zeros == 0.5 else np.quantile(Theta, zeros)
    positive = Theta[Theta > level] - level
    noise = 0.1 * np.sqrt(np.mean(positive**2)) * random.standard_normal(shape)
    return np.maximum(0, Theta - level + noise)


def planted(seeds=10):
    print("\nchosen ranks of planted matrices, 400×300, 10 % noise: within ±1 of the truth (default ranks)")
    for ridges in ((0.0,), (1e-3,)):
        good = total = 0
        for zeros in (0.5, 0.8, 0.95):
            for rank in (3, 6, 12):
                begun = time.perf_counter()
                found = [
                    relunmd.select_rank(
                        noisy(rank, zeros, seed), ridges=ridges, refit=False, random_state=seed, n_jobs=THREADS
                    ).rank
                    for seed in range(seeds)
                ]
                hits = sum(abs(r - rank) <= 1 for r in found)
                good, total = good + hits, total + seeds
                chosen = ", ".join(f"{r} ({count}×)" for r, count in sorted(Counter(found).items()))
                each = (time.perf_counter() - begun) / seeds
                print(
                    f"ridge {ridges[0]:g}, {zeros:.0%} zeros, rank {rank}: {hits}/{seeds}; {chosen}; {each:.1f} s each"
                )
        print(f"ridge {ridges[0]:g}: {good} of {total} within ±1", flush=True)


def matrices():
    """The data sets by name."""
    return {
        "digits": (datasets.digits, None),
        "MNIST-2000": (lambda: datasets.mnist(200, download=False).astype(np.float32), None),
        "kos": (lambda: datasets.kos(download=False).astype(np.float32), [1, 2, 4, 8, 16, 32]),
        "k1b": (lambda: sparse.load_npz(FOLDER / "k1b" / "k1b_terms.npz").astype(np.float32), [1, 2, 4, 8]),
    }


def data():
    print("\ncurves: held-out error by rank, five folds")
    for name, (load, ranks) in matrices().items():
        X = load()
        for ridges, balance in (((0.0,), False), ((1e-2,), False), *([((1e-2,), True)] if sparse.issparse(X) else [])):
            begun = time.perf_counter()
            found = relunmd.select_rank(
                X, ranks, ridges=ridges, balance=balance, refit=False, random_state=0, n_jobs=THREADS
            )
            seconds = time.perf_counter() - begun
            curve = "  ".join(f"{row.rank}: {row.error:.3f}" for row in found.rows)
            kind = f"ridge {ridges[0]:g}{', balanced' * balance}"
            print(f"{name} {X.shape}, {kind}: {found.sentence} {seconds:.0f} s\n    {curve}", flush=True)


def cost():
    print("\ncost: a search over ten ranks up to R with five folds, refit included, divided by one fit at rank R")
    ten = {16: [1, 2, 3, 4, 5, 6, 8, 10, 12, 16], 32: [2, 4, 6, 8, 10, 12, 16, 20, 24, 32]}
    cases = {
        "digits": (datasets.digits(), 32),
        "MNIST-2000": (datasets.mnist(200, download=False).astype(np.float32), 32),
        "planted 80 %, rank 6": (noisy(6, 0.8, 0), 16),
        "planted 95 %, rank 12": (noisy(12, 0.95, 0), 16),
        "planted 90 %, rank 8, 2000×1000": (noisy(8, 0.9, 0, (2000, 1000)), 16),
        "kos": (datasets.kos(download=False).astype(np.float32), 16),
    }
    for name, (X, largest) in cases.items():
        for ridge in (0.0, 1e-3):
            options = {"tol": 1e-3, "max_iter": 300, "random_state": 0, "n_jobs": THREADS}
            relunmd.decompose(X, largest, max_iter=5, n_jobs=THREADS)  # Compiled, and X in cache.
            begun = time.perf_counter()
            relunmd.decompose(X, largest, ridge=ridge, **options)
            one, begun = time.perf_counter() - begun, time.perf_counter()
            relunmd.decompose(X, largest, ridge=ridge, **(options | {"tol": 1e-2}))
            rough, begun = time.perf_counter() - begun, time.perf_counter()
            found = relunmd.select_rank(X, ten[largest], ridges=[ridge], **options)
            total = time.perf_counter() - begun
            print(f"{name}, ridge {ridge:g}: {total / one:.1f} times {one:.2f} s; {len(found.fits)} fits; "
                  f"{total / rough:.1f} times one fit with the tolerance of the folds", flush=True)  # fmt: skip


def graph(name):
    A = sparse.load_npz(FOLDER / "graphs" / f"{name}.npz").toarray() != 0
    A |= A.T
    np.fill_diagonal(A, False)
    return A


def hidden_edges(A, seed):
    """X without a tenth of the edges, the pairs without an edge in X, and whether there is one in A."""
    i, j = np.nonzero(np.triu(A, 1))
    hidden = np.random.default_rng(seed).choice(len(i), len(i) // 10, replace=False)
    X = A.astype(np.float32)
    X[i[hidden], j[hidden]] = X[j[hidden], i[hidden]] = 0
    pairs = np.nonzero(np.triu(X == 0, 1))
    if len(pairs[0]) > MOST_PAIRS:
        kept = np.random.default_rng(seed).random(len(pairs[0])) < MOST_PAIRS / len(pairs[0])
        kept |= A[pairs]
        pairs = pairs[0][kept], pairs[1][kept]
    return X, pairs, A[pairs]


def adamic_adar(X):
    degrees = X.sum(axis=0)
    weights = np.where(degrees > 1, 1 / np.log(np.maximum(degrees, 2)), 0)
    return (sparse.csr_array(X * weights) @ sparse.csr_array(X)).toarray()


def predicted(X, seed):
    """Scores of WH with rank and ridge chosen automatically.

    A zero may be an edge that is hidden: it has the weight √density. Nothing is known of the diagonal.
    """
    weights = np.where(X > 0, 1, np.sqrt((X > 0).mean())).astype(np.float32)
    found = relunmd.select_rank(
        sparse.csr_array(X),
        RANKS if len(X) < LARGE else [4, 8, 16],
        ridges="auto" if len(X) < LARGE else [1e-3, 1e-2],
        n_folds=3,
        rule="min",
        balance=True,
        mask=sparse.eye_array(len(X), dtype=np.uint8, format="csr"),
        weights=weights,
        random_state=seed,
        n_jobs=THREADS,
    )
    Theta = found.model.reconstruct(relu=False)
    return found, Theta + Theta.T


def graphs(splits=5):
    print(f"\ngraphs: a tenth of the edges hidden as zeros, mean of {splits} splits: AUC (average precision)")
    means = {}
    for name in GRAPHS:
        A, found, choices = graph(name), {}, []
        for seed in range(splits):
            X, pairs, truth = hidden_edges(A, seed)
            w, V = eigsh(sparse.csr_array(X.astype(float)), 64, v0=np.ones(len(X)))
            order = np.argsort(-np.abs(w))
            scores = {"Adamic–Adar": adamic_adar(X)}
            for rank in (1, 2, 4, 8, 16, 32, 64):
                kept = order[:rank]
                scores[f"SVD {rank}"] = (V[:, kept] * w[kept]) @ V[:, kept].T
            selection, scores["relunmd"] = predicted(X, seed)
            choices.append(f"{selection.rank} / {selection.ridge:g}")
            for label, S in scores.items():
                values = S[pairs]
                found.setdefault(label, []).append(
                    (roc_auc_score(truth, values), average_precision_score(truth, values))
                )
        mean = {label: np.mean(values, axis=0) for label, values in found.items()}
        best = max((label for label in mean if label.startswith("SVD")), key=lambda label: mean[label][0])
        means[name] = [mean[label][0] for label in ("relunmd", best, "Adamic–Adar")]
        labels = ("relunmd", best, "Adamic–Adar")
        shown = ", ".join(f"{label} {mean[label][0]:.3f} ({mean[label][1]:.3f})" for label in labels)
        size = f"{len(A)} nodes, {A.sum() // 2} edges"
        print(f"{name} ({size}): {shown}; rank / ridge {', '.join(choices)}", flush=True)
    if len(means) == len(GRAPHS):
        ours, svd, adamic = np.array(list(means.values())).T
        print(f"mean AUC {ours.mean():.3f}, SVD at its best rank {svd.mean():.3f}, Adamic–Adar {adamic.mean():.3f}; "
              f"ahead of Adamic–Adar on {(ours >= adamic).sum()} of {len(ours)}")  # fmt: skip


def ridge():
    print(
        "\nridge: E, held-out error, accuracy of 5 nearest neighbors on W (5 folds), stability of components over seeds"
    )
    k1b = lambda: sparse.load_npz(FOLDER / "k1b" / "k1b_terms.npz").astype(np.float32)  # noqa: E731
    sets = {
        "digits, rank 16": (datasets.digits(), load_digits().target, 16),
        "MNIST-2000, rank 32": (datasets.mnist(200, download=False).astype(np.float32), np.repeat(range(10), 200), 32),
        "celegans, rank 8": (graph("celegans").astype(float), None, 8),
        "usair, rank 8": (graph("usair").astype(float), None, 8),
        "kos, rank 16": (datasets.kos(download=False).astype(np.float32), None, 16),
        "k1b, rank 8": (k1b(), np.load(FOLDER / "k1b" / "k1b_labels.npy"), 8),
    }
    for name, (X, labels, rank) in sets.items():
        base = None
        for strength in (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
            most = 60 if sparse.issparse(X) else 300  # Texts take long.
            options = {"ridge": strength, "tol": 1e-4, "max_iter": most, "n_jobs": THREADS}
            fits = [relunmd.decompose(X, rank, init=i, random_state=0, **options) for i in ("auto", "mean-corrected")]
            d = fits[0]
            held = relunmd.select_rank(
                X, [rank], ridges=[strength], n_folds=2, refit=False, random_state=0, n_jobs=THREADS
            )
            stable = agreement(*(unit_rows(fit.H) for fit in fits))
            base = d.error if base is None else base
            size = np.linalg.norm(d.W) * np.linalg.norm(d.H) / d.fingerprint.norm
            neighbors = "      "
            if labels is not None:
                metric = "cosine" if sparse.issparse(X) else "euclidean"
                classifier = KNeighborsClassifier(5, metric=metric)
                neighbors = f"{cross_val_score(classifier, d.W, labels, cv=5).mean():.3f}"
            print(f"{name}, ridge {strength:g}: E {d.error:.4f} ({d.error / base - 1:+.1%}), "
                  f"held out {held.error:.4f}, neighbors {neighbors}, stability {stable:.2f}, ‖W‖‖H‖/‖X‖ {size:.1f}, "
                  f"{d.n_iter} iterations", flush=True)  # fmt: skip


def passes():
    print("\nfolds: time of a pass with held-out entries, divided by a plain one (float64 and float32)")
    for dtype in (np.float64, np.float32):
        for name, X, rank in (
            ("2000×2000", datasets.synthetic(2000, 2000, 16, 0).astype(dtype), 16),
            ("2000×2000, 99 % zeros, CSR", sparse.random_array((2000, 2000), density=0.01, rng=0, dtype=dtype), 16),
        ):
            with ThreadExecutor(THREADS) as executor:
                plain = make_problem(check_matrix(X), np.dtype(dtype), rank, executor)
                held = held_out_problem(plain, FoldPlan(0, 5, 0.1, 0.1).held(0))
                random = np.random.default_rng(0)
                W, H = (random.standard_normal(shape).astype(dtype) for shape in ((2000, rank), (rank, 2000)))
                times = {}
                for _ in range(9):
                    for kind, problem in (("plain", plain), ("held", held)):
                        begun = time.perf_counter()
                        look(problem, W, H)
                        times.setdefault(kind, []).append(time.perf_counter() - begun)
                ratio = np.median(times["held"]) / np.median(times["plain"])
                print(f"{name}, {np.dtype(dtype)}, rank {rank}: {ratio:.2f}", flush=True)


def grid():
    print("\ngrid search on digits, three folds of rows: mean of held_out_score by rank")
    ranks = [2, 4, 8, 12, 16, 24, 32, 48]
    model = relunmd.ReLUNMD(tol=1e-3, random_state=0, n_jobs=THREADS)
    search = GridSearchCV(model, {"n_components": ranks}, scoring=relunmd.held_out_score, cv=3).fit(datasets.digits())
    scores = zip(ranks, search.cv_results_["mean_test_score"], strict=True)
    print("  ".join(f"{rank}: {score:.3f}" for rank, score in scores), search.best_params_)


PARTS = {
    "grid": grid,
    "planted": planted,
    "data": data,
    "cost": cost,
    "graphs": graphs,
    "ridge": ridge,
    "folds": passes,
}


def main():
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
