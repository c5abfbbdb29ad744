"""From a plan to its report: the same for comparisons and for the paper's experiments."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from relunmd.errors import InputError
from relunmd.experiments.display import Display
from relunmd.experiments.plan import Run
from relunmd.experiments.results import Results
from relunmd.experiments.runner import Outcome, carry_out
from relunmd.report import Report, write_report

__all__ = ["check_folder", "make_report"]

_OURS = ("report.html", "report.md", "points.csv", "comparison.csv", "comparison.json")


def check_folder(output: str | Path) -> Path:
    """The folder of a plan, if nothing in it would be lost."""
    folder = Path(output)
    there = [name for name in _OURS if (folder / name).exists()]
    if there and not (folder / Results.FILE).exists():
        raise InputError(
            f"The output must be a new folder, or one with results to go on from. {folder} has a {there[0]} that is "
            "not of such results, and would be overwritten."
        )
    return folder


def make_report(
    runs: Sequence[Run], results: Results, display: Display | None, report: Callable[[Outcome], Report]
) -> Path:
    """Make the runs that are missing, then the report of all of them; gives the path of the page.

    Ctrl-C ends the runs, and is raised again once the report has been made of those that there are.
    """
    with display or Display() as shown:
        if find_spec("matplotlib") is None:
            shown.print("There will be no pictures but charts: they need matplotlib (pip install 'relunmd[plot]').")
        pressed = None
        try:
            outcome = carry_out(runs, results, shown)
        except KeyboardInterrupt as reason:
            if not any(results.get(run) for run in runs):
                raise
            outcome, pressed = Outcome(interrupted=True), reason
        shown.say("the report")
        page = write_report(report(outcome), results.folder)
        shown.print(f"Report: {page}")
    if pressed is not None:
        raise pressed
    return page
