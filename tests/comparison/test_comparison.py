"""Comparisons: the same start for all, what came out, resumed, in the report, and refused where they must be."""

import csv
import io
import json
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from rich.console import Console
from scipy import sparse
from sklearn.decomposition import NMF

import relunmd
from relunmd import ANMD, comparison, datasets
from relunmd.algorithm import ALGORITHMS
from relunmd.comparison import comparison_result, image_detection, matrix_comparison
from relunmd.comparison.comparison_display import ComparisonDisplay
from relunmd.comparison.comparison_report import finding
from relunmd.comparison.contenders import NMF as NMF_CONTENDER
from relunmd.comparison.timed_run import Evaluator
from relunmd.engine.problem_setup import check_matrix
from relunmd.errors import FileError, InputError
from relunmd.plot import style
from tests.comparison.conftest import improving, silent
from tests.conftest import needs_data, relative_error, synthetic

X = synthetic(60, 36, 4, 1)


def compared(X=X, ranks=(2, 4), output="out", **options):
    options = {"algorithms": ["qn", "3b"], "max_time": None, "max_iter": 8, "display": silent()} | options
    return relunmd.compare(X, ranks, output, **options)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("found") / "out"
    return compared(datasets.digits()[:120], [3, 6], folder, algorithms=["qn", "3b", "em"], max_iter=15, starts=2)


def made_up(errors, to_come=()):
    """A comparison with these errors by rank and label, each reached after one second."""
    runs = [
        {"rank": rank, "algorithm": label, "seed": 0, "error": e, "n_iter": 1, "start_error": 1.0, "factors": None,
         "curve": {"time": [0, 1], "error": [1.0, e]}}
        for rank, by_label in errors.items() for label, e in by_label.items()
    ]  # fmt: skip
    labels = tuple(dict.fromkeys(run["algorithm"] for run in runs))
    return relunmd.Comparison("X", (9, 9), tuple(errors), labels, runs, {}, [], list(to_come), None, Path("nowhere"))


