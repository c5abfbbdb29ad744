"""The look of the pictures: an algorithm has the same colour, dash and marker everywhere, and can be told in grey."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relunmd.errors import MissingDependencyError
from relunmd.experiments.report import Paragraph, Picture
from relunmd.files import write_beside
from relunmd.optional import need

__all__ = ["GREY", "LEGEND", "figure", "plain_log_ticks", "save", "styles", "where_possible"]

GREY = "#555555"
"""For lines that are not algorithms."""

LEGEND: dict[str, Any] = {"fontsize": 10.5, "frameon": False, "handlelength": 3.6}
"""Long handles, so that dashes can be told."""

_PAPER = ("3B-NMD", "A-NMD", "A-EM", "EM", "A-Naive", "Naive", "TSVD")
# Colours that differ in lightness too (after Okabe and Ito), with a dash and a marker each.
_LOOKS = (
    ("#0072B2", "-", "^"),
    ("#B0272F", "-", "s"),
    ("#000000", "--", "o"),
    ("#777777", ":", "o"),
    ("#E69F00", "-.", "v"),
    ("#56B4E9", (0, (5, 1, 1, 1, 1, 1)), "D"),
    ("#CC79A7", (0, (6, 3)), "d"),
    ("#007A5A", (0, (8, 2)), "*"),
    ("#8C510A", (0, (3, 1, 1, 1)), "P"),
    ("#5E3C99", (0, (1, 1)), "X"),
    ("#A6A600", (0, (4, 2, 1, 2)), "p"),
)


def styles(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A look for each label: the paper's algorithms always have the same, others the next ones in turn."""
    others = [label for label in labels if label not in _PAPER]
    order = [*_PAPER, *others]
    found = {}
    for label in labels:
        colour, dash, marker = _LOOKS[order.index(label) % len(_LOOKS)]
        found[label] = {"color": colour, "linestyle": dash, "marker": marker, "label": label}
    return found


def figure(width: float = 7.0, height: float = 4.4, panels: int = 1) -> tuple[Any, list[Any]]:
    """An empty figure and its axes, side by side; nothing global is touched."""
    need("matplotlib", "Pictures need", "plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(made)
    axes = list(made.subplots(1, panels, squeeze=False)[0])
    for ax in axes:
        ax.grid(visible=True, which="major", color="#cccccc", linewidth=0.7)
        ax.tick_params(labelsize=11)
        ax.xaxis.label.set_size(12.5)
        ax.yaxis.label.set_size(12.5)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    return made, axes


def plain_log_ticks(ax: Any) -> None:
    """Ticks at 1, 2, 3, 5 and 7 times the powers of ten, as plain numbers, on a logarithmic y-axis."""
    from matplotlib.ticker import LogLocator, NullLocator

    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter("{x:g}")


def where_possible(draw: Callable[[], Picture]) -> Picture | Paragraph:
    """The picture, or in its place the sentence that says what it needs."""
    try:
        return draw()
    except MissingDependencyError as reason:
        return Paragraph(str(reason))


def save(made: Any, path: Path) -> None:
    """Write a figure as PNG."""
    write_beside(path, lambda out: made.savefig(out, format="png"))
