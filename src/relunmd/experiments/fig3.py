"""Figure 3: a sparse NMF basis of CBCL compressed, by rank: the error on the basis, and on the faces."""

from relunmd.errors import DatasetError
from relunmd.experiments import pictures
from relunmd.experiments.basis import FacesBasis
from relunmd.experiments.contenders import Contender, built_in
from relunmd.experiments.experiment import SIX, Experiment, mean, records_of
from relunmd.experiments.paper import ZEROS_OF_BASIS
from relunmd.experiments.plan import Case, Run, Setup
from relunmd.experiments.report import Block, Claim, Paragraph, Picture, Section, Table
from relunmd.experiments.results import Results
from relunmd.solve import Limits

__all__ = ["FIGURE_3", "TSVD", "cell"]

TSVD = built_in("tsvd")
SHOWN = 20
"""The rank at which the paper says that A-NMD is almost as accurate as the original basis."""


def ranks(setup: Setup) -> tuple[int, ...]:
    return (8, 20) if setup.quick else (8, 12, 16, 20, 24)


def seconds(setup: Setup) -> float:
    return 4 if setup.quick else 20


def cell(setup: Setup, rank: int, contender: Contender) -> list[Run]:
    """A contender's runs at a rank, one a start."""
    basis = FacesBasis(setup)
    limits = Limits(None, 0, None, seconds(setup))
    starts = 1 if setup.quick or contender is TSVD else 2
    return [
        Run(Case(basis.matrix, rank, limits, "nuclear", 1000 * setup.seed + j, basis.measure, True), contender)
        for j in range(starts)
    ]


def _runs(setup: Setup) -> list[Run]:
    everyone = (*SIX, *setup.added, TSVD)
    return [run for rank in ranks(setup) for contender in everyone for run in cell(setup, rank, contender)]


def _section(setup: Setup, results: Results) -> Section:
    title = f"Figure 3: a sparse NMF basis of CBCL compressed, {seconds(setup):g} s"
    on_basis: dict[str, dict[int, float]] = {}
    on_faces: dict[str, dict[int, float]] = {}
    for contender in (*SIX, *setup.added, TSVD):
        for rank in ranks(setup):
            records = records_of(results, cell(setup, rank, contender))
            if records:
                on_basis.setdefault(contender.label, {})[rank] = mean([r["error"] for r in records])
                faces = [record["measured"]["error_on_faces"] for record in records]
                on_faces.setdefault(contender.label, {})[rank] = mean(faces)
    if not on_basis:
        return Section("fig3", title, [Paragraph("Not run.")])
    basis = FacesBasis(setup)
    try:
        U = basis.load()
        zeros, original = float((U == 0).mean()), basis.error_on_faces(U)
    except DatasetError as reason:
        return Section("fig3", title, [Paragraph(str(reason))])
    blocks: list[Block] = [
        Paragraph(
            f"The basis U (361×100) is that of a regularised minimum-volume NMF with 100 components: {zeros:.0%} of "
            f"its entries are zero (the paper: {ZEROS_OF_BASIS:.0%}), and its own error on the faces, with the best "
            f"V ≥ 0, is {original:.4f}. Left the error on U, right that on the faces X after U is replaced by "
            f"max(0, WH), means over {'one start' if setup.quick else 'two nuclear starts'}."
        ),
        _picture(setup, on_basis, on_faces, original),
        _table("error on U", on_basis, ranks(setup)),
        _table("error on X", on_faces, ranks(setup)),
    ]
    return Section("fig3", title, blocks, _claims(on_basis, on_faces, original))


def _picture(
    setup: Setup, on_basis: dict[str, dict[int, float]], on_faces: dict[str, dict[int, float]], original: float
) -> Picture:
    made, (left, right) = pictures.figure(10.5, 4.4, panels=2)
    for label, style in pictures.styles(list(on_basis)).items():
        for ax, found in ((left, on_basis), (right, on_faces)):
            ax.plot(list(found[label]), list(found[label].values()), linewidth=1.9, markersize=7, **style)
    right.axhline(original, color=pictures.GREY, linewidth=1.6, linestyle=(0, (2, 2)))
    right.annotate("original U, r = 100", (ranks(setup)[0], original), (0, 5), textcoords="offset points", fontsize=10)
    for ax, what in ((left, "error on the basis U"), (right, "error on the faces X")):
        ax.set_yscale("log")
        ax.set_xticks(ranks(setup))
        ax.set_xlabel("rank r")
        ax.set_ylabel(f"relative {what}")
        pictures.plain_log_ticks(ax)
    right.set_ylim(bottom=0.93 * original)
    left.legend(**pictures.LEGEND)
    pictures.save(made, setup.output / "fig3.png")
    return Picture("fig3.png", f"Errors on the NMF basis and on the faces by rank: {', '.join(on_basis)}.")


def _table(what: str, found: dict[str, dict[int, float]], shown: tuple[int, ...]) -> Table:
    rows = [
        [str(rank), *(f"{values[rank]:.4f}" if rank in values else "–" for values in found.values())] for rank in shown
    ]
    return Table([f"{what}, r", *found], rows)


def _claims(
    on_basis: dict[str, dict[int, float]], on_faces: dict[str, dict[int, float]], original: float
) -> list[Claim]:
    paper = [contender.label for contender in SIX]
    if not all(label in on_basis for label in (*paper, "TSVD")):
        return []
    shown = [rank for rank in on_basis["TSVD"] if all(rank in on_basis[label] for label in paper)]
    winners = {rank: min((on_basis[label][rank], label) for label in paper)[1] for rank in shown}
    claims = [
        Claim(
            "A-NMD has the best solution of the six on the basis",
            all(winner == "A-NMD" for winner in winners.values()) if winners else None,
            "best by rank: " + ", ".join(f"{winner} (r={rank})" for rank, winner in winners.items()),
        ),
        Claim(
            "TSVD's error on the basis is above 70 %",
            min(on_basis["TSVD"].values()) > 0.7,
            ", ".join(f"{error:.2f} (r={rank})" for rank, error in on_basis["TSVD"].items()),
        ),
    ]
    if SHOWN in on_faces["A-NMD"]:
        error = on_faces["A-NMD"][SHOWN]
        claims.append(
            Claim(
                f"At r = {SHOWN} A-NMD is almost as accurate on the faces as the original basis of 100",
                error < 1.25 * original,
                f"{error:.4f} against {original:.4f}; TSVD {on_faces['TSVD'][SHOWN]:.4f}",
            )
        )
    return claims


FIGURE_3 = Experiment("fig3", _runs, _section)
