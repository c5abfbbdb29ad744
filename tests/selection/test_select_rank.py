"""`select_rank`: the choice, storage, threads, resuming, interruptions, arguments."""

import json
import math
import os
import signal

import numpy as np
import pytest
from scipy import sparse

import relunmd
from relunmd import FileError, InputError, select_rank
from relunmd.selection import rank_search
from tests.conftest import relative_error, synthetic

X = synthetic(60, 40, 3) + 0.05 * np.random.default_rng(1).random((60, 40)) * (synthetic(60, 40, 3) > 0)
SEARCH = {"n_folds": 3, "random_state": 0, "max_iter": 60}
RANKS = [1, 2, 3, 4, 5]


def errors(found):
    return [(fit.fold, fit.rank, fit.ridge, fit.error, fit.training_error, fit.stability) for fit in found.fits]


@pytest.fixture(scope="module")
def selection():
    return select_rank(X, RANKS, **SEARCH)


def test_the_planted_rank(selection):
    assert selection.rank == 3
    assert selection.turned
    assert selection.model.rank == 3
    assert selection.model.error == pytest.approx(relative_error(X, selection.model.W, selection.model.H), rel=1e-9)
    assert selection.error < 0.1
    assert selection.ended_by == ""
    held = {row.rank: row.error for row in selection.rows}
    trained = {row.rank: row.training_error for row in selection.rows}
    assert held[1] > held[2] > held[3]
    assert trained[5] < trained[3] < trained[1]
    assert all(0 <= row.stability <= 1 for row in selection.rows if row.n_folds > 1)
    assert all(math.isnan(row.stability) for row in selection.rows if row.n_folds == 1)


def test_the_error_is_that_of_a_fit_without_the_entries(selection):
    """Oracle: `decompose` with the folds as masks, made from the hash in plain Python."""
    from relunmd.selection.folds import FoldPlan
    from tests.selection.test_folds import expected

    plan = FoldPlan(selection.settings["seed"], 3, 0.1, 0.1)
    for fit in selection.fits:
        if fit.rank == 3:
            mask = expected(X, plan, fit.fold)
            d = relunmd.decompose(X, 3, mask=mask, tol=1e-2, max_iter=60, random_state=0)
            residual = X - np.maximum(0, d.W @ d.H)
            assert np.linalg.norm(residual[mask]) / np.linalg.norm(X[mask]) == pytest.approx(fit.error, rel=0.05)
            assert d.error == pytest.approx(fit.training_error, rel=0.02)


def test_one_thread_or_two(selection):
    assert errors(select_rank(X, RANKS, n_jobs=2, **SEARCH)) == errors(selection)


def test_every_storage(selection, tmp_path):
    zarr = pytest.importorskip("zarr")
    h5py = pytest.importorskip("h5py")
    np.save(tmp_path / "X.npy", X)
    stored = zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, dtype=X.dtype, chunks=(60, 40))
    stored[...] = X
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file["X"] = X
        forms = [
            sparse.csr_array(X),
            np.asfortranarray(X),
            np.load(tmp_path / "X.npy", mmap_mode="r"),
            stored,
            file["X"],
        ]
        for form in forms:
            assert errors(select_rank(form, RANKS, **SEARCH)) == errors(selection)


def test_another_seed_holds_out_other_entries(selection):
    other = select_rank(X, RANKS, refit=False, **(SEARCH | {"random_state": 1}))
    assert other.fits[0].error != selection.fits[0].error
    assert other.model is None


def test_ridges():
    found = select_rank(X, [3, 8], ridges=[1e-2, 0], refit=True, **SEARCH)
    assert {row.ridge for row in found.rows} == {0.0, 1e-2}
    held = {(row.rank, row.ridge): row.error for row in found.rows}
    assert held[8, 1e-2] < held[8, 0.0]
    assert found.model.settings["ridge"] == found.ridge
    assert select_rank(X, [3], ridges="auto", refit=False, **SEARCH).settings["ridges"] == [0.0, 1e-3, 1e-2, 1e-1]


def test_a_single_rank():
    found = select_rank(X, [2], refit=False, **SEARCH)
    assert found.turned
    assert "turned" not in found.sentence


def test_a_curve_that_has_not_turned():
    found = select_rank(X, [1, 2], refit=False, **SEARCH)
    assert not found.turned
    assert "has not turned" in found.sentence
    assert "still falls at 2" in found.sentence


def test_larger_ranks_are_skipped_after_the_turn():
    noisy = np.maximum(0, X + 0.3 * np.random.default_rng(0).standard_normal(X.shape))
    found = select_rank(noisy, range(1, 20), refit=False, **SEARCH)
    assert max(row.rank for row in found.rows) < 19
    assert any(not row.complete for row in found.rows)


