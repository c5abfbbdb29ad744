"""What the report of a comparison says and shows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunmd.comparison import image_detection, pictures
from relunmd.comparison.contenders import NMF
from relunmd.comparison.experiment import TSVD, mean, milliseconds, seconds_each
from relunmd.comparison.outcome import Comparison, ratio, settled_at
from relunmd.comparison.report import (
    Block,
    Cell,
    Drawing,
    Link,
    Paragraph,
    Part,
    Picture,
    Report,
    Section,
    Strong,
    Table,
)
from relunmd.comparison.report_building import PICTURES
from relunmd.engine.matrix import Source
from relunmd.plot import image_sheets, style
from relunmd.plot.chart import Line
from relunmd.plot.curves import convergence_chart, error_by_rank_chart, spectrum_chart

__all__ = ["comparison_report", "finding"]

Array = NDArray[Any]
_SHEETS = 6
_COMPONENTS_NAMED, _COLUMNS_NAMED = 20, 8


def comparison_report(
    found: Comparison,
    X: Source,
    column_names: Sequence[str] | None,
    who_is_who: Mapping[str, str],
    environments: Sequence[Mapping[str, Any]],
) -> Report:
    """The report, its pictures written into the comparison's folder."""
    what: list[Part] = [
        "relunmd approximates a sparse nonnegative matrix by X ≈ max(0, WH) (",
        Link("Seraghiti et al. 2023", "https://arxiv.org/abs/2305.08687"),
        "). The error is ‖X − max(0, WH)‖ / ‖X‖. The algorithms have the same X and the same start; only their own ",
        "work is timed, and they are scored outside of that. What the names mean is at the bottom. The folder that ",
        "this page was made in has every run in comparison.csv and comparison.json, and the charts in points.csv.",
    ]
    sections = [_over_time(found), _all_runs(found)]
    if len(found.ranks) > 1:
        sections.insert(0, _by_rank(found))
    with_factors = next((rank for rank in reversed(found.ranks) if found.factors(rank)), None)
    if with_factors is not None:
        sections += _of_factors(found, with_factors, X, column_names)
    _remove_stale(found, sections)
    names = Table(["name", "what it is"], [[label, meaning] for label, meaning in who_is_who.items()], "names")
    sections.append(Section("names", "What the names mean", [names]))
    title = f"{found.name}: algorithms compared"
    return Report(title, finding(found), [what, *found.notes], sections, found.settings, environments)


def finding(found: Comparison) -> str:
    """What came out, in a sentence or two."""
    errors = found.errors()
    unfinished = {rank for rank, _ in found.to_come}
    ranks = [rank for rank in found.ranks if any(rank in by_rank for by_rank in errors.values())]
    if not ranks:
        return "No run has finished an iteration."
    finished = [rank for rank in ranks if rank not in unfinished]
    said = "" if finished else "Of what has been run so far: "
    top = (finished or ranks)[-1]
    order, first = found.ranking(top), _first(found, top)
    error = errors[order[0]][top]
    if error < _EXACT:
        said += f"At rank {top} {_names(first)} {'is' if len(first) == 1 else 'are'} exact."
    else:
        said += f"At rank {top} {_names(first)} {'has' if len(first) == 1 else 'have'} the smallest error, {error:.4g}"
        below = [
            _below(error, errors[label][top], _NAMES[label])
            for label in _NAMES
            if label not in first and top in errors.get(label, {})
        ]
        said += f": {' and '.join(below)}." if below else "."
        second = order[1] if len(order) > 1 else None
        if len(first) == 1 and second is not None and not {order[0], second} & _NAMES.keys():
            when = _reached(found, top, order[0], errors[second][top])
            told = f"{second}, {errors[second][top]:.4g}"
            said += f" It has the error of the next ({told}) after {when:.3g} s." if when else f" The next is {told}."
    if all(label in _NAMES for label in first):
        best = next((label for label in order if label not in _NAMES), None)
        said += f" The best of the algorithms is {best}, {errors[best][top]:.4g}." if best else ""
    others = (finished or ranks)[:-1]
    winners = {rank: _first(found, rank) for rank in others}
    if others and all(names == first for names in winners.values()):
        are = "It is" if len(first) == 1 else "They are"
        said += f" {are} first at rank{'s' * (len(others) > 1)} {_listed(list(map(str, others)))} too."
    else:
        for rank, names in winners.items():
            said += f" At rank {rank} {_names(names)} {'is' if len(names) == 1 else 'are'} first."
    return said


_NAMES = {TSVD.label: "the truncated SVD", NMF.label: "NMF"}
"""The baselines in a sentence."""
_EXACT = 1e-12


