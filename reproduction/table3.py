"""Table 3: A-NMD, 3B-NMD, EM and A-EM, by size."""

from relunmd.comparison.report.content import Section
from relunmd.comparison.result_file import Results
from reproduction.counts import CountTable, everyone, faster
from reproduction.experiment import PAPERS, Experiment, Setup
from reproduction.paper import TABLE3

FOUR = [(PAPERS[label], label) for label in ("A-NMD", "3B-NMD", "EM", "A-EM")]
_TABLE = CountTable("n", TABLE3, FOUR, lambda n: (n, 32))
_ALL = everyone(TABLE3, lambda n: (n, 32))


def _section(setup: Setup, results: Results) -> Section:
    lines = _TABLE.lines(setup, results)
    claims = [
        faster(lines, "3B-NMD", ("A-NMD", "EM", "A-EM"), "3B-NMD is the fastest to 1e-4 of the four"),
        faster(
            _ALL.lines(setup, results),
            "3B-NMD",
            [label for label in PAPERS if label != "3B-NMD"],
            "3B-NMD is the fastest to 1e-4 of all six, with table 2's runs",
        ),
        faster(lines, "A-NMD", ("A-EM",), "A-NMD is faster than A-EM (the paper: almost twice)"),
    ]
    return Section("table3", "Table 3: by size, r = 32", _TABLE.blocks(setup, lines), claims)


TABLE_3 = Experiment("table3", _TABLE.runs, _section)