def test_missing_entries_weights_and_limits():
    hidden = np.random.default_rng(0).random(X.shape) < 0.2
    one = select_rank(np.where(hidden, np.nan, X), [2, 3, 4], missing_values=np.nan, refit=False, **SEARCH)
    other = select_rank(np.where(hidden, 99.0, X), [2, 3, 4], mask=hidden, refit=False, **SEARCH)
    assert errors(one) == errors(other)
    assert one.rank == 3
    weighted = select_rank(X, [2, 3], weights=1 + (X > 1), upper=3.0, refit=True, **SEARCH)
    assert weighted.model.rank in (2, 3)
    ratings = sparse.csr_array(np.where(hidden, 0, X + 0.1))
    assert select_rank(ratings, [1, 2, 3], missing_values="unstored", refit=False, **SEARCH).rank in (1, 2, 3)


def test_symmetric_entries_are_held_out_together(caplog):
    A = X @ X.T
    assert select_rank(A, [2, 3], refit=False, **SEARCH).settings["symmetric"]
    assert not select_rank(A, [2, 3], symmetric=False, refit=False, **SEARCH).settings["symmetric"]
    assert not select_rank(X, [2, 3], refit=False, **SEARCH).settings["symmetric"]


def test_balance():
    A = relunmd.datasets.planted(60, 50, 3, 0.9, random_state=0)
    found = select_rank(A, [2, 3], balance=True, refit=False, **SEARCH)
    assert found.settings["zero_share"] == pytest.approx(0.1 / 9, rel=1e-6)


def test_other_algorithms():
    assert select_rank(X, [2, 3], algorithm="3b-factored", **SEARCH).model.algorithm == "3b-factored"
    assert select_rank(X, [2, 3], algorithm=relunmd.EM(), init="tsvd", refit=False, **SEARCH).rank == 3


class TestEndedEarly:
    def test_a_callback(self):
        seen = []
        found = select_rank(X, RANKS, callback=lambda fit: seen.append(fit) or len(seen) == 4, **SEARCH)
        assert found.ended_by == "callback"
        assert found.model is None
        assert list(found.fits) == seen
        assert "ended early by callback" in found.sentence

    @pytest.mark.parametrize("count", range(1, 12))
    def test_the_choice_is_that_of_complete_folds(self, count, selection):
        """In a fold that is not complete only the smaller ranks are known."""
        fits = selection.fits
        seen = []
        found = select_rank(X, RANKS, callback=lambda fit: seen.append(fit) or len(seen) == count, **SEARCH)
        first = [fit for fit in fits if fit.fold == 0]
        if count >= len(first) and count < len(fits):
            assert found.rank == 3
        elif count < len(first):
            assert found.error <= min(fit.error for fit in first[:count]) + 0.005
            assert "has not turned" not in found.sentence

    def test_ctrl_c_during_the_refit(self, monkeypatch):
        def interrupted(*args):
            os.kill(os.getpid(), signal.SIGINT)
            return solve(*args)

        solve = rank_search.solve
        monkeypatch.setattr(rank_search, "solve", interrupted)
        found = select_rank(X, [2, 3], **SEARCH)
        assert found.ended_by == "Ctrl-C"
        assert found.model is None
        assert found.rank == 3

    def test_ctrl_c(self):
        def press(fit):
            if fit.rank == 3:
                os.kill(os.getpid(), signal.SIGINT)

        found = select_rank(X, RANKS, callback=press, **SEARCH)
        assert found.ended_by == "Ctrl-C"
        assert len(found.fits) == 3

    def test_ctrl_c_during_a_fit(self, monkeypatch):
        fits = []

        def interrupted(*args):
            fits.append(args)
            if len(fits) == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return fit_fold(*args)

        fit_fold = rank_search.fit_fold
        monkeypatch.setattr(rank_search, "fit_fold", interrupted)
        found = select_rank(X, RANKS, **SEARCH)
        assert found.ended_by == "Ctrl-C"
        assert len(found.fits) == 2

    def test_ctrl_c_before_the_first_fit(self, monkeypatch):
        def press(*args):
            raise KeyboardInterrupt

        monkeypatch.setattr(rank_search, "fit_fold", press)
        with pytest.raises(KeyboardInterrupt):
            select_rank(X, RANKS, **SEARCH)

    def test_max_time(self):
        found = select_rank(X, RANKS, max_time=1e-3, **SEARCH)
        assert found.ended_by == "max_time"
        assert len(found.fits) >= 1
        assert "±" not in found.sentence

    def test_a_fit_that_was_cut_short_is_not_kept(self, tmp_path, selection):
        select_rank(X, RANKS, max_time=1e-3, checkpoint=tmp_path / "fits.npz", **SEARCH)
        assert errors(select_rank(X, RANKS, checkpoint=tmp_path / "fits.npz", **SEARCH)) == errors(selection)

    def test_max_time_of_a_search_that_is_complete(self, tmp_path, selection):
        select_rank(X, RANKS, checkpoint=tmp_path / "fits.npz", refit=False, **SEARCH)
        found = select_rank(X, RANKS, max_time=1e-3, checkpoint=tmp_path / "fits.npz", refit=False, **SEARCH)
        assert found.ended_by == ""
        assert errors(found) == errors(selection)


