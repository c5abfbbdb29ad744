"""The main job on data that comes with the dependencies: what ReLU-NMD buys, in one table and one picture.

    python -m relunmd.cli.demo [-o DIRECTORY]

Decomposes scikit-learn's digits and a synthetic matrix with several algorithms, beside a truncated
SVD and scikit-learn's NMF at the same rank, and draws digits with their reconstructions.
"""

import argparse
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

__all__ = ["Line", "compare", "draw_digits", "main"]

Array = NDArray[Any]

ALGORITHMS = ("tsvd", "naive", "a-em", "a-nmd", "3b", "3b-factored", "qn")


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    algorithm: str
    rank: int
    error: float
    iterations: int
    seconds: float
    reconstruction: Array


def compare(X: Array, rank: int, algorithms: tuple[str, ...] = ALGORITHMS) -> list[Line]:
    """Errors, iterations and seconds of scikit-learn's NMF and of our algorithms at one rank."""
    lines = [_nmf(X, rank)]
    for name in algorithms:
        d = relunmd.decompose(X, rank, name, random_state=0, max_iter=500, target_error=1e-4, n_jobs=-1)
        lines.append(Line(name, rank, d.error, d.n_iter, d.time, d.reconstruct()))
    return lines


def _nmf(X: Array, rank: int) -> Line:
    from sklearn.decomposition import NMF
    from sklearn.exceptions import ConvergenceWarning

    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = NMF(rank, init="nndsvda", max_iter=500, random_state=0)
        reconstruction = model.inverse_transform(model.fit_transform(X))
    seconds = time.perf_counter() - begin
    error = float(np.linalg.norm(X - reconstruction) / np.linalg.norm(X))
    return Line("NMF (scikit-learn)", rank, error, int(model.n_iter_), seconds, reconstruction)


def draw_digits(X: Array, reconstructions: dict[str, Array], path: Path, shown: int = 12) -> None:
    """A row of digits, and below it a row for every reconstruction."""
    rows = {label: images[:shown] for label, images in ({"digits": X} | reconstructions).items()}
    made, (ax,) = style.figure(0.62 * shown + 2.0, 0.7 * len(rows) + 0.1)
    draw_rows(rows, ax, (8, 8))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_beside(path, lambda out: made.savefig(out, format="png"))


def _table(title: str, lines: list[Line]) -> Table:
    table = Table("algorithm", "rank", "error", "iterations", "seconds", title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    best = min(line.error for line in lines)
    for line in lines:
        cells = (line.algorithm, f"{line.rank}", f"{line.error:.4g}", f"{line.iterations}", f"{line.seconds:.2f}")
        table.add_row(*cells, style="bold" if line.error == best else None)
    return table


def main(arguments: list[str] | None = None) -> None:
    """Print the tables and save the picture."""
    parser = argparse.ArgumentParser(description="ReLU-NMD against TSVD and NMF at equal rank.")
    parser.add_argument("-o", "--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    output = parser.parse_args(arguments).output
    console = Console()

    digits = datasets.digits()
    zeros = np.mean(digits == 0)
    console.print(f"relunmd {relunmd.__version__}: X ≈ max(0, WH), relative errors at equal rank\n")
    drawn: dict[str, Array] = {}
    for rank in (8, 16):
        lines = compare(digits, rank)
        console.print(_table(f"Digits, 1797 × 64, {zeros:.0%} zeros", lines))
        if rank == 16:
            best = min(lines, key=lambda line: line.error)
            wanted = ("NMF (scikit-learn)", "tsvd", best.algorithm)
            drawn = {
                f"{line.algorithm}, rank {rank}": line.reconstruction for line in lines if line.algorithm in wanted
            }

    synthetic = datasets.synthetic(500, 500, 16, random_state=0)
    console.print(
        _table("Synthetic max(0, randn·randn), 500 × 500, 50% zeros, to an error of 1e-4", compare(synthetic, 16))
    )

    path = output / "digits.png"
    try:
        draw_digits(digits, drawn, path)
        console.print(f"\nDigits and their reconstructions: {str(path)!r}", markup=False)
    except MissingDependencyError as reason:
        console.print(f"\nNo picture: {reason}", markup=False)


if __name__ == "__main__":
    main()