class TestWhatIsRun:
    def test_everything_by_default(self):
        found = compared(ranks=3, algorithms=None, max_iter=2)
        names = {run["settings"].get("algorithm", run["algorithm"]) for run in found.runs}
        assert names == {*ALGORITHMS, "NMF"}
        assert len(found.runs) == len(ALGORITHMS) + 1

    def test_all_have_the_same_start(self):
        found = compared(starts=2, algorithms=["naive", "em", "qn"])
        for rank in (2, 4):
            for seed in (0, 1):
                starts = {run["start_error"] for run in found.runs if (run["rank"], run["seed"]) == (rank, seed)}
                assert len(starts) == 1
            wanted = relunmd.decompose(X, rank, "qn", init="shifted", random_state=1, max_iter=0).error
            assert starts.pop() == pytest.approx(wanted, rel=1e-9)

    def test_the_errors_are_those_of_decompose(self):
        found = compared(seed=3)
        for name, label in (("qn", "qn"), ("3b", "3B-NMD")):
            d = relunmd.decompose(X, 4, name, init="shifted", random_state=3, max_iter=8, tol=0)
            assert found.errors()[label][4] == pytest.approx(min(d.history.error[1:]), rel=1e-6)
        assert found.errors()["TSVD"][4] == pytest.approx(relunmd.decompose(X, 4, "tsvd").error, rel=1e-6)

    def test_nmf_is_scikit_learns(self):
        found = compared(max_iter=30)
        model = NMF(4, init="nndsvda", max_iter=30, tol=0, random_state=0)
        W = model.fit_transform(X)
        assert found.errors()["NMF"][4] == pytest.approx(relative_error(X, W, model.components_), rel=1e-6)

    @pytest.mark.parametrize(
        "stored", [sparse.csr_array, sparse.csc_matrix, "hdf5", "stored csr", "memmap", np.float32, "frame"]
    )
    def test_any_kind_of_X_gives_the_same(self, stored, folder, monkeypatch):
        rounded = X.astype(np.float32)
        wanted = compared(rounded.astype(np.float64), 3, "wanted").errors()
        if stored == "hdf5":
            with h5py.File("X.h5", "w") as file:
                file["X"] = rounded
            with h5py.File("X.h5") as file:
                found = compared(file["X"], 3)
        elif stored == "stored csr":
            monkeypatch.setattr(Evaluator, "dense", None)
            with h5py.File("X.h5", "w") as file:
                csr = sparse.csr_array(rounded)
                file["data"], file["indices"], file["indptr"] = csr.data, csr.indices, csr.indptr
                file.attrs["shape"] = csr.shape
                found = compared(file, 3)
        elif stored == "memmap":
            np.save("X.npy", rounded)
            found = compared(np.load("X.npy", mmap_mode="r"), 3)
        elif stored == "frame":
            pandas = pytest.importorskip("pandas")
            found = compared(pandas.DataFrame(rounded), 3)
        else:
            found = compared(stored(rounded) if stored is not np.float32 else rounded, 3)
        assert found.errors().keys() == wanted.keys()
        for label, by_rank in wanted.items():
            assert found.errors()[label][3] == pytest.approx(by_rank[3], rel=1e-5), label
        assert not found.notes

    def test_sparse_is_not_made_dense_for_our_own(self, monkeypatch):
        def dense(self):
            raise AssertionError("made dense")

        monkeypatch.setattr(Evaluator, "dense", dense)
        found = compared(sparse.csr_array(X), 3, algorithms=["qn", "3b-factored"])
        assert set(found.errors()) == {"qn", "3b-factored", "TSVD", "NMF"}
        assert not found.notes

    def test_settings_and_contenders(self):
        bold = comparison.built_in(ANMD(beta0=0.9), "bold")
        found = compared(algorithms=["3B-NMD", ANMD(), bold, "auto"])
        assert found.labels == ("3B-NMD", "A-NMD", "bold", "qn", "TSVD", "NMF")

    def test_a_registered_method_is_in_python_command_and_page(self, folder):
        from click.testing import CliRunner

        from relunmd.cli import main

        comparison.register("my <own>")(improving)
        np.save("X.npy", X)
        try:
            by_name = compared(ranks=3, algorithms=["My <own>"], output="a")
            everyone = compared(ranks=3, algorithms=None, output="b", max_iter=2)
            done = CliRunner().invoke(
                main, ["compare", "X.npy", "-r", "3", "--max-iter", "2", "-o", "c"], catch_exceptions=False
            )
        finally:
            comparison.unregister("my <own>")
        assert by_name.labels[0] == "my <own>"
        assert "my <own>" in everyone.labels
        assert done.exit_code == 0
        for name in "abc":
            assert "my &lt;own&gt;" in (folder / name / "report.html").read_text(encoding="utf-8")
            assert "my &lt;own&gt;" in (folder / name / "report.md").read_text(encoding="utf-8")
            assert "my <own>" in (folder / name / "comparison.csv").read_text(encoding="utf-8")

    def test_a_new_algorithm_needs_no_change(self, monkeypatch):
        """One that is in the registry is compared, under its name."""
        from dataclasses import dataclass
        from typing import ClassVar

        @dataclass(frozen=True)
        class Newest(ALGORITHMS["naive"]):
            name: ClassVar[str] = "newest"

        monkeypatch.setitem(ALGORITHMS, "newest", Newest)
        found = compared(ranks=3, algorithms=None, max_iter=2)
        assert "newest" in found.errors()
        assert "newest" in found.page.read_text(encoding="utf-8")

    def test_what_fails_is_noted_and_the_others_run_on(self):
        def failing(X, W, H):
            raise RuntimeError("no <ideas>")
            yield

        comparison.register("failing")(failing)
        try:
            found = compared(algorithms=["failing", "qn"], ranks=3)
        finally:
            comparison.unregister("failing")
        (note,) = found.notes
        assert re.fullmatch(
            r"failing at rank 3 could not be run: RuntimeError: no <ideas> \(test_comparison\.py, line \d+\)\.", note
        )
        assert "no &lt;ideas&gt;" in found.page.read_text(encoding="utf-8")
        assert set(found.errors()) == {"qn", "TSVD", "NMF"}

    def test_who_finishes_no_iteration_is_not_credited_with_the_start(self):
        found = compared(max_time=1e-9, max_iter=None, ranks=3)
        assert set(found.errors()) == {"TSVD"}
        (note,) = found.notes
        assert note.startswith("qn at rank 3, 3B-NMD at rank 3, NMF at rank 3 finished no iteration: The time limit")
        assert "| 3 | NMF | – | – | – | – | – |" in (found.folder / "report.md").read_text(encoding="utf-8")
        assert found.table()[0]["error"] is None


