"""Tables 2, 3 and 4 share this: seconds and iterations to E ≤ 1e-4 on synthetic matrices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relunmd.comparison.contenders import Contender
from relunmd.comparison.report.content import Cell, Claim, Paragraph, Strong, Table
from relunmd.comparison.result_file import Results, Run
from relunmd.loop.criteria import Limits
from reproduction.experiment import PAPERS, Setup, mean, synthetic
from reproduction.paper import Counts

TARGET = 1e-4
TOLERANCE = 0.15
MOST_ITERATIONS = 2000
MOST_SECONDS = 600.0
"""A contender that has not reached the target by then does not reach it."""


def repetitions(setup: Setup) -> tuple[int, int]:
    """Return the number of matrices, and of initializations of each."""
    return (2, 1) if setup.quick else (5, 5)


@dataclass(frozen=True)
class Line:
    """One algorithm at one size or rank.

    Attributes
    ----------
    at : int
        Size or rank.
    paper : tuple or None
        Seconds and iterations in the paper.
    made, wanted : int
        Number of finished runs, and of all runs.
    counts, times : sequence
        Iterations and seconds of the runs that reached the target.
    """

    at: int
    label: str
    paper: tuple[float, int] | None
    made: int
    wanted: int
    counts: Sequence[int]
    times: Sequence[float]

    @property
    def complete(self) -> bool:
        return self.made == self.wanted

    @property
    def reached(self) -> bool:
        """Whether every run reached the target."""
        return self.complete and len(self.counts) == self.wanted

    @property
    def iterations(self) -> float:
        return mean(self.counts) if self.reached else float("inf")

    @property
    def seconds(self) -> float:
        """The mean time to the target; infinite if a run missed it."""
        return mean(self.times) if self.reached else float("inf")

    @property
    def difference(self) -> float | None:
        """Relative difference of the iterations from the paper's."""
        return self.iterations / self.paper[1] - 1 if self.paper is not None and self.reached else None

    @property
    def faithful(self) -> bool | None:
        """Within 15 %; A-NMD may need fewer."""
        if self.paper is None or not self.complete:
            return None
        if self.difference is None:
            return False
        return abs(self.difference) <= TOLERANCE or (self.label == "A-NMD" and self.difference < 0)

    @property
    def shown_iterations(self) -> str:
        if not self.complete:
            return f"{self.made} of {self.wanted} runs"
        return f"{self.iterations:.1f}" if self.reached else f"not reached in {self.wanted - len(self.counts)}"

    @property
    def verdict(self) -> Cell:
        if self.faithful is None:
            return "–"
        if not self.faithful:
            return Strong("no")
        return "fewer" if self.difference is not None and self.difference < -TOLERANCE else "yes"


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
        """Return the repetitions of one contender at one size or rank."""
        n, rank = self.shape(at)
        matrices, starts = repetitions(setup)
        limits = Limits(TARGET, 0, MOST_ITERATIONS, MOST_SECONDS)
        return [
            Run(synthetic(setup, n, rank, i), rank, limits, contender, "nuclear", setup.seed_of(10 * i + j))
            for i in range(matrices)
            for j in range(starts)
        ]

    def runs(self, setup: Setup) -> list[Run]:
        """Return all runs, the paper's contenders first."""
        everyone = [contender for contender, _ in self.contenders] + list(setup.added)
        return [run for at in self.paper for contender in everyone for run in self.cell(setup, at, contender)]

    def lines(self, setup: Setup, results: Results) -> list[Line]:
        """Return the results of every contender with a finished run."""
        columns = [*self.contenders, *((contender, contender.label) for contender in setup.added)]
        found = []
        for at in self.paper:
            for contender, column in columns:
                cell = self.cell(setup, at, contender)
                records = [record for run in cell if (record := results.get(run)) is not None]
                there = [record for record in records if record["error"] <= TARGET]
                counts, times = [r["n_iter"] for r in there], [r["time"] for r in there]
                if records:
                    paper = self.paper[at].get(column)
                    found.append(Line(at, contender.label, paper, len(records), len(cell), counts, times))
        return found

    def blocks(self, setup: Setup, lines: list[Line]) -> list[Paragraph | Table]:
        """Return the table, with times as multiples of A-NMD's, and notes."""
        matrices, starts = repetitions(setup)
        reference = {line.at: line.seconds for line in lines if line.label == "A-NMD" and line.reached}
        rows: list[list[Cell]] = []
        for line in lines:
            theirs = "–" if line.paper is None else f"{line.paper[0] / self.paper[line.at]['A-NMD'][0]:.2f}"
            ours = f"{line.seconds / reference[line.at]:.2f}" if line.reached and line.at in reference else "–"
            rows.append(
                [
                    str(line.at),
                    line.label,
                    "–" if line.paper is None else str(line.paper[1]),
                    line.shown_iterations,
                    f"{min(line.counts)}–{max(line.counts)}" if line.reached else "–",
                    "–" if line.difference is None else f"{line.difference:+.1%}",
                    line.verdict,
                    theirs,
                    ours,
                ]
            )
        columns = [self.heading, "algorithm", "iterations, paper", "here", "range", "difference", "within 15 %"]
        columns += ["time / A-NMD's, paper", "here"]
        what = (
            f"Iterations to E ≤ {TARGET:.0e} from the nuclear initialization, means over {matrices} matrices × "
            f"{starts} seed{'s' * (starts > 1)}{' (5 × 5 without --quick)' * setup.quick}; times without "
            "initialization, as multiples of A-NMD's, are reported and not judged: machines and implementations "
            "differ."
        )
        return [Paragraph(what), Table(columns, rows), *self._notes(lines)]

    def _notes(self, lines: list[Line]) -> list[Paragraph]:
        notes = []
        off = [line for line in lines if line.faithful is False]
        if off:
            listed = ", ".join(f"{line.label} at {self.heading} = {line.at} ({_by(line)})" for line in off)
            notes.append(Paragraph(f"Not within 15 %: {listed}."))
        if any(line.verdict == "fewer" for line in lines):
            notes.append(Paragraph(A_NMD_NEEDS_FEWER))
        return notes


A_NMD_NEEDS_FEWER = (
    "Where A-NMD needs fewer iterations than the paper reports: here it is Algorithm 1 as printed, with β₀ = 0.7; the "
    "program behind the paper's tables starts with β₀ = 0.9, adapts β only from the third iteration on and compares "
    "with rejected trials."
)


def _by(line: Line) -> str:
    return "not reached" if line.difference is None else f"{line.difference:+.1%}"


def faster(lines: list[Line], winner: str, rivals: Sequence[str], text: str) -> Claim:
    """Return whether the winner reached the target before each rival, at every size or rank of the table."""
    places = sorted({line.at for line in lines})
    times = {(line.at, line.label): line.seconds for line in lines if line.complete}
    if not places or any((at, label) not in times for at in places for label in (winner, *rivals)):
        return Claim(text, None, "not all that it needs has been run")
    leads = [min(times[at, label] for label in rivals) / times[at, winner] for at in places]
    won = all(times[at, winner] < times[at, label] for at in places for label in rivals)
    return Claim(text, won, f"time of the next / {winner}'s: " + ", ".join(f"{lead:.2f}" for lead in leads))


def everyone(paper: Counts, shape: Callable[[int], tuple[int, int]]) -> CountTable:
    """Return the table of all six: tables 2 and 3 have the same cases."""
    return CountTable("n", paper, [(contender, label) for label, contender in PAPERS.items()], shape)
