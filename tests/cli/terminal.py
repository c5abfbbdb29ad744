"""The command in a process of its own, on a terminal or not."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

COMMAND = [sys.executable, "-m", "relunmd"]


PEAK = (
    "import atexit, runpy, sys; from pathlib import Path\n"
    "atexit.register(lambda: Path('peak').write_text(Path('/proc/self/status').read_text()))\n"
    "sys.argv[0] = 'relunmd'; runpy.run_module('relunmd', run_name='__main__')"
)
"""The same, which leaves what it was, memory included, in a file."""


def peak_memory(*words, cwd):
    """The command to its end: its exit code, what it said, and the most memory it ever had, in bytes."""
    done = subprocess.run([sys.executable, "-c", PEAK, *words], cwd=cwd, capture_output=True, text=True, timeout=100)
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", (cwd / "peak").read_text())
    (cwd / "peak").unlink()
    return done.returncode, done.stdout, done.stderr, int(peak) * 1024


def run(*words, cwd, code=0):
    """The command to its end; what it said on stdout and stderr."""
    child = subprocess.Popen(
        [*COMMAND, *map(str, words)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    out, err = child.communicate(timeout=100)
    assert child.returncode == code, (child.returncode, out, err)
    return out, err


def interrupted(*words, cwd, after, number=signal.SIGINT, times=1):
    """The command, ended by a signal once `after` has been said on stderr or is there as a file."""
    child = subprocess.Popen([*COMMAND, *map(str, words)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said, deadline = b"", time.monotonic() + 100
    while not (re.search(after, said.decode()) if isinstance(after, str) else after.exists()):
        assert time.monotonic() < deadline, said
        if select.select([child.stderr], [], [], 0.02)[0]:
            part = os.read(child.stderr.fileno(), 1 << 16)
            assert part, (child.wait(), said)  # It ended before.
            said += part
    for _ in range(times):
        child.send_signal(number)  # Nothing happens if it has ended already.
        time.sleep(0.01)
    out, err = child.communicate(timeout=100)
    return child.returncode, out.decode(), (said + err).decode()


def on_a_terminal(*words, cwd, columns=100, stop_after=None):
    """The command on a terminal: its exit code and all that it wrote there; Ctrl-C once `stop_after` was written."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES="30")
        os.execv(COMMAND[0], [*COMMAND, *map(str, words)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    written, deadline = b"", time.monotonic() + 100
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # The other end is gone.
            break
        if not part:
            break
        written += part
        if stop_after is not None and re.search(stop_after, written.decode(errors="replace")):
            os.write(terminal, b"\x03")
            stop_after = None
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), written.decode()


def screen(written):
    """The lines that a terminal shows in the end, which understands what rich writes and nothing else."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[\r\n]|[^\r\n\x1b]+", written):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.startswith("\x1b"):
            count = int(re.sub(r"\D", "", part) or 1)
            if part.endswith("A"):
                row = max(0, row - count)
            elif part.endswith("K"):
                assert part == "\x1b[2K", part
                lines[row] = ""
            else:
                assert part.endswith(("m", "l", "h")), part
        else:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + part + line[column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines if line.strip()]