class TestResuming:
    def test_what_is_there_is_not_made_again(self):
        out = io.StringIO()
        first = compared()
        lines = (first.folder / "results.jsonl").read_bytes()
        again = compared(display=ComparisonDisplay(Console(file=out, width=200)))
        assert "Every run has been made already." in out.getvalue()
        assert (first.folder / "results.jsonl").read_bytes() == lines
        assert again.runs == first.runs
        more = compared(ranks=[2, 3, 4], starts=2)
        assert more.ranks == (2, 3, 4)
        assert (first.folder / "results.jsonl").read_bytes().startswith(lines)

    def test_another_matrix_of_the_same_name_is_another(self):
        first = compared()
        Y = X.copy()
        Y[[0, 1]] = Y[[1, 0]]  # The same sums.
        again = compared(Y)
        records = [json.loads(line) for line in (first.folder / "results.jsonl").read_text().splitlines()]
        assert len(records) == 2 * len(first.runs)
        assert len(again.runs) == len(first.runs)

    def test_ctrl_c_leaves_a_report_of_what_there_is(self):
        def pressed(X, W, H):
            yield W, H
            raise KeyboardInterrupt

        comparison.register("pressed")(pressed)
        try:
            with pytest.raises(KeyboardInterrupt):
                compared(algorithms=["qn", "pressed", "3b"], ranks=3)
        finally:
            comparison.unregister("pressed")
        found = relunmd.Comparison.load("out")
        assert [run["algorithm"] for run in found.runs] == ["qn"]
        assert found.notes == ["It was interrupted: 4 of 5 runs are missing."]
        assert finding(found).startswith("Of what has been run so far: At rank 3 qn has the smallest error")
        assert "interrupted" in found.page.read_text(encoding="utf-8")

    def test_load_is_what_was_returned(self):
        found = compared(starts=2)
        again = relunmd.Comparison.load("out")
        assert again.errors() == found.errors()
        assert again.curves(4) == found.curves(4)
        assert again.settings == found.settings
        assert again.factors(4).keys() == found.factors(4).keys() == {"qn", "3B-NMD", "TSVD", "NMF"}

    @pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"shape": 3}'])
    def test_load_of_something_else(self, folder, text):
        (folder / "comparison.json").write_text(text)
        with pytest.raises(FileError, match="must be a file written by a comparison"):
            relunmd.Comparison.load(folder)

    def test_load_looks_at_no_other_files(self):
        compared()
        path = Path("out/comparison.json")
        facts = json.loads(path.read_text())
        facts["runs"][0]["factors"] = "../../secret.npz"
        path.write_text(json.dumps(facts))
        with pytest.raises(FileError, match="secret"):
            relunmd.Comparison.load("out")


