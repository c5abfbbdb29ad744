"""What the author of an algorithm relies on: settings, declarations, `look`, and the simple forms."""

import ast
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import relunmd
from benchmarks import reference
from relunmd import Algorithm, DenseAlgorithm, InputError, State, look, setting
from relunmd.algorithm.state import Shape
from tests.comparison.conftest import silent
from tests.conftest import projection, relative_error, synthetic
from tests.contract import assert_follows

ROOT = Path(__file__).parents[2]


def class_of(example, name):
    """A class of an example, without running the rest of it."""
    tree = ast.parse((ROOT / "examples" / example).read_text(encoding="utf-8"))
    kept = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)]
    names = {"__name__": "example"}
    exec(compile(ast.Module(kept, []), example, "exec"), names)
    return names[name]


EBCD = class_of("plot_own_algorithm.py", "EBCD")


def ebcd(X, W, H, mu=0.3, alpha_max=4.0, delta=0.8):
    """eBCD of Seraghiti et al. (2025) in plain NumPy."""
    alpha, Theta = 1.0, W @ H
    Z = projection(X, Theta)
    while True:
        Z_alpha = Theta + alpha * (Z - Theta)
        Q = np.linalg.qr(Z_alpha @ H.T)[0]
        H_new = Q.T @ Z_alpha
        Theta_new = Q @ H_new
        Z_new = projection(X, Theta_new)
        ratio = np.linalg.norm(Z_new - Theta_new) / np.linalg.norm(Z - Theta)
        if ratio >= 1:
            alpha = 1.0
        else:
            W, H, Theta, Z = Q, H_new, Theta_new, Z_new
            if ratio > delta:
                mu = max(mu, (alpha - 1) / 4)
                alpha = alpha + mu if alpha + mu < alpha_max else 1.0
        yield W, H


def ebcd_again(X, W, H):
    yield from ebcd(X, W, H)


def three_block(X, W, H):
    Theta, Z = W @ H, projection(X, W @ H)
    while True:
        Z_new = projection(X, Theta)
        Z = Z_new + 0.7 * (Z_new - Z)
        W = np.linalg.solve(H @ H.T, H @ Z.T).T
        H = np.linalg.solve(W.T @ W, W.T @ Z)
        Theta = W @ H + 0.7 * (W @ H - Theta)
        yield W, H


@dataclass(frozen=True)
class Tikhonov(DenseAlgorithm):
    """NMD-TM of Wang et al., as a dense method."""

    keeps = {"Z": "mn", "Theta": "mn"}
    beta1: float = setting(0.95, ge=0)
    beta2: float = setting(-0.05)

    def begin(self, X, W, H):
        return {"Z": projection(X, W @ H), "Theta": W @ H}

    def update(self, X, W, H, Z, Theta):
        shift = 1e-4 * np.eye(len(H), dtype=H.dtype)
        Z = (1 + self.beta1) * projection(X, Theta) - self.beta1 * Z
        W = (1 + self.beta2) * np.linalg.solve(H @ H.T + shift, H @ Z.T).T - self.beta2 * W
        H = (1 + self.beta2) * np.linalg.solve(W.T @ W + shift, W.T @ Z) - self.beta2 * H
        return W, H, {"Z": Z, "Theta": (1 + self.beta1) * (W @ H) - self.beta1 * Theta}


def test_the_paper_s_algorithm_follows_numpy():
    assert_follows("3b", three_block)


def test_the_example_follows_numpy():
    assert_follows(EBCD(), ebcd, iterations=25)


def test_following_another_method_fails():
    with pytest.raises(AssertionError, match="iteration 1"):
        assert_follows("3b-factored", three_block)


@pytest.mark.parametrize("algorithm", [EBCD(), Tikhonov()])
class TestWithoutRegistration:
    X = synthetic(60, 40, 3) + 0.1 * synthetic(60, 40, 20, seed=1)
    RUN = {"random_state": 0, "max_iter": 20, "tol": 0}

    def test_decompose(self, algorithm):
        d = relunmd.decompose(self.X, 3, algorithm, **self.RUN)
        assert d.algorithm == algorithm.name == type(algorithm).__name__.lower()
        assert d.settings == algorithm.settings()
        assert d.error == pytest.approx(relative_error(self.X, d.W, d.H))
        other = relunmd.decompose(sparse.csr_array(self.X), 3, algorithm, n_jobs=2, **self.RUN)
        assert other.W.tobytes() == d.W.tobytes()

    def test_a_checkpoint(self, algorithm, tmp_path):
        whole = relunmd.decompose(self.X, 3, algorithm, **self.RUN)
        place = tmp_path / "run.npz"
        relunmd.decompose(self.X, 3, algorithm, **self.RUN | {"max_iter": 8}, checkpoint=place)
        resumed = relunmd.decompose(self.X, 3, algorithm, **self.RUN, checkpoint=place)
        assert resumed.W.tobytes() == whole.W.tobytes()
        assert resumed.history.error.tolist() == whole.history.error.tolist()

    def test_estimator_saving_and_comparison(self, algorithm, tmp_path):
        model = relunmd.ReLUNMD(3, algorithm=algorithm, tol=0, max_iter=10, random_state=0).fit(self.X)
        assert model.components_.shape == (3, 40)
        d = relunmd.decompose(self.X, 3, algorithm, **self.RUN)
        d.save(tmp_path / "d.npz")
        assert relunmd.Decomposition.load(tmp_path / "d.npz").algorithm == algorithm.name
        chosen = {"algorithms": [algorithm, ebcd_again], "max_time": 0.1, "display": silent()}
        found = relunmd.compare(self.X, [3], tmp_path / "out", **chosen)
        assert {algorithm.name, "ebcd_again"} <= set(found.labels)