def _first(found: Comparison, rank: int) -> list[str]:
    """Who is first at a rank: several, if their errors are the same in the digits that are shown."""
    errors, order = found.errors(), found.ranking(rank)
    best = errors[order[0]][rank]
    return [
        label
        for label in order
        if f"{errors[label][rank]:.4g}" == f"{best:.4g}" or max(errors[label][rank], best) < _EXACT
    ]


def _below(error: float, other: float, name: str) -> str:
    if error < 0.05 * other:
        return f"{other / error:.3g} times smaller than {name}'s {other:.4g}"
    return f"{1 - error / other:.0%} below {name}'s {other:.4g}"


def _names(labels: Sequence[str]) -> str:
    return _listed([_NAMES.get(label, label) for label in labels])


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _reached(found: Comparison, rank: int, label: str, error: float) -> float | None:
    """Seconds after which an algorithm had an error, the mean over the starts; None if one did not."""
    times = []
    for run in found.of(rank, label):
        curve = run["curve"]
        there = [t for t, e in zip(curve["time"], curve["error"], strict=True) if e <= error]
        if not there:
            return None
        times.append(there[0])
    return mean(times) or None


def _by_rank(found: Comparison) -> Section:
    chart = error_by_rank_chart(found.errors(), f"Final error by rank: {found.name}")
    top = found.ranks[-1]
    alt = f"The smallest error that each reached, by rank. At rank {top}, best first: {', '.join(found.ranking(top))}."
    block = pictures.drawing([chart], found.folder / "error_by_rank.png", alt)
    return Section("error by rank", "Error by rank", [block])


def _over_time(found: Comparison) -> Section:
    errors = found.errors()
    blocks: list[Block] = []
    for rank in found.ranks:
        curves = found.curves(rank)
        if not curves:
            continue
        base = errors.get(TSVD.label, {}).get(rank)
        lines = () if base is None else (Line("TSVD", base),)
        chart = convergence_chart(curves, f"Error over time at rank {rank}: {found.name}", lines=lines)
        order = ", ".join(f"{label} {errors[label][rank]:.4g}" for label in found.ranking(rank))
        alt = f"At the end, best first: {order}."
        blocks.append(pictures.drawing([chart], found.folder / f"convergence_{rank}.png", alt))
    if not blocks:
        return Section("error over time", "Error over time", [Paragraph("No run has finished an iteration.")])
    words = (
        "The smallest error of an iteration up to each time, beginning with that of the common start, whose making is "
        f"not timed{'; means over the starts' * _several_starts(found)}. NMF begins with a start of its own, whose "
        "making is timed; its first sweeps, far above the others, are left out."
    )
    return Section("error over time", "Error over time", [Paragraph(words), *blocks])


def _remove_stale(found: Comparison, sections: Sequence[Section]) -> None:
    """Pictures that an earlier report of this folder had, and this one has not."""
    blocks = [block for section in sections for block in section.blocks]
    shown = {block.file for block in blocks if isinstance(block, Picture)}
    shown |= {block.picture.file for block in blocks if isinstance(block, Drawing) and block.picture is not None}
    for pattern in PICTURES:
        for path in found.folder.glob(pattern):
            if path.name not in shown:
                path.unlink()


def _all_runs(found: Comparison) -> Section:
    several = _several_starts(found)
    columns = ["rank", "algorithm", "error", *(["over the starts"] if several else []), "to TSVD's", "iterations"]
    columns += ["ms each", "s to 1 %"]
    errors = found.errors()
    rows: list[list[Cell]] = []
    for rank in found.ranks:
        base = errors.get(TSVD.label, {}).get(rank)
        first = _first(found, rank) if found.ranking(rank) else []
        for label in found.ranking(rank):
            runs = found.of(rank, label)
            error = errors[label][rank]
            share = ratio(error, base)
            shown = f"{error:.6g}"
            spread = [f"{min(r['error'] for r in runs):.4g}–{max(r['error'] for r in runs):.4g}"] if several else []
            settled = [s for run in runs if (s := settled_at(run)) is not None]
            one_step = label == TSVD.label
            rows.append(
                [
                    str(rank),
                    label,
                    Strong(shown) if label in first else shown,
                    *spread,
                    "–" if share is None or one_step or max(error, base or 0) < _EXACT else _signed(share - 1),
                    "–" if one_step else f"{mean([run['n_iter'] for run in runs]):.0f}",
                    "–" if one_step else milliseconds(mean([seconds_each(dict(run)) for run in runs]), 2),
                    f"{mean(settled):.3g}" if settled else "–",
                ]
            )
        idle = [label for label in found.labels if rank not in errors.get(label, {})]
        rows += [[str(rank), label, *(["–"] * (len(columns) - 2))] for label in idle]
    note = (
        "“To TSVD's” is how far the error is from the truncated SVD's at the same rank; “s to 1 %” are the seconds "
        "after which the error was within one hundredth of the smallest that the run reached"
        + (" (means over the starts)." if several else ".")
    )
    return Section("table", "All of it in a table", [Table(columns, rows, "errors and times"), Paragraph(note)])


