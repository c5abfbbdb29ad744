"""Figure 2: error and time an iteration by rank on 50 000 images of MNIST, 20 s, with TSVD."""

from relunmd.experiments import pictures
from relunmd.experiments.contenders import Contender, built_in
from relunmd.experiments.experiment import Experiment
from relunmd.experiments.paper import FIGURE2
from relunmd.experiments.plan import Case, Matrix, Run, Setup, mnist
from relunmd.experiments.report import Block, Claim, Paragraph, Picture, Section, Table
from relunmd.experiments.results import Record, Results
from relunmd.solve import Limits

__all__ = ["FIGURE_2"]

TSVD = built_in("tsvd")
THREE = tuple(built_in(name) for name in ("3b", "a-nmd", "a-em"))


def _choices(setup: Setup) -> tuple[Matrix, tuple[int, ...], float]:
    if setup.quick:
        return mnist(setup, 500), (8, 32, 128), 4
    return mnist(setup, 5000), (8, 16, 32, 64, 128, 256), 20


def _run(setup: Setup, rank: int, contender: Contender) -> Run:
    matrix, _, seconds = _choices(setup)
    return Run(Case(matrix, rank, Limits(None, 0, None, seconds), "nuclear", 1000 * setup.seed), contender)


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
    if "TSVD" not in found:
        return Section("fig2", title, [Paragraph("Not run.")])
    blocks: list[Block] = [
        _picture(setup, found, f"{matrix.shape[0]} images, {seconds:g} s"),
        Paragraph(
            "Errors of the best factors seen, from the nuclear start (not counted), one start a rank; in brackets what "
            "can be read off the paper's plot, which was made on another machine. The last columns are milliseconds an "
            "iteration."
        ),
        _table(found, ranks, compare=not setup.quick),
    ]
    return Section("fig2", title, blocks, _claims(found))


def _picture(setup: Setup, found: dict[str, dict[int, Record]], what: str) -> Picture:
    made, (left, right) = pictures.figure(10.5, 4.4, panels=2)
    for label, style in pictures.styles(list(found)).items():
        records = found[label]
        left.plot(list(records), [r["error"] for r in records.values()], linewidth=1.9, markersize=7, **style)
        if label != "TSVD":
            each = [record["time"] / max(1, record["n_iter"]) for record in records.values()]
            right.plot(list(records), each, linewidth=1.9, markersize=7, **style)
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xticks(sorted({rank for records in found.values() for rank in records}))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_xlabel("rank r")
    pictures.plain_log_ticks(left)
    left.set_ylabel("relative error E")
    right.set_ylabel("time an iteration (seconds)")
    left.set_title(what, fontsize=12.5)
    left.legend(**pictures.LEGEND)
    pictures.save(made, setup.output / "fig2.png")
    return Picture("fig2.png", f"Left, the error by rank; right, the seconds an iteration: {', '.join(found)}.")


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
            cells.append("–" if record is None else f"{1000 * record['time'] / max(1, record['n_iter']):.0f}")
        rows.append(cells)
    return Table(["r", *found, *(f"{label}, ms" for label in iterative)], rows)


def _claims(found: dict[str, dict[int, Record]]) -> list[Claim]:
    paper = [label for label in found if label in {contender.label for contender in THREE}]
    ratios, leads, costs = {}, {}, {}
    for rank, baseline in found["TSVD"].items():
        errors = {label: found[label][rank]["error"] for label in paper if rank in found[label]}
        if len(errors) < len(THREE):
            continue
        each = {label: found[label][rank]["time"] / max(1, found[label][rank]["n_iter"]) for label in paper}
        ratios[rank] = max(errors["3B-NMD"], errors["A-NMD"]) / baseline["error"]
        leads[rank] = errors["3B-NMD"] / min(errors["A-NMD"], errors["A-EM"])
        costs[rank] = min(each["A-NMD"], each["A-EM"]) / each["3B-NMD"]
    if not ratios:
        return []

    def listed(values: dict[int, float]) -> str:
        return ", ".join(f"{value:.2f} (r={rank})" for rank, value in values.items())

    return [
        Claim(
            "The ReLU algorithms are considerably more accurate than TSVD",
            max(ratios.values()) < 1 and min(ratios.values()) < 0.8,
            f"the worse of A-NMD and 3B-NMD / TSVD: {listed(ratios)}",
        ),
        Claim("3B-NMD has the smallest error at every rank", max(leads.values()) <= 1, f"3B / next: {listed(leads)}"),
        Claim("An iteration of 3B-NMD is the cheapest", min(costs.values()) > 1, f"next / 3B: {listed(costs)}"),
    ]


FIGURE_2 = Experiment("fig2", _runs, _section)
