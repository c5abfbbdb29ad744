"""Mutated files through the readers, in one process: `python -m tests.io.readers.fuzz FOLDER COUNT [SEED]`.

FOLDER/absurd has what `python -m tests.io.readers.samples FOLDER/absurd` wrote; the mutants are generated here. A file
is opened and read from beginning to end. This must give a matrix or one of our exceptions with one sentence; anything
else, more than ten seconds, or more than 1 GB of memory is a failure and is listed.
"""

import json
import re
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

from relunmd.errors import RelunmdError
from relunmd.inspection import inspect_matrix
from relunmd.io.readers import open_matrix
from tests.io.readers import samples
from tests.mutants import DAMAGES

LONGEST = 10


class Hang(BaseException):
    pass


def _ring(number, frame):
    raise Hang


def mutants(folder, count, seed):
    """Yield descriptions and paths of files; a file is removed when the next is requested."""
    random = np.random.default_rng(seed)
    whole = samples.write_all(folder / "samples")
    names = sorted(file.name for file in whole.iterdir())
    suffixes = [
        ".npy",
        ".npz",
        ".mtx",
        ".mat",
        ".csv",
        ".tsv.gz",
        ".parquet",
        ".h5",
        ".h5ad",
        ".zarr",
        "-ubyte",
        ".txt",
    ]
    place = folder / "mutant"
    place.mkdir()
    for number in range(count):
        name = names[number % len(names)]
        damage = DAMAGES[number // len(names) % len(DAMAGES)]
        target = place / name
        if number % 7 == 6:
            target = place / f"wrong{suffixes[random.integers(len(suffixes))]}"
        if (whole / name).is_dir():
            shutil.copytree(whole / name, target)
            files = sorted(file for file in target.rglob("*") if file.is_file())
            victim = files[random.integers(len(files))]
            if random.integers(5) == 0:
                victim.unlink()
            else:
                victim.write_bytes(damage(victim.read_bytes(), random))
        else:
            content = (whole / name).read_bytes()
            # A wrong name alone is a mutation too.
            target.write_bytes(content if number % 14 == 6 else damage(content, random))
        yield f"{number} {name} {damage.__name__}", target
        shutil.rmtree(target) if target.is_dir() else target.unlink()


def trial(place):
    """Return the outcome in a word, and the message."""
    try:
        with open_matrix(place) as opened:
            inspect_matrix(opened.X)
    except RelunmdError as reason:
        return type(reason).__name__, str(reason)
    return "opened", ""


def main(folder, count, seed=8):
    signal.signal(signal.SIGALRM, _ring)
    outcomes, failures, longest, sentences = Counter(), [], 0.0, {}
    before = peak()
    absurd = ((place.name, place) for place in sorted((folder / "absurd").iterdir()))
    for source in (absurd, mutants(folder, count, seed)):
        for what, place in source:
            begin = time.perf_counter()
            signal.alarm(LONGEST)
            try:
                word, sentence = trial(place)
            except Hang:
                word, sentence = "failure", ""
                failures.append(f"{what}: more than {LONGEST} s")
            except BaseException:
                word, sentence = "failure", ""
                failures.append(f"{what}: {traceback.format_exc()}")
            finally:
                signal.alarm(0)
            if word not in ("opened", "failure") and (not sentence.endswith(".") or len(sentence) > 2000):
                failures.append(f"{what}: not a sentence: {sentence!r}")
            sentences[what] = sentence
            outcomes[word] += 1
            longest = max(longest, time.perf_counter() - begin)
            if peak() > before + 1e9:
                failures.append(f"{what}: {peak() / 1e9:.2f} GB")
                before = peak()
    told = {"outcomes": outcomes, "failures": failures, "longest": longest, "peak": peak(), "sentences": sentences}
    sys.stdout.write(json.dumps(told))


def peak():
    """Return the peak memory of this process; that of getrusage includes the process it was forked from."""
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) * 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