class TestGenerator:
    X = synthetic(50, 30, 3)

    def test_the_same_as_a_class(self):
        run = {"random_state": 0, "max_iter": 10, "tol": 0, "init": "tsvd"}
        d = relunmd.decompose(self.X, 3, ebcd, **run)
        assert d.algorithm == "ebcd"
        expected = relunmd.decompose(self.X, 3, EBCD(), **run)
        np.testing.assert_allclose(d.history.error, expected.history.error, rtol=1e-8)

    def test_sparse_and_scaled(self):
        d = relunmd.decompose(sparse.csr_array(self.X * 1e6), 3, ebcd, random_state=0, max_iter=5, tol=0)
        assert d.error == pytest.approx(relative_error(self.X * 1e6, d.W, d.H))

    def test_one_that_ends_has_converged(self):
        def twice(X, W, H):
            yield W, H
            yield 2 * W, H

        d = relunmd.decompose(self.X, 3, twice, init="random", random_state=0, tol=0, max_iter=50)
        assert d.status is relunmd.Status.CONVERGED
        assert d.n_iter == 3

    def test_its_memory_is_checked_first(self, monkeypatch):
        monkeypatch.setattr("relunmd.memory.available_bytes", lambda: 10_000)
        with pytest.raises(relunmd.InsufficientMemoryError, match="algorithm='ebcd', which keeps 2 arrays"):
            relunmd.decompose(self.X, 3, ebcd)

    def test_no_checkpoint(self, tmp_path):
        with pytest.raises(InputError, match="checkpoint is not supported for a generator function"):
            relunmd.decompose(self.X, 3, ebcd, checkpoint=tmp_path / "run.npz")

    def test_x_is_read_only(self):
        def careless(X, W, H):
            X[0] = 0
            yield W, H

        with pytest.raises(ValueError, match="read-only"):
            relunmd.decompose(self.X, 3, careless, max_iter=2)


def test_look_finds_what_numpy_finds(open_problem, layout):
    X = synthetic(40, 30, 4)
    problem = open_problem(X, 4)
    random = np.random.default_rng(0)
    A, B, H = random.standard_normal((40, 4)), random.standard_normal((40, 4)), random.standard_normal((4, 30))
    C = random.standard_normal((4, 4))
    seen = look(problem, [(A, C), (B, -0.5)], H)
    W, S = A @ C - 0.5 * B, X * problem.matrix.scale
    G = projection(S, W @ H) - W @ H
    P = G @ H.T @ np.linalg.inv(H @ H.T)
    expected = {"W": W, "P": P, "GW": G.T @ W, "GP": G.T @ P, "WW": W.T @ W, "WP": W.T @ P, "PP": P.T @ P}
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(seen, name), value, atol=1e-9 * np.abs(value).max(), err_msg=name)
    assert seen.error == pytest.approx(relative_error(S, W, H))
    assert seen.objective == pytest.approx(np.linalg.norm(G) / np.linalg.norm(S))
    assert look(problem, W, H, leak=0.0).objective == pytest.approx(seen.error)


@dataclass(frozen=True)
class Settings(Algorithm):
    """A few settings."""

    share: float = setting(0.5, gt=0, le=1)
    count: int = setting(2, ge=1)
    fast: bool = setting(False)

    def start(self, problem, W, H):
        return State(W, H, problem.error(W, H))

    def step(self, problem, state):
        return state


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"share": 0}, r"share of Settings must be a number in \(0, 1\]; got 0\."),
        ({"share": np.nan}, r"must be a number in \(0, 1\]; got nan"),
        ({"share": True}, "must be a number"),
        ({"count": 0}, "count of Settings must be an integer of at least 1; got 0"),
        ({"count": 1.5}, "must be an integer"),
        ({"fast": 1}, "fast of Settings must be True or False; got 1"),
    ],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(InputError, match=message):
        Settings(**wrong)


def test_settings_are_converted():
    made = Settings(share=np.float32(0.5), count=np.int64(3))
    assert [type(value) for value in made.settings().values()] == [float, int, bool]
    assert (made.name, made.summary) == ("settings", "A few settings")


def test_a_declaration():
    assert Shape.parse("k * mr float32") == Shape("mr", "float32", "k")
    assert Shape.parse("np float64") == Shape("np", "float64", "")
    assert (Tikhonov.dense_arrays, EBCD.dense_arrays) == (5, 0)


def test_memory_is_reused_once_nobody_refers_to_it():
    """Two iterations of 3B write four m×n arrays in turn."""
    seen = []

    @dataclass(frozen=True)
    class Watched(relunmd.ThreeBlock):
        def step(self, problem, state):
            seen.append((state.Z.__array_interface__["data"][0], state.Theta.__array_interface__["data"][0]))
            return super().step(problem, state)

    relunmd.decompose(synthetic(300, 200, 3), 3, Watched(), random_state=0, tol=0, max_iter=12)
    assert len({address for pair in seen[2:] for address in pair}) <= 4


def test_the_reference_of_the_benchmark_is_the_same_method():
    X = synthetic(40, 30, 3)
    random = np.random.default_rng(0)
    W, H = random.standard_normal((40, 3)), random.standard_normal((3, 30))
    errors = reference.three_block(X, W, H, max_iter=5)[2]
    iterates = three_block(X, W, H)
    for error in errors[1:]:
        assert relative_error(X, *next(iterates)) == pytest.approx(error)
