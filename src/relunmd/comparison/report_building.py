"""From a plan to its report: the same for comparisons and for the paper's experiments."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from relunmd.comparison.plan import Run
from relunmd.comparison.plan_display import Display
from relunmd.comparison.report import Report, write_report
from relunmd.comparison.result_file import Results
from relunmd.comparison.runner import Outcome, carry_out
from relunmd.errors import InputError

__all__ = ["PICTURES", "check_folder", "make_report"]

PICTURES = ("spectrum.png", "components.png", "reconstructions.png", "error_by_rank.png", "convergence_*.png")
"""Of a comparison."""


def check_folder(output: str | Path, of_comparison: bool) -> Path:
    """The folder of a plan: a new one, an empty one, or one with results of the same kind."""
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"The output must be a folder. Got {folder}, which is a file.")
    there = sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []
    if there and Results.FILE not in there:
        raise InputError(
            f"The output must be a new folder, an empty one, or one with results to go on from. {folder} has other "
            f"files, as {there[0]}."
        )
    if "report.md" in there and ("comparison.json" in there) is not of_comparison:
        wanted, there_is = ("a comparison", "the paper's experiments")[:: 1 if of_comparison else -1]
        raise InputError(
            f"The output must be a folder for {wanted}. {folder} has the report of {there_is}; name another."
        )
    return folder


def make_report(
    runs: Sequence[Run], results: Results, display: Display | None, report: Callable[[Outcome], Report]
) -> Path:
    """Make the runs that are missing, then the report of all of them; gives the path of the page.

    Ctrl-C ends the runs, and is raised again once the report has been made of those that there are.
    """
    with display or Display() as shown:
        for package, what in (("matplotlib", "charts and pictures"), ("jinja2", "report.html")):
            if find_spec(package) is None:
                shown.print(f"There will be no {what}: {package} is missing (pip install 'relunmd[plot]').")
        outcome, pressed = Outcome(), None
        try:
            carry_out(runs, results, shown, outcome)
        except KeyboardInterrupt as reason:
            if not any(results.get(run) for run in runs):
                raise
            outcome.interrupted, pressed = True, reason
        shown.say("the report")
        page = write_report(report(outcome), results.folder)
        if display is None:
            shown.print(f"Report: {page}")
    if pressed is not None:
        raise pressed
    return page
