"""The report of a comparison: its finding in words, charts, tables and pictures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np

from relunmd import plot
from relunmd.comparison.comparison_result import Comparison, settling_time
from relunmd.comparison.contenders import NMF, TSVD, Array
from relunmd.comparison.report import figures
from relunmd.comparison.report.content import Block, Cell, Link, Paragraph, Picture, Report, Section, Strong, Table
from relunmd.engine.matrix import Source
from relunmd.plot import style
from relunmd.plot.chart import Line
from relunmd.plot.curves import convergence_chart, error_by_rank_chart, spectrum_chart

_BASELINES = {TSVD.label: "the truncated SVD", NMF.label: "NMF"}
"""The baselines as sentences call them."""
_EXACT = 1e-12
_SHEETS = 6
_COMPONENTS_NAMED, _COLUMNS_NAMED = 20, 8
_PICTURES = ("spectrum.png", "components.png", "reconstructions.png", "error_by_rank.png", "convergence_*.png")
_NO_ITERATION = "No run has finished an iteration."


def comparison_report(
    found: Comparison,
    X: Source,
    column_names: Sequence[str] | None,
    summaries: Mapping[str, str],
    environments: Sequence[Mapping[str, Any]],
) -> Report:
    """Return the report, and write its pictures to the comparison's folder."""
    for path in (path for pattern in _PICTURES for path in found.folder.glob(pattern)):
        path.unlink()  # Of an earlier report, which may have had other ranks.
    introduction: list[str | Link] = [
        "relunmd approximates a sparse nonnegative matrix by X ≈ max(0, WH) (",
        Link("Seraghiti et al. 2023", "https://arxiv.org/abs/2305.08687"),
        "). The error is ‖X − max(0, WH)‖ / ‖X‖. All algorithms have the same X and the same initial factors; only ",
        "their own work is timed, and scoring is not. The names are explained at the bottom. The folder of this page ",
        "holds all runs in comparison.csv and comparison.json, and the points of the charts in points.csv.",
    ]
    sections = [_by_rank(found)] if len(found.ranks) > 1 else []
    sections += [_over_time(found), _all_runs(found)]
    with_factors = next((rank for rank in reversed(found.ranks) if found.factors(rank)), None)
    if with_factors is not None:
        sections += _of_factors(found, with_factors, X, column_names)
    names = Table(["name", "meaning"], list(summaries.items()), "names")
    sections.append(Section("names", "Names", [names]))
    title = f"{found.name}: algorithms compared"
    return Report(title, finding(found), [introduction, *found.notes], sections, found.settings, environments)


def finding(found: Comparison) -> str:
    """Return the result of a comparison in a few sentences."""
    unfinished = {rank for rank, _ in found.to_come}
    ranks = [rank for rank in found.ranks if found.ranking(rank)]
    if not ranks:
        return _NO_ITERATION
    finished = [rank for rank in ranks if rank not in unfinished]
    *others, top = finished or ranks
    errors, first = _errors(found, top), _first(found, top)
    sentences = [("" if finished else "Of what has been run so far: ") + _best_at(found, top)]
    algorithms = [label for label in errors if label not in _BASELINES]
    if algorithms and all(label in _BASELINES for label in first):
        sentences.append(f"The best of the algorithms is {algorithms[0]}, {errors[algorithms[0]]:.4g}.")
    winners = {rank: _first(found, rank) for rank in others}
    if others and all(names == first for names in winners.values()):
        subject = "It is" if len(first) == 1 else "They are"
        sentences.append(f"{subject} first at rank{'s' * (len(others) > 1)} {_listed(map(str, others))} too.")
    else:
        sentences += [f"At rank {rank} {_named(names, 'is', 'are')} first." for rank, names in winners.items()]
    return " ".join(sentences)


