"""Every experiment from plan to report on small matrices, and the verdicts on made-up results."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

import relunmd
import reproduction
from relunmd import comparison, datasets
from relunmd.algorithm import ALGORITHMS
from relunmd.comparison.comparison_display import ComparisonDisplay
from relunmd.comparison.comparison_result import error_at
from relunmd.comparison.report.content import Strong, Table
from relunmd.comparison.result_file import Matrix
from relunmd.errors import DatasetError, InputError, MissingDependencyError
from relunmd.plot import style
from relunmd.plot.chart import PAPER, line_styles
from reproduction import (
    basis,
    counts,
    curves,
    fig1a,
    fig1b,
    fig2,
    fig3,
    fig4,
    table1,
    table2,
    table3,
    table4,
)
from reproduction.__main__ import main
from reproduction.experiment import SIX, Setup, added
from tests.conftest import needs_data

ROOT = Path(__file__).parents[2]
NAMES = ["table1", "table2", "table3", "table4", "fig1a", "fig1b", "fig2", "fig3", "fig4"]


def report_of(page):
    """The Markdown beside a page."""
    return page.with_name("report.md").read_text(encoding="utf-8")


def quiet():
    return ComparisonDisplay(Console(quiet=True))


@pytest.fixture(autouse=True)
def coarse_pictures(monkeypatch):
    """Figures of fewer dots, which are written in a fraction of the time."""
    figure = style.figure

    def coarse(*given, **more):
        drawn, axes = figure(*given, **more)
        drawn.set_dpi(30)
        return drawn, axes

    monkeypatch.setattr(style, "figure", coarse)


@pytest.fixture
def small_experiments(monkeypatch):
    """The nine experiments on small matrices for fractions of a second."""
    monkeypatch.setattr(table1, "TABLE1", {(40, 3): {"random": 0.95, "tsvd": 0.5, "nuclear": 0.5}})
    column = {"Naive": (1, 90), "A-Naive": (1, 40), "A-NMD": (1, 30), "3B-NMD": (1, 25), "EM": (1, 90), "A-EM": (1, 40)}
    for sizes, tables in (((40, 60), (table2._TABLE, table3._TABLE, table3._ALL)), ((44, 64), (table4._TABLE,))):
        for table in tables:
            monkeypatch.setattr(table, "paper", dict.fromkeys(sizes, column))
            monkeypatch.setattr(table, "shape", lambda n: (n, 3))
    monkeypatch.setattr(counts, "TARGET", 1e-2)
    images = Matrix("few images", (30, 25), lambda: datasets.planted(30, 25, 4, 0.7, 0))
    monkeypatch.setattr(fig1a, "_curves", lambda setup: curves.Curves("fig1a", images, 0.05, 2, rank=3))
    monkeypatch.setattr(fig1b, "_curves", lambda setup: curves.Curves("fig1b", images, 0.051, 1, rank=3))
    monkeypatch.setattr(fig2, "_choices", lambda setup: (images, (2, 4), 0.05))
    monkeypatch.setattr(basis, "COMPONENTS", 12)
    monkeypatch.setattr(fig3, "ranks", lambda setup: (3, 5))
    monkeypatch.setattr(fig3, "seconds", lambda setup: 0.05)
    monkeypatch.setattr(fig3, "SHOWN", 5)
    monkeypatch.setattr(fig4, "RANK", 5)
    monkeypatch.setattr(datasets, "cbcl", lambda data=None: np.random.default_rng(0).random((361, 40)))


@pytest.fixture
def own_method():
    comparison.register("my own")(improving_any_rank)
    yield
    comparison.unregister("my own")


def improving_any_rank(X, W, H):
    rank = W.shape[1]
    while True:
        Z = np.where(X > 0, X, np.minimum(0, W @ H))
        U, s, Vt = np.linalg.svd(Z, full_matrices=False)
        W, H = U[:, :rank] * s[:rank], Vt[:rank]
        yield W, H


class TestAll:
    def test_from_plan_to_report_with_a_method_of_ones_own(self, tmp_path, small_experiments, own_method):
        page = reproduction.reproduce(["all"], tmp_path, quick=True, display=quiet())
        path = page.with_name("report.md")
        text = path.read_text(encoding="utf-8")
        assert page.read_text(encoding="utf-8").count("my own") > 20
        for heading in (
            "Table 1",
            "Table 2",
            "Table 3",
            "Table 4",
            "Figure 1a",
            "Figure 1b",
            "Figure 2",
            "Figure 3",
            "Figure 4",
        ):
            assert f"## {heading}" in text
        pictures_shown = re.findall(r"!\[.+?\]\((.+?)\)", text)
        assert sorted(pictures_shown) == sorted(
            ["fig1a.png", "fig1a-all.png", "fig1b.png", "fig1b-all.png", "fig2.png", "fig3.png", "fig4.png"]
        )
        for picture in pictures_shown:
            assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
        sections = dict(re.findall(r"## ((?:Table|Figure) \w+).*?\n(.*?)(?=\n## |\Z)", text, re.DOTALL))
        for name, section in sections.items():
            assert name == "Table 1" or "my own" in section, name
        ours = [name for name in ALGORITHMS if name not in PAPER]
        assert f"Added to the paper's algorithms: {', '.join([*ours, 'my own'])}" in text
        claims = re.findall(r"^\| (\w+) \| .+ \| (confirmed|\*\*not confirmed\*\*) \|$", text, re.MULTILINE)
        assert {name for name, _ in claims} == set(NAMES)
        assert len(claims) == 18
        assert "not seen" not in text
        assert "nan" not in text

        lines = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(
            {
                json.dumps(
                    [
                        json.loads(line)[k]
                        for k in ("matrix", "rank", "seed", "init", "max_time", "contender", "settings")
                    ]
                )
                for line in lines
            }
        ) == len(lines)
        path.unlink()
        reproduction.reproduce(["table1"], tmp_path, quick=True, display=quiet())  # The others are there in full.
        assert (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines() == lines
        assert path.read_text(encoding="utf-8") == text

    def test_without_data_the_others_run_on(self, tmp_path, small_experiments, monkeypatch):
        def absent(data=None):
            raise DatasetError("put CBCL.mat there")

        monkeypatch.setattr(datasets, "cbcl", absent)
        text = report_of(reproduction.reproduce(["table1", "fig3", "fig4"], tmp_path, display=quiet()))
        assert text.count("put CBCL.mat there") == 2
        assert text.count("Not run.") == 2
        assert "| 40 | 3 |" in text

    def test_a_failing_method_is_named(self, tmp_path, small_experiments):
        def broken(X, W, H):
            raise RuntimeError("not yet written")

        comparison.register("broken")(broken)
        try:
            text = report_of(reproduction.reproduce(["table4"], tmp_path, quick=True, display=quiet()))
        finally:
            comparison.unregister("broken")
        assert "broken failed: RuntimeError: not yet written" in text
        assert "| broken |" not in text
        assert "| 44 | 3B-NMD |" in text

    def test_without_matplotlib_it_says_so(self, tmp_path, small_experiments, monkeypatch):
        def missing(*size, **options):
            raise MissingDependencyError("Pictures need matplotlib")

        monkeypatch.setattr(style, "figure", missing)
        page = reproduction.reproduce(["fig1a", "fig2", "fig3", "fig4"], tmp_path, quick=True, display=quiet())
        text = report_of(page)
        assert text.count("Pictures need matplotlib") == 1
        assert text.count("This chart needs matplotlib") == 4  # Figure 1a has a second one, of all algorithms.
        assert page.read_text(encoding="utf-8").count("This chart needs matplotlib") == 6
        assert "| r | 3B-NMD | A-NMD |" in text
        assert "outside of the parts" in text

    def test_seeds_give_other_matrices_and_starts(self, tmp_path):
        for name in NAMES:
            zero, one = (
                {run.key for run in reproduction.EXPERIMENTS[name].runs(Setup(tmp_path, True, seed))} for seed in (0, 1)
            )
            assert not zero & one

    @pytest.mark.parametrize(("names", "seed"), [([], 0), (["table9"], 0), (["all"], -1)])
    def test_bad_arguments(self, tmp_path, names, seed):
        with pytest.raises(InputError):
            reproduction.reproduce(names, tmp_path, seed=seed)


def test_a_comparison_and_a_reproduction_do_not_mix(tmp_path):
    out = tmp_path / "out"

    def compare():
        relunmd.compare(datasets.digits()[:50], 2, out, algorithms=["qn"], max_iter=2, display=quiet())

    compare()
    with pytest.raises(InputError, match=r"a folder for the paper's experiments; .*out has the report of a comparison"):
        reproduction.reproduce(["table1"], out, quick=True, display=quiet())
    (out / "comparison.json").unlink()
    with pytest.raises(InputError, match=r"a folder for a comparison; .*out has the report of the paper's"):
        compare()


def test_a_new_algorithm_of_the_library_joins_by_itself(monkeypatch):
    class Newest(ALGORITHMS["3b"]):
        name = "newest"

    monkeypatch.setitem(ALGORITHMS, "newest", Newest)
    assert [c.label for c in added()] == [name for name in ALGORITHMS if name not in PAPER]
    assert added()[-1].label == "newest"


class TestPlan:
    """The full plan is the paper's."""

    def cases(self, name, quick=False):
        return reproduction.EXPERIMENTS[name].runs(Setup(Path("unused"), quick))

    def test_names(self):
        assert list(reproduction.EXPERIMENTS) == NAMES

    @pytest.mark.parametrize(("name", "settings", "contenders"), [("table2", 4, 4), ("table3", 4, 4), ("table4", 4, 4)])
    def test_tables(self, name, settings, contenders):
        runs = self.cases(name)
        assert len(runs) == settings * contenders * 25
        assert len({run.key for run in runs}) == len(runs)
        assert {run.limits.target_error for run in runs} == {1e-4}
        assert {run.init for run in runs} == {"nuclear"}
        one = [run for run in runs if run.contender.label == "A-NMD" and run.rank == 32][:25]
        assert len({case.matrix.name for case in one}) == 5
        assert len({case.seed for case in one}) == 25

    def test_guesses_of_the_time_are_sane(self):
        """A quick run of everything takes about seven minutes, a full one about an hour and a half."""
        for quick, least, most in ((True, 3, 15), (False, 40, 150)):
            runs = {run.key: run for name in NAMES for run in self.cases(name, quick)}.values()
            starts = {(run.matrix, run.rank, run.init, run.seed): run for run in runs}
            seconds = sum(run.expected_seconds for run in runs) + sum(
                run.expected_initialization for run in starts.values()
            )
            assert least < seconds / 60 < most

    def test_sizes_and_ranks(self):
        assert {run.matrix.shape[0] for run in self.cases("table3")} == {500, 1000, 1500, 2000}
        assert {run.rank for run in self.cases("table4")} == {8, 16, 32, 64}
        assert {
            run.contender.settings["alpha"] for run in self.cases("table2") if "A-Naive" in run.contender.label
        } == {0.7, 0.5}

    def test_figures(self):
        (small,) = {run.matrix for run in self.cases("fig1a")}
        (large,) = {run.matrix for run in self.cases("fig1b")}
        assert (small.shape, large.shape) == ((500, 784), (50000, 784))
        assert {run.limits.max_time for run in self.cases("fig1a")} == {10}
        assert {run.limits.max_time for run in self.cases("fig1b")} == {20}
        assert {run.contender.label for run in self.cases("fig1a")} == {c.label for c in SIX} | {"TSVD"}
        assert {run.rank for run in self.cases("fig2")} == {8, 16, 32, 64, 128, 256}
        assert {run.rank for run in self.cases("fig3")} == {8, 12, 16, 20, 24}
        assert {run.limits.max_time for run in self.cases("fig3")} == {20}
        assert {run.key for run in self.cases("fig4")} <= {run.key for run in self.cases("fig3")}

    @needs_data
    def test_matrices_are_what_they_say(self, data_folder):
        runs = reproduction.EXPERIMENTS["fig1a"].runs(Setup(Path("unused"), False, 0, data_folder))
        X = runs[0].matrix.load()
        assert X.shape == (500, 784)
        assert X.max() == 255


