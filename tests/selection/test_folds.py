"""Held-out entries: which they are, against a hash in plain Python, and the same wherever X is stored."""

import numpy as np
import pytest
from scipy import sparse

import relunmd
from relunmd.engine import kernels
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.matrix.source import read_only
from relunmd.engine.observed import EntryOptions, open_observed
from relunmd.engine.passes import look
from relunmd.engine.problem_setup import held_out_problem, make_problem
from relunmd.selection.folds import FoldPlan, agreement, balanced_share, folds, is_symmetric, unit_rows
from tests.conftest import synthetic

X = synthetic(40, 30, 3)
SQUARE = synthetic(30, 30, 3)
FULL = 2**64 - 1


def mixed(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & FULL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & FULL
    return z ^ (z >> 31)


def expected(A, plan, fold):
    """Oracle: which entries a fold holds out, one by one in Python's integers."""
    held = np.zeros(A.shape, bool)
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            a, b = (min(i, j), max(i, j)) if plan.symmetric else (i, j)
            per_round = int(1 / plan.share)
            seed = (plan.seed + fold // per_round) % 2**63
            key = mixed((seed + a * 0x9E3779B97F4A7C15) & FULL)
            both = mixed((key + (b // 2) * 0xD1342543DE82EF95) & FULL)
            share = plan.share if A[i, j] else plan.zero_share
            start, width = fold % per_round * round(plan.share * 2**32), round(share * 2**32)
            held[i, j] = ((both >> 32 if b % 2 else both & 0xFFFFFFFF) - start) % 2**32 < width
    return held


def problem_of(A, executor, **options):
    return make_problem(open_observed(A, EntryOptions(**options)), np.dtype(float), 3, executor)


def found(A, plan, fold, **options):
    """Which entries a pass sees as missing."""
    with ThreadExecutor(1) as executor:
        problem = held_out_problem(problem_of(A, executor, **options), plan.held(fold))
        return problem.run(_missing_block, out={"missing": A.shape[1]})[0].missing.astype(bool)


def _missing_block(x, rows, out):
    for at in x.strips:
        for tile in x.across(at):
            out.missing[at, tile.columns] = tile.bounds()[2] == 0
    return {}


PLANS = {
    "plain": FoldPlan(12345, 5, 0.1, 0.1),
    "balanced": FoldPlan(2**63 - 1, 3, 0.3, 0.1),
    "symmetric": FoldPlan(7, 5, 0.2, 0.2, symmetric=True),
    "overlapping": FoldPlan(1, 9, 0.3, 0.3),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize(
    "A", [SQUARE, sparse.csr_array(SQUARE), (9 * SQUARE).astype(np.uint8)], ids=["array", "csr", "bytes"]
)
def test_which_entries(plan, A, layout):
    for fold in (0, 1, plan.n_folds - 1):
        dense = A.toarray() if sparse.issparse(A) else A
        np.testing.assert_array_equal(found(A, plan, fold), expected(dense, plan, fold))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize(("rows", "columns"), [(slice(0, 30), slice(7, 20)), (slice(11, 30), slice(3, 4))])
def test_which_entries_of_a_tile(plan, rows, columns):
    mask = np.zeros(SQUARE[rows, columns].shape, np.uint8)
    kernels.mask_held_out(read_only(SQUARE[rows]), columns.start, plan.held(1), rows.start, columns.start, mask)
    np.testing.assert_array_equal(mask, expected(SQUARE, plan, 1)[rows, columns])


def test_folds_are_disjoint_and_of_the_right_size():
    A, plan = np.ones((200, 101)), PLANS["plain"]
    masks = [found(A, plan, fold) for fold in range(5)]
    assert np.sum(masks, axis=0).max() == 1
    for mask in masks:  # Five standard deviations.
        assert abs(mask.mean() - 0.1) < 5 * np.sqrt(0.09 / A.size)
    assert (found(A, FoldPlan(12346, 5, 0.1, 0.1), 0) != masks[0]).any()


def test_further_folds_hold_out_other_entries():
    A, plan = np.ones((100, 80)), FoldPlan(5, 6, 0.5, 0.5)
    first, second, third = (found(A, plan, fold) for fold in range(3))
    assert (first != second).all()
    assert 0.4 < (first != third).mean() < 0.6


@pytest.mark.parametrize("kept", [False, True])
def test_held_out_entries_count_as_missing(kept):
    plan, held = PLANS["plain"], expected(X, PLANS["plain"], 2)
    with ThreadExecutor(1) as executor:
        problem = held_out_problem(problem_of(X, executor), plan.held(2, kept))
    assert problem.facts.missing == ((~held).sum() if kept else held.sum())


def test_rows_and_columns_are_independent():
    """No row or column has many more held-out entries than others."""
    mask = found(np.ones((400, 400)), PLANS["plain"], 0)
    for axis in (0, 1):
        counts = mask.sum(axis=axis)
        assert abs(counts.var() / (400 * 0.09) - 1) < 0.4


def test_balance_holds_out_as_many_zeros_as_nonzeros():
    A = relunmd.datasets.planted(200, 150, 4, 0.95, random_state=0)
    with ThreadExecutor(1) as executor:
        share = balanced_share(problem_of(A, executor), 0.2)
    mask = found(A, FoldPlan(0, 2, 0.2, share), 0)
    zeros, nonzeros = (mask & (A == 0)).sum(), (mask & (A > 0)).sum()
    assert abs(zeros / nonzeros - 1) < 0.3
    assert abs(nonzeros / (A > 0).sum() - 0.2) < 0.05


def test_a_mask_and_nan_are_missing_too():
    hidden = np.random.default_rng(0).random(X.shape) < 0.2
    plan = PLANS["plain"]
    expect = hidden | expected(X, plan, 1)
    np.testing.assert_array_equal(found(X, plan, 1, mask=hidden), expect)
    np.testing.assert_array_equal(found(np.where(hidden, np.nan, X), plan, 1, missing_values=np.nan), expect)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_pass_has_the_bits_of_one_with_that_mask(n_threads, layout):
    """Loss and gradient without held-out entries, against those with the oracle's mask as an argument."""
    random, plan = np.random.default_rng(0), PLANS["plain"]
    W, H = random.standard_normal((40, 3)), random.standard_normal((3, 30))
    with ThreadExecutor(n_threads) as executor:
        one = look(held_out_problem(problem_of(X, executor), plan.held(0)), W, H, leak=0.3)
        other = look(problem_of(X, executor, mask=expected(X, plan, 0)), W, H, leak=0.3)
    assert one.error == other.error
    for name in ("P", "GW", "GP", "PP"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_the_held_out_error():
    random, plan = np.random.default_rng(0), PLANS["plain"]
    W, H = random.standard_normal((40, 3)), random.standard_normal((3, 30))
    for A in (X, sparse.csr_array(X)):
        with ThreadExecutor(1) as executor:
            for fold in folds(problem_of(1000 * A, executor), plan):
                held = expected(X, plan, fold.number)
                residual = 1000 * X - np.maximum(0, W @ H)
                right = np.linalg.norm(residual[held]) / np.linalg.norm(1000 * X[held])
                assert fold.held.error(W, H * fold.held.matrix.scale) == pytest.approx(right, rel=1e-12)


def test_stored_entries_alone():
    """Of ratings a share of the stored ones is held out, also of stored zeros."""
    ratings = sparse.csr_array(sparse.random_array((40, 30), density=0.3, rng=0))
    ratings.data[::7] = 0
    stored = sparse.csr_array((np.ones(ratings.nnz), ratings.indices, ratings.indptr), ratings.shape).toarray() > 0
    random, plan = np.random.default_rng(0), PLANS["plain"]
    W, H = random.standard_normal((40, 3)), random.standard_normal((3, 30))
    with ThreadExecutor(1) as executor:
        (first, *_) = folds(problem_of(ratings, executor, missing_values="unstored"), plan)
    held, A = expected(ratings.toarray(), plan, 0) & stored, ratings.toarray()
    right = np.linalg.norm((A - np.maximum(0, W @ H))[held]) / np.linalg.norm(A[held])
    with ThreadExecutor(1) as executor:
        (first, *_) = folds(problem_of(ratings, executor, missing_values="unstored"), plan)
        assert first.held.error(W, H * first.held.matrix.scale) == pytest.approx(right, rel=1e-12)
        assert first.seen.facts.squares + first.held.facts.squares == pytest.approx(
            problem_of(ratings, executor, missing_values="unstored").facts.squares
        )


def test_folds_without_positive_entries_are_left_out(caplog):
    A = np.zeros((12, 10))
    A[0, 0] = A[1, 1] = 1.0
    with ThreadExecutor(1) as executor, caplog.at_level("INFO", "relunmd"):
        numbers = [fold.number for fold in folds(problem_of(A, executor), FoldPlan(3, 4, 0.25, 0.25))]
    assert len(numbers) < 4
    assert "left out" in caplog.text


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, lambda A: A.astype(np.float32)])
def test_symmetry_is_seen(form, layout):
    symmetric = SQUARE + SQUARE.T
    other = symmetric.copy()
    other[3, 7] += 1
    with ThreadExecutor(1) as executor:
        assert is_symmetric(problem_of(form(symmetric), executor))
        assert not is_symmetric(problem_of(form(other), executor))
        assert not is_symmetric(problem_of(form(X), executor))


def test_values_under_a_mask_do_not_matter_for_symmetry():
    A, mask = SQUARE + SQUARE.T, np.eye(30, dtype=bool)
    mask[3, 7] = mask[7, 3] = True
    A[3, 7], A[0, 0] = 99.0, np.inf
    with ThreadExecutor(1) as executor:
        assert is_symmetric(problem_of(A, executor, mask=mask))


def test_agreement_matches_components():
    H = np.random.default_rng(0).standard_normal((4, 30))
    A = unit_rows(H)
    assert agreement(A, unit_rows(-3 * H[[2, 0, 3, 1]])) == pytest.approx(1, abs=1e-6)
    assert agreement(A, unit_rows(np.random.default_rng(1).standard_normal((4, 30)))) < 0.6
    assert not np.isnan(unit_rows(np.zeros((2, 3)))).any()
