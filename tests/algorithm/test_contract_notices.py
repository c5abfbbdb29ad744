"""The contract of `test_contract.py` on algorithms that are broken on purpose: each must fail it."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

from relunmd.algorithm import ALGORITHMS
from relunmd.algorithm.three_block_factored import ThreeBlockFactored
from relunmd.engine.matrix import Block, RowLayout
from relunmd.engine.problem import Problem
from tests.algorithm import test_contract as contract


def test_the_small_layout_has_several_of_everything(small_layout):
    layout = RowLayout(40, 30)
    assert len(layout.blocks) == 3
    assert [len(layout.strips(block)) for block in layout.blocks] == [4, 4, 2]
    assert all(len(layout.tiles(block)) > 3 for block in layout.blocks)
    assert len(layout.columns) == 5


class LastTileBlock(Block):
    def across(self, rows):
        yield list(super().across(rows))[-1]


def part(rows, at):
    return type(rows)(**{name: array[at] for name, array in vars(rows).items()})


def last_strip(function, x, rows, out, **shared):
    """Calls a block function strip by strip and keeps the sums of the last one only."""
    for at in x.strips:
        strip = replace(x, rows=slice(x.rows.start + at.start, x.rows.start + at.stop))
        sums = function(strip, part(rows, at), part(out, at), **shared)
    return sums


def last_strip_but_for_the_error(function, x, rows, out, **shared):
    """The same, except that the error is reported truly."""
    squares = function(x, rows, out, **shared)["squares"]
    return last_strip(function, x, rows, out, **shared) | {"squares": squares}


def last_tile(function, x, rows, out, **shared):
    """Looks at the last column tile of each strip only."""
    return function(LastTileBlock(x.matrix, x.rows, x.scratch), rows, out, **shared)


class BrokenProblem(Problem):
    breaks: ClassVar = None

    def run(self, function, rows=None, out=None, **shared):
        return super().run(partial(type(self).breaks, function), rows, out, **shared)


def broken(breaks):
    """A three-block algorithm whose passes are broken."""
    problem_type = type("BrokenProblem", (BrokenProblem,), {"breaks": staticmethod(breaks)})

    @dataclass(frozen=True)
    class Broken(ThreeBlockFactored):
        name: ClassVar[str] = "broken"

        def step(self, problem, state):
            return super().step(problem_type(**vars(problem)), state)

    return Broken


def nothing_lost(function, x, rows, out, **shared):
    return function(x, rows, out, **shared)


@pytest.mark.parametrize("breaks", [last_strip, last_tile])
def test_lost_sums_give_a_wrong_error(monkeypatch, open_problem, small_layout, breaks):
    monkeypatch.setitem(ALGORITHMS, "broken", broken(breaks))
    with pytest.raises(AssertionError):
        contract.test_reports_the_error_of_the_factors_it_would_hand_back(open_problem, True, "broken", np.float64)


@pytest.mark.parametrize("breaks", [last_strip, last_strip_but_for_the_error, last_tile])
def test_lost_sums_make_a_layout_matter(monkeypatch, breaks):
    monkeypatch.setitem(ALGORITHMS, "broken", broken(breaks))
    with pytest.raises(AssertionError):
        contract.test_the_layout_changes_nothing_but_rounding("broken", monkeypatch)


def test_the_same_algorithm_unbroken_passes(monkeypatch, open_problem):
    monkeypatch.setitem(ALGORITHMS, "broken", broken(nothing_lost))
    contract.test_the_layout_changes_nothing_but_rounding("broken", monkeypatch)
    contract.test_reports_the_error_of_the_factors_it_would_hand_back(open_problem, True, "broken", np.float64)