ALL = {"A-NMD": 20, "3B-NMD": 10, "EM": 90, "A-EM": 40, "Naive": 90, "A-Naive": 40, "A-Naive, α = 0.5": 45}
"""Made-up iterations."""


class FakeResults:
    """Records made up from a run."""

    def __init__(self, make):
        self.make = make

    def get(self, run):
        return self.make(run)


class TestVerdicts:
    def lines(self, counts_by_label, error=5e-5, made=lambda run: True):
        def make(run):
            n = counts_by_label.get(run.contender.label)
            return {"n_iter": n, "time": n / 100, "error": error} if n and made(run) else None

        return table3._TABLE.lines(Setup(Path("unused"), True), FakeResults(make))

    @pytest.mark.parametrize(
        ("label", "count", "verdict"),
        [
            ("3B-NMD", 26, True),  # The paper: 23
            ("3B-NMD", 27, False),
            ("3B-NMD", 19, False),
            ("A-NMD", 10, True),  # 33; it may need fewer
            ("A-NMD", 40, False),
            ("EM", 116, True),  # 101
            ("EM", 117, False),
        ],
    )
    def test_within_fifteen_percent(self, label, count, verdict):
        (line,) = [line for line in self.lines({label: count}) if line.at == 500]
        assert line.faithful is verdict

    def test_the_table_says_so(self):
        setup = Setup(Path("unused"), True)
        lines = self.lines({"A-NMD": 20, "3B-NMD": 30, "EM": 90, "A-EM": 40})
        paragraph, table, *notes = table3._TABLE.blocks(setup, lines)
        assert "2 matrices × 1 seed (5 × 5 without --quick)" in paragraph.text
        rows = {(row[0], row[1]): row[2:] for row in table.rows}
        assert rows["500", "A-NMD"] == ["33", "20.0", "20–20", "-39.4%", "fewer", "1.00", "1.00"]
        assert rows["500", "3B-NMD"] == ["23", "30.0", "30–30", "+30.4%", Strong("no"), "0.12", "1.50"]
        assert "3B-NMD at n = 500 (+30.4%)" in notes[0].text
        assert notes[1].text == counts.A_NMD_NEEDS_FEWER

    def test_what_did_not_reach_the_target_is_not_faithful(self):
        lines = self.lines({"EM": 2000}, error=1e-3)
        assert all(line.faithful is False for line in lines)
        _, table, note = table3._TABLE.blocks(Setup(Path("unused"), True), lines)
        assert {row[3] for row in table.rows} == {"not reached in 2"}
        assert "EM at n = 500 (not reached)" in note.text

    def test_a_cell_with_a_failed_run_gets_no_verdict(self):
        lines = self.lines({"EM": 101}, made=lambda run: run.seed == 0)
        assert all(line.faithful is None for line in lines)
        _, table = table3._TABLE.blocks(Setup(Path("unused"), True), lines)
        assert {row[3] for row in table.rows} == {"1 of 2 runs"}

    @pytest.mark.parametrize(
        ("changes", "three_block", "a_nmd"),
        [
            ({}, True, True),
            ({"3B-NMD": 25}, False, True),
            ({"3B-NMD": 20}, False, True),  # A tie is no lead.
            ({"A-NMD": 50}, True, False),
            ({"EM": None}, None, True),
        ],
    )
    def test_faster(self, changes, three_block, a_nmd):
        lines = self.lines(ALL | changes)
        assert counts.faster(lines, "3B-NMD", ("A-NMD", "EM", "A-EM"), "").holds is three_block
        assert counts.faster(lines, "A-NMD", ("A-EM",), "").holds is a_nmd

    def test_a_favourite_that_missed_the_target_is_not_confirmed(self):
        def make(run):
            favourite = run.contender.label == "3B-NMD"
            missed = favourite and run.matrix.shape[0] == 2000
            return {"n_iter": 20, "time": 0.1 if favourite else 1, "error": 1.0 if missed else 5e-5}

        section = table3._section(Setup(Path("unused"), True), FakeResults(make))
        assert [claim.holds for claim in section.claims] == [False, False, False]  # The last is a tie.

    @pytest.mark.parametrize(("a_nmd", "holds"), [(20, True), (44, False)])
    def test_table_2(self, a_nmd, holds):
        def make(run):
            n = (ALL | {"A-NMD": a_nmd})[run.contender.label]
            return {"n_iter": n, "time": n, "error": 5e-5}

        section = table2._section(Setup(Path("unused"), True), FakeResults(make))
        assert section.claims[0].holds is holds
        said = section.blocks[-1].text
        assert "needs 40.0, 40.0, 40.0, 40.0 iterations with 0.7 and 45.0, 45.0, 45.0, 45.0 with 0.5" in said
        assert "the paper reports 44, 33, 29, 28" in said

    def test_nothing_run_is_not_seen(self):
        section = table3._section(Setup(Path("unused"), True), FakeResults(lambda run: None))
        assert [claim.holds for claim in section.claims] == [None, None, None]

    @pytest.mark.parametrize("name", NAMES)
    def test_without_results_every_claim_stands_there_as_not_seen(self, tmp_path, name):
        nothing = FakeResults(lambda run: None)
        nothing.has = lambda run: False
        section = reproduction.EXPERIMENTS[name].section(Setup(tmp_path), nothing)
        assert section.claims
        assert all(claim.holds is None for claim in section.claims)

    def test_start_errors(self):
        def make(run, worse=0.0):
            (wanted,) = [v for (n, r), v in table1.TABLE1.items() if (n, r) == (run.matrix.shape[0], run.rank)]
            return {"start_error": wanted[run.init] + worse}

        setup = Setup(Path("unused"))
        good = table1._section(setup, FakeResults(make))
        bad = table1._section(setup, FakeResults(lambda run: make(run, 0.02)))
        assert {row[-1] for row in good.blocks[1].rows} == {"yes"}
        assert {row[-1] for row in bad.blocks[1].rows} == {Strong("no")}
        assert good.claims[0].holds
        swapped = {"random": "tsvd", "tsvd": "random", "nuclear": "nuclear"}
        shuffled = FakeResults(lambda run: {"start_error": table1.TABLE1[500, 8][swapped[run.init]]})
        assert table1._section(setup, shuffled).claims[0].holds is False

    def curve(self, errors, early=1):
        return {
            "curve": {"time": [0, early, 5], "error": errors},
            "error": min(errors[1:]),
            "n_iter": 2,
            "time": 5,
            "start_error": errors[0],
            "start_time": 1,
        }

    @pytest.mark.parametrize("winner", ["A-NMD", "3B-NMD"])
    @pytest.mark.parametrize("first", ["A-NMD", "3B-NMD", None])
    def test_figure_1(self, tmp_path, winner, first):
        def make(run):
            label = run.contender.label
            if label == "TSVD":
                return {"error": 0.6 if winner == "A-NMD" else 0.22}
            last = 0.1 if label == winner else 0.2
            return self.curve([0.5, 0.3 if label == first else 0.4, last], early=0.05)

        setup = Setup(tmp_path)
        early, late, baseline = fig1a._section(setup, FakeResults(make)).claims
        ahead, both = fig1b._section(setup, FakeResults(make)).claims
        assert early.holds is (first == "3B-NMD")
        assert late.holds is (winner == "A-NMD")
        assert baseline.holds is (winner == "A-NMD")
        assert ahead.holds is (winner == "3B-NMD")
        assert both.holds is False  # One of them is level with A-EM.
        said = fig1b._section(setup, FakeResults(make)).blocks[-1].text
        assert "takes 1.0 times as long" in said
        if first == "3B-NMD":
            ahead_from = r"A-NMD is ahead of 3B-NMD for good from 5\.[01] s"
            assert re.match(ahead_from if winner == "A-NMD" else "A-NMD does not catch up", said)
        assert (tmp_path / "fig1a.png").exists()
        assert not (tmp_path / "fig1a-all.png").exists()

    def test_figure_1_with_one_of_the_six_missing(self, tmp_path):
        def make(run):
            return None if run.contender.label == "EM" else self.curve([0.5, 0.4, 0.3])

        section = fig1a._section(Setup(tmp_path), FakeResults(make))
        assert [claim.holds for claim in section.claims] == [None, None, None]
        (table,) = [block for block in section.blocks if isinstance(block, Table)]
        assert "EM" not in [row[0] for row in table.rows]

    @pytest.mark.parametrize(
        ("errors", "times", "holds"),
        [
            ((0.3, 0.35, 0.36), (1, 2, 3), [True, True, True]),
            ((0.35, 0.3, 0.36), (1, 2, 3), [True, False, True]),
            ((0.3, 0.35, 0.45), (1, 2, 3), [False, True, True]),  # Above 0.8 of TSVD's 0.5.
            ((0.3, 0.35, 0.36), (2, 1, 3), [True, True, False]),
        ],
    )
    def test_figure_2(self, tmp_path, errors, times, holds):
        labels = ("3B-NMD", "A-NMD", "A-EM", "TSVD")
        error = dict(zip(labels, (*errors, 0.5), strict=True))
        seconds = dict(zip(labels, (*times, 1), strict=True))

        def make(run):
            label = run.contender.label
            return {"error": error[label], "time": seconds[label], "n_iter": 1}

        section = fig2._section(Setup(tmp_path), FakeResults(make))
        assert [claim.holds for claim in section.claims] == holds

    def test_who_finished_no_iteration_gets_a_dash(self, tmp_path):
        """And nothing can be said about what its iterations cost."""

        def make(run):
            slow = run.contender.label == "A-EM"
            return {"error": 0.3, "time": 0 if slow else 1, "n_iter": 0 if slow else 1}

        section = fig2._section(Setup(tmp_path), FakeResults(make))
        assert [claim.holds for claim in section.claims] == [None, None, None]
        assert {row[-1] for row in section.blocks[-1].rows} == {"–"}

    def test_error_at_is_the_smallest_of_a_finished_iteration(self):
        times = np.array([0.5, 1.0, 4.9, 5.0, 9.0])
        np.testing.assert_array_equal(error_at(self.curve([0.5, 0.3, 0.1]), times), [0.5, 0.3, 0.3, 0.1, 0.1])
        np.testing.assert_array_equal(error_at(self.curve([0.2, 0.3, 0.4]), times), [0.2, 0.3, 0.3, 0.3, 0.3])

    @pytest.mark.parametrize("best", ["A-NMD", "EM"])
    def test_figure_3(self, best):
        labels = [*(c.label for c in SIX), "TSVD"]
        on_basis = {label: {8: 0.5, 20: 0.1 if label == best else 0.2} for label in labels}
        for label in labels:
            on_basis[label][8] = 0.3 if label == best else 0.5
        on_basis["TSVD"] = {8: 0.9, 20: 0.75}
        on_faces = {label: {8: 0.3, 20: 0.06} for label in labels}
        claims = fig3._claims(on_basis, on_faces, 0.055, (8, 20))
        assert [claim.holds for claim in claims] == [best == "A-NMD", True, True]
        assert fig3._claims(on_basis, on_faces, 0.03, (8, 20))[2].holds is False
        on_basis["TSVD"][20] = 0.65
        assert fig3._claims(on_basis, on_faces, 0.03, (8, 20))[1].holds is False
        del on_basis["EM"]
        assert [claim.holds for claim in fig3._claims(on_basis, on_faces, 0.03, (8, 20))] == [None, None, None]

    @pytest.mark.parametrize(("smear", "holds"), [(0.1, True), (0.3, False)])
    def test_figure_4(self, smear, holds):
        (claim,) = fig4._claims({"TSVD": 0.6, "A-NMD": 0.05, "3B-NMD": smear})
        assert claim.holds is holds
        assert fig4.smear(np.array([[3.0, 0], [4, 0]]), np.array([[9.0, 1], [9, 2]])) == pytest.approx(5**0.5 / 5)


