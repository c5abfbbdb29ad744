# ruff: noqa: T201 (a script that prints a table)
"""One-line changes of the source, each of which a test must notice: ``python -m tests.one_liners [name ...]``.

Every change is applied to a copy of the source tree, and the tests named for it are run against that copy. A change
whose line is no longer there, exactly once, is an error: update it. Exits with 1 if a change is not noticed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Change:
    """Replaces `old` by `new` in a file below src/relunmd; `tests` are what has to notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        found = text.count(self.old)
        if found != 1:
            sys.exit(f"{self.name}: {self.file} has {self.old!r} {found} times, not once. Update tests/one_liners.py.")
        return text.replace(self.old, self.new)


_CONSTANTS = "tests/test_constants.py"
_LOSSES = "tests/engine/distributed/test_waiting.py::test_how_often_workers_may_be_lost"
_SHARE = "tests/engine/distributed/test_waiting.py::test_how_much_of_x_a_worker_keeps"

CHANGES = (
    Change(
        "halve",
        "loop/race.py",
        "(len(self.trajectories) + 1) // 2 :]",
        "len(self.trajectories) // 2 :]",
        (f"{_CONSTANTS}::test_of_three_starts_two_go_on",),
    ),
    Change(
        "check_best",
        "loop/recovery.py",
        "<= 1e-3 * error + 1e-5",
        "<= 1e-1 * error + 1e-5",
        (f"{_CONSTANTS}::test_best_factors_that_fit_less_well_than_they_should_are_refused",),
    ),
    Change(  # In place of `factors()` without `stopped = None`: the stop is kept by this line now.
        "past_the_stop",
        "loop/driver.py",
        "while self.steps < self._last_step:",
        "while self._stopped is None:",
        ("tests/loop/test_faults.py::test_a_run_that_its_callback_stopped_does_not_go_on",),
    ),
    Change(
        "factor_arrays",
        "algorithm/base.py",
        "return (_OF_THE_RUN + 2 * states.count_factors(states.complete(self.keeps))) * itemsize",
        "return 1 * itemsize",
        ("tests/test_api.py::test_memory_for_arrays_like_w_and_h",),
    ),
    Change(
        "factor_arrays_of_qn",
        "algorithm/quasi_newton.py",
        "return 12 * itemsize + 2 * (self.memory + 1) * PAIRS.itemsize",
        "return 10 * itemsize",
        ("tests/test_api.py::test_memory_for_arrays_like_w_and_h",),
    ),
    Change(
        "checkpoint_memory",
        "memory_check.py",
        "((algorithm.dense_arrays + 1) // 2 if checkpoint else 0)",
        "0",
        ("tests/test_api.py::test_memory_for_a_checkpoint",),
    ),
    Change(
        "fresh",
        "algorithm/online.py",
        "_FRESH = 1e-4",
        "_FRESH = 0.0",
        ("tests/algorithm/test_online.py::test_after_very_many_rows_a_new_one_still_counts",),
    ),
    Change(
        "less_patience",
        "algorithm/quasi_newton.py",
        "_WINDOW, _PATIENCE, _LESS_PATIENCE = 5, 0.08, 0.3",
        "_WINDOW, _PATIENCE, _LESS_PATIENCE = 5, 0.08, 1.0",
        ("tests/algorithm/test_quasi_newton.py::test_every_round_is_less_patient",),
    ),
    Change(
        "enough",
        "init/spectral.py",
        "random, None, lift=depth",
        "random, 1e-9, lift=depth",
        ("tests/init/test_init.py::test_an_initialization_takes_as_many_passes_as_it_says",),
    ),
    Change(
        "fsync_file",
        "io/atomic.py",
        "            os.fsync(out.fileno())\n",
        "",
        (f"{_CONSTANTS}::test_files_are_synced_before_they_are_renamed_and_their_folder_after",),
    ),
    Change(
        "fsync_folder",
        "io/atomic.py",
        "        os.fsync(descriptor)\n",
        "        pass\n",
        (f"{_CONSTANTS}::test_files_are_synced_before_they_are_renamed_and_their_folder_after",),
    ),
    Change(
        "first_batch_less",
        "estimator_fit.py",
        "_FIRST_BATCH = 50",
        "_FIRST_BATCH = 5",
        (f"{_CONSTANTS}::test_the_first_batch_takes_fifty_iterations",),
    ),
    Change(
        "first_batch_more",
        "estimator_fit.py",
        "_FIRST_BATCH = 50",
        "_FIRST_BATCH = 500",
        (f"{_CONSTANTS}::test_the_first_batch_takes_fifty_iterations",),
    ),
    *(
        Change(
            f"passes_a_loss_{new}",
            "engine/distributed/cluster_executor.py",
            "_PASSES_A_LOSS = 20",
            f"_PASSES_A_LOSS = {new}",
            (_LOSSES,),
        )
        for new in (2, 200)
    ),
    *(
        Change(
            f"share_for_x_{new}",
            "engine/distributed/worker_store.py",
            "_SHARE_FOR_X = 0.4",
            f"_SHARE_FOR_X = {new}",
            (_SHARE,),
        )
        for new in (0.04, 4.0)
    ),
)


def _failed(copy: Path, tests: tuple[str, ...]) -> list[str]:
    """The tests that fail with the source tree `copy`; ends the program if they cannot be run."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *dict.fromkeys(tests)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        sys.exit(f"The tests could not be run:\n{done.stdout}\n{done.stderr}")
    return re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)


def main(names: list[str]) -> int:
    unknown = set(names) - {change.name for change in CHANGES}
    if unknown:
        sys.exit(f"No such change: {', '.join(sorted(unknown))}. Known: {', '.join(c.name for c in CHANGES)}.")
    chosen = [change for change in CHANGES if not names or change.name in names]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy)  # With its __pycache__: compiled kernels need not be made again.
        texts = {change.file: (copy / "relunmd" / change.file).read_text(encoding="utf-8") for change in chosen}
        changed = {change.name: change.applied_to(texts[change.file]) for change in chosen}
        unchanged = _failed(copy, tuple(test for change in chosen for test in change.tests))
        if unchanged:
            sys.exit(f"These fail without any change: {', '.join(unchanged)}.")
        print(f"{'change':<20}{'noticed':<9}by")
        for change in chosen:
            file = copy / "relunmd" / change.file
            file.write_text(changed[change.name], encoding="utf-8")
            noticed = _failed(copy, change.tests)
            file.write_text(texts[change.file], encoding="utf-8")
            missed += not noticed
            told = ", ".join(dict.fromkeys(test.split("[")[0] for test in noticed)) or "no test"
            print(f"{change.name:<20}{'yes' if noticed else 'NO':<9}{told}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} changes are noticed.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
