"""Matrix files on a cluster, from Python and by `relunmd fit --dask`: the workers read every kind."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pyarrow
import pytest
import zarr
from click.testing import CliRunner
from pyarrow import parquet
from scipy import sparse

import relunmd
from relunmd.cli import main
from relunmd.engine.distributed.file_parts import _folder_parts, open_file
from relunmd.errors import FileError, InputError
from relunmd.loop.criteria import Limits
from relunmd.loop.progress_display import ProgressDisplay
from relunmd.memory import human_bytes
from tests.cli.terminal import on_a_terminal
from tests.conftest import synthetic

pytestmark = pytest.mark.xdist_group("cluster")

X = np.maximum(0, synthetic(2000, 160, 4, seed=5) - 1)
S = sparse.csr_array(X)
RUN = {"rank": 4, "tol": 0, "max_iter": 6, "random_state": 0}
CUTS = [(0, 700), (700, 1100), (1100, 2000)]


def zarr_store(place):
    zarr.create_array(f"{place}.zarr", data=X, chunks=(250, 160))
    return f"{place}.zarr"


def hdf5_file(place):
    with h5py.File(f"{place}.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(100, 160))
    return f"{place}.h5"


def hdf5_csr(place):
    with h5py.File(f"{place}.h5", "w") as file:
        group = file.create_group("X")
        group.attrs["shape"] = S.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(S, name)
    return f"{place}.h5"


def npy_file(place):
    np.save(f"{place}.npy", X)
    return f"{place}.npy"


def npy_folder(place):
    place.mkdir()
    for number, (start, stop) in zip((1, 2, 10), CUTS, strict=True):  # 10 comes after 2.
        np.save(place / f"block-{number}.npy", X[start:stop])
    return str(place)


def npz_folder(place):
    place.mkdir()
    for number, (start, stop) in enumerate(CUTS):
        sparse.save_npz(place / f"{number}.npz", S[start:stop])
    return str(place)


def table(rows):
    return pyarrow.table({f"c{i}": column for i, column in enumerate(rows.T)})


def parquet_file(place):
    parquet.write_table(table(X), f"{place}.parquet", row_group_size=300)
    return f"{place}.parquet"


def parquet_folder(place):
    place.mkdir()
    for number, (start, stop) in enumerate(CUTS):
        parquet.write_table(table(X[start:stop]), place / f"{number}.parquet")
    return str(place)


KINDS = [zarr_store, hdf5_file, hdf5_csr, npy_file, npy_folder, npz_folder, parquet_file, parquet_folder]


@pytest.fixture(scope="module")
def whole():
    return relunmd.decompose(X, algorithm="3b-factored", **RUN)


@pytest.mark.parametrize("make", KINDS)
def test_every_kind_of_file(client, tmp_path, make, whole):
    source = open_file(make(tmp_path / "X"))
    assert source.shape == X.shape
    d = relunmd.decompose(source, algorithm="3b-factored", **RUN)
    source.close()
    np.testing.assert_allclose(d.history.error, whole.history.error, rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "kind", "why"),
    [
        (lambda place: sparse.save_npz(f"{place}.npz", S) or f"{place}.npz", InputError, "relunmd convert"),
        (lambda place: np.savetxt(f"{place}.csv", X, delimiter=",") or f"{place}.csv", InputError, "read whole"),
        (lambda place: np.save(f"{place}.npy", X[0]) or f"{place}.npy", InputError, "two-dimensional"),
        (lambda place: f"{place}.zarr", FileError, "no file"),
        (lambda place: (npy_folder(place) and np.savez(place / "x.npz", X)) or str(place), FileError, "one kind"),
    ],
)
def test_what_cannot_be_read_in_parts_is_refused(client, tmp_path, make, kind, why):
    with pytest.raises(kind, match=why):
        open_file(make(tmp_path / "X"))


class TestTheCommand:
    def test_with_a_scheduler(self, two_workers, tmp_path, monkeypatch, whole):
        monkeypatch.chdir(tmp_path)
        zarr_store(tmp_path / "X")
        line = "fit X.zarr -r 4 --algorithm 3b-factored --tol 0 --max-iter 6 --seed 0 -o m.npz --json"
        address = two_workers.scheduler.address
        done = CliRunner().invoke(main, [*line.split(), "--dask", address], catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["error"] == pytest.approx(whole.error, rel=1e-9)
        d = relunmd.Decomposition.load("m.npz")
        np.testing.assert_allclose(d.W, whole.W, atol=1e-6)
        assert "2 workers; dashboard http" in done.stderr
        assert re.search(r"2 workers, [\d.]+ [kM]B moved", done.stderr)

    @pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense"])
    def test_with_no_scheduler(self, tmp_path, monkeypatch, address):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("relunmd.cli.fit_command._SECONDS", 1)
        npy_file(tmp_path / "X")
        done = CliRunner().invoke(main, ["fit", "X.npy", "-r", "4", "-o", "m.npz", "--dask", address])
        assert done.exit_code == 2
        assert "--dask must be local, or the address of a scheduler" in done.stderr
        assert "Traceback" not in done.stderr

    def test_ctrl_c_on_a_terminal_saves_the_best_so_far(self, tmp_path):
        """A terminal sends Ctrl-C to all processes of the group, including the workers."""
        npy_file(tmp_path / "X")
        line = "fit X.npy -r 4 --tol 0 --max-iter 100000 --seed 0 -o m.npz --dask local --checkpoint run.npz"
        code, written = on_a_terminal(*line.split(), cwd=tmp_path, stop_after=r"iteration \d\d")
        assert code == 130, written
        assert "the best factors so far are saved in m.npz" in written
        assert "Traceback" not in written
        d = relunmd.Decomposition.load(tmp_path / "m.npz")
        assert d.status is relunmd.Status.INTERRUPTED
        assert d.W.shape == (2000, 4)


def test_progress_display(capsys):
    display = ProgressDisplay("qn, rank 4", Limits())
    numbers = {"iteration": 3, "time": 1.0, "error": 0.5, "passes": 9, "best_error": 0.5}
    step = SimpleNamespace(**numbers, workers=1, bytes_moved=12_300_000)
    with display:
        display(step)
    assert f"1 worker, {human_bytes(12_300_000)} moved" in capsys.readouterr().out


def test_the_example_of_the_guide_runs(tmp_path):
    """Run as a file, which its worker processes import."""
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "dask.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True
    )
    assert "(16, 64) ((600, 600, 597), (16,))" in done.stdout
    assert (tmp_path / "W.zarr").is_dir()


def test_digits_that_are_no_numbers_in_names(tmp_path):
    """ "²" is a digit to Python, and not a number to int()."""
    for name in ("1²10.npy", "1²2.npy", "²1.npy"):
        np.save(tmp_path / name, X[:3])
    loaders = _folder_parts(tmp_path, list(tmp_path.iterdir()), None)
    assert [Path(loader.path).name for loader in loaders] == ["1²2.npy", "1²10.npy", "²1.npy"]
