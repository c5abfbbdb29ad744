"""`relunmd compare`: the same results as in Python, its output and its error messages."""

import gzip
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import relunmd
from relunmd import datasets
from relunmd.errors import FileError
from tests.comparison.conftest import silent

COMPARE = "compare X.npy --ranks 2,4 --algorithms qn,3b --max-iter 6 -o out"


def page(folder="out"):
    return Path(folder, "report.html").read_text(encoding="utf-8")


class TestCompare:
    def test_is_what_python_gives(self, run, folder):
        done = run(COMPARE)
        same = relunmd.compare(
            np.load("X.npy"), [2, 4], "same", algorithms=["qn", "3b"], max_time=5, max_iter=6, display=silent()
        )
        found = relunmd.Comparison.load("out")
        assert found.errors() == same.errors()
        assert found.name == "X.npy"
        first, second = done.stdout.splitlines()
        assert first.startswith(f"At rank 4 {found.ranking(4)[0]} has the smallest error, ")
        assert second == str(Path("out", "report.html"))
        assert "8 runs to make" in done.stderr
        assert "[8/8] X.npy, r=4, shifted initialization 0: NMF" in done.stderr

    def test_json_and_quiet(self, run):
        done = run(f"{COMPARE} --json")
        told = json.loads(done.stdout)
        found = relunmd.Comparison.load("out")
        assert told["errors"]["qn"]["4"] == found.errors()["qn"][4]
        assert told["page"] == str(found.page)
        assert told["notes"] == []
        assert run(f"{COMPARE} --quiet").output == ""

    def test_options_reach_it(self, run):
        run(f"{COMPARE} --starts 2 --seed 5 --init random --max-time 9 -q")
        found = relunmd.Comparison.load("out")
        assert {run["seed"] for run in found.runs if run["algorithm"] == "qn"} == {5, 6}
        assert found.settings["initialization"] == "random, the same for all algorithms, not timed; seeds 5 to 6"
        assert found.settings["each run"] == "9 s or 6 iterations"

    def test_images(self, run, folder):
        np.save("digits.npy", datasets.digits()[:60])
        line = "compare digits.npy -r 3 --algorithms qn --max-iter 3 -q"
        run(f"{line} -o auto")
        assert Path("auto/reconstructions.png").exists()
        run(f"{line} --images none -o none")
        assert not Path("none/reconstructions.png").exists()
        run(f"{line} --images 4x16 -o odd")
        assert relunmd.Comparison.load("odd").settings["rows"] == "4 × 16 pixels"

    def test_a_file_that_says_that_it_has_images(self, run, folder):
        images = np.random.default_rng(0).integers(0, 255, (30, 5, 7), dtype=np.uint8)  # Which do not look like any.
        with gzip.open("noise.gz", "wb") as out:
            out.write(struct.pack(">BBBB3I", 0, 0, 8, 3, 30, 5, 7) + images.tobytes())
        run("compare noise.gz -r 3 --algorithms qn --max-iter 3 -q -o out")
        assert relunmd.Comparison.load("out").settings["rows"] == "5 × 7 pixels"

    def test_names_in_a_table_are_shown(self, run, folder):
        X = np.load("X.npy")[:, :3]
        name = 'a "very" <b>odd naïve, file.csv'
        lines = ['"<i>one</i>","größe, ""x""",third', *(",".join(f"{v:.3f}" for v in row) for row in X)]
        Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        run("compare", name, "-r", 2, "--algorithms", "qn", "--max-iter", 5, "-q", "-o", "out")
        text = page()
        assert "&lt;i&gt;one&lt;/i&gt;" in text
        assert "größe, &#34;x&#34;" in text
        assert "a &#34;very&#34; &lt;b&gt;odd naïve, file.csv: algorithms compared" in text
        assert "<i>" not in text.partition("<script")[0]

    def test_a_method_that_always_fails_is_told_by_the_exit_code(self, run, folder):
        def failing(X, W, H):
            raise ValueError("oops")
            yield

        from relunmd import comparison

        comparison.register("failing")(failing)
        try:
            done = run("compare X.npy -r 2 --algorithms failing,qn --max-iter 2 -o out", code=1)
        finally:
            comparison.unregister("failing")
        assert "failing failed: ValueError: oops (test_compare.py, line " in done.stderr
        assert "The best of the algorithms is qn" in done.stdout

    def test_names_from_a_file(self, run, folder):
        Path("words.txt").write_text("\n".join(f"word {k}" for k in range(50)) + "\n", encoding="utf-8")
        run(f"{COMPARE} --column-names words.txt -q")
        assert "word 1" in page()
        Path("words.txt").write_text("one\ntwo\n")
        done = run(f"{COMPARE} --column-names words.txt", code=2)
        assert "must be 50 names, one per column of X; got 2" in done.stderr

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("compare nowhere.npy -r 3 -o out", "nowhere.npy does not exist"),
            ("compare X.npy -r 3", "Missing option '--output'"),
            ("compare X.npy -o out", "Missing option '--ranks'"),
            ("compare X.npy -r 3,x -o out", "--ranks must be integers separated by commas, such as 8,16,32; got '3,x'"),
            ("compare X.npy -r 0 -o out", "--ranks must be an integer between 1 and min(m, n) = 50"),
            ("compare X.npy -r 99 -o out", "--ranks must be an integer between 1 and min(m, n) = 50"),
            ("compare X.npy -r 3 --algorithms foo -o out", "--algorithms must be among naive"),
            ("compare X.npy -r 3 --init foo -o out", "--init must be one of"),
            ("compare X.npy -r 3 --images big -o out", "--images must be a height and a width such as 28x28"),
            ("compare X.npy -r 3 --images 3x3 -o out", "as many pixels as X has columns, 50; got 3 × 3"),
            ("compare X.npy -r 3 --max-time 0 -o out", "Invalid value for '--max-time'"),
            ("compare X.npy -r 3 --column-names no.txt -o out", "no.txt must be a regular file"),
            ("compare X.npy -r 3 -o X.npy", "must be a folder; X.npy is a file"),
            ("compare X.npy -r 3 -o .", ". has other files, such as X.npy"),
            ("compare X.npy -r 3 --algorithms nmf -o out", "which always take part; got ['nmf']"),
        ],
    )
    def test_refusals(self, run, folder, words, said):
        done = run(words, code=2)
        assert said in done.stderr
        assert not Path("out").exists()

    @pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
    def test_column_names_must_be_in_a_regular_file(self, folder, kind):
        """In a process of its own: a pipe blocks, and a device fills the memory."""
        make = {"pipe": os.mkfifo, "device": lambda name: Path(name).symlink_to("/dev/zero"), "folder": os.mkdir}
        make[kind]("names")
        program = (
            "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32)); "
            "from relunmd.cli import main; main('compare X.npy -r 3 --column-names names -o out'.split())"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
        assert done.returncode == 2
        assert "names must be a regular file. It is missing, a folder, a device, a pipe or a socket." in done.stderr
        assert not Path("out").exists()

    def test_column_names_must_not_be_too_large(self, run, folder, monkeypatch):
        from relunmd.cli import compare_command

        Path("names").write_text("a" * 2000)
        monkeypatch.setattr(compare_command, "_MOST_NAMES", 1000)
        done = run("compare X.npy -r 3 --column-names names -o out", code=2)
        assert "names must be a list of names of at most 1 kB; it is larger." in done.stderr
        with pytest.raises(FileError, match="at most 1 kB"):
            compare_command._lines("/proc/self/smaps")  # Its size is said to be 0.

    @pytest.mark.parametrize("name", ["e\x1b[31mred\x1b[2J.npy", "a\udcff.npy", "new\nline.npy"])
    def test_odd_names_of_files(self, run, folder, name):
        Path(name).write_bytes(Path("X.npy").read_bytes())
        for _ in range(2):
            done = run("compare", name, "-r", 2, "--algorithms", "qn", "--max-iter", 2, "-o", "out")
            assert "\x1b" not in done.output
        assert "Every run has been made already." in done.stderr

    def test_ctrl_c(self, run, folder, monkeypatch):
        from relunmd.comparison import runner

        add, made = runner.Results.add, []

        def pressed(self, *arguments):
            made.append(add(self, *arguments))
            if len(made) == 3:
                raise KeyboardInterrupt
            return made[-1]

        monkeypatch.setattr(runner.Results, "add", pressed)
        done = run(COMPARE, code=130)
        assert done.stderr.endswith("Interrupted. The same command resumes from out.\n")
        assert len(relunmd.Comparison.load("out").runs) == 3
        assert "5 runs to make" in run(COMPARE).stderr
        assert len(relunmd.Comparison.load("out").runs) == 8


@pytest.mark.parametrize("words", ["reproduce table1 --quick -o out", "reproduce --help", "reproduce"])
def test_reproduce_points_to_the_clone(run, words):
    done = run(words, code=2)
    assert "not part of the installed package" in done.stderr
    arguments = words.partition(" ")[2] or "all -o results"
    assert done.stderr.endswith(f'make reproduce ARGS="{arguments}"\n')
    assert not Path("out").exists()
