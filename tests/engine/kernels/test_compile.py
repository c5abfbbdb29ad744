"""Compilation: one signature a float type, a cache that is fresh and safe, and none needed."""

import hashlib
import importlib.util
import logging
import os
import pickle
import pwd
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import numba
import numpy as np
import pytest
from scipy import sparse

from relunmd.engine import kernels
from relunmd.engine.kernels import _compile


def test_every_kernel_has_exactly_one_signature_a_float_type():
    """So nothing is compiled while a clock runs."""
    import relunmd

    random = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        X = np.maximum(0, random.standard_normal((40, 30))).astype(dtype)
        for algorithm in relunmd.algorithms():
            for init in relunmd.inits():
                relunmd.decompose(X, 3, algorithm, init, max_iter=2)
                d = relunmd.decompose(sparse.csr_array(X), 3, algorithm, init, max_iter=2)
        relunmd.fit_rows(X, d.H, penalty=1, candidates=d.W)
        holes, weights = np.where(random.random(X.shape) < 0.2, np.nan, X).astype(dtype), random.random(X.shape)
        known = {"missing_values": np.nan, "mask": weights > 0.9, "weights": weights, "lower": 0.1, "upper": 2.0}
        for algorithm in ("em", "qn"):
            relunmd.decompose(holes, 3, algorithm, max_iter=8, **known)
            relunmd.decompose(sparse.csr_array(X), 3, algorithm, max_iter=8, missing_values="unstored")
        relunmd.fit_rows(holes, d.H, candidates=d.W, **known)
        relunmd.fit_rows(sparse.csr_array(X), d.H, candidates=d.W, missing_values="unstored")
        relunmd.LowRankImputer(2, lower=0.1).fit_transform(holes)
        relunmd.select_rank(X, [2], n_folds=2, max_iter=2)
        relunmd.select_rank(sparse.csr_array(X), [2], n_folds=2, max_iter=2, missing_values="unstored")
    takes_data_as_it_is = {
        kernels.residual,
        kernels.interval_residual,
        kernels.scatter,
        kernels.gather,
        kernels.stored_residual,
        kernels.stored_gradient,
        kernels.stored_bounds,
        kernels.weigh_held_out,
    }
    for compiled in _compile._REGISTERED:
        declared = [_compile._signatures(compiled, np.dtype(dtype)) for dtype in (np.float32, np.float64)]
        assert set(compiled.signatures) == {signature for some in declared for signature in some}
        bytes_alone = compiled is kernels.mask_held_out  # That of bytes has no other floats.
        expected = 3 if bytes_alone else 4 if compiled in takes_data_as_it_is else 2
        assert len(compiled.signatures) == expected, compiled


