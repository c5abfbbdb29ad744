"""Figures of decompositions and comparisons: drawn on the given Axes, with the right numbers."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy import sparse

import relunmd
from relunmd import datasets, plot
from relunmd.errors import InputError, MissingDependencyError
from relunmd.plot import style
from relunmd.plot.image_sheets import mosaic
from tests.comparison.conftest import silent

X = datasets.digits()[:90]


@pytest.fixture(scope="module")
def runs():
    return [relunmd.decompose(X, 6, name, random_state=0, max_iter=10, tol=0) for name in ("qn", "3b", "tsvd")]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared") / "out"
    return relunmd.compare(X, [3, 6], folder, algorithms=["qn", "em"], max_time=None, max_iter=6, display=silent())


@pytest.fixture
def ax():
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.subplots()


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def drawn(ax):
    ax.figure.canvas.draw()  # What cannot be drawn raises here.
    return ax


DRAW = {
    "convergence": lambda subject, ax: plot.convergence(subject, ax),
    "error_by_rank": lambda subject, ax: plot.error_by_rank(subject, ax),
    "components": lambda subject, ax: plot.components(subject, ax, image_shape=(8, 8)),
    "reconstructions": lambda subject, ax: plot.reconstructions(subject, X, ax, image_shape=(8, 8)),
    "spectrum": lambda subject, ax: plot.spectrum(subject, ax),
}


@pytest.mark.parametrize("name", DRAW)
class TestEvery:
    def test_takes_and_returns_axes(self, name, runs, compared, ax):
        named = {"a $b$ <c>": runs[0], "ü": runs[1]}
        subjects = [runs[0], compared] if name == "components" else [runs[0], runs, tuple(runs), named, compared]
        for subject in subjects:
            ax.clear()
            assert DRAW[name](subject, ax) is ax
            drawn(ax)

    def test_makes_a_figure_of_its_own(self, name, runs):
        from matplotlib import pyplot

        before = pyplot.get_fignums()
        made = DRAW[name](runs[0], None)
        assert drawn(made).figure.number not in before
        pyplot.close(made.figure)

    def test_refuses_what_it_cannot_draw(self, name, runs, ax):
        for subject in (X, [], {}, "qn", [1], None, [runs[0], X]):
            with pytest.raises(InputError, match="The first argument must be a Decomposition"):
                DRAW[name](subject, ax)
        with pytest.raises(InputError, match="ax must be a Matplotlib Axes"):
            DRAW[name](runs[0], "axes")

    def test_changes_nothing_global(self, name, runs, ax):
        import matplotlib

        before = dict(matplotlib.rcParams)
        DRAW[name](runs[0], ax)
        assert dict(matplotlib.rcParams) == before


class TestConvergence:
    @pytest.mark.parametrize("over", ["time", "iteration", "passes"])
    def test_has_the_history(self, runs, ax, over):
        plot.convergence(runs[:2], ax, over=over)
        assert legend(ax) == ["qn", "3B-NMD"]
        for line, run in zip(ax.lines, runs, strict=False):
            np.testing.assert_allclose(line.get_ydata(), run.history.error, rtol=1e-5)
            np.testing.assert_allclose(line.get_xdata(), getattr(run.history, over), rtol=1e-5)
        assert ax.get_yscale() == "log"

    def test_one_algorithm_at_several_ranks_is_told_apart(self, runs, ax):
        other = relunmd.decompose(X, 3, random_state=0, max_iter=4)
        plot.convergence([runs[0], other, runs[0]], ax)
        assert legend(ax) == ["qn, rank 6 (1)", "qn, rank 3", "qn, rank 6 (2)"]
        ax.clear()
        plot.convergence([runs[0], other], ax, rank=3)
        assert legend(ax) == ["qn, rank 3"]

    def test_of_a_comparison(self, compared, ax):
        plot.convergence(compared, ax, rank=3)
        assert set(legend(ax)) == {"qn", "EM", "NMF"}
        with pytest.raises(InputError, match="rank must be one of 3, 6"):
            plot.convergence(compared, ax, rank=4)
        with pytest.raises(InputError, match='over must be "time"'):
            plot.convergence(compared, ax, over="passes")

    def test_unknown_axis(self, runs, ax):
        with pytest.raises(InputError, match="over must be one of time, iteration, passes"):
            plot.convergence(runs, ax, over="space")

    @pytest.mark.parametrize("X", [np.ones((1, 5)), np.ones((4, 4))])
    def test_an_error_of_zero(self, ax, X):
        d = relunmd.decompose(X, 1, max_iter=3)
        drawn(plot.convergence({"_underscored": d}, ax))
        assert legend(ax) == [" _underscored"]

    def test_a_rank_that_is_not_there(self, runs, compared, ax):
        with pytest.raises(InputError, match=r"components plots one Decomposition; got 3"):
            plot.components(runs, ax)
        for draw in (plot.convergence, plot.components, plot.spectrum):
            with pytest.raises(InputError, match=r"rank must be one of 6; got 99"):
                draw(runs, ax, rank=99)

    def test_many_names_are_beside_the_picture(self, runs, ax):
        drawn(plot.convergence({f"a rather long name, number {k}" * 2: runs[0] for k in range(15)}, ax))
        assert ax.get_legend().get_bbox_to_anchor().x0 >= ax.bbox.x1

    def test_names_are_no_mathematics(self, runs, ax):
        plot.convergence({"$a": runs[0], "b$": runs[1]}, ax, title="100 $ or 200 $")
        drawn(ax)
        assert ax.get_title() == r"100 \$ or 200 \$"

    def test_an_algorithm_looks_the_same_everywhere(self, runs, ax):
        plot.convergence(runs[:2], ax)
        plot.convergence(runs[1], ax)
        first, second, again = (line for line in ax.lines)
        assert second.get_color() == again.get_color() != first.get_color()
        assert second.get_marker() == again.get_marker()


class TestErrorByRank:
    def test_the_best_of_several_at_a_rank(self, runs, ax):
        other = relunmd.decompose(X, 3, random_state=0, max_iter=4)
        worse = relunmd.decompose(X, 6, random_state=0, max_iter=1)
        plot.error_by_rank([runs[0], worse, other], ax)
        (line,) = ax.lines
        np.testing.assert_allclose(line.get_xdata(), [3, 6])
        np.testing.assert_allclose(line.get_ydata(), [other.error, runs[0].error], rtol=1e-5)

    def test_of_a_comparison(self, compared, ax):
        plot.error_by_rank(compared, ax)
        assert legend(ax) == compared.ranking(6)


class TestSpectrum:
    def test_is_that_of_the_product(self, runs, ax):
        plot.spectrum(runs[0], ax, X=X)
        own, of_x = ax.lines
        wanted = np.linalg.svd(runs[0].W @ runs[0].H, compute_uv=False)[:6]
        np.testing.assert_allclose(own.get_ydata(), wanted, rtol=1e-5)
        np.testing.assert_allclose(of_x.get_ydata(), np.linalg.svd(X, compute_uv=False)[:12], rtol=1e-5)
        assert legend(ax) == ["qn", "X itself"]

    def test_of_sparse_X(self, runs, ax):
        plot.spectrum(runs[0], ax, X=sparse.csr_array(X))
        np.testing.assert_allclose(ax.lines[1].get_ydata(), np.linalg.svd(X, compute_uv=False)[:12], rtol=1e-5)

    def test_of_a_product_of_less_rank(self, ax):
        d = relunmd.decompose(np.outer(np.arange(1, 9.0), np.arange(1, 7.0)), 2, "tsvd")
        drawn(plot.spectrum(d, ax))


class TestImages:
    def test_components_are_where_they_belong(self, runs, ax):
        plot.components(runs[0], ax, image_shape=(8, 8), most=4)
        sheet = ax.images[0].get_array()
        first = runs[0].H[0].reshape(8, 8)
        np.testing.assert_allclose(sheet[1:9, 1:9], first / np.abs(first).max())

    def test_a_comparison_knows_its_images(self, compared, ax):
        plot.components(compared, ax)
        assert ax.images[0].get_array().shape[0] > 6
        assert ax.get_title() == f"{compared.ranking(6)[0]}, rank 6"
        ax.clear()
        plot.reconstructions(compared, X, ax, rows=[1])
        assert ax.images[0].get_array().shape == (5 * 9 + 1, 10)

    def test_components_that_are_no_images(self, runs, ax):
        plot.components(runs[0], ax)
        assert ax.images[0].get_array().shape == (6, 64)
        assert ax.get_xlabel() == "column of X"

    @pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_matrix])
    def test_rows_and_their_reconstructions(self, runs, ax, kind):
        plot.reconstructions(runs, kind(X), ax, rows=[5, 7], image_shape=(8, 8))
        sheet = ax.images[0].get_array()
        assert sheet.shape == (4 * 9 + 1, 2 * 9 + 1)
        np.testing.assert_array_equal(sheet[1:9, 10:18], X[7].reshape(8, 8))
        np.testing.assert_allclose(sheet[10:18, 1:9], runs[0].reconstruct([5]).reshape(8, 8))
        assert [text.get_text() for text in ax.get_yticklabels()] == ["X", "qn", "3B-NMD", "TSVD"]

    def test_rows_that_are_no_images(self, runs, ax):
        plot.reconstructions(runs[0], X, ax)
        sheet = ax.images[0].get_array()
        assert sheet.shape == (12 + 1 + 12, 64)
        np.testing.assert_array_equal(sheet[0], X[0])

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"rows": [90]}, "list of row indices from 0 to 89"),
            ({"rows": [-1]}, "list of row indices from 0 to 89"),
            ({"rows": [0.5]}, "list of row indices from 0 to 89"),
            ({"rows": []}, "list of row indices from 0 to 89"),
            ({"image_shape": (7, 7)}, "as many pixels as X has columns, 64"),
            ({"image_shape": 8}, "a height and a width"),
            ({"X": X[:, :60]}, "X must be the matrix that was decomposed"),
        ],
    )
    def test_refusals(self, runs, ax, options, said):
        given = {"X": X} | options
        with pytest.raises(InputError, match=said):
            plot.reconstructions(runs[0], given.pop("X"), ax, **given)

    def test_mosaic(self):
        sheet = mosaic(np.arange(18.0).reshape(3, 6), (2, 3), 2, gap=-1)
        np.testing.assert_array_equal(sheet[1:3, 5:8], [[6, 7, 8], [9, 10, 11]])
        np.testing.assert_array_equal(sheet[4:6, 1:4], [[12, 13, 14], [15, 16, 17]])
        assert (sheet[3] == -1).all()


def test_without_matplotlib(monkeypatch, runs):
    def missing(module, what, extra):
        raise MissingDependencyError(f"{what} {module}: pip install 'relunmd[{extra}]'.")

    monkeypatch.setattr(style, "need", missing)
    with pytest.raises(MissingDependencyError, match=r"relunmd\[plot\]"):
        plot.convergence(runs[0])
