"""Runs on a real cluster whose workers are killed at random moments.

    python -m benchmarks.kills [RUNS [FIRST_SEED]]

Each run is a process of its own with a hard time limit: 2 or 3 workers with 1 thread each, "qn" or "3b-factored", with
or without a checkpoint, with or without nannies that replace workers. One to three workers are killed, each at a random
moment: while X is opened, during the iterations, while W is returned, or while it is saved. A run must end with the
bits of the undisturbed run, with another point of about the same error (if every copy of the rows was lost and there is
no checkpoint), or with a ClusterError, after which a run with a checkpoint resumes. Otherwise the exit code is 1.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
from dask import array as da
from dask import config
from distributed import Client, LocalCluster

import relunmd
from relunmd.engine.distributed import cluster_executor, worker_store, worker_tasks
from relunmd.engine.matrix import RowLayout
from relunmd.errors import ClusterError
from tests.conftest import relative_error, synthetic
from tests.engine.distributed.conftest import SETTINGS

LIMIT = 240.0
"""Seconds after which a run counts as hanging."""
PHASES = ("opening", "iterations", "hand-over", "save")
X = np.maximum(0, synthetic(3000, 200, 6, seed=1) - 1.5)
RUN = {"rank": 6, "tol": 0, "max_iter": 26, "random_state": 0}
OTHER_POINT = 1.1
"""Largest ratio of the error of another point to the undisturbed error."""


class Workers:
    """Worker processes of a cluster, which may be replaced when they are killed."""

    def __init__(self, count, replaced):
        self.cluster = LocalCluster(
            n_workers=count if replaced else 0, threads_per_worker=1, dashboard_address=":0", memory_limit="2GB"
        )
        self._started = []
        self._replaced = replaced
        if not replaced:
            self.add(count)

    def add(self, count):
        """Start more workers, unless nannies replace them."""
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self.cluster.scheduler_address]
        command += ["--no-nanny", "--no-dashboard", "--nthreads", "1", "--memory-limit", "2GB"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if not self._replaced:
            self._started += [subprocess.Popen(command, **quiet) for _ in range(count)]

    def pids(self):
        """Return the processes that can be killed."""
        if self._replaced:
            nannies = list(self.cluster.workers.values())
            return [nanny.process.pid for nanny in nannies if nanny.process is not None and nanny.process.pid]
        return [process.pid for process in self._started if process.poll() is None]


class Killer:
    """Kills workers, each a random time after the beginning of a phase."""

    def __init__(self, workers, random):
        self.kills = []
        self._workers = workers
        self._random = random
        self._plan = [PHASES[random.integers(len(PHASES))] for _ in range(random.integers(1, 4))]
        self._lock = threading.Lock()
        self._iterations = [int(random.integers(RUN["max_iter"])) for phase in self._plan if phase == "iterations"]

    def begin(self, phase):
        """Start the timers of the kills that are planned for this phase."""
        longest = {"opening": 2.5, "iterations": 0.1, "hand-over": 0.2, "save": 0.05}[phase]
        due = self._plan.count(phase) if phase != "iterations" else 1
        if phase != "iterations":
            self._plan = [other for other in self._plan if other != phase]
        for _ in range(due):
            timer = threading.Timer(self._random.uniform(0, longest), self._kill, [phase])
            timer.daemon = True
            timer.start()

    def _kill(self, phase):
        with self._lock:
            processes = self._workers.pids()
            if processes:
                with suppress(ProcessLookupError):  # It may have ended already.
                    os.kill(processes[self._random.integers(len(processes))], signal.SIGKILL)
                    self.kills.append(phase)

    def note(self, step):
        """Serve as the callback of the run, and slow it down."""
        for iteration in [i for i in self._iterations if i == step.iteration]:
            self._iterations.remove(iteration)
            self.begin("iterations")
        time.sleep(0.02)


def one(seed):
    """Make a run; return its settings and outcome."""
    random = np.random.default_rng(seed)
    settings = RUN | {"algorithm": ["qn", "3b-factored"][seed % 2]}
    replaced, keeps = bool(seed // 2 % 2), bool(seed // 4 % 2)
    expected = relunmd.decompose(X, **settings)
    cluster_executor.KEEP_EVERY, cluster_executor._KEEP_SHARE, cluster_executor._CHECK_EVERY = 0.2, 0.0, 0.2
    worker_tasks.PATIENCE = 15.0
    count = int(random.integers(2, 4))
    with tempfile.TemporaryDirectory() as folder, config.set(SETTINGS):
        if keeps:
            settings |= {"checkpoint": f"{folder}/run.npz", "checkpoint_every": 0}
        workers = Workers(count, replaced)
        killer = Killer(workers, random)
        with Client(workers.cluster) as client:
            client.wait_for_workers(count, timeout=60)
            client.run(lambda: len(worker_store._STORES))  # Imports it; otherwise most of the time is spent on that.
            outcome = attempt(settings, expected, workers, killer, Path(folder))
    about = {"seed": seed, "algorithm": settings["algorithm"], "workers": count, "replaced": replaced}
    return about | {"checkpoint": keeps} | outcome | {"kills": killer.kills}


def attempt(settings, expected, workers, killer, folder):
    """Decompose and save; return the outcome."""
    handed_over = cluster_executor.ClusterExecutor.handed_over
    given = da.from_array(X, chunks=(RowLayout(*X.shape).blocks[0].stop, -1))

    def struck(self, A):
        killer.begin("hand-over")
        return handed_over(self, A)

    cluster_executor.ClusterExecutor.handed_over = struck
    stage, model = "decompose", folder / "model.npz"
    try:
        try:
            killer.begin("opening")
            d = relunmd.decompose(given, callback=killer.note, **settings)
            stage = "save"
            killer.begin("save")
            d.save(model)
        except ClusterError as reason:
            outcome = {"outcome": "ClusterError", "stage": stage, "why": str(reason)}
            cluster_executor.ClusterExecutor.handed_over = handed_over
            if "checkpoint" in settings:
                stage = "resume"
                workers.add(2)
                relunmd.decompose(given, **settings).save(model)
                outcome["resumed"] = compared(model, expected)["outcome"]
            return outcome
    except Exception as reason:
        return {"outcome": "other exception", "stage": stage, "why": repr(reason), "trace": traceback.format_exc()}
    return compared(model, expected)


def compared(model, expected):
    """Compare what was saved with the undisturbed run."""
    d = relunmd.Decomposition.load(model)
    ratio = d.error / expected.error
    true = float(relative_error(X, d.W, d.H))
    if abs(true - d.error) > 1e-6 * d.error + 1e-9 or d.n_iter != RUN["max_iter"]:
        return {"outcome": "wrong result", "ratio": ratio, "error": d.error, "true": true, "n_iter": d.n_iter}
    if d.history.error.tolist() == expected.history.error.tolist():
        return {"outcome": "same bits", "ratio": ratio}
    return {"outcome": "other point" if ratio <= OTHER_POINT else "wrong result", "ratio": ratio}


def in_a_process(seed):
    """Make a run in its own process; the outcome is "hang" if it takes too long."""
    command = [sys.executable, "-X", "faulthandler", "-m", "benchmarks.kills", "--one", str(seed)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler prints the stacks.
            out, err = process.communicate(timeout=20)
            return {"seed": seed, "outcome": "hang", "kills": [], "trace": err}
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Its workers, if any are left.
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if not lines:
        return {"seed": seed, "outcome": "other exception", "kills": [], "stage": "process", "why": err[-3000:]}
    return json.loads(lines[-1])


def main(runs, first):
    """Make the runs and print a table; return whether all were good."""
    found = []
    for seed in range(first, first + runs):
        begin = time.perf_counter()
        found.append(in_a_process(seed))
        seconds = time.perf_counter() - begin
        outcome = {key: value for key, value in found[-1].items() if key != "trace"}
        print(f"{seconds:5.1f} s  {outcome}", flush=True)
        if "trace" in found[-1]:
            print(found[-1]["trace"], flush=True)
    kills = [phase for each in found for phase in each["kills"]]
    print(f"\nruns {runs}, kills {len(kills)} ({', '.join(f'{kills.count(phase)} {phase}' for phase in PHASES)})")
    for outcome in ("same bits", "other point", "ClusterError", "wrong result", "hang", "other exception"):
        these = [each for each in found if each["outcome"] == outcome]
        more = f"  ratios {[round(each['ratio'], 4) for each in these]}" if outcome == "other point" else ""
        if outcome == "ClusterError":
            more = f"  resumed: {[each['resumed'] for each in these if 'resumed' in each]}"
        print(f"{outcome:16}{len(these):4}{more}")
    good = ("same bits", "other point", "ClusterError")
    return all(each["outcome"] in good and each.get("resumed", "same bits") in good for each in found)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        warnings.simplefilter("ignore")
        print(json.dumps(one(int(sys.argv[2]))), flush=True)
        os._exit(0)  # Timers and threads of Dask may still run.
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(0 if main(*(numbers + [30, 0][len(numbers) :])) else 1)
