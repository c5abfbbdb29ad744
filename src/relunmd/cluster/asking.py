"""Tasks on certain workers of a cluster, and their answers."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from relunmd.cluster.worker import MissingError, Refusal
from relunmd.errors import ClusterError
from relunmd.optional import need

__all__ = ["PATIENCE", "Cluster", "WorkersGoneError"]

log = logging.getLogger("relunmd")
PATIENCE = 60.0
"""Seconds to wait for a worker when none is left."""
_REACH = 5.0
_LEAST_WAIT, _LONGEST_WAIT = 0.5, 1.0
"""Seconds until it is asked whether all workers are still there."""


class WorkersGoneError(Exception):
    """Some workers are no longer there, or no longer have what they had."""


class Cluster:
    """Tasks on certain workers, and their answers; never waits for a worker that is gone."""

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

    def find_way(self) -> None:
        """Find out whether the workers, of which there is one at least, can be reached from here."""
        try:
            future = self.submit(len, "reached")
            self.client.sync(self.client._gather, [future], direct=True, callback_timeout=_REACH)
            self.direct = True
        except Exception as reason:  # Whatever it is, there is another way.
            log.info("The workers cannot be reached from here (%r): all goes through the scheduler", reason)

    def workers(self) -> dict[str, int]:
        """The workers that are there, with their numbers of threads."""
        self._check_client()
        try:
            found: dict[str, int] = self.client.nthreads()
        except (OSError, TimeoutError, self._distributed.TimeoutError) as reason:
            raise ClusterError(
                f"The cluster's scheduler does not answer ({reason}). Connect a new Client and call again; with a "
                "checkpoint the run goes on from it."
            ) from reason
        return found

    def _check_client(self) -> None:
        if self.client.status != "running":
            raise ClusterError(
                f"The cluster's scheduler is gone (the client is {self.client.status}). Connect a new Client and call "
                "again; with a checkpoint the run goes on from it."
            )

    def wait_for_workers(self, patience: float) -> dict[str, int]:
        """The workers that are there, as soon as there is one; ClusterError if there is none for so many seconds."""
        begin = time.perf_counter()
        while not (found := self.workers()):
            if time.perf_counter() - begin > patience:
                raise ClusterError(
                    f"The cluster has had no worker for {patience:.0f} s. Start some and call again; with a checkpoint "
                    "the run goes on from it."
                )
            if self.pressed():
                raise KeyboardInterrupt
            time.sleep(0.1)
        return found

    def submit(self, function: Callable[..., Any], *given: Any, on: str | None = None, named: str = "") -> Any:
        """A task, on a certain worker or on any."""
        self._number += 1
        key = f"relunmd_{named or function.__name__}-{self._name}-{self._number}"
        where = {} if on is None else {"workers": [on], "allow_other_workers": False}
        return self.client.submit(function, *given, key=key, pure=False, retries=0, **where)

    def each(
        self, function: Callable[..., Any], tasks: Sequence[tuple[str, tuple[Any, ...]]], patience: float | None = None
    ) -> list[Any]:
        """Call function(name, *given) on each of these workers; the answers in their order."""
        futures = [self.submit(function, self._name, *given, on=address) for address, given in tasks]
        return self.answers(futures, [address for address, _ in tasks], patience)

    def answers(self, futures: Sequence[Any], on: Iterable[str], patience: float | None = None) -> list[Any]:
        """The results of tasks; WorkersGoneError as soon as one of these workers is not there any more."""
        begin, wait = time.perf_counter(), _LEAST_WAIT
        while True:
            try:
                self._distributed.wait(futures, timeout=wait)
                return self._told(
                    self.client.sync(self.client._gather, futures, direct=self.direct, callback_timeout=10 + 10 * wait)
                )
            except self._distributed.scheduler.KilledWorker as reason:
                raise WorkersGoneError(str(reason)) from reason
            except (TimeoutError, self._distributed.TimeoutError):
                wait = min(2 * wait, _LONGEST_WAIT)
            except self._distributed.CancelledError as reason:
                self._check_client()
                raise WorkersGoneError(str(reason)) from reason
            if self.pressed():
                raise KeyboardInterrupt
            missing = set(on) - set(self.workers())
            if missing:
                raise WorkersGoneError(f"{len(missing)} of the workers are gone")
            if patience is not None and time.perf_counter() - begin > patience:
                raise ClusterError(f"No answer from the workers for {patience:.0f} s.")

    def _told(self, results: list[Any]) -> list[Any]:
        """The results, if none of them is a refusal."""
        refusals = [result.reason for result in results if isinstance(result, Refusal)]
        for reason in refusals:
            if not isinstance(reason, MissingError):
                raise reason
        if refusals:
            raise WorkersGoneError(f"A worker has not {refusals[0]}")
        return results

    def broadcast(self, value: Any) -> Any:
        """Something large that all workers will ask for."""
        try:
            (future,) = self.client.scatter([value], hash=False, direct=self.direct)
        except (OSError, TimeoutError, self._distributed.TimeoutError) as reason:
            self._check_client()
            raise WorkersGoneError(f"A worker did not take what was sent ({reason})") from reason
        return future
