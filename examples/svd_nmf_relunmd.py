"""Compare ReLUNMD with TruncatedSVD and NMF: two tables and a picture.

    python examples/svd_nmf_relunmd.py [-o DIRECTORY] [--quick]

The first table has the errors ‖X − X̂‖/‖X‖ at equal rank and at an equal count of stored numbers, on digits and, if the
files are available (see relunmd.datasets), on MNIST and kos. The second has the accuracy of two classifiers on W. It
takes about ten minutes, most of them in NMF; --quick uses digits only.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF, TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relunmd import ReLUNMD, datasets
from relunmd.errors import DatasetError

NAMES = ("NMF", "TruncatedSVD", "ReLUNMD")


def make(name, rank):
    if name == "NMF":
        return NMF(rank, init="nndsvda", max_iter=200, random_state=0)
    if name == "TruncatedSVD":
        return TruncatedSVD(rank, n_iter=10, random_state=0)
    return ReLUNMD(rank, max_time=60, random_state=0, n_jobs=-1)


def fitted(name, rank, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make(name, rank)
        return model, model.fit_transform(X)


def error_of(model, W, X):
    """Return the error after negative entries are set to zero, which helps TruncatedSVD."""
    dense = X.toarray() if sparse.issparse(X) else X
    return float(np.linalg.norm(dense - np.maximum(0, model.inverse_transform(W))) / np.linalg.norm(dense))


def numbers_of(model, W):
    """Return the number of nonzeros of W and H, without the indices that a sparse format stores too."""
    return np.count_nonzero(W) + np.count_nonzero(model.components_)


def nmf_at_equal_numbers(X, rank):
    """Return the rank at which W and H of NMF have rank·(m + n) nonzeros, and the error there."""
    budget = rank * sum(X.shape)
    for _ in range(3):  # Its factors have zeros, more of them at larger ranks.
        model, W = fitted("NMF", rank, X)
        found = rank, error_of(model, W, X)
        rank = min(round(rank * budget / numbers_of(model, W)), *X.shape)
    return found


def svd_rank_for(error, X):
    """Return the smallest rank at which max(0, X_r) has at most this error."""
    dense = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
    U, s, Vt = np.linalg.svd(dense, full_matrices=False)
    low, high = 0, len(s)
    while high - low > 1:
        rank = (low + high) // 2
        found = np.linalg.norm(dense - np.maximum(0, (U[:, :rank] * s[:rank]) @ Vt[:rank])) / np.linalg.norm(dense)
        low, high = (low, rank) if found <= error else (rank, high)
    return high


def data(quick):
    """Yield name, X, the rank of the table and the ranks of the picture.

    X is divided by its largest entry: with values up to 255 NMF stops after two iterations at some ranks.
    """
    yield "digits", load_digits().data / 16, 16, (2, 4, 8, 16, 24)
    if quick:
        return
    sources = {
        "MNIST, 6 000 images": (lambda: datasets.mnist(600, download=False), 32, (4, 8, 16, 32)),
        "kos, word counts": (lambda: datasets.kos(), 32, (4, 8, 16, 32)),
    }
    for name, (load, rank, ranks) in sources.items():
        try:
            X = load()
        except DatasetError as reason:
            print(f"{name}: left out, {reason}")
            continue
        yield name, X / X.max(), rank, ranks


def compare(console, quick):
    """Print the first table, and return the errors by data set, method and rank."""
    table = Table("X", "zeros", "rank", *NAMES, "NMF, equal numbers", "SVD needs rank", title="Relative errors")
    curves = {}
    for name, X, rank, ranks in data(quick):
        m, n = X.shape
        errors = {}
        for method, r in ((method, r) for r in ranks for method in NAMES):
            console.print(f"{name}: {method}, rank {r} …", style="dim")
            errors[method, r] = error_of(*fitted(method, r, X), X)
        curves[name] = {method: [(r, errors[method, r]) for r in ranks] for method in NAMES}
        ours = errors["ReLUNMD", rank]
        nmf_rank, nmf = nmf_at_equal_numbers(X, rank)
        zeros = 1 - (X.nnz if sparse.issparse(X) else np.count_nonzero(X)) / (m * n)
        table.add_row(
            f"{name}, {m} × {n}",
            f"{zeros:.0%}",
            f"{rank}",
            *(f"{errors[method, rank]:.3f}" for method in NAMES),
            f"{nmf:.3f} (rank {nmf_rank})",
            f"{svd_rank_for(ours, X)}",
        )
    console.print(table)
    return curves


def labelled(quick):
    """Yield name, training and test rows with labels, and rank."""
    X, y = load_digits(return_X_y=True)
    X = X / 16
    yield "digits", X[:1200], y[:1200], X[1200:], y[1200:], 16
    if quick:
        return
    try:
        images = datasets.mnist(600, download=False) / 255
    except DatasetError:
        return
    digit, place = np.divmod(np.arange(len(images)), 600)
    seen = place < 500
    yield "MNIST", images[seen], digit[seen], images[~seen], digit[~seen], 32


def classify(console, quick):
    """Print the second table: W as features, computed by transform for unseen rows."""
    table = Table("X", "features", "logistic regression", "5 nearest neighbors", title="Accuracy on unseen rows")
    for name, X, y, X_new, y_new, rank in labelled(quick):
        features = {"all pixels": (X, X_new)}
        for method in reversed(NAMES):
            model, W = fitted(method, rank, X)
            features[f"{method}, rank {rank}"] = W, model.transform(X_new)
        for label, (old, new) in features.items():
            straight = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(old, y)
            near = KNeighborsClassifier(5).fit(old, y)
            table.add_row(name, label, f"{straight.score(new, y_new):.3f}", f"{near.score(new, y_new):.3f}")
    console.print(table)


def draw(curves, path):
    """Draw errors by rank, one panel per X."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * len(curves) + 0.4, 3.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    looks = {"NMF": ("0.55", "--", "s"), "TruncatedSVD": ("0.3", ":", "^"), "ReLUNMD": ("#c1121f", "-", "o")}
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for ax, (name, methods) in zip(panels, curves.items(), strict=True):
        for method, points in methods.items():
            color, line, marker = looks[method]
            ax.plot(*zip(*points, strict=True), line, color=color, marker=marker, markersize=5, label=method)
        ranks = [rank for rank, _ in points]
        ax.set_xscale("log", base=2)
        ax.set_xticks(ranks, [str(rank) for rank in ranks])
        ax.minorticks_off()
        ax.set_ylim(0, None)
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("rank")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.9")
    panels[0].set_ylabel("relative error")
    panels[0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("example-output"), help="folder of the picture")
    parser.add_argument("--quick", action="store_true", help="use digits only")
    given = parser.parse_args(arguments)
    console = Console()
    curves = compare(console, given.quick)
    classify(console, given.quick)
    path = given.output / "equal_rank.png"
    draw(curves, path)
    console.print(f"Errors by rank: {path}")


if __name__ == "__main__":
    main()
