"""Constants and single lines that no other test would miss; `python -m tests.one_liners` changes each and looks."""

import os
import stat
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import relunmd
from relunmd import ReLUNMD
from relunmd.io import atomic
from relunmd.io.archive import read_archive, write_archive
from relunmd.loop.race import FIRST_ROUND
from tests.conftest import synthetic


def test_of_three_starts_two_go_on():
    """The better half is kept, rounded up."""
    made = []
    relunmd.decompose(
        np.eye(8),
        2,
        "3b-factored",
        "random",
        n_starts=3,
        n_jobs=1,
        random_state=0,
        tol=0,
        max_iter=FIRST_ROUND + 2,
        callback=lambda progress: made.append(progress.iteration),
    )
    assert [made.count(FIRST_ROUND + more) for more in (0, 1, 2)] == [3, 2, 2]


@pytest.mark.parametrize(("factor", "refused"), [(1.0, False), (1.06, True)])
def test_best_factors_that_fit_less_well_than_they_should_are_refused(tmp_path, factor, refused):
    """A checkpoint whose factors have an error 1 % away from the stored one is of another X, or damaged."""
    X, path = np.random.default_rng(0).random((40, 30)), tmp_path / "run.npz"
    settings = {"rank": 3, "tol": 0, "random_state": 0, "checkpoint": path}
    d = relunmd.decompose(X, max_iter=20, **settings)
    about, arrays = read_archive(path, "checkpoint", 1)
    (name,) = (name for name in arrays if name.endswith("best.W"))
    arrays[name] = arrays[name] * factor
    write_archive(path, "checkpoint", 1, {key: about[key] for key in ("identity", "run")}, arrays)
    changed = np.linalg.norm(X - np.maximum(0, factor * d.W @ d.H)) / np.linalg.norm(X) / d.error
    if not refused:
        assert relunmd.decompose(X, max_iter=21, **settings).n_iter == 21
        return
    assert 1.005 < changed < 1.05
    with pytest.raises(relunmd.InputError, match="checkpoint must be of the same X"):
        relunmd.decompose(X, max_iter=21, **settings)


@pytest.mark.skipif(os.name == "nt", reason="folders cannot be synced")
def test_files_are_synced_before_they_are_renamed_and_their_folder_after(tmp_path, monkeypatch):
    place, seen, fsync = tmp_path / "a", [], os.fsync

    def noting(descriptor):
        seen.append(("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file", place.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    atomic.write_beside(place, lambda out: out.write(b"whole"))
    assert seen == [("file", False), ("folder", True)]
    place.unlink()
    atomic.write_folder_beside(place, lambda folder: (folder / "b").write_bytes(b"whole"))
    assert seen[-1] == ("folder", True)


def test_the_first_batch_takes_fifty_iterations():
    X = synthetic(60, 40, 5)
    settings = {"n_components": 5, "algorithm": "3b", "tol": 0, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first, wanted, fewer, more = (
            ReLUNMD(**settings).partial_fit(X),
            *(ReLUNMD(max_iter=most, **settings).fit(X) for most in (50, 40, 60)),
        )
    np.testing.assert_array_equal(first.components_, wanted.components_)
    assert not np.array_equal(wanted.components_, fewer.components_)
    assert not np.array_equal(wanted.components_, more.components_)
