"""Which ranks are tried, and the rule of the choice, on errors written down by hand."""

import math

import pytest

from relunmd.selection.race_rules import default_ranks, has_turned, survivors
from relunmd.selection.rank_selection import FoldFit, choose, rows_of


def test_default_ranks():
    assert default_ranks((1000, 2000))[-5:] == [32, 40, 48, 56, 64]
    assert default_ranks((3, 9)) == [1]
    assert default_ranks((1, 1)) == [1]
    for ranks in (default_ranks((n, n)) for n in range(2, 200)):
        assert ranks == sorted(set(ranks))
        assert ranks[-1] <= 64


@pytest.mark.parametrize(
    ("ranks", "errors", "turned"),
    [
        ([1, 2, 3, 4], [0.8, 0.5, 0.6, 0.7], False),  # Two ranks beyond the best.
        ([1, 2, 3, 4, 5], [0.8, 0.5, 0.6, 0.7, 0.6], True),
        ([8, 9, 10, 11], [0.5, 0.6, 0.7, 0.8], False),  # Not yet twice the best rank.
        ([8, 10, 12, 16], [0.5, 0.6, 0.7, 0.8], True),
        ([1, 2, 3, 4, 5], [0.97, 0.95, 1.1, 1.9, 1.8], False),  # Near 1 it proves nothing.
        ([1, 2, 3, 4, 5], [0.8, 0.7, 0.6, 0.5, 0.4], False),
        ([1, 2, 3, 4, 5], [0.8, 0.5, 0.6, 0.7, 0.5], False),
    ],
)
def test_when_a_curve_has_turned(ranks, errors, turned):
    assert has_turned(ranks, errors) is turned


@pytest.mark.parametrize(
    ("errors", "kept"),
    [
        ({2: [0.5], 4: [0.61], 8: [0.64]}, {2, 4}),  # Over 25 %.
        ({2: [0.92], 4: [0.94], 8: [0.98], 16: [1.1]}, {2, 4}),  # They explain less than 60 % of what 2 does.
        ({2: [1.2], 4: [1.1]}, {2, 4}),  # Nothing is explained.
        ({3: [0.004], 4: [0.001]}, {3, 4}),  # Nearly exact.
        ({2: [0.53, 0.54], 4: [0.5, 0.52], 8: [0.51, 0.53]}, {2, 4}),  # A larger rank that is worse in each.
        ({2: [0.53, 0.54], 4: [0.5, 0.52], 8: [0.49, 0.56]}, {2, 4, 8}),
        ({2: [0.6, 0.6], 4: [0.5, 0.5]}, {4}),
        ({2: [0.6, 0.51], 4: [0.5, 0.5]}, {2, 4}),  # Within 5 % in one fold.
        ({2: [0.6, 0.62], 4: [0.4, 0.58]}, {2, 4}),  # Within two standard errors.
        ({1: [0.1], 2: [0.6, 0.51], 4: [0.5, 0.5]}, {2, 4}),  # 1 was dropped before.
    ],
)
def test_what_is_dropped(errors, kept):
    assert survivors({(0.0, rank): found for rank, found in errors.items()}, "1se") == {(0.0, rank) for rank in kept}


def test_the_smallest_error_needs_more_care():
    errors = {(0.0, 4): [0.5, 0.5], (0.0, 8): [0.502, 0.503], (0.1, 4): [0.51, 0.52]}
    assert survivors(errors, "min") == {(0.0, 4), (0.0, 8)}
    assert survivors(errors, "1se") == {(0.0, 4)}


def fits(errors):
    return [
        FoldFit(fold, rank, ridge, error, 0.1, None if fold == 0 else 0.9, 10, 1.0)
        for (ridge, rank), found in errors.items()
        for fold, error in enumerate(found)
    ]


def test_rows_are_means():
    first, second = rows_of(fits({(0.0, 2): [0.5, 0.7], (0.0, 4): [0.9]}), 2)
    assert (first.rank, first.n_folds, first.complete, first.stability) == (2, 2, True, 0.9)
    assert first.error == pytest.approx(0.6)
    assert first.standard_error == pytest.approx(0.1)
    assert not second.complete
    assert math.isnan(second.standard_error)
    assert math.isnan(second.stability)


@pytest.mark.parametrize(
    ("rule", "errors", "best", "chosen"),
    [
        ("min", {(0.0, 4): [0.50, 0.54], (0.0, 8): [0.49, 0.53]}, 8, 4),
        ("1se", {(0.0, 4): [0.50, 0.54], (0.0, 8): [0.49, 0.53]}, 8, 4),
        ("1se", {(0.0, 4): [0.60, 0.64], (0.0, 8): [0.49, 0.53]}, 8, 8),
        ("1se", {(0.0, 4): [0.504, 0.504], (0.0, 8): [0.5, 0.5]}, 8, 4),  # Within 0.005.
        ("1se", {(0.0, 2): [0.1], (0.0, 4): [0.60, 0.64], (0.0, 8): [0.49, 0.53]}, 8, 8),  # 2 was dropped.
    ],
)
def test_the_choice(rule, errors, best, chosen):
    found = choose(rows_of(fits(errors), 2), rule)
    assert [row.rank for row in found] == [best, best if rule == "min" else chosen]


def test_the_ridge_of_the_choice_is_the_best_at_its_rank():
    rows = rows_of(fits({(0.0, 4): [0.52, 0.56], (0.1, 4): [0.50, 0.54], (0.1, 8): [0.49, 0.53]}), 2)
    assert choose(rows, "1se")[1].ridge == 0.1
    assert choose(rows, "1se")[1].rank == 4
