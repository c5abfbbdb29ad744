"""What bad input gets: one sentence that names the argument, what it must be and what was given."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import relunmd
from relunmd import memory
from relunmd.algorithm import ALGORITHMS
from relunmd.errors import InputError
from relunmd.init import INITS, Init
from tests.conftest import relative_error, synthetic

GOOD = synthetic(12, 9, 2)
FRUGAL = ", ".join(name for name, algorithm in ALGORITHMS.items() if algorithm.dense_arrays == 0)


def with_entry(value, place=(3, 4), dtype=np.float64):
    X = GOOD.astype(dtype)
    X[place] = value
    return X


def no_array():
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("no data today")

    return Broken()


BAD_X = {
    "nan": (
        with_entry(np.nan),
        "X must be finite; got NaN or infinity in 1 entry, the first at row 3, column 4",
    ),
    "inf": (with_entry(np.inf), "the first at row 3, column 4 (inf)"),
    "-inf": (with_entry(-np.inf, dtype=np.float32), "X must be finite; got NaN or infinity in 1 entry"),
    "sparse nan": (sparse.csr_array(with_entry(np.nan)), "X must be finite"),
    "negative": (
        with_entry(-2.5),
        "the first at row 3, column 4 (-2.5). If these are rounding errors, use np.maximum(X, 0)",
    ),
    "negative integer": (
        with_entry(-2, dtype=np.int16),
        "got a negative value in 1 entry, the first at row 3, column 4 (-2)",
    ),
    "1-d": (np.ones(5), "X must be two-dimensional; got 1 dimension(s), shape (5,)"),
    "3-d": (np.ones((2, 2, 2)), "X must be two-dimensional; got 3 dimension(s)"),
    "1-d sparse": (sparse.coo_array([1.0, 2.0]), "X must be two-dimensional; got 1 dimension(s), shape (2,)"),
    "scalar": (3.0, "X must be two-dimensional; got 0 dimension(s)"),
    "no rows": (np.ones((0, 4)), "X must not be empty; got shape (0, 4)"),
    "no columns": (np.ones((4, 0)), "X must not be empty; got shape (4, 0)"),
    "complex": (GOOD.astype(complex), "X must hold real numbers; got dtype complex128. Pass its real part."),
    "object": (GOOD.astype(object), "X must hold real numbers; got dtype object"),
    "text": (GOOD.astype(str), "X must hold real numbers; got dtype <U"),
    "dates": (np.zeros((3, 3), "datetime64[s]"), "X must hold real numbers; got dtype datetime64"),
    "ragged": ([[1, 2], [3]], "X must be a two-dimensional array; got list"),
    "broken": (no_array(), "X must be a two-dimensional array; got Broken: no data today"),
    "None": (None, "X must hold real numbers; got dtype object"),
    "beyond float64": (
        with_entry(np.longdouble("1e400"), dtype=np.longdouble),
        "the first at row 3, column 4",
    ),
    "all zero": (np.zeros((4, 4)), "X must have a positive entry; got zeros"),
    "masked rows": ([np.ma.masked_equal(row, 0) for row in GOOD], "must not be a masked array here; got one with"),
}

BAD_ARGUMENTS = {
    "rank 0": ({"rank": 0}, "rank must be an integer between 1 and min(m, n) = 9; got 0."),
    "rank too large": ({"rank": 10}, "rank must be an integer between 1 and min(m, n) = 9; got 10."),
    "rank float": ({"rank": 2.0}, "got 2.0."),
    "rank bool": ({"rank": True}, "got True."),
    "rank text": ({"rank": "2"}, "got '2'."),
    "unknown algorithm": (
        {"algorithm": "nmf"},
        f"algorithm must be one of auto, {', '.join(ALGORITHMS)}, an Algorithm such as",
    ),
    "algorithm class": ({"algorithm": relunmd.ANMD}, "an Algorithm such as relunmd.ANMD(beta0=0.9)"),
    "unknown init": ({"init": "zeros"}, f"init must be one of {', '.join(INITS)}"),
    "init shape": (
        {"init": (np.ones((12, 2)), np.ones((3, 9)))},
        "W0 of shape (12, k) and H0 of shape (k, 9) with 1 ≤ k ≤ rank = 2; got (12, 2) and (3, 9).",
    ),
    "init rank": ({"init": (np.ones((12, 3)), np.ones((3, 9)))}, "with 1 ≤ k ≤ rank = 2"),
    "init rows": ({"init": (np.ones((11, 2)), np.ones((2, 9)))}, "got (11, 2) and (2, 9)."),
    "init nan": (
        {"init": (np.full((12, 2), np.nan), np.ones((2, 9)))},
        "W0 of init must be finite; got 24 entries that are not.",
    ),
    "init complex": (
        {"init": (np.ones((12, 2)), np.ones((2, 9), complex))},
        "H0 of init must be a two-dimensional real array",
    ),
    "init 1-d": ({"init": (np.ones(12), np.ones((1, 9)))}, "W0 of init must be a two-dimensional real array"),
    "init of another X": ({"init": relunmd.decompose(np.eye(5), 2, max_iter=1)}, "got (5, 2) and (2, 5)."),
    "tol negative": (
        {"tol": -1e-3},
        "tol must be a number in [0, 1); 0 disables it; got -0.001.",
    ),
    "tol None": ({"tol": None}, "tol must be a number in [0, 1); 0 disables it; got None."),
    "tol 1": ({"tol": 1}, "tol must be a number in [0, 1); 0 disables it; got 1."),
    "target above 1": ({"target_error": 1.5}, "target_error must be a number from 0 to 1, or None; got 1.5."),
    "target text": ({"target_error": "small"}, "got 'small'."),
    "target nan": ({"target_error": np.nan}, "target_error must be a number from 0 to 1"),
    "max_iter negative": ({"max_iter": -1}, "max_iter must be an integer of at least 0, or None; got -1."),
    "max_iter float": ({"max_iter": 10.5}, "max_iter must be an integer of at least 0, or None; got 10.5."),
    "max_time 0": ({"max_time": 0}, "max_time must be a positive number of seconds, or None; got 0."),
    "max_time beyond floats": (
        {"max_time": 10**400},
        "max_time must be a positive number of seconds, or None; got 1000",
    ),
    "max_time negative": ({"max_time": -3}, "max_time must be a positive number of seconds, or None; got -3."),
    "endless": (
        {"tol": 0, "max_iter": None},
        "The run would never stop: set target_error, tol, max_iter, max_time or a callback",
    ),
    "dtype int": ({"dtype": "int64"}, "dtype must be float32, float64 or None; got 'int64'."),
    "dtype nonsense": ({"dtype": "single precision"}, "dtype must be float32, float64 or None"),
    "seed negative": ({"random_state": -1}, "random_state must be None, an integer of at least 0"),
    "seed text": ({"random_state": "seed"}, "got 'seed'."),
    "callback": ({"callback": 3}, "callback must be a function of one argument, or None; got 3."),
    "n_jobs 0": ({"n_jobs": 0}, "n_jobs must be a nonzero integer or None (-1 uses all cores); got 0."),
    "n_jobs array": ({"n_jobs": np.ones(2)}, "n_jobs must be a nonzero integer"),
    "algorithm array": ({"algorithm": np.ones(2)}, "algorithm must be one of"),
    "n_jobs float": ({"n_jobs": 1.5}, "got 1.5."),
}

BAD_SETTINGS = {
    "beta": (lambda: relunmd.ThreeBlock(beta=1.0), "beta of ThreeBlock must be a number in [0, 1); got 1.0."),
    "beta0": (lambda: relunmd.ANMD(beta0=-0.1), "beta0 of ANMD must be a number in [0, 1)"),
    "alpha": (lambda: relunmd.ANaive(alpha="0.7"), "alpha of ANaive must be a number in [0, 1)"),
    "alpha of a-em": (lambda: relunmd.AEM(alpha=2), "alpha of AEM must be a number in [0, 1)"),
    "order": (lambda: relunmd.ANMD(gamma=1.01), "ANMD needs 1 < gamma_bar < gamma < eta"),
    "gamma": (lambda: relunmd.ANMD(gamma="1.1"), "gamma of ANMD must be a number above 1; got"),
    "c": (lambda: relunmd.ShiftedInit(c="half"), "c of ShiftedInit must be a number above 0; got 'half'."),
    "steps": (lambda: relunmd.NuclearInit(steps=True), "steps of NuclearInit must be an integer of at least 0"),
    "sweeps": (lambda: relunmd.EM(sweeps=0), "sweeps of EM must be an integer of at least 1; got 0."),
}


@pytest.mark.parametrize("case", BAD_X)
def test_bad_matrix(case):
    X, sentence = BAD_X[case]
    with pytest.raises(relunmd.InputError) as caught:
        relunmd.decompose(X, 2)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_argument(case):
    arguments, sentence = BAD_ARGUMENTS[case]
    with pytest.raises(relunmd.InputError) as caught:
        relunmd.decompose(GOOD, **({"rank": 2} | arguments))
    assert sentence in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings(case):
    make, sentence = BAD_SETTINGS[case]
    with pytest.raises(relunmd.InputError) as caught:
        make()
    assert sentence in str(caught.value)


def test_dtype_that_cannot_hold_the_data():
    with pytest.raises(relunmd.InputError, match="dtype=float32 cannot hold X, whose largest entry is"):
        relunmd.decompose(GOOD * 1e150, 2, dtype="float32")


@pytest.mark.parametrize(
    ("algorithm", "init", "sentence"),
    [
        ("3b", "tsvd", "algorithm='3b', which keeps 4 arrays of the size of X (12 × 9, float64), would take 3.46 kB"),
        ("3b", "tsvd", f"These algorithms keep no such array: {FRUGAL}."),
        (
            "naive",
            "nuclear",
            "These initializations keep no such array: "
            + ", ".join(name for name, i in INITS.items() if not i.dense_arrays)
            + ".",
        ),
    ],
)
def test_too_little_memory_is_said_before_anything_is_allocated(monkeypatch, algorithm, init, sentence):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    with pytest.raises(relunmd.InsufficientMemoryError) as caught:
        relunmd.decompose(GOOD, 2, algorithm, init)
    assert sentence in str(caught.value)
    assert "1 kB is free" in str(caught.value)
    assert isinstance(caught.value, MemoryError)


TALL = np.ones((400_000, 40), np.uint8)
"""16 MB of bytes; at rank 40 in float64 an array like W and one like H together are 128 MB, which are not allocated."""


class Reached(Exception):
    """The memory sufficed."""


class Nothing(Init):
    name = "nothing"
    summary = "allocates nothing"

    def make(self, problem, random):
        raise Reached


@pytest.mark.parametrize(
    ("algorithm", "pairs_free", "fits"),
    [
        ("3b-factored", 5, False),
        ("3b-factored", 15, True),
        ("qn", 20, False),
        ("qn", 45, True),
        ("tsvd", 15, True),
        (relunmd.QuasiNewton(memory=10), 45, True),
        (relunmd.QuasiNewton(memory=100), 45, False),
        (relunmd.QuasiNewton(memory=100), 100, False),
        (relunmd.QuasiNewton(memory=100), 150, True),
    ],
)
def test_memory_for_arrays_like_w_and_h(monkeypatch, algorithm, pairs_free, fits):
    """Refused where the arrays that the algorithm keeps do not fit; `pairs_free` counts arrays like W and H."""
    pair = 8 * 40 * sum(TALL.shape)
    monkeypatch.setattr(memory, "available_bytes", lambda: pairs_free * pair)
    with pytest.raises(Reached if fits else relunmd.InsufficientMemoryError):
        relunmd.decompose(TALL, 40, algorithm, Nothing())


def test_memory_for_several_starts(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 15 * 8 * 40 * sum(TALL.shape))
    with pytest.raises(relunmd.InsufficientMemoryError):
        relunmd.decompose(TALL, 40, "3b-factored", Nothing(), n_starts=2)


@pytest.mark.parametrize(("checkpoint", "fits"), [(False, True), (True, False)])
def test_memory_for_a_checkpoint(monkeypatch, tmp_path, checkpoint, fits):
    """With "3b", which keeps four arrays of the size of X, and two of them twice while a checkpoint is written."""
    X = synthetic(200, 150, 2)
    monkeypatch.setattr(memory, "available_bytes", lambda: 5 * X.nbytes)
    with pytest.raises(Reached if fits else relunmd.InsufficientMemoryError):
        relunmd.decompose(X, 1, "3b", Nothing(), checkpoint=tmp_path / "run.npz" if checkpoint else None)


def test_very_many_starts_are_refused_before_any_is_made():
    with pytest.raises(relunmd.InsufficientMemoryError):
        relunmd.decompose(TALL, 40, n_starts=10**12)


def test_unknown_memory_is_logged_and_the_run_goes_on(monkeypatch, caplog):
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    with caplog.at_level(logging.INFO, "relunmd"):
        relunmd.decompose(GOOD, 2, "3b", max_iter=1)
    assert "available memory is unknown" in caplog.text


def test_memory_of_this_machine_is_known():
    assert 10**6 < memory.available_bytes() < 10**15


def test_memory_of_a_container_counts(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    (tmp_path / "memory.stat").write_text("anon 1500\ninactive_file 500\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.available_bytes() == 3500
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes() > 10**6


def messy_sparse():
    """Unsorted indices, a duplicate and an explicit zero."""
    data, columns, rows = [2.0, 1.0, 3.0, 0.0, 5.0], [3, 1, 1, 0, 2], [0, 3, 4, 5]
    X = sparse.csr_array((data, columns, rows), shape=(3, 4))
    assert not X.has_sorted_indices
    return X


ODD_BUT_FINE = {
    "integers": np.arange(12).reshape(4, 3),
    "unsigned bytes": np.arange(12, dtype=np.uint8).reshape(4, 3),
    "booleans": np.arange(12).reshape(4, 3) % 3 == 0,
    "list": [[1, 0, 2], [0, 3, 0]],
    "float16": np.arange(12, dtype=np.float16).reshape(4, 3),
    "long double": np.arange(12, dtype=np.longdouble).reshape(4, 3),
    "fortran": np.asfortranarray(np.arange(12.0).reshape(4, 3)),
    "strided": np.arange(48.0).reshape(8, 6)[::2, ::2],
    "reversed": np.arange(12.0).reshape(4, 3)[::-1, ::-1],
    "negative zero": np.array([[-0.0, 1.0], [2.0, -0.0]]),
    "subnormal": np.array([[5e-324, 1.0], [2.0, 0.0]]),
    "all subnormal": np.array([[1e-310, 0.0], [2e-310, 3e-310]]),
    "huge": np.array([[1e308, 0.0], [1.5e308, 3e307]]),
    "messy csr": messy_sparse(),
    "csc": sparse.csc_matrix(np.eye(4)),
    "dok": sparse.dok_array(np.eye(4)),
    "sparse integers": sparse.coo_array(np.eye(4, dtype=np.int8)),
    "zero row and column": np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 0.0, 3.0]]),
}


@pytest.mark.parametrize("case", ODD_BUT_FINE)
def test_odd_but_fine(case):
    X = ODD_BUT_FINE[case]
    d = relunmd.decompose(X, 2, random_state=0, max_iter=200)
    dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
    assert d.W.dtype == (np.float32 if dense.dtype == np.float16 else np.float64)
    largest = float(dense.max())
    unit, root = dense.astype(np.float64) / largest, np.sqrt(largest)
    assert d.error == pytest.approx(relative_error(unit, d.W / root, d.H / root), abs=1e-6)


def test_read_only_input_works_and_no_input_is_changed():
    X = GOOD.copy()
    X.flags.writeable = False
    relunmd.decompose(X, 2, max_iter=3)
    S = sparse.csr_matrix(GOOD)
    data, indices = S.data.copy(), S.indices.copy()
    relunmd.decompose(S, 2, max_iter=3)
    np.testing.assert_array_equal(S.data, data)
    np.testing.assert_array_equal(S.indices, indices)
    W0, H0 = np.ones((12, 2)), np.ones((2, 9))
    relunmd.decompose(GOOD, 2, init=(W0, H0), max_iter=3)
    assert (W0 == 1).all()
    assert (H0 == 1).all()


def test_a_frame_comes_in_through_the_array_protocol():
    class Frame:
        def __array__(self, dtype=None, copy=None):
            return GOOD.copy()

    assert relunmd.decompose(Frame(), 2, random_state=0).error == relunmd.decompose(GOOD, 2, random_state=0).error


@pytest.mark.parametrize(
    "algorithm",
    [
        relunmd.ThreeBlock(beta=np.float32(0.5)),
        relunmd.ThreeBlock(beta=0),
        relunmd.EM(sweeps=np.int64(3)),
        relunmd.ANMD(beta0=0, gamma=np.float64(1.2)),
        "A-NMD",
    ],
)
def test_settings_take_any_kind_of_number(algorithm):
    assert relunmd.decompose(GOOD, 2, algorithm, init=relunmd.NuclearInit(steps=np.int8(1)), max_iter=5).error < 1


def test_dtype_is_kept_or_as_asked():
    assert relunmd.decompose(GOOD.astype(">f4"), 2, max_iter=1).W.dtype == np.float32
    assert relunmd.decompose(GOOD.astype(np.float32), 2, max_iter=1).W.dtype == np.float32
    assert relunmd.decompose(GOOD.astype(np.float32), 2, max_iter=1, dtype="float64").W.dtype == np.float64
    assert relunmd.decompose(GOOD, 2, max_iter=1, dtype=np.float32).W.dtype == np.float32
    assert relunmd.decompose(np.eye(4, dtype=int), 2, max_iter=1, dtype=np.float32).W.dtype == np.float32


@pytest.mark.parametrize("needed", [1, 10**10])
def test_keeping_dense_arrays_for_a_sparse_matrix_is_said(monkeypatch, caplog, needed):
    monkeypatch.setattr(memory, "_WARN_FROM", 10**9 // needed)
    with caplog.at_level(logging.INFO, "relunmd"):
        relunmd.decompose(sparse.csr_array(GOOD), 2, "3b", max_iter=1)
    said = [
        record for record in caplog.records if "4 arrays of the size of X (12 × 9, float64), takes" in record.message
    ]
    assert [record.levelname for record in said] == ["INFO" if needed == 1 else "WARNING"]
    assert f"These algorithms keep no such array: {FRUGAL}." in said[0].message
    caplog.clear()
    with caplog.at_level(logging.INFO, "relunmd"):
        relunmd.decompose(sparse.csr_array(GOOD), 2, "3b-factored", max_iter=1)
        relunmd.decompose(GOOD, 2, "3b", max_iter=1)
    assert "arrays of the size of X" not in caplog.text


@pytest.mark.parametrize("seed", [0, np.int64(0), np.random.RandomState(0), np.random.default_rng(0), None])
def test_every_kind_of_seed(seed):
    assert relunmd.decompose(GOOD, 2, init="random", random_state=seed, max_iter=5).error < 1


def test_a_seed_that_made_x_does_not_find_x():
    X = synthetic(30, 20, 3, seed=0)
    assert relunmd.decompose(X, 3, init="random", random_state=0, max_iter=0).error > 0.5


def small_matrices():
    """Small and nearly dense ones, on which a quasi-Newton run alone ends above the truncated SVD now and then."""
    yield np.array([[1, 1], [0, 1.0]]), 1
    for shape in ((2, 2), (3, 3), (4, 3), (5, 5), (8, 6)):
        for seed in range(3):
            random = np.random.default_rng(seed)
            for X in ((random.random(shape) < 0.6) * 1.0, random.poisson(1.0, shape) * 1.0):
                if X.any():
                    yield X, 1


def test_never_worse_than_the_baseline():
    below = 0
    for X, rank in small_matrices():
        found, baseline = (relunmd.decompose(X, rank, name, random_state=0) for name in ("auto", "tsvd"))
        assert found.error <= baseline.error * (1 + 1e-9) + 1e-12
        assert relative_error(X, found.W, found.H) == pytest.approx(found.error, abs=1e-9)
        assert found.error == found.history.error.min()
        below += found.error < 0.99 * baseline.error
    assert below > 5


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("shape", "rank", "sizes"), [((42, 7), 5, (1, 7)), ((40, 34), 15, (40, 1))])
def test_never_worse_than_the_baseline_on_columns_or_rows_of_different_size(shape, rank, sizes, dtype):
    """Before, 1000 iterations were not enough, and an error could be 26 times that of the truncated SVD."""
    for seed in (1, 3):
        random = np.random.default_rng(seed)
        X = (random.random(shape) < 0.9) * random.random(shape) * 10 ** random.uniform(-4, 4, sizes)
        X = X.astype(dtype)
        found, baseline = (relunmd.decompose(X, rank, name, random_state=0) for name in ("auto", "tsvd"))
        assert found.error <= baseline.error * (1 + 1e-6) + 1e-12


def test_a_ridge_has_no_baseline(monkeypatch):
    def never(*given, **named):
        raise AssertionError("the baseline was computed")

    monkeypatch.setattr("relunmd.algorithm.quasi_newton.tsvd_of_x", never)
    X = np.array([[1, 1], [0, 1.0]])
    relunmd.decompose(X, 1, relunmd.QuasiNewton(ridge=0.1), random_state=0)
    with pytest.raises(AssertionError, match="the baseline was computed"):
        relunmd.decompose(X, 1, random_state=0)


@pytest.mark.parametrize("stop", [3, 60, 100, 115])
def test_a_run_that_continues_from_the_baseline_is_resumed_with_the_same_bits(tmp_path, stop):
    X, settings = np.array([[1, 1], [0, 1.0]]), {"random_state": 0, "tol": 0, "target_error": 0.35682209}
    whole = relunmd.decompose(X, 1, **settings)
    assert whole.status is relunmd.Status.TARGET
    relunmd.decompose(X, 1, **settings, max_iter=stop, checkpoint=tmp_path / "run.npz")
    again = relunmd.decompose(X, 1, **settings, checkpoint=tmp_path / "run.npz")
    assert again.n_iter == whole.n_iter
    np.testing.assert_array_equal(again.W @ again.H, whole.W @ whole.H)
    np.testing.assert_array_equal(again.history.error, whole.history.error)


def test_initial_factors_are_not_copied_for_a_checksum_that_nobody_asks_for(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("relunmd.api.zlib", SimpleNamespace(crc32=lambda data: seen.append(data) or 0))
    init = np.ones((12, 2)), np.ones((2, 9))
    relunmd.decompose(GOOD, 2, init=init, max_iter=1)
    assert seen == []
    relunmd.decompose(GOOD, 2, init=init, max_iter=1, checkpoint=tmp_path / "run.npz")
    assert [np.shares_memory(np.asarray(data), factor) for data, factor in zip(seen, init, strict=True)] == [True, True]


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(np.float64).max, reason="long doubles are float64 here")
def test_long_doubles_that_float64_cannot_hold():
    for value, words in (
        ("1e4000", "X must be finite in float64, which"),
        ("1e-4000", "X must have a positive entry in"),
    ):
        with pytest.raises(InputError, match=words):
            relunmd.decompose(np.full((4, 3), np.longdouble(value)), 1)


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_very_small_numbers_in_the_other_byte_order(kind):
    X = np.full((6, 4), np.finfo(kind).tiny / 16, kind)
    errors = [relunmd.decompose(X.astype(order + kind), 1, random_state=0, max_iter=5).error for order in "<>"]
    assert errors[0] == errors[1]