def _best_at(found: Comparison, rank: int) -> str:
    """Return which algorithm is best at a rank, by how much, and how it compares with the next."""
    errors, first = _errors(found, rank), _first(found, rank)
    best = errors[first[0]]
    if best < _EXACT:
        return f"At rank {rank} {_named(first, 'is', 'are')} exact."
    gains = [
        f"{errors[label] / best:.3g} times smaller than {name}'s {errors[label]:.4g}"
        if best < 0.05 * errors[label]
        else f"{1 - best / errors[label]:.0%} below {name}'s {errors[label]:.4g}"
        for label, name in _BASELINES.items()
        if label in errors and label not in first
    ]
    text = f"At rank {rank} {_named(first, 'has', 'have')} the smallest error, {best:.4g}"
    text += f": {' and '.join(gains)}." if gains else "."
    winner, second = [*errors, "", ""][:2]
    if len(first) > 1 or not second or {winner, second} & _BASELINES.keys():
        return text
    curves = [zip(run["curve"]["time"], run["curve"]["error"], strict=True) for run in found.of(rank, winner)]
    times = [next((time for time, error in curve if error <= errors[second]), 0.0) for curve in curves]
    after = f"It reaches the error of the next ({second}, {errors[second]:.4g}) after {fmean(times):.3g} s."
    return f"{text} {after if all(times) else f'The next is {second}, {errors[second]:.4g}.'}"


def _errors(found: Comparison, rank: int) -> dict[str, float]:
    """Return the errors at a rank, best first."""
    return {label: found.errors()[label][rank] for label in found.ranking(rank)}


def _first(found: Comparison, rank: int) -> list[str]:
    """Return the best algorithms at a rank: those whose errors agree in the digits that are shown."""
    errors = _errors(found, rank)
    best = min(errors.values(), default=0.0)
    return [label for label, e in errors.items() if f"{e:.4g}" == f"{best:.4g}" or max(e, best) < _EXACT]


def _named(labels: Sequence[str], one: str, several: str) -> str:
    """Return labels as the subject of a sentence, with its verb."""
    return f"{_listed(_BASELINES.get(label, label) for label in labels)} {one if len(labels) == 1 else several}"


def _listed(words: Iterable[str]) -> str:
    *some, last = words
    return f"{', '.join(some)} and {last}" if some else last


def _by_rank(found: Comparison) -> Section:
    chart, top = error_by_rank_chart(found.errors(), f"Final error by rank: {found.name}"), found.ranks[-1]
    alt = f"The smallest error that each reached, by rank. At rank {top}, best first: {', '.join(found.ranking(top))}."
    block = figures.drawing([chart], found.folder / "error_by_rank.png", alt)
    return Section("error by rank", "Error by rank", [block])


def _over_time(found: Comparison) -> Section:
    blocks: list[Block] = []
    for rank in found.ranks:
        curves, errors = found.curves(rank), _errors(found, rank)
        if curves:
            lines = (Line("TSVD", errors[TSVD.label]),) if TSVD.label in errors else ()
            chart = convergence_chart(curves, f"Error over time at rank {rank}: {found.name}", lines=lines)
            alt = f"At the end, best first: {', '.join(f'{label} {error:.4g}' for label, error in errors.items())}."
            blocks.append(figures.drawing([chart], found.folder / f"convergence_{rank}.png", alt))
    text = (
        "The smallest error of an iteration up to each time, beginning with the common initial factors, whose "
        f"computation is not timed{'; means over the seeds' * _several_seeds(found)}. NMF has its own initialization, "
        "which is timed; its first sweeps, far above the others, are left out."
    )
    return Section("error over time", "Error over time", [Paragraph(text if blocks else _NO_ITERATION), *blocks])


def _all_runs(found: Comparison) -> Section:
    several = _several_seeds(found)
    columns = ["rank", "algorithm", "error", "range over the seeds", "to TSVD's", "iterations", "ms each", "s to 1 %"]
    rows: list[list[Cell]] = []
    for rank in found.ranks:
        errors = _errors(found, rank)
        rows += [_row(found, rank, label, errors) for label in errors]
        rows += [[str(rank), label, *("–" * 6)] for label in found.labels if label not in errors]
    if not several:
        columns, rows = [*columns[:3], *columns[4:]], [[*row[:3], *row[4:]] for row in rows]
    note = (
        "“To TSVD's” is the difference from the error of the truncated SVD at the same rank; “s to 1 %” is the time in "
        f"seconds until the error was within 1 % of the smallest of the run{' (means over the seeds)' * several}."
    )
    return Section("table", "All results", [Table(columns, rows, "errors and times"), Paragraph(note)])


