"""What figures 1a and 1b have in common: err(t) = E(t) − e_min over time, averaged over starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.experiments import pictures
from relunmd.experiments.contenders import Contender, built_in
from relunmd.experiments.experiment import SIX, records_of
from relunmd.experiments.plan import Case, Matrix, Run, Setup
from relunmd.experiments.report import Block, Paragraph, Picture, Table
from relunmd.experiments.results import Record, Results
from relunmd.solve import Limits

__all__ = ["Curves", "Drawn", "error_at"]

Array = NDArray[Any]
TSVD = built_in("tsvd")


def error_at(record: Record, times: Array) -> Array:
    """E(t): the error of the iteration that was last finished at each time, the start's before the first."""
    curve = record["curve"]
    places = np.searchsorted(np.array(curve["time"]), times, side="right") - 1
    found: Array = np.array(curve["error"])[places]
    return found


@dataclass(frozen=True)
class Drawn:
    """Mean errors over time by label, the best error of all, and TSVD's."""

    times: Array
    errors: dict[str, Array]
    final: dict[str, float]
    best: float
    baseline: float | None

    def ranking(self) -> list[str]:
        """The labels by their final mean error, best first."""
        return sorted(self.final, key=lambda label: self.final[label])


@dataclass(frozen=True)
class Curves:
    """Every contender from several starts on one matrix for some seconds at rank 32."""

    name: str
    matrix: Matrix
    seconds: float
    starts: int
    rank: int = 32

    def cell(self, setup: Setup, contender: Contender) -> list[Run]:
        """A contender's runs, one a start."""
        limits = Limits(None, 0, None, self.seconds)
        seeds = [1000 * setup.seed + j for j in range(self.starts)]
        return [Run(Case(self.matrix, self.rank, limits, "nuclear", seed), contender) for seed in seeds]

    def runs(self, setup: Setup) -> list[Run]:
        """The paper's six and those added, start by start, and the baseline once."""
        by_contender = [self.cell(setup, contender) for contender in (*SIX, *setup.added)]
        return [run for runs in zip(*by_contender, strict=True) for run in runs] + self.cell(setup, TSVD)[:1]

    def drawn(self, setup: Setup, results: Results, contenders: Sequence[Contender]) -> Drawn | None:
        """The mean curves of these contenders; None if there are none."""
        records = {c.label: found for c in contenders if (found := records_of(results, self.cell(setup, c)))}
        if not records:
            return None
        times = np.geomspace(self.seconds / 1000, self.seconds, 400)
        errors = {label: np.mean([error_at(r, times) for r in found], axis=0) for label, found in records.items()}
        final = {label: float(np.mean([record["error"] for record in found])) for label, found in records.items()}
        best = min(record["error"] for found in records.values() for record in found)
        baseline = records_of(results, self.cell(setup, TSVD)[:1])
        return Drawn(times, errors, final, best, baseline[0]["error"] if baseline else None)

    def blocks(self, setup: Setup, results: Results) -> tuple[list[Block], Drawn | None]:
        """The picture of the paper's algorithms, that with others added if there are any, and a table."""
        papers = self.drawn(setup, results, SIX)
        everyone = self.drawn(setup, results, [*SIX, *setup.added])
        if papers is None or everyone is None:
            return [Paragraph("Not run.")], None
        blocks: list[Block] = [
            Paragraph(
                "How far the error at time t, averaged over the starts, is above e_min, the smallest error of all runs "
                "shown. The lower the better; both axes are logarithmic."
            ),
            self._picture(setup, papers, f"{self.name}.png"),
        ]
        if len(everyone.final) > len(papers.final):
            blocks += [Paragraph("With the added algorithms; they change e_min.")]
            blocks += [self._picture(setup, everyone, f"{self.name}-all.png")]
        rows = []
        for label in everyone.ranking():
            contender = next(c for c in (*SIX, *setup.added) if c.label == label)
            found = records_of(results, self.cell(setup, contender))
            each = [record["time"] / max(1, record["n_iter"]) for record in found]
            spread = f"{min(r['error'] for r in found):.4f}–{max(r['error'] for r in found):.4f}"
            iterations = f"{np.mean([r['n_iter'] for r in found]):.0f}"
            rows.append([label, f"{everyone.final[label]:.4f}", spread, iterations, f"{1000 * np.mean(each):.1f}"])
        if everyone.baseline is not None:
            rows.append(["TSVD", f"{everyone.baseline:.4f}", "–", "–", "–"])
        columns = ["algorithm", "error, mean", "over the starts", "iterations", "ms an iteration"]
        start = [r["start_error"] for r in records_of(results, self.cell(setup, SIX[0]))]
        seconds = [r["start_time"] for r in records_of(results, self.cell(setup, SIX[0]))]
        if start:
            blocks.append(
                Paragraph(
                    f"The errors after {self.seconds:g} s, of the best factors seen, from {len(start)} nuclear "
                    f"start{'s' * (len(start) > 1)} of error {np.mean(start):.3f} that took {np.mean(seconds):.1f} s, "
                    "not counted."
                )
            )
        return [*blocks, Table(columns, rows)], papers

    def _picture(self, setup: Setup, drawn: Drawn, file: str) -> Picture:
        made, (ax,) = pictures.figure()
        for label, style in pictures.styles(list(drawn.errors)).items():
            gap = np.maximum(drawn.errors[label] - drawn.best, 1e-12)
            ax.plot(drawn.times, gap, linewidth=1.9, markersize=6, markevery=(17, 45), **style)
        if drawn.baseline is not None:
            ax.axhline(drawn.baseline - drawn.best, color=pictures.GREY, linewidth=1.2, linestyle=(0, (2, 2)))
            ax.annotate(
                "TSVD", (drawn.times[0], drawn.baseline - drawn.best), (2, 4), textcoords="offset points", fontsize=10
            )
        ax.set_yscale("log")
        ax.set_xscale("log")
        ax.set_xlim(drawn.times[0], drawn.times[-1])
        lowest = min(float((errors - drawn.best)[-1]) for errors in drawn.errors.values())
        ax.set_ylim(bottom=max(lowest, 1e-5) * 0.7)
        ax.set_xlabel("time after the start (seconds)")
        ax.set_ylabel(f"E(t) − e$_{{min}}$,  e$_{{min}}$ = {drawn.best:.4f}")
        ax.set_title(f"{self.matrix.name}, {self.matrix.shape[0]} images, r = {self.rank}", fontsize=12.5)
        ax.legend(**pictures.LEGEND, ncols=2)
        pictures.save(made, setup.output / file)
        order = ", ".join(drawn.ranking())
        return Picture(file, f"Error above the best over time on {self.matrix.name}; at the end, best first: {order}.")
