"""The report of a rank selection: the choice in words, the curve, and all points."""

import json
import os
from dataclasses import asdict
from pathlib import Path

from relunmd.comparison.report import figures
from relunmd.comparison.report.content import Cell, Paragraph, Report, Section, Strong, Table
from relunmd.comparison.report.report_files import write_csv, write_report, write_text
from relunmd.comparison.result_file import environment
from relunmd.io.archive import plain
from relunmd.plot.rank_curves import rank_curve_chart
from relunmd.selection import RankRow, RankSelection


def write_selection(found: RankSelection, folder: str | os.PathLike[str], name: str) -> Path:
    """Write the report, rank.csv, rank.json and, if all entries were fitted, model.npz; return the page."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    if found.model is not None:
        found.model.save(place / "model.npz")
    else:  # That of an earlier search may be of another rank.
        (place / "model.npz").unlink(missing_ok=True)
    table = found.table()
    write_csv(place / "rank.csv", list(table[0]), [list(row.values()) for row in table])
    chosen = {"rank": found.rank, "ridge": found.ridge, "error": found.error, "standard_error": found.standard_error}
    facts = chosen | {"turned": found.turned, "ended_by": found.ended_by, "sentence": found.sentence, "curve": table}
    facts |= {"settings": found.settings, "fits": [asdict(fit) for fit in found.fits]}
    # JSON has no NaN.
    write_text(place / "rank.json", json.dumps(_without_nan(plain(facts)), indent=1, ensure_ascii=False) + "\n")
    return write_report(rank_report(found, place, name), place)


def _without_nan(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and value != value else value


def rank_report(found: RankSelection, folder: Path, name: str) -> Report:
    """Return the report, and write its picture to `folder`."""
    settings = found.settings
    alike = settings["share"] == settings["zero_share"]
    which = "of the entries, zeros and nonzeros alike," if alike else "of the nonzeros, and as many zeros,"
    introduction = (
        f"In each of {settings['n_folds']} folds {settings['share']:.0%} {which} were left out, each rank was fitted "
        "to the others, and the entries left out were predicted by max(0, WH). The held-out error is ‖x − max(0, WH)‖ "
        "/ ‖x‖ over these entries: 1 is the error of predicting zeros. The training error is that of the entries that "
        "were fitted; it usually falls with the rank."
    )
    paired = "X is symmetric: entries (i, j) and (j, i) were left out together." if settings["symmetric"] else ""
    chart = rank_curve_chart(found, f"Held-out error by rank: {name}")
    alt = f"Held-out error by rank; the choice is {found.rank}."
    curve = Section("curve", "Held-out error by rank", [figures.drawing([chart], folder / "rank_curve.png", alt)])
    columns = ["rank", "ridge", "held-out error", "standard error", "training error", "stability", "folds"]
    note = (
        "Stability is the mean cosine of components of two folds, matched one to one: components of a rank that is too "
        "large differ from fold to fold. Ranks that could not be chosen any more were not fitted in further folds."
    )
    rows = Table(columns, [_cells(row, found) for row in found.rows], "held-out errors")
    shown = {key: str(value) for key, value in settings.items()}
    sections = [curve, Section("table", "All ranks", [rows, Paragraph(note)])]
    texts = [introduction, *([paired] if paired else [])]
    return Report(f"{name}: rank {found.rank}", found.sentence, texts, sections, shown, [environment()])


def _cells(row: RankRow, found: RankSelection) -> list[Cell]:
    chosen = (row.rank, row.ridge) == (found.rank, found.ridge)
    error = f"{row.error:.4f}"
    numbers = ["–" if value != value else f"{value:.4f}" for value in (row.standard_error, row.training_error)]
    stability = "–" if row.stability != row.stability else f"{row.stability:.2f}"
    shown = Strong(error) if chosen else error
    return [str(row.rank), f"{row.ridge:g}", shown, *numbers, stability, str(row.n_folds)]
