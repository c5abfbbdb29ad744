"""Cost of checkpoints: passes per minute with and without them, and the time to write one.

    python -m benchmarks.checkpoint [--quick] [--folder DIR]

MNIST's first 50 000 images (RELUNMD_DATA), r = 32, "qn"; a checkpoint every 10 s. Minutes with and without checkpoints
alternate, but on a noisy machine two minutes without differ by more than the cost of checkpoints. The cost is therefore
also measured within the minutes with checkpoints: how much longer iterations take while one is written than the
iterations around them. The folder should be on a fast disk.
"""

import argparse
import logging
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import relunmd
from relunmd import datasets
from relunmd.loop import checkpoint as checkpoints

RANK, EVERY = 32, 10.0
AROUND = 10
"""Iterations before and after a checkpoint with which those during it are compared."""


class Minute:
    """A run of some seconds: its passes, the times of its iterations, and when checkpoints were written."""

    def __init__(self, X, seconds, path=None):
        stamps, self.writes, original = [], [], checkpoints.write_archive

        def timed(*given):
            began = time.perf_counter()
            original(*given)
            self.writes.append((began, time.perf_counter()))

        checkpoints.write_archive = timed
        try:
            d = relunmd.decompose(
                X,
                RANK,
                tol=0,
                max_iter=None,
                max_time=seconds,
                random_state=0,
                n_jobs=-1,
                callback=lambda _: stamps.append(time.perf_counter()),
                checkpoint=path,
                checkpoint_every=EVERY,
            )
        finally:
            checkpoints.write_archive = original
        self.passes = int(d.history.passes[-1])
        self.began, self.took = np.array(stamps[:-1]), np.diff(stamps)

    def lost(self):
        """Return for each checkpoint how many seconds longer the iterations took while it was written."""
        beside = [(self.began < end) & (self.began + self.took > begin) for begin, end in self.writes]
        free = ~np.any(beside, axis=0)
        found = []
        for mask in beside:
            if mask.any():  # The last one is written after the run.
                first, last = np.flatnonzero(mask)[[0, -1]]
                around = slice(max(0, first - AROUND), last + AROUND + 1)
                found.append(self.took[mask].sum() - mask.sum() * np.mean(self.took[around][free[around]]))
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the images, turns of 12 s")
    parser.add_argument("--folder", type=Path, help="folder for the checkpoints; by default a temporary one")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    X = datasets.mnist(500 if given.quick else 5000)
    seconds, turns = (12, 1) if given.quick else (60, 3)
    print(f"MNIST {len(X)} × {X.shape[1]}, r = {RANK}, qn, {turns} turn(s) of {seconds} s, every {EVERY:.0f} s")
    made = {"without": [], "with": []}
    Minute(X, 2)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for turn in range(turns):
            for kind in ("without", "with") if turn % 2 == 0 else ("with", "without"):
                path = Path(folder) / f"{turn}.npz" if kind == "with" else None
                made[kind].append(Minute(X, seconds, path))
                print(f"{kind:>8}: {made[kind][-1].passes} passes", flush=True)
        size = max(file.stat().st_size for file in Path(folder).iterdir())
    passes = {kind: sum(minute.passes for minute in minutes) for kind, minutes in made.items()}
    print(f"Passes lost, runs with checkpoints against runs without: {1 - passes['with'] / passes['without']:+.1%}")
    lost = [seconds for minute in made["with"] for seconds in minute.lost()]
    share = statistics.mean(lost) / EVERY
    print(f"Lost within runs with checkpoints: {statistics.mean(lost) * 1e3:.0f} ms each, {share:.1%} of the passes")
    an_iteration = statistics.median(np.concatenate([minute.took for minute in made["with"]]))
    beside = [end - begin for minute in made["with"] for begin, end in minute.writes[:-1]]
    alone = [end - begin for minute in made["with"] for begin, end in minute.writes[-1:]]
    print(
        f"An iteration takes {an_iteration * 1e3:.0f} ms. A checkpoint of {size / 1e6:.0f} MB is written in "
        f"{statistics.median(alone) * 1e3:.0f} ms at the end, and in {statistics.median(beside) * 1e3:.0f} ms "
        f"in the background"
    )


if __name__ == "__main__":
    main()
