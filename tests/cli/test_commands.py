"""Each command in this process: what it writes, what it says, and how it refuses."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from scipy import sparse

import relunmd
from relunmd.cli import main
from relunmd.io.readers import open_matrix
from relunmd.io.readers.text_tables import NAMES
from tests.conftest import needs_data
from tests.io.readers import samples
from tests.io.readers.test_readers import dense

FIT = "fit X.npy -r 4 --seed 0"


class TestFit:
    def test_is_what_python_gives(self, run, folder):
        done = run(f"{FIT} --max-iter 30 --tol 0 --threads 1 -o m.npz")
        d = relunmd.Decomposition.load("m.npz")
        same = relunmd.decompose(np.load("X.npy"), 4, max_iter=30, tol=0, random_state=0)
        np.testing.assert_array_equal(d.W, same.W)
        np.testing.assert_array_equal(d.H, same.H)
        assert done.stdout.splitlines()[0].startswith(f"error {same.error:.6g} after 30 iterations in ")
        assert done.stdout.splitlines()[0].endswith("The iteration limit --max-iter was reached.")
        assert done.stdout.splitlines()[1] == "m.npz: W 120 × 4, H 4 × 50, float64"
        assert done.stderr.startswith("qn, rank 4: error ")

    def test_every_option_reaches_it(self, run, folder):
        options = "--algorithm 3b-factored --init random --tol 0 --max-iter 7 --dtype float32 --ridge 0.001"
        run(f"{FIT} {options} --quiet -o a.npz")
        d = relunmd.Decomposition.load("a.npz")
        assert (d.algorithm, d.init, d.n_iter, d.W.dtype, d.settings["ridge"]) == (
            "3b-factored",
            "random",
            7,
            np.float32,
            0.001,
        )
        run(f"{FIT} --target-error 0.5 -q -o b.npz")
        assert relunmd.Decomposition.load("b.npz").status is relunmd.Status.TARGET
        run(f"{FIT} --max-time 0.000001 -q -o c.npz")
        assert relunmd.Decomposition.load("c.npz").status is relunmd.Status.MAX_TIME
        run(f"{FIT} --starts 2 --max-iter 3 -q -o d.npz")
        run("fit", "X.npy", "-r", 6, "--init", "a.npz", "--max-iter", 0, "-q", "-o", "e.npz")
        assert relunmd.Decomposition.load("e.npz").error <= d.error * 1.001

    def test_json_is_all_there_is_on_stdout(self, run, folder):
        done = run(f"{FIT} --max-iter 5 --json -o m.npz")
        told = json.loads(done.stdout)
        d = relunmd.Decomposition.load("m.npz")
        assert told["error"] == d.error
        assert (told["iterations"], told["status"], told["shape"], told["rank"]) == (5, "MAX_ITER", [120, 50], 4)
        assert (told["input"], told["model"], told["checkpoint"]) == ("X.npy", "m.npz", None)

    def test_quiet_says_nothing(self, run, folder):
        done = run(f"{FIT} --max-iter 5 -q -o m.npz")
        assert done.output == ""

    def test_a_model_is_replaced_only_by_force(self, run, folder):
        run(f"{FIT} --max-iter 2 -q -o m.npz")
        before = Path("m.npz").read_bytes()
        done = run(f"{FIT} --max-iter 3 -o m.npz", code=2)
        assert done.stderr == "Error: m.npz already exists; use --force to overwrite it.\n"
        assert Path("m.npz").read_bytes() == before
        run(f"{FIT} --max-iter 3 -q --force -o m.npz")
        assert relunmd.Decomposition.load("m.npz").n_iter == 3

    def test_a_checkpoint_is_resumed_from(self, run, folder):
        run(f"{FIT} --max-iter 20 --tol 0 --checkpoint run.npz -q -o m.npz")
        done = run(f"{FIT} --max-iter 50 --tol 0 --checkpoint run.npz -o m.npz")
        assert "Resuming from run.npz." in done.stderr
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        run(f"{FIT} --max-iter 50 --tol 0 -q -o at_once.npz")
        one, other = relunmd.Decomposition.load("m.npz"), relunmd.Decomposition.load("at_once.npz")
        np.testing.assert_array_equal(one.W, other.W)
        assert one.n_iter == other.n_iter == 50

    def test_ctrl_c_while_the_model_of_a_finished_run_is_saved(self, run, folder, monkeypatch):
        """It has been resumed without an iteration more."""
        run(f"{FIT} --max-iter 5 --tol 0 --checkpoint run.npz -q -o m.npz")
        Path("m.npz").unlink()
        save = relunmd.Decomposition.save

        def pressed(d, path):
            signal.raise_signal(signal.SIGINT)
            save(d, path)

        monkeypatch.setattr(relunmd.Decomposition, "save", pressed)
        run(f"{FIT} --max-iter 5 --tol 0 --checkpoint run.npz -q -o m.npz")
        assert relunmd.Decomposition.load("m.npz").n_iter == 5
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_a_model_of_another_run_is_not_replaced_by_a_checkpoint(self, run, folder):
        run(f"{FIT} --max-iter 5 --checkpoint run.npz -q -o m.npz")
        run("fit X.npy -r 4 --seed 1 --max-iter 5 -q --force -o m.npz")
        done = run(f"{FIT} --max-iter 9 --checkpoint run.npz -o m.npz", code=2)
        assert "already exists" in done.stderr

    def test_a_checkpoint_of_another_run_is_refused(self, run, folder):
        run(f"{FIT} --max-iter 5 --checkpoint run.npz -q -o m.npz")
        done = run("fit X.npy -r 3 --seed 0 --checkpoint run.npz -o n.npz", code=2)
        assert "rank: checkpoint has 4, this call has 3" in done.stderr
        assert not Path("n.npz").exists()

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("fit nowhere.npy -r 4 -o m.npz", "nowhere.npy does not exist"),
            ("fit X.npy -r 99 -o m.npz", "--rank must be an integer between 1 and min(m, n) = 50"),
            ("fit X.npy -r x -o m.npz", "Invalid value for '--rank'"),
            ("fit X.npy -r 4 -o m.csv", "--output must be a .npz file; got m.csv"),
            ("fit X.npy -r 4", "Missing option '--output'"),
            ("fit X.npy -r 4 -o nowhere/m.npz", "in an existing folder"),
            ("fit X.npy -r 4 -o .", "from the folders that contain it"),
            ("fit X.npy -r 4 -o folder", "which is a folder"),
            ("fit X.npy -r 4 -o X.npy --force", "must differ from X.npy"),
            ("fit X.npy -r 4 --checkpoint m.npz -o m.npz", "must differ from m.npz"),
            ("fit X.npy -r 4 --algorithm foo -o m.npz", "--algorithm must be one of auto, naive"),
            ("fit X.npy -r 4 --init foo -o m.npz", "--init must be one of"),
            ("fit X.npy -r 4 --init X.npy -o m.npz", "must be a model as relunmd writes it"),
            ("fit X.npy -r 4 --algorithm em --ridge 1 -o m.npz", 'ridge is supported by "3b-factored" and "qn"'),
            ("fit X.npy -r 4 --dtype int8 -o m.npz", "Invalid value for '--dtype'"),
            ("fit X.npy -r 4 --threads 0 -o m.npz", "Invalid value for '--threads'"),
            ("fit X.npy -r 4 --starts 0 -o m.npz", "Invalid value for '--starts'"),
            ("fit X.npy -r 4 --seed -1 -o m.npz", "Invalid value for '--seed'"),
            ("fit X.npy -r 4 --max-iter -1 -o m.npz", "Invalid value for '--max-iter'"),
            ("fit X.npy -r 4 --tol 2 -o m.npz", "Invalid value for '--tol'"),
            ("fit X.npy -r 4 --array Y -o m.npz", "without a name; omit the name 'Y'"),
            ("fit X.npy -r 4 --names rows -o m.npz", "--names must be omitted for a NumPy array file"),
            ("fit - -r 4 -o m.npz", "standard input"),
            ("fit X.npy -r 4 --max-time nan -o m.npz", "--max-time must be"),
        ],
    )
    def test_what_is_wrong_gets_one_sentence(self, run, folder, words, said):
        Path("folder").mkdir()
        done = run(words, code=2)
        assert said in done.stderr
        assert done.stderr.strip().splitlines()[-1].startswith("Error: ")
        assert not Path("m.npz").exists()

    def test_wrong_entries(self, run, folder):
        np.save("bad.npy", np.where(np.eye(5) > 0, -1.0, 1.0))
        assert "X must be nonnegative" in run("fit bad.npy -r 2 -o m.npz", code=2).stderr
        np.save("bad.npy", np.where(np.eye(5) > 0, np.nan, 1.0))
        assert "the first at row 0, column 0" in run("fit bad.npy -r 2 -o m.npz", code=2).stderr

    def test_a_disk_that_refuses_does_not_cost_the_model(self, run, folder, monkeypatch):
        save = relunmd.Decomposition.save

        def refusing(d, path):
            if Path(path).parent == folder:
                raise relunmd.FileError(f"{path} could not be written: the disk is full.")
            save(d, path)

        monkeypatch.setattr(relunmd.Decomposition, "save", refusing)
        done = run(f"{FIT} --max-iter 3 -o m.npz", code=1)
        place = re.search(r"the disk is full\. The model is saved in (\S+) instead", done.stderr).group(1)
        assert relunmd.Decomposition.load(place).n_iter == 3
        Path(place).unlink()
        Path(place).parent.rmdir()

    def test_names_are_told_of(self, run, folder):
        Path("table.csv").write_text("id,a,b,c\n7,1,0,3\n8,0,2,1\n9,1,1,0\n")
        done = run("fit table.csv -r 1 --max-iter 1 -o m.npz")
        told = (
            "table.csv: the first line and the first column are names and are left out; set --names to change this.\n"
        )
        assert done.stderr.startswith(told)
        assert relunmd.Decomposition.load("m.npz").shape == (3, 3)
        run("fit table.csv -r 1 --max-iter 1 --names columns -q -o n.npz")
        assert relunmd.Decomposition.load("n.npz").shape == (3, 4)
        assert json.loads(run("info table.csv --json").stdout)["note"] in told

    def test_what_did_not_come_true_is_told(self, run, folder):
        assert "--target-error 0.0001 was not reached" in run(f"{FIT} --target-error 1e-4 --max-iter 3 -o a.npz").stderr
        done = run(f"{FIT} --ridge 10 -q -o b.npz")
        assert done.stderr == "Warning: WH is almost zero; try a smaller --ridge.\n"

    def test_a_model_of_a_larger_rank_is_refused(self, run, folder):
        run(f"{FIT} --max-iter 1 -q -o a.npz")
        assert "a.npz has rank 4" in run("fit X.npy -r 2 --init a.npz -o b.npz", code=2).stderr

    @pytest.mark.parametrize("name", samples.SAMPLES)
    def test_any_file(self, run, folder, name):
        samples.SAMPLES[name](folder / name)
        run("fit", name, "-r", 3, "--seed", 0, "--max-iter", 3, "-q", "-o", "m.npz")
        assert relunmd.Decomposition.load("m.npz").shape == samples.X.shape


class TestTransform:
    def test_rows_are_those_of_python(self, run, folder):
        run(f"{FIT} -q -o m.npz")
        done = run("transform m.npz X.npy -o W.npy")
        d = relunmd.Decomposition.load("m.npz")
        found = relunmd.fit_rows(np.load("X.npy"), d.H, candidates=d.W)
        np.testing.assert_array_equal(np.load("W.npy"), found.W)
        assert found.error <= d.error
        assert done.stdout == f"W.npy: 120 × 4, error {found.error:.6g}\n"
        told = json.loads(run("transform m.npz X.npy --json -o W.csv").stdout)
        assert told["error"] == found.error
        np.testing.assert_array_equal(np.loadtxt("W.csv", delimiter=","), found.W)

    def test_the_ridge_of_the_fit_is_kept(self, run, folder):
        run(f"{FIT} --ridge 0.01 -q -o m.npz")
        run("transform m.npz X.npy -q -o W.npy")
        X = np.load("X.npy")
        model = relunmd.ReLUNMD(4, ridge=0.01, random_state=0).fit(X)
        np.testing.assert_allclose(np.load("W.npy"), model.transform(X), rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("transform X.npy X.npy -o W.npy", "must be a model"),
            ("transform nowhere.npz X.npy -o W.npy", "There is no model"),
            ("transform m.npz narrow.npy -o W.npy", "narrow.npy must have 50 columns, as m.npz has; got 49"),
            ("transform m.npz X.npy -o W.doc", "must end in one of"),
            ("transform m.npz X.npy -o m.npz --force", "must differ from m.npz"),
        ],
    )
    def test_what_is_wrong(self, run, folder, words, said):
        run(f"{FIT} --max-iter 1 -q -o m.npz")
        np.save("narrow.npy", np.load("X.npy")[:, :49])
        assert said in run(words, code=2).stderr


class TestReconstruct:
    def test_all_and_some_rows(self, run, folder):
        run(f"{FIT} -q -o m.npz")
        d = relunmd.Decomposition.load("m.npz")
        assert run("reconstruct m.npz -o all.npy").stdout == "all.npy: 120 × 50\n"
        np.testing.assert_allclose(np.load("all.npy"), d.reconstruct(), atol=1e-13)
        run("reconstruct m.npz --rows 3,5,-1 --latent -o some.npy")
        np.testing.assert_allclose(np.load("some.npy"), (d.W @ d.H)[[3, 5, -1]], atol=1e-13)
        run("reconstruct m.npz --rows 10:20:3 -o some.csv")
        np.testing.assert_allclose(np.loadtxt("some.csv", delimiter=","), d.reconstruct()[10:20:3], atol=1e-13)
        run("reconstruct m.npz --sparse -o sparse.npz")
        np.testing.assert_allclose(sparse.load_npz("sparse.npz").toarray(), d.reconstruct(), atol=1e-13)

    @pytest.mark.parametrize(
        "rows", ["", "x", "120", "-121", "5:5", "0:9:0", "1,", "1:2:3:4", "9" * 30, "1 0:5", "1 2,3"]
    )
    def test_rows_that_are_none(self, run, folder, rows):
        run(f"{FIT} --max-iter 1 -q -o m.npz")
        done = run("reconstruct", "m.npz", "--rows", rows, "-o", "some.npy", code=2)
        assert "--rows must be rows from 0 to 119" in done.stderr


class TestInfo:
    def test_of_a_matrix(self, run, folder):
        X = np.load("X.npy")
        shown = run("info X.npy").stdout
        told = json.loads(run("info X.npy --json").stdout)
        assert (told["shape"], told["nonzeros"], told["largest"]) == ([120, 50], np.count_nonzero(X), X.max())
        assert "120 × 50" in shown
        assert "is suitable" in shown
        assert told["zeros"] == pytest.approx((X == 0).mean())
        assert told["memory"]["as_stored"] == X.nbytes
        assert told["decomposable"]
        suggestion = re.search(r"relunmd (fit X.npy --rank \d+ -o model.npz)", shown).group(1)
        run(f"{suggestion} -q")
        assert Path("model.npz").exists()

    def test_of_nothing_but_nan(self, run, folder):
        np.save("nan.npy", np.full((3, 3), np.nan))
        told = json.loads(run("info nan.npy --json").stdout, parse_constant=pytest.fail)
        assert (told["smallest"], told["largest"]) == (None, None)

    def test_of_a_matrix_that_cannot_be_used(self, run, folder):
        np.save("bad.npy", -np.eye(3))
        shown = run("info bad.npy").stdout
        assert "3 entries below zero" in shown
        assert "relunmd fit" not in shown

    def test_of_several_arrays(self, run, folder):
        np.savez("two.npz", A=np.eye(3), B=np.eye(4))
        assert "'A' (3 × 3, float64), 'B' (4 × 4, float64)" in run("info two.npz", code=2).stderr
        shown = run("info two.npz --array B").stdout
        assert "4 × 4" in shown
        np.savez("two of them.npz", A=np.eye(9), B=np.eye(8))
        suggestion = json.loads(run("info", "two of them.npz", "--array", "B", "--json").stdout)["suggested_command"]
        run(*shlex.split(suggestion)[1:], "-q")
        assert relunmd.Decomposition.load("model.npz").shape == (8, 8)
        assert "'A' (3 × 3, float64)" in shown

    def test_of_a_model_and_of_a_checkpoint(self, run, folder):
        run(f"{FIT} --max-iter 5 --checkpoint run.npz -q -o m.npz")
        d = relunmd.Decomposition.load("m.npz")
        told = json.loads(run("info m.npz --json").stdout)
        assert (told["error"], told["rank"], told["algorithm"]) == (d.error, 4, "qn")
        assert (told["status"], told["iterations"], told["best_iteration"]) == ("MAX_ITER", 5, d.best_iter)
        assert told["message"].startswith("The iteration limit --max-iter")
        shown = run("info run.npz").stdout
        assert "relunmd checkpoint" in shown
        assert f"{d.error:.6g}" in shown

    def test_paths_are_told_as_they_are(self, run, folder):
        assert "max_iter/n_jobs.npy does not exist." in run("info max_iter/n_jobs.npy", code=2).stderr
        Path("Größe  two.csv").write_text("1,2\n3,4\n")
        assert json.loads(run("info", "Größe  two.csv", "--json").stdout)["file"] == "Größe  two.csv"

    def test_names_cannot_command_the_terminal(self, run, folder):
        np.savez("evil.npz", **{"\x1b[2Jname": np.eye(3), "other": np.eye(3)})
        done = run("info evil.npz", code=2)
        assert "\x1b" not in done.stderr
        assert "\\x1b[2Jname" in done.stderr


class TestConvert:
    @pytest.mark.parametrize("target", ["Y.npz", "Y.mtx.gz", "Y.csv", "Y.h5", "Y.zarr", "Y.mat", "Y.parquet"])
    def test_there_and_back(self, run, folder, target):
        done = run(f"convert X.npy {target}")
        assert done.stdout == f"{target}: 120 × 50, float64\n"
        assert "already exists" in run(f"convert X.npy {target}", code=2).stderr
        run(f"convert X.npy {target} --force -q")
        run(f"convert {target} back.npy -q")
        np.testing.assert_array_equal(np.load("back.npy"), np.load("X.npy"))

    def test_what_cannot_be_sparse_is_told(self, run, folder):
        assert "A sparse matrix can be written to .npz" in run("convert X.npy Y.csv --sparse", code=2).stderr

    def test_a_folder_is_not_replaced_unless_it_is_a_store(self, run, folder):
        Path("a.zarr").mkdir()
        Path("a.zarr/notes.txt").write_text("mine")
        assert "which is a folder" in run("convert X.npy a.zarr --force", code=2).stderr
        run("convert X.npy b.zarr -q")
        Path("X.npy").rename("b.zarr/X.npy")
        assert "from the folders that contain it" in run("convert b.zarr/X.npy b.zarr --force", code=2).stderr
        assert Path("b.zarr/X.npy").exists()

    def test_a_pipe_is_not_replaced(self, run, folder):
        os.mkfifo("p.npy")
        assert "a device or a pipe" in run("convert X.npy p.npy --force", code=2).stderr
        assert Path("p.npy").is_fifo()

    @pytest.mark.parametrize("dtype", ["f2", ">f4", "g"])
    def test_numbers_of_other_kinds(self, run, folder, dtype):
        X = np.array([[0.5, 1.25, 0], [2.75, 0, 3.5]], dtype)
        np.save("h.npy", X)
        for target in ("h.mtx", "h.csv", "h.parquet", "h.mat", "h.h5", "h.zarr"):
            run(f"convert h.npy {target} -q")
            with open_matrix(target) as opened:
                np.testing.assert_array_equal(dense(opened.X), X)
        run("convert h.npy s.npz --sparse -q")
        np.testing.assert_array_equal(sparse.load_npz("s.npz").toarray(), X)

    def test_sparse_stays_sparse(self, run, folder):
        run("convert X.npy S.npz --sparse -q")
        run("convert S.npz S.h5 -q")
        run("convert S.h5 S.mtx -q")
        with open_matrix("S.mtx") as opened:
            assert sparse.issparse(opened.X)
            np.testing.assert_array_equal(dense(opened.X), np.load("X.npy"))


class TestData:
    def test_list(self, run, folder):
        shown = run("data list").stdout
        for name in ("digits", "mnist", "cbcl", "kos", "classic", "20newsgroups"):
            assert name in shown
        assert "comes with scikit-learn" in shown

    def test_fetch(self, run, folder):
        assert run("data fetch digits").stdout == "digits.npy: 1797 × 64, float64\n"
        assert np.load("digits.npy").shape == (1797, 64)
        assert "already exists" in run("data fetch digits", code=2).stderr
        run("data fetch digits -o digits.csv.gz -q")

    @needs_data
    def test_fetch_counts(self, run, folder):
        run("data fetch kos")
        assert sparse.load_npz("kos.npz").shape == (3430, 6906)

    def test_what_is_not_there(self, run, folder, monkeypatch):
        monkeypatch.delenv("RELUNMD_DATA", raising=False)
        monkeypatch.setenv("RELUNMD_CACHE", str(folder))

        def no_network(*args, **options):
            raise OSError("no network in tests")

        monkeypatch.setattr("urllib.request.urlopen", no_network)
        assert "name must be one of" in run("data fetch iris", code=2).stderr
        assert "could not be downloaded" in run("data fetch kos", code=2).stderr
        assert not Path("kos.npz").exists()


class TestHelp:
    def test_nothing_heavy_is_imported_for_it(self, folder):
        program = (
            "import sys\nfrom relunmd.cli import main\n"
            "try: main(['--help'])\nexcept SystemExit: pass\n"
            "print(sorted({name.partition('.')[0] for name in sys.modules} & "
            "{'numpy', 'scipy', 'numba', 'sklearn', 'rich', 'h5py', 'zarr', 'matplotlib', 'pyarrow', 'PIL'}))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"
        assert "Usage: " in done.stdout

    def test_every_example_runs(self, run, folder):
        """Those of --help first, then those of every command; each in the folder that the ones before left."""
        texts = [main.epilog, *(command.epilog for command in _commands())]
        assert all(texts), "every command has examples"
        examples = [line.strip() for text in texts for line in text.splitlines() if line.startswith("  relunmd ")]
        assert len(examples) >= 20
        produced = re.compile(r"(-o|>) (\S+)|^relunmd convert \S+ (\S+)")
        for example in examples:
            line, _, target = example.partition(" > ")
            found = produced.search(example)
            place = Path(next(group for group in found.groups()[1:] if group)) if found else None
            if place is not None and place.is_file():
                place.unlink()  # The same as an earlier example's.
            line = re.sub(r"--max-time \S+", "--max-time 0.1", line)  # Whether it runs is the point, and not how long.
            done = run(*shlex.split(line)[1:])
            if target:
                Path(target).write_text(done.stdout)
            if place is not None:
                assert place.exists(), example

    def test_every_option_is_explained(self):
        for command in _commands():
            assert command.help, command.name
            for option in command.params:
                if isinstance(option, click.Option) and not option.hidden:
                    assert option.help, (command.name, option.name)

    def test_names_are_those_that_the_reader_knows(self):
        (option,) = (option for option in main.commands["fit"].params if option.name == "names")
        assert tuple(option.type.choices) == NAMES

    def test_version(self, run):
        assert run("--version").stdout == f"relunmd {relunmd.__version__}\n"

    def test_algorithms(self, run):
        shown = run("algorithms").stdout
        for name in (*relunmd.algorithms(), *relunmd.inits()):
            assert f"  {name} " in shown

    def test_a_command_that_is_none(self, run):
        assert "No such command 'foo'" in run("foo", code=2).stderr


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_scripts(self, run, shell):
        assert "_RELUNMD_COMPLETE" in run(f"completion {shell}").stdout

    def test_bash_understands_its_script(self, run, folder):
        Path("relunmd.bash").write_text(run("completion bash").stdout)
        done = subprocess.run(
            ["bash", "--norc", "-c", "source relunmd.bash && complete -p relunmd"], capture_output=True
        )
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("", {"fit", "transform", "reconstruct", "info", "convert", "data", "demo"}),
            ("fit X.npy --algorithm ", {"auto", "qn", "3b"}),
            ("fit X.npy --init ", {"auto", "shifted"}),
            ("data fetch ", {"digits", "kos"}),
            ("fit --max", {"--max-iter", "--max-time"}),
            ("fit X.npy --dtype ", {"float32", "float64"}),
            ("fit X.npy --init mod", {"mod"}),
        ],
    )
    def test_what_it_completes(self, line, words):
        from click.shell_completion import ShellComplete

        *before, last = line.split(" ")
        found = ShellComplete(main, {}, "relunmd", "_RELUNMD_COMPLETE").get_completions(before, last)
        assert words <= {item.value for item in found}


def _commands():
    """All commands that do something."""
    for command in main.commands.values():
        if isinstance(command, click.Group):
            yield from command.commands.values()
        else:
            yield command