def _row(found: Comparison, rank: int, label: str, errors: Mapping[str, float]) -> list[Cell]:
    runs, error, base = found.of(rank, label), errors[label], errors.get(TSVD.label, 0.0)
    spread = [run["error"] for run in runs]
    settled = [time for run in runs if (time := settling_time(run)) is not None]
    shown: Cell = Strong(f"{error:.6g}") if label in _first(found, rank) else f"{error:.6g}"
    row = [str(rank), label, shown, f"{min(spread):.4g}–{max(spread):.4g}", *("–" * 4)]
    if label != TSVD.label:
        if base and max(error, base) >= _EXACT:
            share = error / base - 1
            row[4] = f"{share:+.{1 if share > -0.995 else 4}%}".replace("-0.0%", "0.0%").replace("+0.0%", "0.0%")
        row[5] = f"{fmean(run['n_iter'] for run in runs):.0f}"
        row[6] = f"{1000 * fmean(run['time'] / run['n_iter'] for run in runs):.2f}"
    if settled:
        row[7] = f"{fmean(settled):.3g}"
    return row


def _several_seeds(found: Comparison) -> bool:
    return any(len(found.of(rank, label)) > 1 for rank in found.ranks for label in found.labels)


def _of_factors(found: Comparison, rank: int, X: Source, column_names: Sequence[str] | None) -> list[Section]:
    factors = found.factors(rank)
    baselines = [label for label in _BASELINES if label in factors]
    best = [label for label in factors if label not in _BASELINES]
    sections = []
    if found.image_shape is not None:
        text = (
            "Rows of X and their approximations at this rank; then the rows of H as images, each divided by its "
            "largest entry: black is positive, gray is zero, white is negative."
        )
        rows = figures.where_possible(lambda: _rows_picture(found, rank, [*best[: _SHEETS - 2], *baselines], X))
        components = figures.where_possible(lambda: _components_picture(found, rank, [*best[:1], *baselines]))
        sections.append(Section("images", f"Images at rank {rank}", [Paragraph(text), rows, components]))
    if column_names is not None:
        shown = dict.fromkeys([next(iter(factors)), *(label for label in (NMF.label,) if label in factors)])
        names = list(map(str, column_names))
        named = [block for label in shown for block in _named_components(label, *factors[label], names)]
        sections.append(Section("columns", f"Largest columns of the components at rank {rank}", named))
    chart = spectrum_chart(factors, f"Strength of components at rank {rank}: {found.name}")
    alt = f"The singular values of WH, strongest first: {', '.join(factors)}."
    text = "The singular values of WH show how many components carry the approximation."
    drawn = figures.drawing([chart], found.folder / "spectrum.png", alt)
    return [*sections, Section("components", f"Components at rank {rank}", [Paragraph(text), drawn])]


def _rows_picture(found: Comparison, rank: int, labels: Sequence[str], X: Source) -> Picture:
    height, width = found.image_shape or (1, 1)
    figure, (ax,) = style.figure(9.6, max(2.0, 0.69 * (1 + len(labels)) * min(2.0, height / width) + 0.5))
    title = f"Rows of {found.name} and their reconstructions at rank {rank}"
    plot.reconstructions(replace(found, labels=tuple(labels)), X, ax, rank=rank, title=title)
    figures.save(figure, found.folder / "reconstructions.png")
    alt = f"Rows of X as images, and below them their reconstructions by {', '.join(labels)}."
    return Picture("reconstructions.png", alt)


def _components_picture(found: Comparison, rank: int, labels: Sequence[str]) -> Picture:
    figure, axes = style.figure(3.4 * len(labels), 2.7, len(labels))
    for ax, label in zip(axes, labels, strict=True):
        plot.components(replace(found, labels=(label,)), ax, rank=rank)
    figures.save(figure, found.folder / "components.png")
    return Picture("components.png", f"The components, rows of H, as images: {', '.join(labels)}.")


def _named_components(label: str, W: Array, H: Array, names: Sequence[str]) -> list[Block]:
    """Return a table of the columns that are largest in each component."""
    order = np.argsort(-np.linalg.norm(W, axis=0) * np.linalg.norm(H, axis=1), kind="stable")
    rows = []
    for place, component in enumerate(order[:_COMPONENTS_NAMED].tolist(), 1):
        row = H[component] * (1 if np.abs(H[component]).max() == H[component].max() else -1)
        largest = np.argsort(-row, kind="stable")[:_COLUMNS_NAMED].tolist()
        rows.append([str(place), ", ".join(names[column] for column in largest if row[column] > 0)])
    text = f"The columns of X with the largest entries in each row of H of {label}, strongest first."
    return [Paragraph(text), Table(["component", "columns"], rows, f"columns, {label}")]