class TestWhatCameOut:
    def test_csv_and_json(self, found):
        with (found.folder / "comparison.csv").open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        assert len(rows) == len(found.runs) == 2 * (3 * 2 + 2)
        table = found.table()
        for row, run in zip(rows, table, strict=True):
            assert row["algorithm"] == run["algorithm"]
            assert float(row["error"]) == pytest.approx(run["error"], rel=1e-5)
        facts = json.loads((found.folder / "comparison.json").read_text(encoding="utf-8"))
        assert facts["runs"][0]["error"] == table[0]["error"]
        assert facts["settings"]["zeros"] == f"{(datasets.digits()[:120] == 0).mean():.1%}"

    def test_errors_are_means_over_the_starts(self, found):
        both = [run["error"] for run in found.runs if run["rank"] == 6 and run["algorithm"] == "qn"]
        assert len(both) == 2
        assert found.errors()["qn"][6] == pytest.approx(np.mean(both))
        assert found.ranking(6) == sorted(found.errors(), key=lambda label: found.errors()[label][6])
        assert list(found.errors()) == found.ranking(6)

    def test_curves_fall_from_the_start_to_the_error(self, found):
        for series in found.curves(6):
            y = [value for _, value in series.points]
            assert y[1:] == sorted(y[1:], reverse=True)
            if series.label != "NMF":
                assert series.points[0][0] == 0
                starts = [r["start_error"] for r in found.of(6, series.label)]
                assert y[0] == pytest.approx(np.mean(starts), rel=1e-5)
            assert y[-1] == pytest.approx(found.errors()[series.label][6], rel=1e-5)
        assert "TSVD" not in [series.label for series in found.curves(6)]

    def test_points_of_one_start_are_its_course(self):
        found = compared(ranks=3)
        (series,) = [one for one in found.curves(3) if one.label == "qn"]
        (run,) = found.of(3, "qn")
        assert [x for x, _ in series.points] == pytest.approx(run["curve"]["time"], rel=1e-5)

    def test_factors_have_the_errors(self, found):
        for label, (W, H) in found.factors(6).items():
            (run,) = [r for r in found.of(6, label) if r["seed"] == 0]
            assert relative_error(datasets.digits()[:120], W, H) == pytest.approx(run["error"], rel=1e-6)

    @pytest.mark.parametrize(
        ("errors", "said"),
        [
            (
                {"qn": 0.1, "EM": 0.15, "TSVD": 0.2, "NMF": 0.25},
                (
                    "At rank 4 qn has the smallest error, 0.1: 50% below the truncated SVD's 0.2 and 60% below "
                    "NMF's 0.25. It reaches the error of the next (EM, 0.15) after 1 s."
                ),
            ),
            (
                {"qn": 0.10000001, "EM": 0.1, "TSVD": 0.1, "NMF": 0.25},
                "At rank 4 EM, the truncated SVD and qn have the smallest error, 0.1: 60% below NMF's 0.25.",
            ),
            ({"qn": 0.0, "EM": 1e-17, "TSVD": 0.1}, "At rank 4 qn and EM are exact."),
            (
                {"TSVD": 0.1, "qn": 0.2, "NMF": 0.4},
                (
                    "At rank 4 the truncated SVD has the smallest error, 0.1: 75% below NMF's 0.4. "
                    "The best of the algorithms is qn, 0.2."
                ),
            ),
            (
                {"qn": 0.001, "TSVD": 0.2},
                "At rank 4 qn has the smallest error, 0.001: 200 times smaller than the truncated SVD's 0.2.",
            ),
            ({"qn": 0.1, "NMF": 0.2, "EM": 0.3}, "At rank 4 qn has the smallest error, 0.1: 50% below NMF's 0.2."),
            ({}, "No run has finished an iteration."),
        ],
    )
    def test_findings(self, errors, said):
        assert finding(made_up({4: errors})) == said

    def test_findings_at_several_ranks(self):
        two = {"qn": 0.1, "A-EM": 0.2}
        assert finding(made_up({2: two, 4: two, 8: two})).endswith("after 1 s. It is first at ranks 2 and 4 too.")
        assert finding(made_up({2: {"qn": 0.3, "A-EM": 0.2}, 8: two})).endswith(" At rank 2 A-EM is first.")
        unfinished = made_up({2: two, 8: {"qn": 0.1}}, to_come=[(8, "A-EM")])
        assert finding(unfinished).startswith("At rank 2 qn has the smallest error")
        assert made_up({8: two}, to_come=[(8, "qn")]).ranking(8) == ["A-EM"]

    def test_an_exact_fit_has_a_report(self):
        found = compared(np.ones((4, 4)), [1, 2], max_iter=3)
        assert "are exact." in found.page.read_text(encoding="utf-8")
        assert found.table()[0]["error / TSVD's"] is None or found.errors()["TSVD"][1] > 0

    def test_pictures_of_an_earlier_report_go(self, folder):
        compared(ranks=[2, 4])
        compared(ranks=[3])
        assert sorted(path.name for path in Path("out").glob("*.png")) == ["convergence_3.png", "spectrum.png"]

    def test_seconds_to_one_per_cent(self):
        run = {"error": 0.1, "curve": {"time": [0, 1, 2, 3, 4], "error": [1, 0.5, 0.1009, 0.3, 0.1]}}
        assert comparison_result.settling_time(run) == 2
        assert comparison_result.settling_time({"error": 1.0, "curve": {"time": [0], "error": [1]}}) is None

    def test_the_finding_says_who_is_first_and_by_how_much(self, found):
        said = finding(found)
        errors, best = found.errors(), found.ranking(6)[0]
        assert re.match(rf"At rank 6 {best}( and \S+)? ha(s|ve) the smallest error, {errors[best][6]:.4g}: ", said)
        assert (
            f"{1 - errors[best][6] / errors['TSVD'][6]:.0%} below the truncated SVD's {errors['TSVD'][6]:.4g}" in said
        )
        assert "rank 3" in said
        assert said in found.page.read_text(encoding="utf-8").replace("&#39;", "'")

    def test_the_report_has_it_all(self, found):
        text = (found.folder / "report.md").read_text(encoding="utf-8")
        pictures = re.findall(r"\]\((.+?\.png)\)", text)
        assert sorted(pictures) == [
            "components.png", "convergence_3.png", "convergence_6.png", "error_by_rank.png", "reconstructions.png",
            "spectrum.png",
        ]  # fmt: skip
        for picture in pictures:
            assert (found.folder / picture).read_bytes().startswith(b"\x89PNG")
        assert "over the seeds" in text
        assert "8 × 8 pixels, guessed from the data" in text
        assert text.count("| qn |") == 3  # At each rank, and what it is.
        page = found.page.read_text(encoding="utf-8")
        assert page.count('<svg class="chart wide"') == 4
        assert page.count("<img ") == 2

    def test_means_are_told_of_several_starts_alone(self, found):
        assert "means over the seeds" in (found.folder / "report.md").read_text(encoding="utf-8")
        one = compared(ranks=3)
        assert "means over the seeds" not in (one.folder / "report.md").read_text(encoding="utf-8")

    def test_one_rank_has_no_picture_by_rank(self):
        found = compared(ranks=3, image_shape=None)
        text = (found.folder / "report.md").read_text(encoding="utf-8")
        assert "Error by rank" not in text
        assert "Images" not in text

    def test_names_of_columns_are_shown(self):
        names = [f'<b>{k}</b> ‘größe’ "{k}"' for k in range(36)]
        found = compared(column_names=names, name='a<"file">.npy')
        (W, H) = found.factors(4)[found.ranking(4)[0]]
        strongest = np.argmax(np.linalg.norm(W, axis=0) * np.linalg.norm(H, axis=1))
        page = found.page.read_text(encoding="utf-8")
        largest = names[int(np.abs(H[strongest]).argmax())]
        assert largest.replace("<", "&lt;").replace(">", "&gt;").replace('"', "&#34;") in page
        assert "a&lt;&#34;file&#34;&gt;.npy: algorithms compared" in page
        assert "<b>" not in page.partition("<script")[0].replace("<body>", "")

    def test_without_matplotlib(self, monkeypatch):
        from relunmd.errors import MissingDependencyError

        def missing(*size):
            raise MissingDependencyError("Pictures need matplotlib")

        monkeypatch.setattr(style, "figure", missing)
        found = compared(datasets.digits()[:60])
        page = found.page.read_text(encoding="utf-8")
        assert page.count("<svg") == 0
        assert page.count("This chart needs matplotlib") == 4
        assert page.count("Pictures need matplotlib") == 2
        assert not list(found.folder.glob("*.png"))

    def test_without_jinja2_and_matplotlib(self, monkeypatch, tmp_path):
        options = {"ranks": [3], "output": tmp_path / "out"}
        compared(datasets.digits()[:60], **options)
        for package in ("jinja2", "matplotlib"):
            monkeypatch.setitem(sys.modules, package, None)
        console = Console(record=True, file=io.StringIO(), width=120)
        found = compared(datasets.digits()[:60], display=ComparisonDisplay(console), **options)
        assert found.page == found.folder / "report.md"
        text = found.page.read_text(encoding="utf-8")
        assert text.count("This chart needs matplotlib") == 2
        assert text.count("Figures need matplotlib") == 2
        assert "| qn |" in text
        assert (found.folder / "points.csv").exists()
        assert not list(found.folder.glob("*.png"))
        assert not (found.folder / "report.html").exists()  # The earlier one is out of date.
        printed = console.export_text()
        assert "no charts and pictures: matplotlib is missing (pip install 'relunmd[plot]')" in printed
        assert "no report.html: jinja2 is missing" in printed


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"ranks": []}, "ranks must be one or several"),
            ({"ranks": [3, 99]}, "ranks must be an integer between 1 and"),
            ({"ranks": [3, True]}, "ranks must be an integer"),
            ({"ranks": "3"}, "ranks must be an integer"),
            ({"algorithms": ["newton"]}, "algorithms must be among naive"),
            ({"algorithms": ["nmf"]}, "besides the baselines"),
            ({"algorithms": [ANMD(beta0=0.5), ANMD()]}, "two called 'A-NMD'"),
            ({"max_iter": None}, "max_time or max_iter must be given"),
            ({"max_time": -1}, "max_time"),
            ({"starts": 0}, "starts must be an integer of at least 1"),
            ({"seed": None}, "seed must be an integer of at least 0"),
            ({"max_time": np.inf, "max_iter": None}, "the runs would not end"),
            ({"algorithms": [comparison.built_in("qn", "NMF")]}, "must not have the name of a baseline"),
            ({"algorithms": [relunmd.TSVD()]}, "besides the baselines"),
            ({"X": X * 0}, "a positive entry"),
            ({"init": "mine"}, "init must be one of"),
            ({"image_shape": (5, 5)}, "as many pixels as X has columns, 36"),
            ({"column_names": ["a"]}, "36 names"),
            ({"X": -X}, "nonnegative"),
            ({"X": X[0]}, "two-dimensional"),
            ({"X": X * np.nan}, "finite"),
        ],
    )
    def test_a_sentence_for_what_cannot_be_used(self, options, said, folder):
        with pytest.raises(InputError, match=said):
            compared(**options)
        assert not (folder / "out").exists()

    def test_a_folder_of_other_things_is_left_alone(self, folder):
        (folder / "out").mkdir()
        (folder / "out" / "face.png").write_text("mine")
        with pytest.raises(InputError, match=r"out has other files, such as face\.png"):
            compared()
        assert [path.name for path in (folder / "out").iterdir()] == ["face.png"]
        with pytest.raises(InputError, match=r"must be a folder; out/face\.png is a file"):
            compared(output="out/face.png")

    def test_what_still_falls_is_noted(self):
        run = {"error": 0.1, "n_iter": 2, "time": 10, "status": relunmd.Status.MAX_TIME.message}
        assert matrix_comparison._remark(run | {"curve": {"time": [0, 5, 9.5], "error": [1, 0.2, 0.1]}})
        assert not matrix_comparison._remark(run | {"curve": {"time": [0, 5, 9.5], "error": [1, 0.1009, 0.1]}})


