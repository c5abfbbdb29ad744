"""Error histories of every algorithm, compared with those of an earlier commit.

    python -m benchmarks.histories COMMIT

Each algorithm runs 30 iterations from its default initialization on digits, 500 images of MNIST, kos and a planted
matrix, with the source of COMMIT and with the working tree, each in a process of its own. The table shows the largest
difference of the errors; the command fails if one exceeds 1e-10.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import relunmd
from benchmarks.versions import ROOT, exported
from relunmd import datasets
from relunmd.errors import DatasetError

ITERATIONS = 30
TOLERANCE = 1e-10
MATRICES = {
    "digits": (lambda: load_digits().data, 16),
    "MNIST-500": (lambda: datasets.mnist(50, download=False), 32),
    "kos": (lambda: datasets.kos(download=False), 8),
    "planted": (lambda: datasets.planted(300, 200, 8, 0.9, 0), 8),
}


def recorded():
    """Print the errors by matrix and algorithm as JSON."""
    found = {}
    for name, (load, rank) in MATRICES.items():
        try:
            X = load()
        except DatasetError as reason:
            print(f"{name}: skipped, {reason}", file=sys.stderr)
            continue
        for algorithm in relunmd.algorithms():
            d = relunmd.decompose(X, rank, algorithm, tol=0, max_iter=ITERATIONS, random_state=0, n_jobs=2)
            found[f"{name} {algorithm}"] = d.history.error.tolist()
    print(json.dumps(found))


def histories(source):
    """Return the errors of the library in `source`."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.histories", "--record"]
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.record:
        return recorded()
    if given.commit is None:
        parser.error("COMMIT is missing")
    with tempfile.TemporaryDirectory() as folder:
        before = histories(exported(given.commit, Path(folder).resolve()))
        after = histories(ROOT / "src")
    worst = 0.0
    for name, errors in before.items():
        if name not in after or len(after[name]) != len(errors):
            difference = np.inf
        else:
            difference = float(np.abs(np.subtract(after[name], errors)).max())
        print(f"{name:24} {len(errors) - 1:3} iterations   largest difference {difference:.1e}")
        worst = max(worst, difference)
    return sys.exit(worst > TOLERANCE)


if __name__ == "__main__":
    main()
