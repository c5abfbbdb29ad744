"""The command line: CPU time of --help, and memory of a fit of a large file.

    python -m benchmarks.command [help] [large] [--gigabytes 6] [--folder DIR]

CPU time is that of the whole process, including the start of Python. Anonymous memory (RssAnon: without pages of files)
is sampled every 20 ms while the process runs.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COMMAND = [sys.executable, "-m", "relunmd"]
COLUMNS = 6000
RANK = 16


def cpu_seconds(words):
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{words} failed with exit code {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def show_help(repetitions=20):
    script = str(Path(sys.executable).with_name("relunmd"))
    cases = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "relunmd --help": [script, "--help"],
        "relunmd fit --help": [script, "fit", "--help"],
        "import relunmd.api": [sys.executable, "-c", "import relunmd.api"],
    }
    times = {name: [] for name in cases}
    for _ in range(repetitions):
        for name, words in cases.items():
            times[name].append(cpu_seconds(words))
    print(f"Seconds of CPU time, {repetitions} interleaved runs: median, largest")
    for name, found in times.items():
        print(f"  {name:22} {statistics.median(found):.3f}  {max(found):.3f}")


def parts(rows, seed=0):
    """Yield rows of a sparse matrix of low rank with noise, about 100 MB at a time."""
    random = np.random.default_rng(seed)
    H = random.standard_normal((RANK, COLUMNS), dtype=np.float32)
    for start in range(0, rows, 4000):
        height = min(4000, rows - start)
        part = random.standard_normal((height, RANK), dtype=np.float32) @ H
        part += random.standard_normal((height, COLUMNS), dtype=np.float32)
        yield start, np.maximum(part - 2, 0)


def make_npy(place, rows):
    X = np.lib.format.open_memmap(place, "w+", np.float32, (rows, COLUMNS))
    for start, part in parts(rows):
        X[start : start + len(part)] = part
    X.flush()


def make_plain_zarr(place, rows):
    """Write a Zarr store without compression; `relunmd convert` writes compressed ones."""
    import zarr

    X = zarr.create_array(place, shape=(rows, COLUMNS), chunks=(400, COLUMNS), dtype="f4", compressors=None)
    for start, part in parts(rows):
        X[start : start + len(part)] = part


def fitted(place, folder, iterations):
    """Run `relunmd fit`; return its output, its peak anonymous and resident memory, and its seconds."""
    model = folder / "model.npz"
    words = ["fit", str(place), "--rank", str(RANK), "--seed", "0", "--tol", "0", "--force"]
    words += ["--max-iter", str(iterations)]
    begin = time.perf_counter()
    child = subprocess.Popen(
        [*COMMAND, *words, "-o", str(model)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    most = {"RssAnon": 0, "VmHWM": 0}
    while child.poll() is None:
        try:
            status = Path(f"/proc/{child.pid}/status").read_text()
        except OSError:
            break
        for name in most:
            found = re.search(rf"{name}:\s+(\d+) kB", status)
            most[name] = max(most[name], int(found.group(1)) * 1024 if found else 0)
        time.sleep(0.02)
    said = child.communicate()[0].splitlines()
    if child.returncode:
        raise SystemExit(f"{words} failed with exit code {child.returncode}")
    return said[0], most["RssAnon"], most["VmHWM"], time.perf_counter() - begin


def show_large(gigabytes, folder):
    rows = int(gigabytes * 1e9 / 4 / COLUMNS)
    npy, plain = folder / "large.npy", folder / "plain.zarr"
    make_npy(npy, rows)
    make_plain_zarr(plain, rows)
    print(
        f"relunmd fit --rank {RANK} of {rows} × {COLUMNS} float32, {gigabytes} GB; 7 passes before the first iteration"
    )
    cases = {npy: 25, plain: 25}  # "qn" reaches its peak memory after about fifteen iterations.
    for suffix in (".zarr", ".h5"):
        place = npy.with_suffix(suffix)
        subprocess.run([*COMMAND, "convert", str(npy), str(place), "--force", "-q"], check=True)
        cases[place] = 5
    for place, iterations in cases.items():
        said, anonymous, resident, seconds = fitted(place, folder, iterations)
        size = sum(file.stat().st_size for file in place.rglob("*")) if place.is_dir() else place.stat().st_size
        print(
            f"  {place.name:10} {size / 1e9:5.2f} GB on disk: anonymous {anonymous / 1e6:4.0f} MB, resident "
            f"{resident / 1e6:5.0f} MB, {seconds:5.1f} s: {said.partition(' s.')[0]} s"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["help", "large"], metavar="help|large")
    parser.add_argument("--gigabytes", type=float, default=6)
    parser.add_argument("--folder", type=Path, help="folder for the large files, which are removed at the end")
    chosen = parser.parse_args()
    if "help" in chosen.what:
        show_help()
    if "large" in chosen.what:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            show_large(chosen.gigabytes, Path(folder))


if __name__ == "__main__":
    main()