class TestReport:
    def test_looks_can_be_told_in_grey(self):
        labels = [*(c.label for c in SIX), "TSVD", "qn", "another"]
        found = line_styles(labels)
        assert len({(one.dashes, one.marker) for one in found.values()}) == len(labels)
        assert line_styles(["A-NMD"])["A-NMD"] == found["A-NMD"]

    def test_the_mosaic_has_every_column_in_its_place(self):
        U = np.random.default_rng(0).random((361, 12))
        sheet = fig4.mosaic(U)
        assert sheet.shape == (41, 201)
        np.testing.assert_allclose(sheet[21:40, 1:20], U[:, 10].reshape(19, 19, order="F") / U[:, 10].max())


class TestCommand:
    def test_a_table(self, tmp_path, small_experiments):
        done = CliRunner().invoke(main, ["table1", "--quick", "-o", str(tmp_path / "out"), "--seed", "3"])
        assert done.exit_code == 0, done.output
        assert done.stdout == f"{tmp_path / 'out' / 'report.html'}\n"
        assert "--seed 3" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")

    @pytest.mark.parametrize(
        ("arguments", "word"),
        [
            (["table7"], "table7"),
            (["all", "--seed", "-1"], "-1"),
            (["all", "--data", "/not/there"], "/not/there"),
            (["table1", "-o", "there"], "has other files, such as report.md"),
        ],
    )
    def test_bad_arguments(self, arguments, word, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "there").mkdir()
        (tmp_path / "there" / "report.md").write_text("of something else")
        output = [] if "-o" in arguments else ["-o", "out"]
        done = CliRunner().invoke(main, [*arguments, *output])
        assert (tmp_path / "there" / "report.md").read_text() == "of something else"
        assert done.exit_code == 2
        assert word in done.output

    def test_a_foreign_folder(self, tmp_path, small_experiments):
        (tmp_path / "results.jsonl").write_text("my diary\n")
        done = CliRunner().invoke(main, ["table1", "-o", str(tmp_path)])
        assert done.exit_code == 2
        assert "line 1 is not one" in done.output
        assert "Traceback" not in done.output

    def test_ctrl_c(self, tmp_path):
        """A real signal in the middle of a run."""
        out = tmp_path / "out"
        command = [sys.executable, "-m", "reproduction", "table1", "--quick", "-o", str(out)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while process.stderr.readline() and not (out / "results.jsonl").stat().st_size:
            pass
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert errors.strip().endswith(f"Interrupted. The same command resumes from {out}.")
        assert "It was interrupted" in (out / "report.md").read_text(encoding="utf-8")  # Of what there is.
        lines = (out / "results.jsonl").read_bytes().splitlines()
        assert 1 <= len(lines) < 24
        assert all(json.loads(line)["contender"] == "initialization only" for line in lines)

    def test_an_existing_readme_is_left_alone(self, tmp_path, small_experiments):
        (tmp_path / "README.md").write_text("my project")
        done = CliRunner().invoke(main, ["table1", "--quick", "-o", str(tmp_path)])
        assert done.exit_code == 2
        assert "has other files, such as README.md" in done.stderr
        assert (tmp_path / "README.md").read_text() == "my project"
