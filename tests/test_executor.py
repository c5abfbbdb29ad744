"""Sums by a fixed tree, exceptions from workers, BLAS threads restored."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from relunmd.executor import ThreadExecutor, tree_sum
from relunmd.matrix import DenseSource, Matrix

X = np.random.default_rng(0).random((30_000, 7))
MATRIX = Matrix(DenseSource(X), np.dtype(float))


def column_sums(x, rows, out, *, factor):
    total = np.zeros(7)
    for tile in x.tiles():
        out["twice"][tile.rows] = 2 * rows["X"][tile.rows]
        total += tile.X.sum(axis=0) * factor
    return {"total": total, "blocks": 1}


def test_sums_and_rows_are_those_of_numpy():
    with ThreadExecutor(2) as executor:
        out, sums = executor.run(MATRIX, column_sums, {"X": X}, {"twice": 7}, factor=3.0)
    np.testing.assert_allclose(sums["total"], 3 * X.sum(axis=0))
    np.testing.assert_array_equal(out["twice"], 2 * X)
    assert sums["blocks"] == len(MATRIX.layout.blocks)
    assert executor.passes == 1


def test_sums_have_the_same_bits_with_any_number_of_threads():
    found = []
    for n_threads in (1, 2, 5):
        with ThreadExecutor(n_threads) as executor:
            found += [executor.run(MATRIX, column_sums, {"X": X}, {"twice": 7}, factor=0.1)[1] for _ in range(5)]
    assert {sums["total"].tobytes() for sums in found} == {found[0]["total"].tobytes()}


def test_tree_is_that_of_the_threads():
    shares = [{"a": float(v)} for v in np.random.default_rng(0).standard_normal(37)]

    def added(numbers):
        middle = len(numbers) // 2
        return numbers[0] if middle == 0 else added(numbers[:middle]) + added(numbers[middle:])

    assert tree_sum(shares)["a"] == added([share["a"] for share in shares])


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("failure", [ZeroDivisionError, KeyboardInterrupt])
def test_what_a_block_raises_comes_out_and_the_executor_stays_usable(n_threads, failure):
    def fails(x, rows, out):
        if x.rows.start > 1000:
            raise failure("in a worker")
        return {}

    with ThreadExecutor(n_threads) as executor:
        with pytest.raises(failure, match="in a worker"):
            executor.run(MATRIX, fails)
        _, sums = executor.run(MATRIX, column_sums, {"X": X}, {"twice": 7}, factor=1.0)
    assert sums["blocks"] == len(MATRIX.layout.blocks)


def test_nobody_is_still_writing_when_a_failed_pass_comes_out():
    finished = []

    def slow(x, rows, out):
        if threading.current_thread() is threading.main_thread():
            time.sleep(0.05)
            raise ZeroDivisionError
        time.sleep(0.3)
        finished.append(x.rows)
        return {}

    with ThreadExecutor(2) as executor:
        with pytest.raises(ZeroDivisionError):
            executor.run(MATRIX, slow)
        assert len(finished) == 1
        time.sleep(0.4)
        assert len(finished) == 1


def test_overlapping_runs_leave_blas_as_it_was():
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        first, second = ThreadExecutor(1), ThreadExecutor(1)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(blas_threads()) == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == before


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal")
def test_ctrl_c_waits_for_the_end_of_a_block_and_the_handler_comes_back():
    reached = []

    def presses(x, rows, out):
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(x.rows)
        return {}

    handler = signal.getsignal(signal.SIGINT)
    with ThreadExecutor(1) as executor:
        with pytest.raises(KeyboardInterrupt):
            executor.run(MATRIX, presses)
        assert len(reached) == 1
        with executor.users_code():
            assert signal.getsignal(signal.SIGINT) is handler
        _, sums = executor.run(MATRIX, column_sums, {"X": X}, {"twice": 7}, factor=1.0)
        assert sums["blocks"] == len(MATRIX.layout.blocks)
    assert signal.getsignal(signal.SIGINT) is handler


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_blas_has_one_thread_inside_and_the_callers_setting_afterwards():
    def threads_inside(x, rows, out):
        return {"most": 0, "seen": [max(blas_threads())], "names": [threading.current_thread().name]}

    with threadpool_limits(2, "blas"):
        before = blas_threads()
        with ThreadExecutor(2) as executor:
            _, sums = executor.run(MATRIX, threads_inside)
        assert set(sums["seen"]) == {1}
        assert blas_threads() == before
