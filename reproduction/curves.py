"""Figures 1a and 1b share this: err(t) = E(t) − e_min over time, averaged over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.comparison.comparison_result import error_at
from relunmd.comparison.contenders import TSVD, Contender
from relunmd.comparison.report import figures
from relunmd.comparison.report.content import Block, Drawing, Paragraph, Table
from relunmd.comparison.result_file import Matrix, Results, Run
from relunmd.loop.criteria import Limits
from relunmd.plot.chart import Axis, Chart, Line, Series
from reproduction.experiment import SIX, Setup, all_of, mean, milliseconds, seconds_each

Array = NDArray[Any]


@dataclass(frozen=True)
class Drawn:
    """Mean errors over time by label, the best error of all, TSVD's, and when each had finished an iteration."""

    times: Array
    errors: dict[str, Array]
    final: dict[str, float]
    best: float
    baseline: float | None
    all_moving: float

    @property
    def has_all_six(self) -> bool:
        """Whether the paper's claims can be judged."""
        return all(contender.label in self.final for contender in SIX)

    def final_errors(self) -> str:
        """Return the final errors as text, best first."""
        listed = ", ".join(f"{label} {self.final[label]:.4f}" for label in self.ranking())
        return f"after {self.times[-1]:.0f} s: {listed}"

    def sentence(self, where: str) -> str:
        """Return which contender is best at the end, in a sentence."""
        first, *others = self.ranking()
        second = f"{others[0]} follows with {self.final[others[0]]:.4f}" if others else ""
        tsvd = f"the truncated SVD has {self.baseline:.4f}" if self.baseline is not None else ""
        rest = ", ".join(filter(None, (second, tsvd)))
        return f"On {where} {first} ends at the smallest error, {self.final[first]:.4f}{'; ' * bool(rest)}{rest}."

    def ranking(self) -> list[str]:
        """Return the labels by their final mean error, best first."""
        return sorted(self.final, key=lambda label: self.final[label])


@dataclass(frozen=True)
class Curves:
    """Every contender with several seeds on one matrix for some seconds at rank 32."""

    name: str
    matrix: Matrix
    seconds: float
    seeds: int
    rank: int = 32

    def cell(self, setup: Setup, contender: Contender) -> list[Run]:
        """Return a contender's runs, one per seed."""
        limits = Limits(None, 0, None, self.seconds)
        seeds = [setup.seed_of(j) for j in range(self.seeds)]
        return [Run(self.matrix, self.rank, limits, contender, "nuclear", seed) for seed in seeds]

    def baseline(self, setup: Setup) -> Run:
        """Return the run of the truncated SVD."""
        limits = Limits(None, 0, None, self.seconds)
        return Run(self.matrix, self.rank, limits, TSVD, "tsvd", setup.seed_of(0))

    def runs(self, setup: Setup) -> list[Run]:
        """Return the runs of the paper's six and the added contenders, seed by seed, and the baseline once."""
        by_contender = [self.cell(setup, contender) for contender in (*SIX, *setup.added)]
        return [run for runs in zip(*by_contender, strict=True) for run in runs] + [self.baseline(setup)]

    def drawn(self, setup: Setup, results: Results, contenders: Sequence[Contender]) -> Drawn | None:
        """Return the mean curves of these contenders, or None without results."""
        records = {c.label: found for c in contenders if (found := all_of(results, self.cell(setup, c)))}
        if not records:
            return None
        firsts = [r["curve"]["time"][1] for found in records.values() for r in found if r["n_iter"]] or [0.0]
        times = np.geomspace(max(min(firsts) / 2, self.seconds / 1000), self.seconds, 400)  # Nothing happens before.
        errors = {label: np.mean([error_at(r, times) for r in found], axis=0) for label, found in records.items()}
        final = {label: float(np.mean([record["error"] for record in found])) for label, found in records.items()}
        best = min(record["error"] for found in records.values() for record in found)
        baseline = results.get(self.baseline(setup))
        tsvd = None if baseline is None else baseline["error"]
        return Drawn(times, errors, final, best, tsvd, all_moving=max(firsts))

    def finding(self, setup: Setup, results: Results) -> str:
        """Return which contender is best, in a sentence; empty without results."""
        everyone = self.drawn(setup, results, [*SIX, *setup.added])
        where = f"{self.matrix.shape[0]} images of MNIST at rank {self.rank} after {self.seconds:g} s"
        return "" if everyone is None else everyone.sentence(where)

    def blocks(self, setup: Setup, results: Results) -> tuple[list[Block], Drawn | None]:
        """Return the chart of the paper's algorithms, one with added contenders if there are any, and a table."""
        papers = self.drawn(setup, results, SIX)
        everyone = self.drawn(setup, results, [*SIX, *setup.added])
        if papers is None or everyone is None:
            return [Paragraph("Not run.")], None
        blocks: list[Block] = [
            Paragraph(
                "How far E(t), the smallest error of an iteration up to time t, averaged over the seeds, is above "
                "e_min, the smallest of all runs shown. The lower the better; both axes are logarithmic."
            ),
            self._drawing(setup, papers, f"{self.name}.png"),
        ]
        if len(everyone.final) > len(papers.final):
            blocks += [Paragraph("With the added algorithms; they change e_min.")]
            blocks += [self._drawing(setup, everyone, f"{self.name}-all.png")]
        return [*blocks, *self._table(setup, results, everyone)], papers

    def _table(self, setup: Setup, results: Results, drawn: Drawn) -> list[Block]:
        rows, runs = [], []
        contenders = {contender.label: contender for contender in (*SIX, *setup.added)}
        for label in drawn.ranking():
            found = all_of(results, self.cell(setup, contenders[label]))
            runs = found
            spread = f"{min(r['error'] for r in found):.4f}–{max(r['error'] for r in found):.4f}"
            iterations = f"{mean([r['n_iter'] for r in found]):.0f}"
            each = milliseconds(mean([seconds_each(r) for r in found]), 1)
            rows.append([label, f"{drawn.final[label]:.4f}", spread, iterations, each])
        if drawn.baseline is not None:
            rows.append(["TSVD", f"{drawn.baseline:.4f}", "–", "–", "–"])
        note = (
            f"The smallest error of an iteration that ended within {self.seconds:g} s, from {len(runs)} nuclear "
            f"initialization{'s' * (len(runs) > 1)} of error {mean([r['start_error'] for r in runs]):.3f} that took "
            f"{mean([r['start_time'] for r in runs]):.1f} s, not counted."
        )
        return [Paragraph(note), Table(["algorithm", "error, mean", "over the seeds", "iterations", "ms each"], rows)]

    def _drawing(self, setup: Setup, drawn: Drawn, file: str) -> Drawing:
        lowest = max(min(float((errors - drawn.best)[-1]) for errors in drawn.errors.values()), 1e-5) * 0.7
        series = []
        for label, errors in drawn.errors.items():
            gap = errors - drawn.best
            series.append(Series.of(label, drawn.times, np.where(gap >= lowest, gap, np.nan)))
        lines = () if drawn.baseline is None else (Line("TSVD", drawn.baseline - drawn.best),)
        chart = Chart(
            f"{self.matrix.name}: {self.matrix.shape[0]} images, r = {self.rank}, e_min = {drawn.best:.4f}",
            Axis("time after initialization", "s", log=True),
            Axis("E(t) − e_min", log=True),
            tuple(series),
            lines,
        )
        order = ", ".join(drawn.ranking())
        alt = f"Error above the best over time on {self.matrix.name}; at the end, best first: {order}."
        return figures.drawing([chart], setup.output / file, alt)
