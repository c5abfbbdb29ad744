"""All experiments: their runs and the report."""

from collections.abc import Sequence
from pathlib import Path

from relunmd.comparison.comparison_display import ComparisonDisplay
from relunmd.comparison.report.content import Code, Link, Paragraph, Part, Report, Section
from relunmd.comparison.report.report_files import write_report
from relunmd.comparison.result_file import Results, check_folder
from relunmd.comparison.runner import Runner
from relunmd.errors import InputError
from reproduction.experiment import Experiment, Setup, added
from reproduction.fig1a import FIGURE_1A
from reproduction.fig1b import FIGURE_1B
from reproduction.fig2 import FIGURE_2
from reproduction.fig3 import FIGURE_3
from reproduction.fig4 import FIGURE_4
from reproduction.table1 import TABLE_1
from reproduction.table2 import TABLE_2
from reproduction.table3 import TABLE_3
from reproduction.table4 import TABLE_4

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (TABLE_1, TABLE_2, TABLE_3, TABLE_4, FIGURE_1A, FIGURE_1B, FIGURE_2, FIGURE_3, FIGURE_4)
}
"""Experiments by name, in the paper's order."""


def reproduce(
    names: str | Sequence[str] = ("all",),
    output: str | Path = "results",
    *,
    quick: bool = False,
    seed: int = 0,
    data: str | Path | None = None,
    display: ComparisonDisplay | None = None,
) -> Path:
    """Run experiments of the paper and write a report with tables and pictures.

    Parameters
    ----------
    names : str or sequence of str, default="all"
        Names of `EXPERIMENTS`, or "all".
    output : path, default="results"
        Folder for results.jsonl, report.html, report.md and the pictures. Runs whose results it holds are not repeated.
    quick : bool, default=False
        Use smaller data, fewer repetitions and shorter runs: about 8 minutes instead of 80 on two cores.
    seed : int, default=0
        Seed of all matrices and initializations.
    data : path, default=None
        Folder of data sets that is searched first; see `relunmd.datasets`.
    display : ComparisonDisplay, default=None
        Progress display; by default one on standard output.

    Returns
    -------
    Path
        Path of report.html.

    Raises
    ------
    InputError
        If an argument is invalid.
    KeyboardInterrupt
        On Ctrl-C, after the report of the finished runs has been written.

    Notes
    -----
    It needs 2.5 GB of memory (figure 2; figure 1b needs 1.9 GB), and a tenth of that with ``quick=True``.

    Examples
    --------
    >>> import reproduction
    >>> list(reproduction.EXPERIMENTS)
    ['table1', 'table2', 'table3', 'table4', 'fig1a', 'fig1b', 'fig2', 'fig3', 'fig4']
    >>> reproduction.reproduce(["table1"], "results", quick=True)  # doctest: +SKIP
    PosixPath('results/report.html')
    """
    names = [names] if isinstance(names, str) else names
    chosen = list(EXPERIMENTS) if "all" in names else list(names)
    unknown = [name for name in chosen if name not in EXPERIMENTS]
    if unknown or not chosen:
        raise InputError(f"An experiment must be one of {', '.join(EXPERIMENTS)}, or all. Got {unknown or names!r}.")
    if seed < 0:
        raise InputError(f"seed must be at least 0. Got {seed!r}.")
    folder = check_folder(output, "the paper's experiments", "a comparison")
    setup = Setup(folder, quick, seed, None if data is None else Path(data), tuple(added()))
    runner = Runner(Results(setup.output), display or ComparisonDisplay())
    runs = [run for name, experiment in EXPERIMENTS.items() if name in chosen for run in experiment.runs(setup)]
    with runner.made(runs):
        page = write_report(_report(setup, chosen, runner), folder)
        if display is None:
            runner.display.print(f"Report: {page}")
    return page


def _report(setup: Setup, chosen: Sequence[str], runner: Runner) -> Report:
    """Return the report, with a section for each chosen experiment and each one whose results are complete."""
    results = runner.results
    planned = {name: experiment.runs(setup) for name, experiment in EXPERIMENTS.items()}
    shown = [name for name, runs in planned.items() if name in chosen or all(results.has(run) for run in runs)]
    sections = [_section(EXPERIMENTS[name], setup, runner) for name in shown]
    environments = results.environments([run for name in shown for run in planned[name]])
    settings = {
        "experiments": ", ".join(shown),
        "quick": "yes" if setup.quick else "no",
        "seed": str(setup.seed),
        "added to the paper's algorithms": ", ".join(contender.label for contender in setup.added) or "none",
    }
    introduction: list[str | Sequence[Part]] = [*_introduction(setup, shown)]
    if runner.interrupted:
        introduction.append("It was interrupted: not all runs are here. The same command resumes.")
    return Report("The paper, reproduced", _finding(sections), introduction, sections, settings, environments)


def _finding(sections: Sequence[Section]) -> str:
    """Return how many claims hold, and which algorithm is best."""
    claims = [claim for section in sections for claim in section.claims]
    judged = [claim for claim in claims if claim.holds is not None]
    held = sum(claim.holds is True for claim in judged)
    count = f"{held} of the {len(judged)} claims of the paper that could be judged hold here" if judged else (
        "None of the paper's claims could be judged"
    )  # fmt: skip
    unseen = f", {len(claims) - len(judged)} could not be judged" if judged and len(judged) < len(claims) else ""
    return " ".join([f"{count}{unseen}.", *(section.finding for section in sections if section.finding)])


def _section(experiment: Experiment, setup: Setup, runner: Runner) -> Section:
    runs = experiment.runs(setup)
    notes = {runner.missing[run.matrix.name] for run in runs if run.matrix.name in runner.missing}
    notes |= {f"{run.contender.label} failed: {runner.failed[run.key]}" for run in runs if run.key in runner.failed}
    section = experiment.section(setup, runner.results)
    blocks = [*section.blocks, *(Paragraph(note) for note in sorted(notes))]
    return Section(section.name, section.title, blocks, section.claims, section.finding)


def _introduction(setup: Setup, shown: list[str]) -> list[Sequence[Part]]:
    which = "Every table and figure" if len(shown) == len(EXPERIMENTS) else ", ".join(shown)
    paper: list[Part] = [
        f"{which} of Seraghiti, Awari, Vandaele, Porcelli and Gillis, ",
        Link(
            "“Accelerated algorithms for nonlinear matrix decomposition with the ReLU function”",
            "https://arxiv.org/abs/2305.08687",
        ),
        (
            " (MLSP 2023), reproduced with relunmd. X ≈ max(0, WH); the error is E = ‖X − max(0, WH)‖ / ‖X‖. Every "
            "algorithm gets the same X in float64 and the same initial factors; only its own work is timed, "
            "and scoring is not."
        ),
    ]
    quick = " --quick" * setup.quick
    names = "all" if len(shown) == len(EXPERIMENTS) else " ".join(shown)
    how: list[Part] = ["Made with ", Code(f'make reproduce ARGS="{names}{quick} --seed {setup.seed} -o FOLDER"'), "."]
    if setup.quick:
        fewer = " and 5 000 images for 50 000" if {"fig1b", "fig2"} & set(shown) else ""
        how.append(f" A quick run: fewer repetitions, shorter times{fewer}, so no verdict is final.")
    if setup.added:
        how.append(f" Added to the paper's algorithms: {', '.join(contender.label for contender in setup.added)}.")
    return [paper, how]