class TestImages:
    def test_digits_are_and_low_rank_matrices_are_not(self):
        assert image_detection.guess_image_shape(check_matrix(datasets.digits())) == (8, 8)
        assert image_detection.guess_image_shape(check_matrix(sparse.csr_array(datasets.digits()))) == (8, 8)
        assert image_detection.guess_image_shape(check_matrix(synthetic(300, 64, 4))) is None
        assert image_detection.guess_image_shape(check_matrix(synthetic(300, 65, 4))) is None
        assert image_detection.guess_image_shape(check_matrix(np.eye(64))) is None
        grid, centres = np.linspace(0, 1, 256), np.random.default_rng(0).random((500, 1))
        assert (
            image_detection.guess_image_shape(check_matrix(np.exp(-(((grid - centres) / 0.05) ** 2)))) is None
        )  # Spectra.

    @needs_data
    def test_real_data(self):
        assert image_detection.guess_image_shape(check_matrix(datasets.mnist(50))) == (28, 28)
        assert image_detection.guess_image_shape(check_matrix(np.ascontiguousarray(datasets.cbcl().T))) == (19, 19)
        for counts in (datasets.kos(), datasets.classic()):
            square = int(counts.shape[1] ** 0.5) ** 2
            assert image_detection.guess_image_shape(check_matrix(counts.tocsr()[:, :square])) is None

    @pytest.mark.parametrize("X", [X, sparse.csr_array(X)])
    def test_the_baseline_takes_what_is_in_memory(self, X):
        assert NMF_CONTENDER.takes == "memory"
        given = Evaluator(X)._input(NMF_CONTENDER)
        assert sparse.issparse(given) == sparse.issparse(X)
        assert given.dtype == np.float64
