"""Figure 2: error and time an iteration by rank on 50 000 images of MNIST, 20 s, with TSVD."""

from relunmd.comparison.contenders import TSVD, Contender
from relunmd.comparison.report import figures
from relunmd.comparison.report.content import Block, Claim, Drawing, Paragraph, Section, Table
from relunmd.comparison.result_file import Matrix, Record, Results, Run
from relunmd.loop.criteria import Limits
from relunmd.plot.curves import error_by_rank_chart
from reproduction.experiment import PAPERS, Experiment, Setup, milliseconds, mnist, not_seen, seconds_each
from reproduction.paper import FIGURE2

THREE = tuple(PAPERS[label] for label in ("3B-NMD", "A-NMD", "A-EM"))
BELOW = "A-NMD, 3B-NMD and A-EM are below TSVD at every rank, from r = 32 on by a fifth at least"
SMALLEST = "3B-NMD has the smallest error of the three at every rank"
CHEAPEST = "An iteration of 3B-NMD is the cheapest of the three at every rank"


def _choices(setup: Setup) -> tuple[Matrix, tuple[int, ...], float]:
    if setup.quick:
        return mnist(setup, 500), (8, 32, 128), 4
    return mnist(setup, 5000), (8, 16, 32, 64, 128, 256), 20


def _run(setup: Setup, rank: int, contender: Contender) -> Run:
    matrix, _, seconds = _choices(setup)
    init = "tsvd" if contender is TSVD else "nuclear"
    return Run(matrix, rank, Limits(None, 0, None, seconds), contender, init, setup.seed_of(0))


def _runs(setup: Setup) -> list[Run]:
    everyone = (*THREE, *setup.added, TSVD)
    return [_run(setup, rank, contender) for rank in _choices(setup)[1] for contender in everyone]


def _section(setup: Setup, results: Results) -> Section:
    matrix, ranks, seconds = _choices(setup)
    title = f"Figure 2: by rank on {matrix.shape[0]} images of MNIST, {seconds:g} s"
    found: dict[str, dict[int, Record]] = {}
    for contender in (*THREE, *setup.added, TSVD):
        for rank in ranks:
            record = results.get(_run(setup, rank, contender))
            if record is not None:
                found.setdefault(contender.label, {})[rank] = record
    if not found:
        return Section("fig2", title, [Paragraph("Not run.")], not_seen(BELOW, SMALLEST, CHEAPEST))
    blocks: list[Block] = [
        _drawing(setup, found, f"{matrix.shape[0]} images, {seconds:g} s"),
        Paragraph(
            f"The smallest error of an iteration that ended within {seconds:g} s, from the nuclear "
            "initialization (not counted), one seed per rank; in brackets the values read off the paper's plot. "
            "The last columns are milliseconds per iteration, which decide who is ahead after a given time (figure 1b)."
        ),
        _table(found, ranks, compare=not setup.quick),
    ]
    return Section("fig2", title, blocks, _claims(found, ranks))


def _drawing(setup: Setup, found: dict[str, dict[int, Record]], what: str) -> Drawing:
    errors = {label: {rank: r["error"] for rank, r in records.items()} for label, records in found.items()}
    each = {
        label: {rank: seconds_each(r) for rank, r in records.items()}
        for label, records in found.items()
        if label != "TSVD"
    }
    charts = [
        error_by_rank_chart(errors, f"Error by rank: {what}"),
        error_by_rank_chart(each, f"Time an iteration by rank: {what}", "time an iteration", "s"),
    ]
    alt = f"The error by rank, and the seconds an iteration takes: {', '.join(found)}."
    return figures.drawing(charts, setup.output / "fig2.png", alt)


def _table(found: dict[str, dict[int, Record]], ranks: tuple[int, ...], compare: bool) -> Table:
    rows = []
    iterative = [label for label in found if label != "TSVD"]
    for rank in ranks:
        cells = [str(rank)]
        for label, records in found.items():
            paper = FIGURE2.get(rank, {}).get(label) if compare else None
            shown = f"{records[rank]['error']:.4f}" if rank in records else "–"
            cells.append(shown if paper is None else f"{shown} ({paper:g})")
        for label in iterative:
            record = found[label].get(rank)
            cells.append("–" if record is None else milliseconds(seconds_each(record)))
        rows.append(cells)
    return Table(["r", *found, *(f"{label}, ms" for label in iterative)], rows)


def _claims(found: dict[str, dict[int, Record]], ranks: tuple[int, ...]) -> list[Claim]:
    three = [contender.label for contender in THREE]
    made = [found.get(label, {}).get(rank) for label in (*three, "TSVD") for rank in ranks]
    if any(record is None or record["n_iter"] == 0 for record in made):
        return not_seen(BELOW, SMALLEST, CHEAPEST)
    worst, leads, costs = {}, {}, {}
    for rank in ranks:
        errors = {label: found[label][rank]["error"] for label in three}
        each = {label: seconds_each(found[label][rank]) for label in three}
        error, label = max((error, label) for label, error in errors.items())
        worst[rank] = error / found["TSVD"][rank]["error"], label
        leads[rank] = errors["3B-NMD"] / min(errors["A-NMD"], errors["A-EM"])
        costs[rank] = min(each["A-NMD"], each["A-EM"]) / each["3B-NMD"]

    def listed(values: dict[int, float]) -> str:
        return ", ".join(f"{value:.3f} (r={rank})" for rank, value in values.items())

    below = all(share < (0.8 if rank >= 32 else 1.0) for rank, (share, _) in worst.items())
    shares = ", ".join(f"{share:.3f} ({label}, r={rank})" for rank, (share, label) in worst.items())
    return [
        Claim(BELOW, below, f"the worst of the three / TSVD: {shares}"),
        Claim(SMALLEST, all(lead < 1 for lead in leads.values()), f"3B / the better of the others: {listed(leads)}"),
        Claim(CHEAPEST, all(cost > 1 for cost in costs.values()), f"the cheaper of the others / 3B: {listed(costs)}"),
    ]


FIGURE_2 = Experiment("fig2", _runs, _section)
