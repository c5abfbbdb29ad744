"""Sums by a fixed tree, exceptions from workers, BLAS threads restored."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import relunmd
from relunmd.engine.executor import ThreadExecutor
from relunmd.engine.matrix import DenseSource, Matrix
from relunmd.engine.tree_sum import Tree

X = np.random.default_rng(0).random((30_000, 7))
MATRIX = Matrix(DenseSource(X), np.dtype(float))


def column_sums(x, rows, out, *, factor):
    total = np.zeros(7)
    for tile in x.tiles():
        out.twice[tile.rows] = 2 * rows.X[tile.rows]
        total += tile.X.sum(axis=0) * factor
    return {"total": total, "blocks": 1}


def test_sums_and_rows_are_those_of_numpy():
    with ThreadExecutor(2) as executor:
        out, sums = executor.run(MATRIX, column_sums, {"X": X}, {"twice": 7}, factor=3.0)
    np.testing.assert_allclose(sums["total"], 3 * X.sum(axis=0))
    np.testing.assert_array_equal(out.twice, 2 * X)
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

    tree = Tree(len(shares), lambda share: None)
    for index, share in enumerate(shares):
        tree.add(dict(share), index)
    assert tree.total["a"] == added([share["a"] for share in shares])


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


def test_runs_of_several_threads_leave_blas_as_it_was():
    """threadpoolctl lets one thread set what is common to all."""

    def inside():
        with ThreadExecutor(1):
            entered.set()
            over.wait()
            seen.append(set(blas_threads()))

    entered, over, seen = threading.Event(), threading.Event(), []
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        thread = threading.Thread(target=inside)
        with ThreadExecutor(1):
            thread.start()
            entered.wait()
        over.set()
        thread.join()  # The last to leave is not the first that came.
        assert blas_threads() == before
        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        assert blas_threads() == before
    assert seen == [{1}, {1}]


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


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal")
class TestASecondCtrlC:
    @pytest.fixture(autouse=True)
    def handler_comes_back(self):
        yield
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_is_raised_at_once(self):
        def presses(x, rows, out):
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            raise KeyboardInterrupt("the second")

        with ThreadExecutor(1) as executor:
            with pytest.raises(KeyboardInterrupt, match="the second"):
                executor.run(MATRIX, presses)
            assert executor.insisted

    def test_also_after_the_first_was_acted_on(self):
        def press(x, rows, out):
            signal.raise_signal(signal.SIGINT)
            return {}

        with ThreadExecutor(1) as executor:
            with pytest.raises(KeyboardInterrupt):
                executor.run(MATRIX, press)
            assert not executor.insisted
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            assert executor.insisted

    def test_a_new_run_counts_anew(self):
        executor = ThreadExecutor(1)
        for _ in range(3):
            with executor:
                signal.raise_signal(signal.SIGINT)
                assert executor.interrupted()
                assert not executor.insisted

    def test_a_handler_that_can_wait_decides_itself(self):
        heard = []

        def handler(number, frame):
            heard.append(number)

        handler.deferrable = True
        before = signal.signal(signal.SIGINT, handler)
        try:
            with ThreadExecutor(1) as executor:
                for _ in range(3):
                    signal.raise_signal(signal.SIGINT)
                assert executor.interrupted()
                assert not executor.insisted
        finally:
            signal.signal(signal.SIGINT, before)
        assert heard == [signal.SIGINT] * 2

    def test_leaves_decompose_in_the_middle_of_an_iteration(self):
        class Pressed(relunmd.QuasiNewton):
            def step(self, problem, state):
                for _ in range(2):
                    signal.raise_signal(signal.SIGINT)
                raise AssertionError("not reached")

        with pytest.raises(KeyboardInterrupt):
            relunmd.decompose(X[:60], 3, Pressed())

    @pytest.mark.parametrize("first", ["in an iteration", "in a callback"])
    def test_leaves_decompose_while_the_result_is_made(self, monkeypatch, first):
        class Pressed(relunmd.QuasiNewton):
            def step(self, problem, state):
                if first == "in an iteration":
                    signal.raise_signal(signal.SIGINT)
                return super().step(problem, state)

        def callback(progress):
            if first == "in a callback":
                signal.raise_signal(signal.SIGINT)

        def canonical(problem, W, H):
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("not reached")

        assert relunmd.decompose(X[:60], 3, Pressed(), callback=callback).status is relunmd.Status.INTERRUPTED
        monkeypatch.setattr("relunmd.loop.driver.canonical", canonical)
        with pytest.raises(KeyboardInterrupt):
            relunmd.decompose(X[:60], 3, Pressed(), callback=callback)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
class TestAForkDuringARun:
    """By another thread: what that thread holds stays held in the child, where nobody gives it back."""

    BEGINNING = """
        import os, signal, threading, time, warnings
        import numpy as np, relunmd
        from threadpoolctl import threadpool_info, threadpool_limits
        from relunmd.engine.blas_threads import one_blas_thread
        warnings.simplefilter("ignore", DeprecationWarning)  # Of forks, from Python 3.12 on.
        def child(work):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                os._exit(0 if work() else 1)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        def blas():
            return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
        """

    def script(self, program, beginning=BEGINNING):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(beginning) + textwrap.dedent(program)],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    @pytest.mark.parametrize("delay", [0.0, 0.05, 0.3])
    def test_a_child_forked_during_the_first_import(self, delay):
        program = f"""
            X = np.maximum(0, np.random.default_rng(0).standard_normal((40, 30)))
            run = lambda: relunmd.decompose(X, 3, max_iter=2).error > 0
            thread = threading.Thread(target=run)
            thread.start()
            time.sleep({delay})
            print(child(run))
            thread.join()
            """
        beginning = self.BEGINNING.replace("from relunmd.engine.blas_threads import one_blas_thread", "")
        assert self.script(program, beginning) == ["0"]

    def test_children_run_to_their_end(self):
        program = """
            X = np.maximum(0, np.random.default_rng(0).standard_normal((40, 30)))
            run = lambda: relunmd.decompose(X, 3, max_iter=2, n_jobs=2).error > 0
            run()
            over = threading.Event()
            def again():
                while not over.is_set():
                    run()
            thread = threading.Thread(target=again)
            thread.start()
            codes = {child(run) for _ in range(40)}
            over.set()
            thread.join()
            print(*codes)
        """
        assert self.script(program) == ["0"]

    def test_a_lock_that_another_thread_holds(self):
        program = """
            import contextlib
            limiting = threading.Event()
            class Slow:
                def limit(self, **limits):
                    limiting.set()
                    time.sleep(0.3)
                    return contextlib.nullcontext()
            one_blas_thread._controller = Slow()
            def inside():
                with one_blas_thread:
                    pass
                return True
            thread = threading.Thread(target=inside)
            thread.start()
            limiting.wait()
            print(child(inside))
            thread.join()
        """
        assert self.script(program) == ["0"]

    def test_a_property_that_another_thread_computes(self):
        program = """
            from relunmd.engine.matrix.layout import RowLayout
            begun, over = threading.Event(), threading.Event()
            class Rows(int):
                def __floordiv__(self, other):
                    begun.set()
                    over.wait()
                    return int(self) // other
            thread = threading.Thread(target=lambda: RowLayout(Rows(50), 10).strip_rows)
            thread.start()
            begun.wait()
            print(child(lambda: RowLayout(50, 10).strip_rows))
            over.set()
            thread.join()
        """
        assert self.script(program) == ["0"]

    def test_blas_has_the_callers_threads_in_the_child(self):
        program = """
            with threadpool_limits(2, "blas"):
                entered, over = threading.Event(), threading.Event()
                def inside():
                    with one_blas_thread:
                        entered.set()
                        over.wait()
                thread = threading.Thread(target=inside)
                thread.start()
                entered.wait()
                print(child(lambda: blas() == {2}), *blas())
                over.set()
                thread.join()
                def both():
                    with one_blas_thread:
                        one = blas() == {1}
                    return one and blas() == {2}
                with one_blas_thread:
                    print(child(lambda: blas() == {1}))  # The thread that forks is inside in the child too.
                print(child(both), *blas())
        """
        assert self.script(program) == ["0", "1", "0", "0", "2"]


def test_a_second_ctrl_c_in_a_callback_counts_as_one():
    """The first came between two passes, where it is only marked."""
    with ThreadExecutor(1) as executor:
        executor._ctrl_c._press(signal.SIGINT, None)
        assert not executor.insisted
        with pytest.raises(KeyboardInterrupt), executor.users_code():
            raise KeyboardInterrupt
        assert executor.insisted
        executor.interrupted()
