"""Figure 4: the basis images at rank 20: the original, TSVD, A-NMD and 3B-NMD."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.experiments import fig3, pictures
from relunmd.experiments.basis import FacesBasis
from relunmd.experiments.contenders import built_in
from relunmd.experiments.experiment import Experiment
from relunmd.experiments.plan import Run, Setup
from relunmd.experiments.report import Paragraph, Picture, Section
from relunmd.experiments.results import Results

__all__ = ["FIGURE_4", "mosaic"]

Array = NDArray[Any]
RANK = 20
"""The caption says 24, the panels 20."""


def _runs(setup: Setup) -> list[Run]:
    shown = (fig3.TSVD, built_in("a-nmd"), built_in("3b"), *setup.added)
    return [fig3.cell(setup, RANK, contender)[0] for contender in shown]


def mosaic(U: Array, across: int = 10, side: int = 19) -> Array:
    """The columns of U as images in a grid, each brightened to its own largest entry, with lines between."""
    down = -(-U.shape[1] // across)
    sheet = np.ones((down * (side + 1) + 1, across * (side + 1) + 1))
    for j, column in enumerate(U.T):
        top, left = (j // across) * (side + 1) + 1, (j % across) * (side + 1) + 1
        image = column.reshape(side, side, order="F") / max(float(column.max()), 1e-300)
        sheet[top : top + side, left : left + side] = image
    return sheet


def _section(setup: Setup, results: Results) -> Section:
    title = f"Figure 4: the basis images at rank {RANK}"
    runs = [run for run in _runs(setup) if results.has(run)]
    if not runs:
        return Section("fig4", title, [Paragraph("Not run.")])
    panels = {"original, 100 components": FacesBasis(setup).load()}
    for run in runs:
        W, H = results.factors(run)
        record = results.get(run)
        error = float("nan") if record is None else record["error"]
        panels[f"{run.contender.label}, r = {RANK}, error {error:.2f}"] = np.maximum(0, W @ H)
    across = 2 if len(panels) <= 4 else 3
    made, _ = pictures.figure(4.0 * across, 4.25 * -(-len(panels) // across))
    made.clear()
    for place, (label, U) in enumerate(panels.items(), 1):
        ax = made.add_subplot(-(-len(panels) // across), across, place)
        ax.imshow(mosaic(U), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        ax.set_title(label, fontsize=12.5)
        ax.set_axis_off()
    pictures.save(made, setup.output / "fig4.png")
    zeros = ", ".join(f"{label.partition(',')[0]} {(U == 0).mean():.0%}" for label, U in panels.items())
    sentence = (
        "Each small picture is a column of U or of its approximation max(0, WH), 19×19 pixels, dark where large. TSVD "
        f"smears the parts over the face, ReLU models keep them apart. Share of zeros: {zeros}."
    )
    return Section(
        "fig4", title, [Picture("fig4.png", f"Basis images of faces: {'; '.join(panels)}."), Paragraph(sentence)]
    )


FIGURE_4 = Experiment("fig4", _runs, _section)
