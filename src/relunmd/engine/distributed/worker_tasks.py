"""Tasks on certain workers of a cluster, and their results.

No call waits forever: a lost worker, a worker without heartbeats, a task that no worker may run, a scheduler that does
not answer and a closed client all end the wait with an exception. Dask itself would wait in most of these cases
(dask/distributed #1110, #4001, #7346), and `Client.gather` has no timeout.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from relunmd.engine.distributed.parts import dask_module
from relunmd.engine.distributed.refusals import EXPECTED, WorkersLostError
from relunmd.engine.distributed.worker_store import call_store
from relunmd.errors import ClusterError

log = logging.getLogger("relunmd")
PATIENCE = 60.0
"""Seconds to wait for a worker when none is left, and for tasks that cannot run."""
SILENCE, SILENCE_PAST_DEADLINE = 60.0, 10.0
"""Seconds without a heartbeat after which a worker counts as lost; less once the run's time limit has passed.

A stopped or frozen process is still connected. Dask itself drops it after `distributed.scheduler.worker-ttl`, five
minutes by default.
"""
_CHECK_EVERY = 5.0
"""Seconds between two checks of heartbeats, and of tasks that cannot run."""
_DIRECT_TIMEOUT, _SCHEDULER_TIMEOUT = 5.0, 60.0
_SLOWEST_NETWORK = 1e7
"""Bytes per second."""
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 1.0
"""Seconds to wait for results before the workers are checked."""
_RETRY = "Call again; with a checkpoint the run resumes from it."
_RECONNECT = f"Connect a new Client. {_RETRY}"


def check_client(client: Any, which: str = "") -> None:
    """Raise ClusterError if a client is not connected; `which` describes it in the message."""
    if client.status != "running":
        raise ClusterError(f"The Dask client{which} is not connected: it is {client.status}. {_RECONNECT}")


class Cluster:
    """Submits tasks to certain workers and waits for their results.

    Parameters
    ----------
    client : distributed.Client
    name : str
        The name of X on the workers, which is part of the keys of tasks.

    Attributes
    ----------
    bytes_moved : int
        Bytes of arrays that were sent from and to this process.
    interrupted : callable
        Returns whether to stop waiting and raise KeyboardInterrupt.
    deadline : float or None
        When the run's time limit passes, by time.perf_counter().
    """

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.bytes_moved = 0
        self.interrupted: Callable[[], bool] = lambda: False
        self.deadline: float | None = None
        self._name = name
        self._number = 0
        self._distributed = dask_module()
        self._direct = False
        self._heartbeats: dict[str, tuple[float, float]] = {}
        """For each worker its last heartbeat by the scheduler's clock, and when it was first seen by ours."""
        self._heartbeats_at = self._tasks_at = -_CHECK_EVERY
        self._since: dict[str, float] = {}

    def find_direct_route(self) -> None:
        """Find out whether results can be fetched from the workers directly; otherwise the scheduler passes them on."""
        try:
            future = self.submit(len, "reached")
            self.client.sync(self.client._gather, [future], direct=True, callback_timeout=_DIRECT_TIMEOUT)
            self._direct = True
        except Exception as reason:  # The scheduler can reach them in any case.
            log.info("No direct connection to the workers (%r); results pass through the scheduler", reason)

    def workers(self) -> dict[str, int]:
        """Return the workers that are connected and send heartbeats, with their numbers of threads."""
        found: dict[str, int] = self.ask("ncores")
        now = time.perf_counter()
        if now - self._heartbeats_at >= _CHECK_EVERY:
            self._heartbeats_at, before = now, self._heartbeats
            seen = {address: facts["last_seen"] for address, facts in self.ask("identity")["workers"].items()}
            self._heartbeats = {
                # The scheduler's clock may differ from ours: what counts is whether its value changes.
                address: before[address] if before.get(address, (None,))[0] == last else (last, now)
                for address, last in seen.items()
            }
        late = self.deadline is not None and now > self.deadline
        oldest = self._heartbeats_at - (SILENCE_PAST_DEADLINE if late else SILENCE)
        return {a: threads for a, threads in found.items() if self._heartbeats.get(a, (0, now))[1] > oldest}

    def wait_for_workers(self) -> dict[str, int]:
        """Return the workers as soon as there is one; raise ClusterError after PATIENCE seconds without one."""
        begin = time.perf_counter()
        while not (found := self.workers()):
            if time.perf_counter() - begin > PATIENCE:
                raise ClusterError(f"The cluster has had no worker for {PATIENCE:.0f} s. Start workers. {_RETRY}")
            if self.interrupted():
                raise KeyboardInterrupt
            time.sleep(0.1)
        return found

    def ask(self, question: str, **given: Any) -> Any:
        """Return what a handler of the scheduler returns; raise ClusterError if it does not answer."""
        with self._connected():
            try:
                handler = getattr(self.client.scheduler, question)
                return self.client.sync(handler, callback_timeout=_SCHEDULER_TIMEOUT, **given)
            except OSError as reason:  # A TimeoutError is one.
                raise ClusterError(f"The Dask scheduler does not answer ({reason!r}). {_RECONNECT}") from reason

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Raise ClusterError instead of any other exception if the client is closed."""
        check_client(self.client)
        try:
            yield
        except Exception:
            check_client(self.client)
            raise

    def submit(self, function: Callable[..., Any], *given: Any, on: Any = None, named: str = "") -> Any:
        """Submit a task to a certain worker, to one of several, or to any; return its future."""
        self._number += 1
        key = f"relunmd_{named or function.__name__}-{self._name}-{self._number}"
        with self._connected():
            return self.client.submit(function, *given, key=key, pure=False, retries=0, workers=on)

    def call(self, method: str, *given: Any, on: str, named: str = "") -> Any:
        """Submit a call of a method of a worker's WorkerStore; return its future."""
        return self.submit(call_store, self._name, method, *given, on=on, named=named or method)

    def call_each(self, method: str, given: Mapping[str, tuple[Any, ...]], **options: Any) -> list[Any]:
        """Call a method of a WorkerStore on several workers, with arguments for each; return the results."""
        futures = [self.call(method, *arguments, on=address) for address, arguments in given.items()]
        return self.results(futures, given, **options)

    def compute(self, collections: Sequence[Any]) -> list[Any]:
        """Return the futures of Dask collections."""
        with self._connected():
            return list(self.client.compute(list(collections)))

    def results(
        self, futures: Sequence[Any], on: Iterable[str], timeout: float | None = None, needs: Sequence[Any] = ()
    ) -> list[Any]:
        """Wait for the results of tasks.

        Parameters
        ----------
        futures : sequence of distributed.Future
        on : iterable of str
            The workers that must be present and send heartbeats.
        timeout : float, optional
            Seconds to wait; None for no limit.
        needs : sequence of distributed.Future
            Futures of the user that the tasks depend on.

        Raises
        ------
        WorkersLostError
            A worker is lost.
        ClusterError
            The timeout has passed, no worker may compute one of `needs`, or the cluster does not answer.
        """
        begin, wait = time.perf_counter(), _FIRST_WAIT
        self._since = {}
        while True:
            results = self._gather(futures, wait)
            if results is not None:
                reasons = [result for result in results if isinstance(result, EXPECTED)]
                if reasons:  # A loss of rows may be the consequence of another error.
                    raise min(reasons, key=lambda reason: isinstance(reason, WorkersLostError))
                return results
            wait = min(2 * wait, _LONGEST_WAIT)
            if self.interrupted():
                raise KeyboardInterrupt
            self._check_tasks(futures, needs)
            present = self.workers()
            missing = set(on) - set(present)
            if missing:
                raise WorkersLostError(f"{len(missing)} workers are gone or do not answer: {min(missing)}, …")
            if not present:
                self.wait_for_workers()
            if timeout is not None and time.perf_counter() - begin > timeout:
                raise ClusterError(f"The workers did not answer for {timeout:.0f} s. {_RETRY}")

    def _gather(self, futures: Sequence[Any], wait: float) -> list[Any] | None:
        """Return the results, or None if they are not available within `wait` seconds."""
        with self._connected():
            try:
                self._distributed.wait(futures, timeout=wait)
                options = {"direct": self._direct, "callback_timeout": 10 + 10 * wait}
                return list(self.client.sync(self.client._gather, futures, **options))
            except TimeoutError:
                return None
            except (self._distributed.scheduler.KilledWorker, self._distributed.CancelledError) as reason:
                raise WorkersLostError(str(reason)) from reason

    def _check_tasks(self, futures: Sequence[Any], needs: Sequence[Any]) -> None:
        """Every few seconds, raise an error if tasks have not been able to run for PATIENCE seconds.

        Dask keeps a task whose worker is lost in the state "no-worker" (dask/distributed #7346). An idle cluster whose
        results are missing (#4001) was seen once in 90 runs with killed workers.
        """
        if time.perf_counter() - self._tasks_at < _CHECK_EVERY:
            return
        self._tasks_at = time.perf_counter()
        states = self.ask("get_task_status", keys=[future.key for future in needs]) if needs else {}
        stuck = [str(key) for key, state in states.items() if state == "no-worker"]
        if self._has_lasted("stuck", bool(stuck)):
            raise ClusterError(
                f"Dask has had no worker that may compute {stuck[0]} for {PATIENCE:.0f} s. Submit it again if it is "
                "restricted to a lost worker."
            )
        busy = any(self.ask("processing", workers=None).values())
        if self._has_lasted("idle", not busy or all(future.done() for future in futures)):
            raise WorkersLostError(f"Dask has had nothing to run for {PATIENCE:.0f} s, but results are missing")

    def _has_lasted(self, condition: str, holds: bool) -> bool:
        """Return whether a condition has held at every check of the last PATIENCE seconds."""
        now = time.perf_counter()
        self._since[condition] = self._since.get(condition, now) if holds else now
        return now - self._since[condition] > PATIENCE

    def broadcast(self, value: Any, nbytes: int, to: Sequence[str]) -> Any:
        """Send a large value to one of these workers, from which others fetch it; return its future."""
        options = {"workers": list(to), "hash": False, "direct": self._direct}
        timeout = _SCHEDULER_TIMEOUT + nbytes / _SLOWEST_NETWORK
        with self._connected():
            try:
                (future,) = self.client.sync(self.client._scatter, [value], callback_timeout=timeout, **options)
            except (OSError, KeyError) as reason:
                raise WorkersLostError(f"a worker did not receive what was sent ({reason!r})") from reason
        return future

    def unpin(self, futures: Sequence[Any]) -> None:
        """Allow finished tasks to run on any worker if their results are lost: they raise there instead of waiting."""
        keys = [future.key for future in futures]
        self.ask("set_restrictions", worker={key: [] for key in keys})
        states = self.ask("get_task_status", keys=keys)
        if set(states.values()) != {"memory"}:  # A task that was lost before stays restricted.
            raise WorkersLostError("workers were lost with rows of a result")