def test_where_nothing_can_be_cached_kernels_compile_all_the_same(monkeypatch, caplog):
    original = numba.njit

    def njit(*given, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return original(*given, **options)

    monkeypatch.setattr(numba, "njit", njit)
    monkeypatch.setattr(_compile, "_REGISTERED", [])
    with caplog.at_level(logging.INFO, "relunmd"):
        twice = _compile.kernel(lambda x: 2 * x)
    assert twice(21.0) == 42.0
    assert "no locator available" in caplog.text


def test_warm_up_twice_is_free():
    kernels.warm_up(np.dtype(np.float64))
    before = [len(compiled.signatures) for compiled in _compile._REGISTERED]
    kernels.warm_up(np.dtype(np.float64))
    assert [len(compiled.signatures) for compiled in _compile._REGISTERED] == before


class TestCacheIsFresh:
    """A kernel's file stays as it is; what it shares with others changes."""

    SOURCE = """
from relunmd.engine.kernels._compile import SAMPLED, kernel

@kernel
def sampled(x: float):
    return x * SAMPLED

@kernel
def inverse(x: float):
    return 1.0 / x
"""

    @pytest.fixture
    def load(self, tmp_path, monkeypatch):
        """Import the kernels as a new process would: from a file, with their cache on disk."""
        place = tmp_path / "probe.py"
        place.write_text(self.SOURCE)
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setattr(_compile, "_REGISTERED", [])
        _compile._cache_folder.cache_clear()

        def loaded():
            spec = importlib.util.spec_from_file_location("probe", place)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module

        yield loaded
        _compile._cache_folder.cache_clear()

    def test_nothing_changed(self, load):
        for hits in (0, 1, 1):
            sampled = load().sampled
            assert sampled(1.0) == 8.0
            assert sum(sampled.stats.cache_hits.values()) == hits

    def test_a_shared_constant(self, load, monkeypatch):
        assert load().sampled(1.0) == 8.0
        monkeypatch.setattr(_compile, "SAMPLED", 4)
        assert load().sampled(1.0) == 4.0

    def test_a_shared_option(self, load, monkeypatch):
        with pytest.raises(ZeroDivisionError):
            load().inverse(0.0)
        monkeypatch.setattr(_compile, "_OPTIONS", _compile._OPTIONS | {"error_model": "numpy"})
        assert load().inverse(0.0) == np.inf

    def test_the_shared_file(self, load, tmp_path, monkeypatch):
        first = load().sampled.stats.cache_path
        changed = tmp_path / "_compile.py"
        changed.write_bytes(Path(_compile.__file__).read_bytes() + b"#")
        monkeypatch.setattr(_compile, "__file__", str(changed))
        assert load().sampled.stats.cache_path != first

    def test_the_stamp_does_not_depend_on_the_order_of_sets(self):
        program = "from relunmd.engine.kernels import _compile; print(_compile._stamp())"
        stamps = {
            subprocess.run(
                [sys.executable, "-c", program],
                env=os.environ | {"PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }
        assert len(stamps) == 1


@pytest.mark.skipif(os.name == "nt", reason="owners and modes of POSIX")
class TestCacheIsSafe:
    """Cached code is unpickled: it must not come from a folder where others can put files."""

    @pytest.fixture
    def folder(self, monkeypatch, tmp_path):
        """The folder that is taken, for an installation that cannot be written to."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(numba.config, "CACHE_DIR", "")
        monkeypatch.setattr(_compile, "__file__", "/proc/nowhere/_compile.py")
        return lambda: _compile._cache_folder.__wrapped__("stamp")

    def test_in_a_home(self, folder, monkeypatch, tmp_path):
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        if sys.platform == "linux":
            assert folder() == tmp_path / ".cache/numba/relunmd-stamp"

    def test_without_a_home(self, folder, monkeypatch, tmp_path, caplog):
        def nobody(uid):
            raise KeyError(uid)

        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.setattr(pwd, "getpwuid", nobody)
        with caplog.at_level(logging.INFO, "relunmd"):
            assert folder() is None
        assert "not an absolute path" in caplog.text
        assert not list(tmp_path.iterdir())

    def test_a_relative_folder_that_is_asked_for(self, folder, monkeypatch):
        monkeypatch.setattr(numba.config, "CACHE_DIR", "here")
        monkeypatch.setenv("XDG_CACHE_HOME", "there")
        assert folder() is None

    @pytest.mark.parametrize("mode", [0o777, 0o1777])
    def test_a_folder_of_everybody(self, folder, monkeypatch, tmp_path, mode):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "all"))
        (tmp_path / "all/numba/relunmd-stamp").mkdir(parents=True)
        (tmp_path / "all/numba/relunmd-stamp").chmod(mode)
        assert folder() is None
        (tmp_path / "all/numba/relunmd-stamp").chmod(0o755)
        (tmp_path / "all").chmod(mode)
        # In a sticky folder, such as /tmp, nobody can replace what is ours.
        assert (folder() is None) == (mode == 0o777)

    @pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can give files away")
    @pytest.mark.parametrize("whose", ["all/numba/relunmd-stamp", "all/numba", "all"])
    def test_a_folder_of_somebody_else(self, folder, monkeypatch, tmp_path, whose):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "all"))
        (tmp_path / "all/numba/relunmd-stamp").mkdir(parents=True)
        assert folder() is not None
        os.chown(tmp_path / whose, 54321, 54321)
        assert folder() is None

    def test_planted_files_are_not_loaded(self, tmp_path):
        """A container with an arbitrary uid: no HOME, no entry in passwd, a package that is read-only."""
        tile = Path(_compile.__file__).with_name("tile_kernels.py")
        subfolder = f"kernels_{hashlib.sha1(str(tile.parent).encode()).hexdigest()}"
        line = kernels.scan.py_func.__code__.co_firstlineno
        tag = f"py{sys.version_info[0]}{sys.version_info[1]}"
        planted = tmp_path / "~/.cache/numba" / subfolder / f"tile_kernels.scan-{line}.{tag}.nbi"
        planted.parent.mkdir(parents=True)
        planted.write_bytes(pickle.dumps(_Harm("touch harm")))
        program = f"""
            import pwd, tempfile
            TemporaryFile = tempfile.TemporaryFile
            def nobody(uid):
                raise KeyError(uid)
            def read_only(dir):
                if str(dir).startswith({str(tile.parent)!r}):
                    raise PermissionError(13, "read-only")
                return TemporaryFile(dir=dir)
            pwd.getpwuid, tempfile.TemporaryFile = nobody, read_only
            import numpy as np
            from relunmd.engine.kernels import scan
            X = np.eye(3)
            X.flags.writeable = False
            print(scan(X, 0, 0, X.shape[1])[0], scan.stats.cache_path)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tile.parents[3]), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.stdout == "1.0 None\n", done.stderr
        assert not (tmp_path / "harm").exists()


class _Harm:
    """Runs a command when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


# Singular values that are all different: BLAS may be another one without the environment of this process.
PROGRAM = "import relunmd, numpy as np; print(relunmd.decompose(np.diag([6, 5, 4, 2, 1.0]), 2, max_iter=5).error)"


@pytest.mark.parametrize(
    ("options", "variables"),
    [([], {"NUMBA_DISABLE_JIT": "1"}), (["-OO"], {"NUMBA_DISABLE_JIT": "1"}), ([], {"HOME": None})],
)
def test_unusual_interpreters(options, variables):
    import relunmd

    inherited = {} if variables.get("HOME", "") is None else os.environ
    set_ = {name: value for name, value in variables.items() if value is not None}
    done = subprocess.run(
        [sys.executable, "-W", "error", *options, "-c", PROGRAM],
        env={"PYTHONPATH": os.environ.get("PYTHONPATH", "")} | inherited | set_,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    same = relunmd.decompose(np.diag([6, 5, 4, 2, 1.0]), 2, max_iter=5).error
    assert float(done.stdout) == pytest.approx(same, rel=1e-9)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_waits_for_a_compilation():
    """Else the child has numba's lock locked for ever."""
    held, over = threading.Event(), threading.Event()

    def compile_slowly():
        with _compile._COMPILING:
            held.set()
            over.wait(0.2)
            over.set()

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    held.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Of forks beside threads, from Python 3.12 on.
        child = os.fork()
    if child == 0:
        os._exit(0 if over.is_set() and _compile._COMPILING.acquire(timeout=5) else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
