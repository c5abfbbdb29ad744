"""Times of two versions of the library on the same job, interleaved, each in its own process.

    python -m benchmarks.versions COMMIT [JOB ...]

COMMIT is compared with the working tree. Its source is exported from git to a temporary folder, so neither is
installed. A job prints seconds and an error; the table has the median seconds of each version and their ratio.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from statistics import median

import relunmd
from relunmd import ReLUNMD, datasets

ROOT = Path(__file__).parents[1]
TURNS = 3


def transform():
    """Transform of 10 000 held-out images of MNIST by a model of 5 000, r = 32, two threads."""
    images = datasets.mnist(download=False)
    model = ReLUNMD(32, random_state=0, n_jobs=2).fit(images[:5000])
    X = images[50_000:].astype("float64")
    model.transform(X[:100])
    begin = time.perf_counter()
    model.transform(X)
    return time.perf_counter() - begin, -model.score(X)


JOBS = {"transform": transform}


def exported(commit, folder):
    """Export the source of a commit; return the folder for PYTHONPATH."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return Path(folder) / "src"


def measured(job, source):
    """Return the seconds and the error of a job with the library in `source`."""
    path = os.pathsep.join([str(source), str(ROOT)])
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.versions", "--run", job]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    if Path(found["library"]).parents[1] != source:
        sys.exit(f"{found['library']} was imported instead of the library in {source}.")
    return found["seconds"], found["error"]


def run(job):
    """Run a job in this process and print its seconds and error as JSON."""
    seconds, error = JOBS[job]()
    print(json.dumps({"seconds": seconds, "error": error, "library": relunmd.__file__}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?")
    parser.add_argument("jobs", nargs="*", choices=[[], *JOBS])
    parser.add_argument("--run", choices=list(JOBS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        return run(given.run)
    if given.commit is None:
        parser.error("COMMIT is missing")
    with tempfile.TemporaryDirectory() as folder:
        sources = {given.commit: exported(given.commit, Path(folder).resolve()), "this tree": ROOT / "src"}
        for job in given.jobs or JOBS:
            print(JOBS[job].__doc__)
            found = {name: [] for name in sources}
            for _ in range(TURNS):
                for name, source in sources.items():
                    found[name].append(measured(job, source))
            seconds = {name: median(each[0] for each in runs) for name, runs in found.items()}
            for name, runs in found.items():
                print(f"  {name:12} {seconds[name]:8.3f} s   error {runs[-1][1]:.6g}")
            before, after = seconds.values()
            print(f"  this tree takes {after / before:.2f} times as long")
    return None


if __name__ == "__main__":
    main()
