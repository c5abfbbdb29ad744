"""Table 3: A-NMD, 3B-NMD, EM and A-EM, by size."""

from relunmd.experiments.counts import CountTable, Line
from relunmd.experiments.experiment import SIX, Experiment
from relunmd.experiments.paper import TABLE3
from relunmd.experiments.plan import Setup
from relunmd.experiments.report import Claim, Section
from relunmd.experiments.results import Results

__all__ = ["FOUR", "TABLE_3", "fastest"]

_BY_LABEL = {contender.label: contender for contender in SIX}
FOUR = [(_BY_LABEL[label], label) for label in ("A-NMD", "3B-NMD", "EM", "A-EM")]
_TABLE = CountTable("n", TABLE3, FOUR, lambda n: (n, 32))
_ALL = CountTable("n", TABLE3, [(contender, contender.label) for contender in SIX], lambda n: (n, 32))
"""Table 2's runs are of the same cases, so all six can be compared."""


def fastest(lines: list[Line]) -> Claim:
    """Whether 3B was the first to 1e-4 wherever all of the algorithms have been run."""
    paper = {contender.label for contender in SIX}
    times = {(line.at, line.label): line.seconds for line in lines if line.counts and line.label in paper}
    rivals = {label for _, label in times} - {"3B-NMD"}
    places = [
        at for at in sorted({at for at, _ in times}) if all((at, label) in times for label in rivals | {"3B-NMD"})
    ]
    leads = [min(times[at, label] for label in rivals) / times[at, "3B-NMD"] for at in places]
    return Claim(
        f"3B-NMD is the fastest to 1e-4, here of {', '.join(sorted(rivals))} and itself",
        min(leads) > 1 if leads else None,
        "time of the next / 3B's: " + ", ".join(f"{lead:.1f}" for lead in leads),
    )


def _section(setup: Setup, results: Results) -> Section:
    lines = _TABLE.lines(setup, results)
    times = {(line.at, line.label): line.seconds for line in lines if line.counts}
    leads = [times[n, "A-EM"] / times[n, "A-NMD"] for n in TABLE3 if (n, "A-EM") in times and (n, "A-NMD") in times]
    second = Claim(
        "A-NMD is faster than A-EM (the paper: almost twice)",
        min(leads) > 1 if leads else None,
        "time of A-EM / A-NMD's: " + ", ".join(f"{lead:.1f}" for lead in leads),
    )
    claims = [fastest(_ALL.lines(setup, results)), second]
    return Section("table3", "Table 3: by size, r = 32", _TABLE.blocks(setup, lines), claims)


TABLE_3 = Experiment("table3", _TABLE.runs, _section)
