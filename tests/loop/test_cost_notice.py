"""The message about a long run."""

from types import SimpleNamespace

import pytest

import relunmd
from relunmd.loop.cost_notice import CostNotice
from relunmd.loop.criteria import Limits
from tests.conftest import synthetic


def reported(caplog, seconds, limits, first=0):
    notice = CostNotice(limits)
    for iteration in range(first, first + 8):
        notice(SimpleNamespace(iteration=iteration, time=5 + iteration * seconds))
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("first", [0, 40])
def test_a_long_run_is_announced_once(caplog, first):
    (message,) = reported(caplog, 2.0, Limits(), first)
    assert message.startswith("An iteration takes 2 s, 100 of them 3 minutes, and max_iter=1000 allows 33 minutes.")
    assert "max_time" in message


def test_no_limit_is_named(caplog):
    (message,) = reported(caplog, 100.0, Limits(max_iter=None))
    assert "2.8 hours, and max_iter=None sets no limit" in message


@pytest.mark.parametrize(
    ("seconds", "limits"), [(0.2, Limits()), (2.0, Limits(max_time=60)), (2.0, Limits(max_iter=20))]
)
def test_a_run_that_is_short_or_limited_is_not(caplog, seconds, limits):
    assert reported(caplog, seconds, limits) == []


def test_decompose_logs_it_without_a_progress_display(caplog, monkeypatch):
    monkeypatch.setattr("relunmd.loop.cost_notice._LONG", 0.0)
    relunmd.decompose(synthetic(20, 15, 3), 3, max_iter=6, random_state=0)
    assert "An iteration takes" in caplog.text
