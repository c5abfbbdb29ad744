"""n_components="auto", ridge="auto" and the scorer for GridSearchCV."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import relunmd
from relunmd import InputError, ReLUNMD, held_out_score
from relunmd.selection.folds import FoldPlan
from tests.conftest import synthetic
from tests.selection.test_folds import expected

X = synthetic(120, 40, 3) + 0.05 * np.random.default_rng(1).random((120, 40)) * (synthetic(120, 40, 3) > 0)
FIT = {"random_state": 0, "max_iter": 500, "tol": 1e-3}


class Chosen(ReLUNMD):
    """With "auto" for good: scikit-learn sets n_components to 1 or 2 in some of its checks."""

    n_components = property(lambda self: "auto", lambda self, value: None)

    def __init__(self, *, ridge=0.0, random_state=None):
        super().__init__("auto", ridge=ridge, random_state=random_state, tol=1e-2)


@parametrize_with_checks([Chosen(random_state=0), Chosen(ridge="auto", random_state=0)])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_the_rank_is_chosen():
    model = ReLUNMD("auto", **FIT)
    W = model.fit_transform(X)
    assert W.shape == (120, 3)
    assert model.n_components_ == model.selection_.rank == 3
    assert model.n_components == "auto"
    assert model.transform(X[:5]).shape == (5, 3)
    assert not hasattr(clone(model), "selection_")


def test_the_ridge_is_chosen():
    model = ReLUNMD(8, ridge="auto", **FIT).fit(X)
    assert model.n_components_ == 8
    assert model.selection_.ridge in (1e-3, 1e-2, 1e-1)
    assert model._penalty == pytest.approx(model.selection_.ridge * np.linalg.norm(X))
    again = ReLUNMD(8, ridge=model.selection_.ridge, **FIT).fit(X)
    assert again.error_ == model.error_
    assert not hasattr(again, "selection_")


def test_a_second_fit_without_auto_forgets_the_selection():
    model = ReLUNMD("auto", **FIT).fit(X)
    assert not hasattr(model.set_params(n_components=2).fit(X), "selection_")
    assert model.n_components_ == 2


def test_partial_fit():
    model = ReLUNMD("auto", **FIT).partial_fit(X[:80])
    assert model.n_components_ == 3
    assert model.partial_fit(X[80:]).n_samples_seen_ == 120


def test_the_ridge_of_another_setting():
    model = ReLUNMD(3, ridge="auto", **FIT).fit(X)
    model.set_params(ridge=0.05).partial_fit(X)
    assert model._method().ridge == 0.05
    with pytest.raises(InputError, match="Use fit again"):
        ReLUNMD(3, **FIT).fit(X).set_params(ridge="auto").partial_fit(X)


def test_too_little_time():
    with pytest.warns(ConvergenceWarning) as seen:
        ReLUNMD("auto", max_time=1e-3, random_state=0).fit(X)
    assert any("ended early by max_time" in str(warning.message) for warning in seen)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"init": (np.ones((120, 1)), np.ones((1, 40)))}, "init must be a name or an Init if"),
        ({"tol": None}, "tol must be"),
        ({"algorithm": "3b"}, "algorithm must be one of .*, since entries are left out"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=message):
        ReLUNMD("auto", **settings).fit(X)


@pytest.mark.parametrize("value", ["automatic", None, 0])
def test_other_values(value):
    with pytest.raises(InputError, match="n_components must be 'auto' or an integer"):
        ReLUNMD(value).fit(X)


class TestScorer:
    def test_the_error_on_entries_that_are_left_out(self):
        """Oracle: `fit_rows` with masks made from the hash in plain Python."""
        model = ReLUNMD(3, **FIT).fit(X[:80])
        new, squares, total = X[80:], 0.0, 0.0
        seed = int(np.random.default_rng(np.random.SeedSequence(7, spawn_key=(2023,))).integers(2**63))
        for fold in range(2):
            mask = expected(new, FoldPlan(seed, 2, 0.2, 0.2), fold)
            W = relunmd.fit_rows(new, model.components_, mask=mask).W
            squares += ((new - np.maximum(0, W @ model.components_))[mask] ** 2).sum()
            total += (new[mask] ** 2).sum()
        score = held_out_score(model, new, n_folds=2, share=0.2, random_state=7)
        assert score == pytest.approx(-np.sqrt(squares / total), rel=1e-3)

    def test_it_prefers_the_true_rank_where_score_prefers_the_largest(self):
        noisy = np.maximum(0, X + 0.3 * np.random.default_rng(0).standard_normal(X.shape))
        grid = {"n_components": [2, 3, 6, 12]}
        held_out = GridSearchCV(ReLUNMD(**FIT), grid, scoring=held_out_score, cv=3).fit(noisy)
        assert held_out.best_params_ == {"n_components": 3}
        assert GridSearchCV(ReLUNMD(**FIT), grid, cv=3).fit(noisy).best_params_ == {"n_components": 12}

    def test_pipelines(self):
        pipeline = make_pipeline(FunctionTransformer(np.sqrt), ReLUNMD(3, **FIT)).fit(X)
        assert held_out_score(pipeline, X) == held_out_score(pipeline[-1], np.sqrt(X))
        assert held_out_score(make_pipeline(pipeline[-1]), np.sqrt(X)) == held_out_score(pipeline[-1], np.sqrt(X))

    def test_missing_values(self):
        holes = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
        model = ReLUNMD(3, missing_values=np.nan, **FIT).fit(holes)
        assert -0.5 < held_out_score(model, holes) < 0

    def test_what_cannot_be_scored(self):
        with pytest.raises(NotFittedError):
            held_out_score(ReLUNMD(), X)
        with pytest.raises(InputError, match="needs a ReLUNMD"):
            held_out_score(FunctionTransformer(), X)
        model = ReLUNMD(2, **FIT).fit(X)
        with pytest.raises(InputError, match="no positive entry among those that are left out"):
            held_out_score(model, np.zeros((3, 40)))
        with pytest.raises(InputError, match="share must be"):
            held_out_score(model, X, share=2)
