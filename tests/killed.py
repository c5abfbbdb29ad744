"""Runs in processes of their own, which may be killed or have their disk taken away."""

import io
import logging
import multiprocessing
import os
import resource
import threading
import time
from pathlib import Path

import numpy as np
from scipy import sparse

import relunmd
from relunmd.engine import kernels
from tests.conftest import synthetic

# Forked from a server that has everything loaded: a process takes some hundredths of a second to begin.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.killed"])
kernels.warm_up(np.dtype(np.float64))

X = np.maximum(0, synthetic(300, 120, 6, seed=1) - 1.5)
KINDS = {"dense": X, "csr": sparse.csr_array(X)}
RUN = {"rank": 6, "tol": 0, "max_iter": 40, "random_state": 0}


def run(name, kind, checkpoint, log):
    """A run that writes down its iterations and takes its time."""
    lines = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(progress):
        os.write(lines, f"{progress.iteration}\n".encode())
        time.sleep(0.004)

    relunmd.decompose(KINDS[kind], algorithm=name, checkpoint=checkpoint, checkpoint_every=0, callback=note, **RUN)


def run_on_a_full_disk(name, checkpoint, outcome):
    """From iteration 10 on no file may be longer than 2 kB, from 25 on all is well again."""
    seen, log = {}, _listen()

    def note(progress):
        if progress.iteration == 10:
            wait_for_writer()
            seen["before"] = Path(checkpoint).read_bytes()
            resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))
        if progress.iteration == 25:
            wait_for_writer()
            seen["during"] = Path(checkpoint).read_bytes()
            seen["files"] = [file.name for file in Path(checkpoint).parent.iterdir()]
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    d = relunmd.decompose(X, algorithm=name, checkpoint=checkpoint, checkpoint_every=0, callback=note, **RUN)
    _tell(outcome, d, log, intact=seen["before"] == seen["during"], files=seen["files"])


def run_in_a_folder_made_read_only(name, checkpoint, outcome):
    """From iteration 10 on the folder takes no new file."""
    folder, seen, log = Path(checkpoint).parent, {}, _listen()
    Path(outcome).touch()
    Path(outcome).chmod(0o666)

    def note(progress):
        if progress.iteration == 10:
            wait_for_writer()
            seen["before"] = Path(checkpoint).read_bytes()
            folder.chmod(0o555)
            if os.geteuid() == 0:  # Whom nobody forbids anything.
                os.seteuid(65534)

    d = relunmd.decompose(X, algorithm=name, checkpoint=checkpoint, checkpoint_every=0, callback=note, **RUN)
    intact = seen["before"] == Path(checkpoint).read_bytes()
    _tell(outcome, d, log, intact, [file.name for file in folder.iterdir()])


def wait_for_writer():
    for thread in threading.enumerate():
        if thread.name == "relunmd-checkpoint":
            thread.join()


def _listen():
    log = io.StringIO()
    logging.getLogger("relunmd").addHandler(logging.StreamHandler(log))
    return log


def _tell(outcome, d, log, intact, files):
    more = {"n_iter": d.n_iter, "status": d.status.name, "log": log.getvalue()}
    with Path(outcome).open("wb") as out:
        np.savez(out, W=d.W, H=d.H, intact=intact, files=files, **more)