class TestCheckpoint:
    def test_resuming_gives_the_same_bits(self, tmp_path, selection):
        place, seen = tmp_path / "fits.npz", []
        select_rank(X, RANKS, callback=lambda fit: seen.append(fit) or len(seen) == 7, checkpoint=place, **SEARCH)
        more = []
        found = select_rank(X, RANKS, callback=more.append, checkpoint=place, **SEARCH)
        assert errors(found) == errors(selection)
        assert len(seen) + len(more) == len(found.fits)
        np.testing.assert_array_equal(found.model.W, selection.model.W)

    def test_without_a_seed_that_of_the_file_counts(self, tmp_path):
        place, options = tmp_path / "fits.npz", SEARCH | {"random_state": None}
        one = select_rank(X, [2, 3], checkpoint=place, refit=False, **options)
        other = select_rank(X, [2, 3], checkpoint=place, refit=False, **options)
        assert errors(one) == errors(other)
        assert one.settings["seed"] == other.settings["seed"]
        models = [select_rank(X, [2, 3], init="random", checkpoint=tmp_path / "other.npz", **options) for _ in range(2)]
        assert models[0].model.error == models[1].model.error

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"ranks": [2, 4]}, "ranks"),
            ({"n_folds": 4}, "n_folds"),
            ({"share": 0.2}, "share"),
            ({"random_state": 5}, "seed"),
            ({"ridges": (0.1,)}, "ridges"),
            ({"X": X + 1}, "another matrix"),
        ],
    )
    def test_of_another_search(self, tmp_path, change, named):
        arguments = {"X": X, "ranks": [2, 3], "refit": False, "checkpoint": tmp_path / "fits.npz", **SEARCH}
        select_rank(**arguments)
        with pytest.raises(InputError, match=f"checkpoint must be of the same search.*{named}"):
            select_rank(**(arguments | change))

    def test_damaged(self, tmp_path):
        (tmp_path / "fits.npz").write_bytes(b"nothing")
        with pytest.raises(FileError, match="must be a rank selection"):
            select_rank(X, [2], checkpoint=tmp_path / "fits.npz", **SEARCH)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 5}, "ranks must be integers such as"),
        ({"ranks": []}, "ranks must have at least one"),
        ({"ranks": [0]}, "ranks must be integers between 1 and min"),
        ({"ranks": [2, 41]}, "ranks must be integers between 1 and min"),
        ({"ridges": "none"}, "ridges must be numbers or 'auto'"),
        ({"ridges": 0.1}, "ridges must be numbers such as"),
        ({"ridges": [-1]}, "ridge must be"),
        ({"ridges": []}, "ridges must be at least one number"),
        ({"n_folds": 1}, "n_folds must be at least 2"),
        ({"share": 0}, "share must be"),
        ({"share": 0.6}, "share must be"),
        ({"rule": "best"}, "rule must be one of"),
        ({"symmetric": "maybe"}, "symmetric must be"),
        ({"symmetric": True}, "needs a square X"),
        ({"algorithm": "3b"}, "algorithm must be one of .*, since entries are left out"),
        ({"init": "nuclear"}, "init must be one of"),
        ({"init": (np.ones((60, 1)), np.ones((1, 40)))}, "init must not be given factors"),
        ({"tol": -1}, "tol must be"),
        ({"checkpoint": "/nowhere/fits.npz"}, "checkpoint must be a file in an existing folder"),
    ],
)
def test_invalid_arguments(options, message):
    with pytest.raises(InputError, match=message):
        select_rank(X, **(SEARCH | {"ranks": [2, 3]} | options))


def test_too_few_positive_entries():
    A = np.zeros((10, 8))
    A[0, 0] = 1
    with pytest.raises(InputError, match="too few positive entries"):
        select_rank(A, [1], **SEARCH)


def test_what_the_result_prints(selection):
    frame = selection.to_frame()
    assert frame[frame.chosen]["rank"].tolist() == [3]
    assert str(selection) == selection.summary()
    assert " <" in selection.summary()
    assert repr(selection).startswith("RankSelection(rank=3, ridge=0, error=0.0")
    json.dumps(selection.table())


def test_progress(capsys, selection):
    assert errors(select_rank(X, RANKS, progress=True, **SEARCH)) == errors(selection)
    shown = capsys.readouterr().out
    assert "fold 1 of 3, rank 1: held-out error" in shown


def test_nothing_is_predicted():
    noise = np.maximum(0, np.random.default_rng(0).standard_normal((40, 30)) - 1)
    found = select_rank(noise, [5, 6], refit=False, **SEARCH)
    assert found.error > 0.9
    assert math.isfinite(found.error)
