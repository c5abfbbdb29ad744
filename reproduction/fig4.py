"""Figure 4: the basis images at rank 20: the original, TSVD, A-NMD and 3B-NMD."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.comparison.contenders import TSVD
from relunmd.comparison.report import figures
from relunmd.comparison.report.content import Claim, Paragraph, Picture, Section
from relunmd.comparison.result_file import Results, Run
from relunmd.errors import DatasetError
from relunmd.plot import image_sheets, style
from reproduction import fig3
from reproduction.basis import FacesBasis
from reproduction.experiment import PAPERS, Experiment, Setup, factors, not_seen

Array = NDArray[Any]
RANK = 20
"""The caption says 24, the panels 20."""
APART = "TSVD smears the parts over the face, A-NMD and 3B-NMD keep them apart (less than a quarter of TSVD's smear)"


def _runs(setup: Setup) -> list[Run]:
    shown = (TSVD, PAPERS["A-NMD"], PAPERS["3B-NMD"], *setup.added)
    return [fig3.run_of(setup, RANK, contender) for contender in shown]


def mosaic(U: Array, across: int = 10, side: int = 19) -> Array:
    """Return the columns of U as images in a grid, each divided by its largest entry, with lines between."""
    bright = U / np.maximum(U.max(axis=0), 1e-300)
    upright = bright.T.reshape(-1, side, side).transpose(0, 2, 1)  # They are stored column by column.
    return image_sheets.mosaic(upright.reshape(-1, side * side), (side, side), across, gap=1.0)


def smear(U: Array, approximation: Array) -> float:
    """Return how much of the approximation lies where U is zero: ‖Û on the zeros of U‖ / ‖U‖."""
    return float(np.linalg.norm(approximation[U == 0]) / np.linalg.norm(U))


def _section(setup: Setup, results: Results) -> Section:
    title = f"Figure 4: the basis images at rank {RANK}"
    runs = [run for run in _runs(setup) if results.has(run)]
    if not runs:
        return Section("fig4", title, [Paragraph("Not run.")], not_seen(APART))
    try:
        U = FacesBasis(setup).load()
    except DatasetError as reason:
        return Section("fig4", title, [Paragraph(str(reason))], not_seen(APART))
    found = {}
    for run in runs:
        W, H = factors(results, run)
        found[run.contender.label] = np.maximum(0, W @ H)
    smears = {label: smear(U, approximation) for label, approximation in found.items()}
    sentence = (
        "Each small picture is a column of U or of its approximation max(0, WH), 19×19 pixels, dark where large. The "
        "norm of an approximation where U is zero, relative to ‖U‖: "
        + ", ".join(f"{label} {value:.2f}" for label, value in smears.items())
        + "."
    )
    blocks = [figures.where_possible(lambda: _picture(setup, U, found)), Paragraph(sentence)]
    return Section("fig4", title, blocks, _claims(smears))


def _claims(smears: dict[str, float]) -> list[Claim]:
    if not {"TSVD", "A-NMD", "3B-NMD"} <= smears.keys():
        return not_seen(APART)
    worse = max(smears["A-NMD"], smears["3B-NMD"])
    return [
        Claim(
            APART,
            worse < 0.25 * smears["TSVD"],
            f"outside of the parts: TSVD {smears['TSVD']:.2f}, the worse of A-NMD and 3B-NMD {worse:.2f} of ‖U‖",
        )
    ]


def _picture(setup: Setup, U: Array, found: dict[str, Array]) -> Picture:
    panels = [(f"original, {U.shape[1]} components", U)]
    for label, approximation in found.items():
        error = np.linalg.norm(U - approximation) / np.linalg.norm(U)
        panels.append((f"{label}, r = {RANK}, error {error:.2f}", approximation))
    across = 2 if len(panels) <= 4 else 3
    down = -(-len(panels) // across)
    made, _ = style.figure(4.0 * across, 4.25 * down)
    made.clear()
    for place, (label, shown) in enumerate(panels, 1):
        ax = made.add_subplot(down, across, place)
        ax.imshow(mosaic(shown), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        style.titled(ax, label)
        ax.set_axis_off()
    figures.save(made, setup.output / "fig4.png")
    return Picture("fig4.png", f"Basis images of faces: {'; '.join(label for label, _ in panels)}.")


FIGURE_4 = Experiment("fig4", _runs, _section)
