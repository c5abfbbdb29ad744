"""Tasks on certain workers of a cluster, and their answers.

Nothing waits forever: a worker that is gone, one that has stopped sending heartbeats, a task that no worker may run, a
scheduler that does not answer and a closed client all end the wait with an exception.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from relunmd._util import need
from relunmd.engine.distributed.worker import MissingError, Refusal
from relunmd.errors import ClusterError, RelunmdError

__all__ = ["PATIENCE", "Cluster", "WorkersGoneError", "check_client"]

log = logging.getLogger("relunmd")
PATIENCE = 60.0
"""Seconds to wait for a worker when none is left."""
SILENCE, SILENCE_PAST_DEADLINE = 60.0, 10.0
"""Seconds without a heartbeat after which a worker counts as lost; less once the run's time limit has passed.

A stopped or frozen process is still connected, and Dask itself drops it after `distributed.scheduler.worker-ttl`, five
minutes by default, if ever.
"""
_HEARTBEATS = 5.0
"""Seconds between two questions for heartbeats, and for tasks that no worker may run."""
_REACH = 5.0
_SCHEDULER = 60.0
"""Seconds for the scheduler to answer."""
_SLOWEST = 1e7
"""Bytes per second of the slowest network that data is sent over."""
_LEAST_WAIT, _LONGEST_WAIT = 0.5, 1.0
"""Seconds until it is asked whether all workers are still there."""
_AGAIN = "Connect a new Client and call again; with a checkpoint the run resumes from it."


class WorkersGoneError(Exception):
    """Some workers are no longer there, or no longer have what they had."""


def check_client(client: Any, of: str = "") -> None:
    """Raise ClusterError if a client is not connected; `of` says which one it is."""
    if client.status != "running":
        raise ClusterError(f"The Dask client{of} is not connected to its scheduler (it is {client.status}). {_AGAIN}")


class Cluster:
    """Tasks on certain workers, and their answers; never waits for a worker that is gone or does not answer."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.sent = self.received = 0
        """Bytes of arrays that left this process and came to it."""
        self._name = name
        self._number = 0
        self._distributed = need("distributed", "X on Dask needs", "dask")
        self.direct = False
        """Whether results come straight from the workers, and not through the scheduler."""
        self.pressed: Callable[[], bool] = lambda: False
        """Whether to give up waiting, with KeyboardInterrupt."""
        self.deadline: float | None = None
        """When the run's time limit passes, as time.perf_counter() has it."""
        self._heartbeats: dict[str, tuple[float, float]] = {}
        """For each worker its last heartbeat as the scheduler has it, and when it was first seen here."""
        self._asked_at = -_HEARTBEATS
        self._unrunnable_since: float | None = None
        self._idle_since: float | None = None
        self._idle_asked_at = -_HEARTBEATS

    def find_way(self) -> None:
        """Find out whether the workers, of which there is one at least, can be reached from here."""
        try:
            future = self.submit(len, "reached")
            self.client.sync(self.client._gather, [future], direct=True, callback_timeout=_REACH)
            self.direct = True
        except Exception as reason:  # Whatever it is, there is another way.
            log.info("The workers cannot be reached from here (%r): all goes through the scheduler", reason)

    def workers(self) -> dict[str, int]:
        """The workers that are connected and send heartbeats, with their numbers of threads."""
        found: dict[str, int] = self.ask("ncores")
        silent = self._silent(found)
        return {address: threads for address, threads in found.items() if address not in silent}

    def ask(self, what: str, **given: Any) -> Any:
        """What the scheduler answers; ClusterError if it does not."""
        with self._connected():
            try:
                return self.client.sync(getattr(self.client.scheduler, what), callback_timeout=_SCHEDULER, **given)
            except (OSError, TimeoutError, self._distributed.TimeoutError) as reason:
                raise ClusterError(f"The cluster's scheduler does not answer ({reason!r}). {_AGAIN}") from reason

    def _silent(self, present: Iterable[str]) -> set[str]:
        """Those of these workers that are connected but have stopped sending heartbeats."""
        now = time.perf_counter()
        if now - self._asked_at >= _HEARTBEATS:
            self._asked_at = now
            seen = {address: facts["last_seen"] for address, facts in self.ask("identity")["workers"].items()}
            before = self._heartbeats
            self._heartbeats = {
                # The scheduler's clock may differ from ours: what counts is whether its figure changes.
                address: before[address] if before.get(address, (None,))[0] == last else (last, now)
                for address, last in seen.items()
            }
        past = self.deadline is not None and now > self.deadline
        most = SILENCE_PAST_DEADLINE if past else SILENCE
        return {a for a in present if a in self._heartbeats and self._asked_at - self._heartbeats[a][1] >= most}

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Whatever Dask raises because the client is closed, as a ClusterError."""
        check_client(self.client)
        try:
            yield
        except (RelunmdError, WorkersGoneError):
            raise
        except Exception:
            check_client(self.client)
            raise

    def wait_for_workers(self, patience: float) -> dict[str, int]:
        """The workers that are there, as soon as there is one; ClusterError if there is none for so many seconds."""
        begin = time.perf_counter()
        while not (found := self.workers()):
            if time.perf_counter() - begin > patience:
                raise ClusterError(
                    f"The cluster has had no worker for {patience:.0f} s. Start some and call again; with a checkpoint "
                    "the run resumes from it."
                )
            if self.pressed():
                raise KeyboardInterrupt
            time.sleep(0.1)
        return found

    def submit(
        self, function: Callable[..., Any], *given: Any, on: str | Sequence[str] | None = None, named: str = ""
    ) -> Any:
        """A task, on a certain worker, on one of several or on any."""
        self._number += 1
        key = f"relunmd_{named or function.__name__}-{self._name}-{self._number}"
        addresses = [on] if isinstance(on, str) else list(on or ())
        where = {"workers": addresses, "allow_other_workers": False} if addresses else {}
        with self._connected():
            return self.client.submit(function, *given, key=key, pure=False, retries=0, **where)

    def compute(self, collections: Sequence[Any]) -> list[Any]:
        """Futures of Dask collections."""
        with self._connected():
            futures: list[Any] = self.client.compute(list(collections))
            return futures

    def each(
        self,
        function: Callable[..., Any],
        tasks: Sequence[tuple[str, tuple[Any, ...]]],
        patience: float | None = None,
        needs: Iterable[Any] = (),
    ) -> list[Any]:
        """Call function(name, *given) on each of these workers; the answers in their order."""
        futures = [self.submit(function, self._name, *given, on=address) for address, given in tasks]
        return self.answers(futures, [address for address, _ in tasks], patience, needs)

    def answers(
        self, futures: Sequence[Any], on: Iterable[str], patience: float | None = None, needs: Iterable[Any] = ()
    ) -> list[Any]:
        """The results of tasks.

        Parameters
        ----------
        on : the workers that must be there; WorkersGoneError as soon as one is not, or sends no heartbeats
        patience : most seconds to wait, then ClusterError; None for no limit
        needs : futures of the user's that the tasks depend on; ClusterError if no worker may compute them
        """
        begin, wait, wanted = time.perf_counter(), _LEAST_WAIT, list(needs)
        self._unrunnable_since = self._idle_since = None
        while True:
            results = self._gathered(futures, wait)
            if results is not None:
                return self._told(results)
            wait = min(2 * wait, _LONGEST_WAIT)
            if self.pressed():
                raise KeyboardInterrupt
            self._check_runnable(wanted)
            self._check_idle(futures)
            present = self.workers()
            missing = set(on) - set(present)
            if missing:
                raise WorkersGoneError(f"{len(missing)} of the workers are gone or do not answer: {_listed(missing)}")
            if not present:
                self.wait_for_workers(PATIENCE)
            if patience is not None and time.perf_counter() - begin > patience:
                raise ClusterError(f"No answer from the workers for {patience:.0f} s.")

    def _gathered(self, futures: Sequence[Any], wait: float) -> list[Any] | None:
        """The results; None if they are not there within so many seconds."""
        with self._connected():
            try:
                self._distributed.wait(futures, timeout=wait)
                results: list[Any] = self.client.sync(
                    self.client._gather, futures, direct=self.direct, callback_timeout=10 + 10 * wait
                )
                return results
            except self._distributed.scheduler.KilledWorker as reason:
                raise WorkersGoneError(str(reason)) from reason
            except (TimeoutError, self._distributed.TimeoutError):
                return None
            except self._distributed.CancelledError as reason:
                check_client(self.client)
                raise WorkersGoneError(str(reason)) from reason

    def _check_runnable(self, needs: Sequence[Any]) -> None:
        """Raise ClusterError if tasks of the user's have been waiting for a worker that is gone."""
        if not needs or time.perf_counter() - self._asked_at < _HEARTBEATS:
            return
        states = self.ask("get_task_status", keys=[future.key for future in needs])
        stuck = [str(key) for key, state in states.items() if state == "no-worker"]
        if not stuck:
            self._unrunnable_since = None
        elif self._unrunnable_since is None:
            self._unrunnable_since = time.perf_counter()
        elif time.perf_counter() - self._unrunnable_since > PATIENCE:
            raise ClusterError(
                f"Dask has had no worker that may compute {_listed(stuck)} for {PATIENCE:.0f} s. Are these tasks "
                "restricted to workers that are gone? Compute them again and call again."
            )

    def _check_idle(self, futures: Sequence[Any]) -> None:
        """Raise WorkersGoneError if no worker has had anything to do for long, and still there are no results.

        Seen once in some 90 runs with killed workers: a task that Dask neither ran nor gave up.
        """
        now = time.perf_counter()
        if now - self._idle_asked_at < _HEARTBEATS:
            return
        self._idle_asked_at = now
        busy = any(self.ask("processing", workers=None).values())
        if busy and not all(future.done() for future in futures):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since > PATIENCE:
            raise WorkersGoneError(f"Dask has had nothing to run for {PATIENCE:.0f} s, but results are missing")

    def _told(self, results: list[Any]) -> list[Any]:
        """The results, if none of them is a refusal."""
        refusals = [result.reason for result in results if isinstance(result, Refusal)]
        for reason in refusals:
            if not isinstance(reason, MissingError):
                raise reason
        if refusals:
            raise WorkersGoneError(f"A worker has not {refusals[0]}")
        return results

    def broadcast(self, value: Any, nbytes: int, to: Sequence[str]) -> Any:
        """Something large that workers will ask for, sent to one of these."""
        with self._connected():
            try:
                (future,) = self.client.sync(
                    self.client._scatter,
                    [value],
                    workers=list(to),
                    hash=False,
                    direct=self.direct,
                    callback_timeout=_SCHEDULER + nbytes / _SLOWEST,
                )
            except (OSError, TimeoutError, KeyError, self._distributed.TimeoutError) as reason:
                check_client(self.client)
                raise WorkersGoneError(f"A worker did not take what was sent ({reason!r})") from reason
        return future

    def unpin(self, futures: Sequence[Any]) -> None:
        """Let finished tasks run elsewhere should their results be lost, where they raise, instead of nowhere."""
        keys = [future.key for future in futures]
        self.ask("set_restrictions", worker={key: [] for key in keys})
        states = self.ask("get_task_status", keys=keys)
        if set(states.values()) != {"memory"}:  # Lost before that: such a task stays where it was.
            raise WorkersGoneError("Workers are gone with rows that were handed over")


def _listed(names: Iterable[str]) -> str:
    """Some names, not too many of them."""
    first, *others = sorted(names)
    return f"{first} and {len(others)} more" if others else first