def _several_starts(found: Comparison) -> bool:
    return any(len(found.of(rank, label)) > 1 for rank in found.ranks for label in found.labels)


def _signed(share: float) -> str:
    digits = 1 if share > -0.995 else 4
    return f"{share:+.{digits}%}".replace("-0.0%", "0.0%").replace("+0.0%", "0.0%")


def _of_factors(found: Comparison, rank: int, X: Source, column_names: Sequence[str] | None) -> list[Section]:
    factors, pixels = found.factors(rank), found.image_shape
    sections = []
    if pixels is not None:
        blocks: list[Block] = [
            pictures.where_possible(lambda: _rows_picture(found, rank, factors, X, pixels)),
            pictures.where_possible(lambda: _components_picture(found, rank, factors, pixels)),
        ]
        note = (
            "Rows of X, and what each made of them at this rank; then the rows of H as images, each divided by its "
            "largest entry: black is positive, middle grey zero, white negative."
        )
        sections.append(Section("images", f"Images at rank {rank}", [Paragraph(note), *blocks]))
    if column_names is not None:
        shown = dict.fromkeys([next(iter(factors)), *(label for label in (NMF.label,) if label in factors)])
        named = [block for label in shown for block in _named_components(label, *factors[label], column_names)]
        sections.append(Section("columns", f"What the components are of, rank {rank}", named))
    chart = spectrum_chart(
        factors,
        f"Strength of components at rank {rank}: {found.name}",
    )
    alt = f"The singular values of WH, the strongest first: {', '.join(factors)}."
    words = Paragraph("The singular values of WH: how many components carry the approximation.")
    drawn = pictures.drawing([chart], found.folder / "spectrum.png", alt)
    return [*sections, Section("components", f"Components at rank {rank}", [words, drawn])]


def _shown(found: Comparison, factors: Mapping[str, tuple[Array, Array]]) -> list[str]:
    """Whose images are shown: the best few, and the baselines."""
    best = [label for label in factors if label not in (TSVD.label, NMF.label)][: _SHEETS - 2]
    return [*best, *(label for label in (TSVD.label, NMF.label) if label in factors)]


def _rows_picture(
    found: Comparison, rank: int, factors: Mapping[str, tuple[Array, Array]], X: Source, pixels: tuple[int, int]
) -> Picture:
    chosen = image_sheets.sample_rows(X.shape[0])
    sheets = {"X": np.vstack([image_detection.read_rows(X, slice(row, row + 1)) for row in chosen.tolist()])}
    for label in _shown(found, factors):
        W, H = factors[label]
        sheets[label] = np.maximum(0, W[chosen] @ H)
    height = 0.69 * len(sheets) * min(2.0, pixels[0] / pixels[1]) + 0.5
    made, (ax,) = style.figure(9.6, max(2.0, height))
    image_sheets.draw_rows(sheets, ax, pixels, f"Rows of {found.name} and their reconstructions at rank {rank}")
    pictures.save(made, found.folder / "reconstructions.png")
    alt = f"{len(chosen)} rows of X as images, and below them their reconstructions by {', '.join(list(sheets)[1:])}."
    return Picture("reconstructions.png", alt)


def _components_picture(
    found: Comparison, rank: int, factors: Mapping[str, tuple[Array, Array]], pixels: tuple[int, int]
) -> Picture:
    labels = _shown(found, factors)
    labels = list(dict.fromkeys([labels[0], *(label for label in labels if label in (TSVD.label, NMF.label))]))
    made, axes = style.figure(3.4 * len(labels), 2.7, len(labels))
    for ax, label in zip(axes, labels, strict=True):
        image_sheets.draw_components(*factors[label], ax, pixels, title=f"{label}, rank {rank}")
    pictures.save(made, found.folder / "components.png")
    return Picture("components.png", f"The components, rows of H, as images: {', '.join(labels)}.")


def _named_components(label: str, W: Array, H: Array, names: Sequence[str]) -> list[Block]:
    """The columns that are largest in each component."""
    order = np.argsort(-np.linalg.norm(W, axis=0) * np.linalg.norm(H, axis=1), kind="stable")
    rows = []
    for place, component in enumerate(order[:_COMPONENTS_NAMED].tolist(), 1):
        row = H[component] * (1 if np.abs(H[component]).max() == H[component].max() else -1)
        largest = np.argsort(-row, kind="stable")[:_COLUMNS_NAMED]
        rows.append([str(place), ", ".join(names[column] for column in largest.tolist() if row[column] > 0)])
    words = Paragraph(f"The columns of X with the largest entries in each row of H of {label}, strongest first.")
    return [words, Table(["component", "columns"], rows, f"columns, {label}")]
