"""The curve of `select_rank` on Matplotlib axes."""

import matplotlib.pyplot as plt
import pytest

import relunmd
from relunmd import plot
from tests.conftest import synthetic

X = synthetic(60, 40, 3)


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def test_one_ridge():
    found = relunmd.select_rank(X, [1, 2, 3, 4], n_folds=2, refit=False, random_state=0)
    ax = plot.rank_curve(found, title="planted")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["held out", "training"]
    held, training = (line for line in ax.get_lines() if line.get_label() in labels)
    assert list(held.get_xdata()) == [row.rank for row in found.rows]
    assert held.get_ydata()[0] == pytest.approx(found.rows[0].error, rel=1e-5)
    assert training.get_ydata()[0] == pytest.approx(found.rows[0].training_error, rel=1e-5)
    assert ax.get_title() == "planted"


def test_several_ridges_on_given_axes():
    found = relunmd.select_rank(X, [2, 3], ridges=[0, 0.1], n_folds=2, refit=False, random_state=0)
    _, given = plt.subplots()
    ax = plot.rank_curve(found, given)
    assert ax is given
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ridge 0", "ridge 0.1"]
