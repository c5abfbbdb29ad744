"""What tables 2, 3 and 4 have in common: seconds and iterations to E ≤ 1e-4 on synthetic matrices."""

from collections.abc import Callable, Sequence

from relunmd.experiments.contenders import Contender
from relunmd.experiments.experiment import mean, records_of
from relunmd.experiments.paper import Counts
from relunmd.experiments.plan import Case, Run, Setup, synthetic
from relunmd.experiments.report import Paragraph, Table
from relunmd.experiments.results import Results
from relunmd.solve import Limits

__all__ = ["TOLERANCE", "CountTable", "Line"]

TARGET = 1e-4
TOLERANCE = 0.15
MOST_ITERATIONS = 2000
"""A contender that is not there by then is not going to be."""


def repetitions(setup: Setup) -> tuple[int, int]:
    """How many matrices, and starts on each."""
    return (2, 1) if setup.quick else (5, 5)


class Line:
    """One algorithm at one size or rank: ours, and the paper's if it has it."""

    def __init__(self, at: int, label: str, paper: tuple[float, int] | None, counts: list[int], times: list[float]):
        self.at, self.label, self.paper = at, label, paper
        self.counts, self.times = counts, times

    @property
    def iterations(self) -> float:
        return mean([float(count) for count in self.counts])

    @property
    def seconds(self) -> float:
        return mean(self.times)

    @property
    def difference(self) -> float | None:
        """How far our iterations are from the paper's, as a fraction."""
        return None if self.paper is None or not self.counts else self.iterations / self.paper[1] - 1

    @property
    def faithful(self) -> bool | None:
        """Within 15 %; A-NMD may need fewer."""
        if self.difference is None:
            return None
        return abs(self.difference) <= TOLERANCE or (self.label == "A-NMD" and self.difference < 0)


class CountTable:
    """Cases by size or rank, contenders with the name of the paper's column they answer to."""

    def __init__(
        self,
        heading: str,
        paper: Counts,
        contenders: Sequence[tuple[Contender, str]],
        shape: Callable[[int], tuple[int, int]],
    ) -> None:
        self.heading, self.paper, self.contenders, self.shape = heading, paper, contenders, shape

    def cell(self, setup: Setup, at: int, contender: Contender) -> list[Run]:
        """The repetitions of one contender at one size or rank."""
        n, rank = self.shape(at)
        matrices, starts = repetitions(setup)
        limits = Limits(TARGET, 0, MOST_ITERATIONS, None)
        return [
            Run(Case(synthetic(setup, n, rank, i), rank, limits, "nuclear", 1000 * setup.seed + 10 * i + j), contender)
            for i in range(matrices)
            for j in range(starts)
        ]

    def runs(self, setup: Setup) -> list[Run]:
        """All of them, the paper's contenders first."""
        everyone = [contender for contender, _ in self.contenders] + list(setup.added)
        return [run for at in self.paper for contender in everyone for run in self.cell(setup, at, contender)]

    def lines(self, setup: Setup, results: Results) -> list[Line]:
        """What came out; a contender that missed the target in any run is left out of it."""
        found = []
        columns = [*self.contenders, *((contender, contender.label) for contender in setup.added)]
        for at in self.paper:
            for contender, column in columns:
                records = records_of(results, self.cell(setup, at, contender))
                there = [record for record in records if record["error"] <= TARGET]
                if records:
                    complete = there if len(there) == len(records) else []
                    found.append(
                        Line(
                            at,
                            contender.label,
                            self.paper[at].get(column),
                            [record["n_iter"] for record in complete],
                            [record["time"] for record in complete],
                        )
                    )
        return found

    def blocks(self, setup: Setup, lines: list[Line]) -> list[Paragraph | Table]:
        """The table, with times as multiples of A-NMD's."""
        matrices, starts = repetitions(setup)
        reference = {line.at: line for line in lines if line.label == "A-NMD"}
        rows = []
        for line in lines:
            base = reference.get(line.at)
            rows.append(
                [
                    str(line.at),
                    line.label,
                    "–" if line.paper is None else str(line.paper[1]),
                    f"{line.iterations:.1f}" if line.counts else "not reached",
                    f"{min(line.counts)}–{max(line.counts)}" if line.counts else "–",
                    "–" if line.difference is None else f"{line.difference:+.0%}",
                    _verdict(line),
                    "–" if line.paper is None else f"{line.paper[0] / self.paper[line.at]['A-NMD'][0]:.2f}",
                    f"{line.seconds / base.seconds:.2f}" if base and base.counts and line.counts else "–",
                ]
            )
        columns = [
            self.heading,
            "algorithm",
            "iterations, paper",
            "here",
            "range",
            "difference",
            "within 15 %",
            "time / A-NMD's, paper",
            "here",
        ]
        what = (
            f"Iterations to E ≤ {TARGET:.0e} from the nuclear start, means over {matrices} matrices × {starts} "
            f"start{'s' * (starts > 1)}{' (5 × 5 without --quick)' * setup.quick}; times without the start, as "
            f"multiples of A-NMD's, reported and not judged: machines and implementations differ."
        )
        off = [line for line in lines if line.faithful is False]
        fewer = any(line.label == "A-NMD" and (line.difference or 0) < -TOLERANCE for line in lines)
        notes = [Paragraph(_what_is_off(off, self.heading))] if off else []
        notes += [Paragraph(A_NMD_NEEDS_FEWER)] if fewer else []
        return [Paragraph(what), Table(columns, rows), *notes]


A_NMD_NEEDS_FEWER = (
    "A-NMD needs fewer iterations than the paper reports: here it is Algorithm 1 as printed, with β₀ = 0.7, while the "
    "program behind the paper's tables begins with β₀ = 0.9, adapts β only from the third iteration on and compares "
    "with rejected trials."
)


def _what_is_off(off: list[Line], heading: str) -> str:
    """By how much, where the iterations are not within the tolerance."""
    listed = ", ".join(f"{line.label} at {heading} = {line.at} ({line.difference:+.0%})" for line in off)
    return f"Not within 15 %: {listed}."


def _verdict(line: Line) -> str:
    if line.faithful is None:
        return "–"
    if not line.faithful:
        return "**no**"
    return "yes" if line.difference is not None and abs(line.difference) <= TOLERANCE else "fewer"
