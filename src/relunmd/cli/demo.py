"""`relunmd demo`: what ReLU-NMD gains on data that comes with the dependencies, in tables and one figure.

Decomposes scikit-learn's digits and a synthetic matrix with several algorithms, a truncated SVD and scikit-learn's NMF
at the same rank, and draws digits with their reconstructions.
"""

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import relunmd
from relunmd import datasets
from relunmd.errors import MissingDependencyError
from relunmd.io.atomic import write_beside
from relunmd.plot import style
from relunmd.plot.image_sheets import draw_rows

Array = NDArray[Any]

_ALGORITHMS = ("tsvd", "naive", "a-em", "a-nmd", "3b", "3b-factored", "qn")
_NMF = "NMF (scikit-learn)"
_SHOWN = 12


@dataclass(frozen=True)
class _Result:
    """A row of the table."""

    algorithm: str
    error: float
    iterations: int
    seconds: float
    reconstruction: Array


def _results(X: Array, rank: int) -> list[_Result]:
    """Run scikit-learn's NMF and the algorithms at one rank."""
    results = [_nmf(X, rank)]
    for name in _ALGORITHMS:
        d = relunmd.decompose(X, rank, name, random_state=0, max_iter=500, target_error=1e-4, n_jobs=-1)
        results.append(_Result(name, d.error, d.n_iter, d.time, d.reconstruct()))
    return results


def _nmf(X: Array, rank: int) -> _Result:
    from sklearn.decomposition import NMF
    from sklearn.exceptions import ConvergenceWarning

    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = NMF(rank, init="nndsvda", max_iter=500, random_state=0)
        reconstruction = model.inverse_transform(model.fit_transform(X))
    seconds = time.perf_counter() - begin
    error = float(np.linalg.norm(X - reconstruction) / np.linalg.norm(X))
    return _Result(_NMF, error, int(model.n_iter_), seconds, reconstruction)


def _draw_digits(images: dict[str, Array], path: Path) -> None:
    """Draw a row of digits, and below it a row for each reconstruction."""
    figure, (ax,) = style.figure(0.62 * _SHOWN + 2.0, 0.7 * len(images) + 0.1)
    draw_rows({label: rows[:_SHOWN] for label, rows in images.items()}, ax, (8, 8))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_beside(path, lambda out: figure.savefig(out, format="png"))


def _table(title: str, rank: int, results: list[_Result]) -> Table:
    table = Table("algorithm", "rank", "error", "iterations", "seconds", title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    best = min(result.error for result in results)
    for result in results:
        cells = (result.algorithm, f"{rank}", f"{result.error:.4g}", f"{result.iterations}", f"{result.seconds:.2f}")
        table.add_row(*cells, style="bold" if result.error == best else None)
    return table


def run_demo(output: str) -> None:
    """Print the tables, and save the figure in the folder `output`."""
    console = Console()
    console.print(f"relunmd {relunmd.__version__}: X ≈ max(0, WH), relative errors at equal rank\n")
    digits = datasets.digits()
    for rank in (8, 16):
        results = _results(digits, rank)
        console.print(_table(f"Digits, 1797 × 64, {np.mean(digits == 0):.0%} zeros", rank, results))
    best = min(results, key=lambda result: result.error)
    shown = [result for result in results if result.algorithm in (_NMF, "tsvd", best.algorithm)]
    images = {"digits": digits} | {f"{result.algorithm}, rank {rank}": result.reconstruction for result in shown}

    synthetic = datasets.synthetic(500, 500, 16, random_state=0)
    title = "Synthetic max(0, randn·randn), 500 × 500, 50% zeros, target error 1e-4"
    console.print(_table(title, 16, _results(synthetic, 16)))
    path = Path(output) / "digits.png"
    try:
        _draw_digits(images, path)
        console.print(f"\nDigits and their reconstructions: {str(path)!r}", markup=False)
    except MissingDependencyError as reason:
        console.print(f"\nNo figure: {reason}", markup=False)
