"""Missing values, masks, weights and limits on the command line."""

import json

import numpy as np
import pytest
from scipy import sparse

import relunmd

FIT = "fit {} -r 3 --max-iter 20 --tol 0 --seed 0 -q -o {}"


@pytest.fixture
def holes(folder):
    """X with empty cells, as an array and as a text table."""
    X = np.load("X.npy")
    hidden = np.random.default_rng(0).random(X.shape) < 0.2
    found = np.where(hidden, np.nan, X)
    lines = [",".join("" if np.isnan(x) else repr(float(x)) for x in row) for row in found]
    (folder / "holes.csv").write_text("\n".join(lines))
    np.save("mask.npy", hidden)
    return X, hidden, found


def test_empty_cells_and_a_mask(run, holes):
    _, hidden, found = holes
    run(FIT.format("holes.csv", "a.npz") + " --missing nan")
    run(FIT.format("X.npy", "b.npz") + " --mask mask.npy")
    a, b = (relunmd.Decomposition.load(name) for name in ("a.npz", "b.npz"))
    expected = relunmd.decompose(found, 3, missing_values=np.nan, random_state=0, max_iter=20, tol=0)
    assert a.error == b.error == expected.error
    facts = json.loads(run("info a.npz --json").stdout)
    assert facts["matrix"]["missing"] == hidden.sum()
    done = run("transform a.npz holes.csv --missing nan --json -o W.npy")
    assert json.loads(done.stdout)["error"] <= 1.01 * a.error


def test_weights_and_limits(run, holes):
    X, hidden, _ = holes
    np.save("weights.npy", 1.0 - 0.5 * hidden)
    np.savetxt("lower.csv", np.full((1, 50), 0.3), delimiter=",")
    run(FIT.format("X.npy", "a.npz") + " --weights weights.npy --lower lower.csv --upper 4")
    options = {"weights": 1.0 - 0.5 * hidden, "lower": 0.3, "upper": 4.0}
    expected = relunmd.decompose(X, 3, random_state=0, max_iter=20, tol=0, **options)
    assert relunmd.Decomposition.load("a.npz").error == expected.error


def test_stored_entries(run, folder):
    X = sparse.random_array((80, 30), density=0.3, random_state=0)
    sparse.save_npz("X.npz", sparse.csr_array(X))
    run(FIT.format("X.npz", "a.npz") + " --missing unstored")
    assert relunmd.Decomposition.load("a.npz").fingerprint.missing == 80 * 30 - X.nnz


def test_impute(run, holes):
    X, hidden, _ = holes
    done = run("impute holes.csv -r 4 --seed 0 --json -o filled.npy --errors errors.npy")
    facts, filled, errors = json.loads(done.stdout), np.load("filled.npy"), np.load("errors.npy")
    assert facts["missing"] == hidden.sum()
    np.testing.assert_array_equal(filled[~hidden], X[~hidden])
    np.testing.assert_allclose(errors, facts["noise"] * hidden)
    run("impute X.npy -r 4 --lower 0.5 -o limited.csv")
    limited = np.loadtxt("limited.csv", delimiter=",")
    assert ((limited <= 0.5) == (X <= 0.5)).all()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (FIT.format("holes.csv", "a.npz"), "Use --missing nan if NaN stands for missing values"),
        (FIT.format("X.npy", "a.npz") + " --mask none.npy", "--mask: none.npy does not exist"),
        (FIT.format("X.npy", "a.npz") + " --lower none", "--lower: none does not exist"),
        (FIT.format("X.npy", "a.npz") + " --missing unstored", "needs a sparse X"),
        ("impute X.npy -o a.npy --errors a.npy", "The output must differ from a.npy"),
        ("impute X.npy --lower 99 -o a.npy", "X.npy must have a positive value within its limits"),
        ("impute X.npy -o X.npy", "The output must differ from X.npy"),
    ],
)
def test_what_cannot_be_used(run, holes, line, message):
    assert message in run(line, code=2).stderr
