"""Saving a run and returning to an earlier point of it: the checkpoint, and recovery after rows were lost.

Where the rows of arrays are, and how they are copied, written and restored, only the executor knows (`keep`,
`restore`, `write_rows`, `read_rows`).
"""

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from relunmd.engine.executor import RowsLostError
from relunmd.engine.row_newton import fit_rows
from relunmd.errors import ClusterError, InputError, RelunmdError
from relunmd.io.archive import amount, count
from relunmd.loop.checkpoint import Checkpoint
from relunmd.loop.snapshot import Snapshot

if TYPE_CHECKING:
    from relunmd.loop.driver import Run

log = logging.getLogger("relunmd")


class Recovery:
    """Writes the checkpoint of a run, keeps a snapshot of it, and returns to one of them."""

    def __init__(self, run: "Run", checkpoint: Checkpoint | None) -> None:
        self._run = run
        self._checkpoint = checkpoint
        self._kept: Snapshot | None = None
        """The snapshot whose rows the executor keeps."""
        self._saved = False
        """Whether there was a snapshot or a checkpoint: starting again would lose more than seconds."""

    def save(self) -> None:
        """Write a checkpoint and keep copies of the rows, if either is due."""
        if self._checkpoint is not None and self._checkpoint.due and (snapshot := self._stored(self._checkpoint)):
            self._checkpoint.begin(snapshot)
        executor = self._run.problem.executor
        if executor.keep_due:
            kept = self._snapshot()
            executor.keep(kept.arrays)
            self._kept, self._saved = kept, True

    def finish(self) -> bool:
        """Write the last checkpoint unless the file has it; return False if Ctrl-C ended the waiting."""
        checkpoint, pressed = self._checkpoint, self._run.problem.executor.interrupted
        if checkpoint is None or not self._run.race.trajectories:
            return True
        if not checkpoint.wait(pressed):
            return False
        if checkpoint.holds(self._run.race.mark) or (snapshot := self._stored(checkpoint)) is None:
            return True
        checkpoint.begin(snapshot)
        return checkpoint.wait(pressed)

    def finish_if_possible(self) -> None:
        """Write the last checkpoint of a run that fails."""
        with suppress(RowsLostError):
            self.finish()

    def resume(self) -> None:
        """Return to the checkpoint, if the file exists."""
        checkpoint, run = self._checkpoint, self._run
        snapshot = None if checkpoint is None else checkpoint.open()
        if checkpoint is None or snapshot is None:
            return
        while True:
            try:
                with checkpoint.making_sense():
                    self._restore(self._with_rows(snapshot))
                    run.clock.set(amount(snapshot.about["seconds"], "seconds"))
                self._check_best()
                break
            except RowsLostError as reason:  # Nothing is wrong with the file.
                log.warning("%s. Reading the checkpoint %s again", reason, checkpoint.place)
        self._saved = True
        run.check_limits()
        leader, seconds = run.race.leader, run.clock.seconds()
        told = "Resuming from %s: iteration %d, error %.6g, after %.1f s"
        log.info(told, checkpoint.place, leader.iteration, leader.best.error, seconds)

    def recover(self, reason: RowsLostError) -> None:
        """Return to the last snapshot, else to the checkpoint, else start again, else recompute W from X and H.

        Raises RowsLostError if rows are lost meanwhile; it can be called again then.
        """
        run = self._run
        if self._kept is not None and run.problem.executor.restore():
            self._restore(self._kept)
            log.warning("%s. Resuming from iteration %d", reason, run.race.leader.iteration)
        elif self._reread():
            log.warning("%s. Resuming from the checkpoint, iteration %d", reason, run.race.leader.iteration)
        elif not run.race.trajectories or not self._saved:
            log.warning("%s. Starting again", reason)
            run.race.start_again()
            run.steps = 0
        else:
            log.warning("%s, and its copies too. Recomputing the rows of W from X and H", reason)
            self._rebuild()
        run.check_limits()

    def _reread(self) -> bool:
        """Return to the checkpoint; returns whether that was possible."""
        self._kept = None
        snapshot = None if self._checkpoint is None else self._checkpoint.reread()
        if self._checkpoint is None or snapshot is None:
            return False
        try:
            with self._checkpoint.making_sense():
                self._restore(self._with_rows(snapshot))
        except ClusterError:
            raise
        except RelunmdError as reason:
            log.warning("The checkpoint %s cannot be used: %s", self._checkpoint.place, reason)
            return False
        return True

    def _rebuild(self) -> None:
        """Continue each trajectory from its best H, with the best rows for it."""
        run, states = self._run, []
        for trajectory in run.race.trajectories:
            H = trajectory.best.H
            with run.reading():
                W = fit_rows(run.problem, H).W * run.problem.dtype.type(run.problem.matrix.scale)
            state = run.first_state(W, H)
            if state is None:
                raise ClusterError(
                    "Rows of W were lost with a worker and could not be recomputed: a value was not finite. Call "
                    "again; with a checkpoint on a file system that all workers see the run resumes from it."
                )
            states.append(state)
        run.race.random.bit_generator.state = run.recorded[0]
        for trajectory, state in zip(run.race.trajectories, states, strict=True):
            run.steps -= trajectory.rewind(state)
        for trajectory in run.race.trajectories:
            run.record(trajectory)
        for trajectory in run.race.trajectories:
            run.report(trajectory)
        self.save()

    def _snapshot(self) -> Snapshot:
        """The run as it is now; the arrays are its own."""
        run, race = self._run, self._run.race.flatten()
        random, passes = run.recorded
        about = {"steps": run.steps, "random": random, "seconds": run.clock.seconds(), "passes": passes}
        return Snapshot(race.about | about, race.arrays)

    def _stored(self, checkpoint: Checkpoint) -> Snapshot | None:
        """A snapshot of what is in memory, after the other rows were written elsewhere; None if that fails."""
        snapshot = self._snapshot()
        try:
            about = self._run.problem.executor.write_rows(snapshot.arrays, checkpoint.place)
        except OSError as reason:
            checkpoint.failed(reason)
            return None
        here = {name: array for name, array in snapshot.arrays.items() if isinstance(array, np.ndarray)}
        return Snapshot(snapshot.about | {"rows": about}, here) if about else snapshot

    def _with_rows(self, snapshot: Snapshot) -> Snapshot:
        """Add the rows that were written elsewhere."""
        problem, place = self._run.problem, Path() if self._checkpoint is None else self._checkpoint.place
        rows = problem.executor.read_rows(problem.matrix, snapshot.about.get("rows"), place)
        return Snapshot(snapshot.about, snapshot.arrays | rows)

    def _restore(self, snapshot: Snapshot) -> None:
        """Return to a snapshot of the same run; raise an exception if it is not one."""
        run, about = self._run, snapshot.about
        passes = count(about["passes"], "passes")
        run.race.restore(snapshot, run.algorithm, run.problem)
        # Checkpoints of development versions have no number of steps.
        run.steps = count(about.get("steps", sum(t.iteration + 1 for t in run.race.trajectories)), "steps")
        run.recorded = about["random"], passes

    def _check_best(self) -> None:
        """Check that the best factors have the stored error on this X: a fingerprint does not see rows exchanged."""
        run = self._run
        W, H, error, _ = run.race.leader.best
        found = run.problem.error(W, H)
        run.problem.executor.passes = run.recorded[1]
        if not abs(found - error) <= 1e-3 * error + 1e-5:
            raise InputError(
                f"checkpoint must be of the same X. On this X its factors have the error {found:.6g}, not {error:.6g}: "
                "the rows or columns may be in another order."
            )
