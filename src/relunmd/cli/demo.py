"""`relunmd demo`: what ReLU-NMD gains on data that comes with the dependencies, in tables and one figure.

Decomposes scikit-learn's digits and a synthetic matrix with several algorithms, a truncated SVD and scikit-learn's NMF
at the same rank, and draws digits with their reconstructions.
"""

import time
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Column, Table
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning

import relunmd
from relunmd import datasets
from relunmd.errors import MissingDependencyError
from relunmd.io.atomic import write_beside
from relunmd.plot import style
from relunmd.plot.image_sheets import draw_rows
from relunmd.plot.subjects import Array

_ALGORITHMS = ("tsvd", "naive", "a-em", "a-nmd", "3b", "3b-factored", "qn")
_NMF = "NMF (scikit-learn)"
_SHOWN = 12


def _compare(console: Console, title: str, X: Array, rank: int) -> dict[str, Array]:
    """Print a table of all methods; return the reconstructions of NMF, the truncated SVD and the best method."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = NMF(rank, init="nndsvda", max_iter=500, random_state=0)
        approximations = {_NMF: model.inverse_transform(model.fit_transform(X))}
    seconds = time.perf_counter() - begin
    error = float(np.linalg.norm(X - approximations[_NMF]) / np.linalg.norm(X))
    found = {_NMF: (error, model.n_iter_, seconds)}
    for name in _ALGORITHMS:
        d = relunmd.decompose(X, rank, name, random_state=0, max_iter=500, target_error=1e-4, n_jobs=-1)
        found[name], approximations[name] = (d.error, d.n_iter, d.time), d.reconstruct()
    best = min(found, key=lambda name: found[name][0])
    numbers = [Column(name, justify="right") for name in ("rank", "error", "iterations", "seconds")]
    table = Table("algorithm", *numbers, title=title, title_justify="left")
    for name, (error, iterations, seconds) in found.items():
        cells = name, f"{rank}", f"{error:.4g}", f"{iterations}", f"{seconds:.2f}"
        table.add_row(*cells, style="bold" if name == best else None)
    console.print(table)
    return {f"{name}, rank {rank}": approximations[name] for name in dict.fromkeys((_NMF, "tsvd", best))}


def run_demo(output: str) -> None:
    """Print the tables, and save the figure in the folder `output`."""
    console = Console()
    console.print(f"relunmd {relunmd.__version__}: X ≈ max(0, WH), relative errors at equal rank\n")
    digits = datasets.digits()
    for rank in (8, 16):
        shown = _compare(console, f"Digits, 1797 × 64, {np.mean(digits == 0):.0%} zeros", digits, rank)
    title = "Synthetic max(0, randn·randn), 500 × 500, 50% zeros, target error 1e-4"
    _compare(console, title, datasets.synthetic(500, 500, 16, random_state=0), 16)
    path = Path(output) / "digits.png"
    try:
        figure, (ax,) = style.figure(0.62 * _SHOWN + 2.0, 0.7 * (1 + len(shown)) + 0.1)
    except MissingDependencyError as reason:
        console.print(f"\nNo figure: {reason}", markup=False)
        return
    draw_rows({label: rows[:_SHOWN] for label, rows in ({"digits": digits} | shown).items()}, ax, (8, 8))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_beside(path, lambda out: figure.savefig(out, format="png"))
    console.print(f"\nDigits and their reconstructions: {str(path)!r}", markup=False)
