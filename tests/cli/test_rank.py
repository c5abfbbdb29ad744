"""`relunmd rank`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import relunmd

RANK = "rank X.npy --ranks 1:5 --folds 3 --max-iter 60"


def test_the_files(run, folder):
    done = run(f"{RANK} --json -q -o out")
    facts, saved = json.loads(done.stdout), json.loads((folder / "out" / "rank.json").read_text())
    X = np.load("X.npy")
    expected = relunmd.select_rank(X, range(1, 6), n_folds=3, max_iter=60, random_state=0)
    assert facts["rank"] == saved["rank"] == expected.rank
    assert facts["error"] == saved["error"] == expected.error
    assert relunmd.Decomposition.load("out/model.npz").rank == expected.rank
    with Path("out/rank.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["rank"]) for row in rows] == [row.rank for row in expected.rows]
    assert [row["rank"] for row in rows if row["chosen"] == "True"] == [str(expected.rank)]
    page = (folder / "out" / "report.html").read_text()
    assert expected.sentence.split(":")[0] in page
    assert "Held-out error by rank" in (folder / "out" / "report.md").read_text()


def test_the_words_and_resuming(run):
    done = run(f"{RANK} -o out")
    assert done.stdout.startswith("Rank ")
    assert "held-out error" in done.stderr
    again = run(f"{RANK} -o out")
    assert again.stdout == done.stdout
    assert "held-out error" not in again.stderr  # No fit was repeated.


def test_another_search(run):
    run(f"{RANK} -q -o out")
    assert "FOLDER must be new or of the same search" in run("rank X.npy --ranks 1:4 --folds 3 -o out", code=2).stderr


def test_ridges_and_entries(run):
    np.save("mask.npy", np.load("X.npy") > 5)
    done = run("rank X.npy -r 2,3 --ridges 0,1e-2 --folds 2 --rule min --balance --mask mask.npy --json -q -o out")
    assert json.loads(done.stdout)["ridge"] in (0, 1e-2)
    done = run("rank X.npy -r 2 --ridges auto --folds 2 --json -q -o other")
    assert json.loads(done.stdout)["rank"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--ranks two", "--ranks must be integers such as"),
        ("--ranks 1:9:000", "--ranks must be integers such as"),
        ("--ranks 0,3", "--ranks must be integers between 1"),
        ("--ridges many", "--ridges must be numbers such as"),
        ("--algorithm 3b", "algorithm must be one of"),
    ],
)
def test_invalid_options(run, options, message):
    done = run(f"rank X.npy {options} -o out", code=2)
    assert message in done.stderr


def test_an_output_that_is_a_file(run, folder):
    (folder / "out").write_text("mine")
    assert "must be a folder" in run(f"{RANK} -o out", code=2).stderr
    assert (folder / "out").read_text() == "mine"
