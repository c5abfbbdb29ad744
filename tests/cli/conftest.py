"""The command in this process, with a matrix in a folder of its own."""

import logging

import numpy as np
import pytest
from click.testing import CliRunner

from relunmd.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, where X.npy is a matrix of rank 4 and some noise."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    X = np.maximum(0, random.standard_normal((120, 4)) @ random.standard_normal((4, 50)) - 1)
    np.save(tmp_path / "X.npy", X)
    return tmp_path


@pytest.fixture
def run(folder):
    """Runs `relunmd` with words or a line; gives its exit code and what it said."""

    def command(*words, code=0):
        line = words[0].split() if len(words) == 1 else [str(word) for word in words]
        done = CliRunner().invoke(main, line, catch_exceptions=False)
        assert done.exit_code == code, (done.exit_code, done.stdout, done.stderr)
        assert not logging.getLogger("relunmd").handlers
        if code == 2:
            assert done.stdout == ""
            assert "Traceback" not in done.stderr
        return done

    return command
