"""Models on disk: what is saved comes back, whole or with a sentence."""

import contextlib
import errno
import io
import json
import os
import resource
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from scipy import sparse

import relunmd
from relunmd import FileError
from relunmd.io import archive
from relunmd.io.atomic import remove_partials, write_beside, write_folder_beside
from relunmd.result import _VERSION
from tests.conftest import synthetic
from tests.mutants import members_of, mutants, npy, sealed

HERE = Path(__file__).parents[1]
X = synthetic(40, 30, 4, seed=1)
D = relunmd.decompose(X, 4, "em", random_state=0, max_iter=12)
LATER = _VERSION + 1


def same(one, other):
    assert one.W.tobytes() == other.W.tobytes()
    assert one.H.tobytes() == other.H.tobytes()
    assert (one.W.dtype, one.W.shape, one.H.shape) == (other.W.dtype, other.W.shape, other.H.shape)
    for name in ("error", "n_iter", "time", "init_time", "status", "algorithm", "init", "settings", "fingerprint"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.history.columns.keys() == other.history.columns.keys()
    for name, column in one.history.columns.items():
        assert column.dtype == other.history.columns[name].dtype
        assert column.tobytes() == other.history.columns[name].tobytes()


def about(path):
    with np.load(path, allow_pickle=False) as members:
        return json.loads(members["metadata"].tobytes())


@pytest.mark.parametrize("name", sorted(relunmd.algorithms()))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_saved_comes_back(tmp_path, name, dtype):
    d = relunmd.decompose(X.astype(dtype), 4, name, random_state=0, max_iter=6)
    d.save(tmp_path / "model.npz")
    again = relunmd.Decomposition.load(str(tmp_path / "model.npz"))
    same(d, again)
    np.testing.assert_array_equal(d.reconstruct(), again.reconstruct())
    assert relunmd.decompose(X.astype(dtype), 4, init=again, max_iter=0).error == pytest.approx(d.error, rel=1e-5)


def test_the_same_result_gives_the_same_bytes(tmp_path):
    D.save(tmp_path / "one")
    D.save(tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_numpy_opens_it_and_it_says_everything(tmp_path):
    D.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as members:
        np.testing.assert_array_equal(members["W"], D.W)
        np.testing.assert_array_equal(members["history.error"], D.history.error)
    told = about(tmp_path / "model.npz")
    assert (told["format"], told["version"], told["status"]) == ("relunmd model", 1, "MAX_ITER")
    assert told["settings"] == {"sweeps": 2, "column_noise": False, "nonnegative": False}
    assert told["versions"]["relunmd"] == relunmd.__version__
    assert told["fingerprint"]["nonzeros"] == np.count_nonzero(X)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, lambda X: (1000 * X).astype(np.uint16)])
@pytest.mark.parametrize("unit", [1.0, 1e-30, 1e30])
def test_the_fingerprint_is_that_of_the_users_matrix(kind, unit):
    A = kind(X) * unit if kind is not np.asarray else X * unit
    found = relunmd.decompose(A, 2, max_iter=0).fingerprint
    dense = A.toarray() if sparse.issparse(A) else A.astype(np.float64)
    assert (found.shape, found.dtype, found.nonzeros) == (A.shape, str(A.dtype), np.count_nonzero(dense))
    assert found.total == pytest.approx(dense.sum(), rel=1e-12)
    assert found.norm == pytest.approx(np.linalg.norm(dense / unit) * unit, rel=1e-12)


def test_a_very_large_matrix_has_a_fingerprint_too(tmp_path):
    d = relunmd.decompose(X * 1e200, 2, max_iter=2)
    assert d.fingerprint.norm == pytest.approx(np.linalg.norm(X) * 1e200)
    d.save(tmp_path / "model.npz")
    same(d, relunmd.Decomposition.load(tmp_path / "model.npz"))


@pytest.mark.parametrize("settings", [relunmd.ANMD(beta0=np.float32(0.5)), relunmd.QuasiNewton(memory=np.int64(3))])
def test_settings_of_numpys_types(tmp_path, settings):
    d = relunmd.decompose(X, 2, settings, max_iter=2)
    d.save(tmp_path / "model.npz")
    assert relunmd.Decomposition.load(tmp_path / "model.npz").settings == d.settings


def test_models_of_every_version_are_read():
    files = sorted((HERE / "data").glob("model-*.npz"))
    assert [file.name for file in files] == [f"model-{number}.npz" for number in range(1, _VERSION + 1)]
    for file in files:
        d = relunmd.Decomposition.load(file)
        assert (d.shape, d.rank, d.algorithm) == ((40, 30), 4, "qn")
        assert d.error == pytest.approx(np.linalg.norm(X - d.reconstruct()) / np.linalg.norm(X), rel=1e-9)


class TestRefused:
    @pytest.fixture
    def model(self, tmp_path):
        D.save(tmp_path / "model.npz")
        return tmp_path / "model.npz"

    def changed(self, model, **to):
        members = members_of(model.read_bytes())
        told = about(model) | to
        members["metadata.npy"] = npy(np.frombuffer(json.dumps(told).encode(), np.uint8))
        model.write_bytes(sealed(members))
        return model

    def test_not_there(self, tmp_path):
        with pytest.raises(FileError, match=r"There is no model at .*nowhere.npz"):
            relunmd.Decomposition.load(tmp_path / "nowhere.npz")

    def test_a_folder(self, tmp_path):
        with pytest.raises(FileError, match="it is not a file"):
            relunmd.Decomposition.load(tmp_path)
        with pytest.raises(FileError, match="could not be written"):
            D.save(tmp_path)

    @pytest.mark.parametrize("path", [None, 3, b"", ""])
    def test_no_path(self, path):
        with pytest.raises(relunmd.InputError, match="path must be the path of a file"):
            D.save(path)
        with pytest.raises(relunmd.InputError, match="path must be the path of a file"):
            relunmd.Decomposition.load(path)

    def test_places_that_no_file_can_have(self, tmp_path):
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        for path in ("/", "..", "a\0b", tmp_path / ("x" * 300), tmp_path / "loop"):
            for use in (D.save, D.export_mat, relunmd.Decomposition.load):
                with pytest.raises(relunmd.RelunmdError, match="must be the path of a file"):
                    use(path)

    def test_no_such_folder(self, tmp_path):
        with pytest.raises(FileError, match=r"could not be written: .*No such file"):
            D.save(tmp_path / "no" / "model.npz")

    def test_later_version(self, model):
        with pytest.raises(FileError, match=rf"of version {LATER}; .* reads versions up to {_VERSION}"):
            relunmd.Decomposition.load(self.changed(model, version=LATER))

    def test_another_kind(self, model):
        with pytest.raises(FileError, match=r"must be a model .* it is a relunmd checkpoint"):
            relunmd.Decomposition.load(self.changed(model, format="relunmd checkpoint"))

    def test_other_peoples_files(self, tmp_path):
        np.savez(tmp_path / "theirs.npz", W=D.W, H=D.H)
        (tmp_path / "text.npz").write_text("W, H")
        (tmp_path / "empty.npz").touch()
        np.save(tmp_path / "array.npy", D.W)
        for name, why in [
            ("theirs.npz", "no member 'metadata'"),
            ("text.npz", "not a .npz"),
            ("empty.npz", "not a .npz"),
        ]:
            with pytest.raises(FileError, match=why):
                relunmd.Decomposition.load(tmp_path / name)
        with pytest.raises(FileError, match=r"not a \.npz"):
            relunmd.Decomposition.load(tmp_path / "array.npy")

    def test_a_member_exchanged(self, model):
        members = members_of(model.read_bytes())
        members["history.time.npy"], members["history.error.npy"] = (
            members["history.error.npy"],
            members["history.time.npy"],
        )
        model.write_bytes(sealed(members, reseal=False))
        with pytest.raises(FileError, match="missing, changed or exchanged"):
            relunmd.Decomposition.load(model)

    @pytest.mark.parametrize("status", ["NEW", 3, None])
    def test_unknown_status(self, model, status):
        with pytest.raises(FileError, match="KeyError"):
            relunmd.Decomposition.load(self.changed(model, status=status))

    def test_what_can_be_repeated_in_a_zip_is_not_read_twice(self, model):
        with zipfile.ZipFile(model, "a") as zipped, pytest.warns(UserWarning, match="Duplicate"):
            zipped.writestr("W.npy", npy(D.W))
        with pytest.raises(FileError, match="contradict each other"):
            relunmd.Decomposition.load(model)


def test_mutated_models_load_whole_or_give_a_sentence(tmp_path, capfd):
    D.save(tmp_path / "model.npz")
    whole = (tmp_path / "model.npz").read_bytes()
    mutant = tmp_path / "mutant.npz"
    sentences, loaded = [], 0
    tracemalloc.start()
    for _, content in mutants(whole, 500, seed=0):
        mutant.write_bytes(content)
        try:
            d = relunmd.Decomposition.load(mutant)
        except FileError as reason:
            sentences.append(str(reason))
            continue
        loaded += 1
        assert np.isfinite(d.W).all()
        assert np.isfinite(d.H).all()
        assert d.W.shape[1] == len(d.H) == d.rank
        assert {len(column) for column in d.history.columns.values()} == {d.n_iter + 1}
        repr(d), d.message, d.best_iter, d.reconstruct([0])
        d.save(mutant)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    assert all(str(mutant) in sentence for sentence in sentences)
    assert len(sentences) > 300
    assert loaded > 10
    assert "EXECUTED" not in "".join(capfd.readouterr())


def _names(folder):
    return sorted(file.name for file in folder.iterdir())


class TestFiles:
    def test_a_full_disk_leaves_the_old_model(self, tmp_path):
        """The writer may write 4 kB: a disk that is full in the middle."""
        D.save(tmp_path / "model.npz")
        before = (tmp_path / "model.npz").read_bytes()
        better = relunmd.decompose(X, 20, "3b", max_iter=5)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            with pytest.raises(FileError, match=os.strerror(errno.EFBIG)):
                better.save(tmp_path / "model.npz")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (tmp_path / "model.npz").read_bytes() == before
        assert _names(tmp_path) == ["model.npz"]

    def test_partials_are_removed_and_nothing_else(self, tmp_path, monkeypatch):
        place = tmp_path / "run.npz"
        kept = [".run.npz", ".run.npz.partial", "other.npz", "run.npz"]
        for name in kept:
            (tmp_path / name).touch()
        for name in ("run.npz", "other.npz"):
            with contextlib.suppress(ZeroDivisionError), monkeypatch.context() as patched:
                patched.setattr(Path, "unlink", lambda *given, **named: None)  # As if it had been killed.
                write_beside(tmp_path / name, lambda out: 1 / 0)
        assert len(_names(tmp_path)) == 6
        remove_partials(tmp_path / "other.npz")
        assert len(_names(tmp_path)) == 5
        remove_partials(place)
        assert _names(tmp_path) == sorted(kept)

    def test_a_name_as_long_as_they_may_be(self, tmp_path):
        D.save(tmp_path / ("x" * 255))
        same(D, relunmd.Decomposition.load(tmp_path / ("x" * 255)))

    def test_who_may_read_it_does_not_change(self, tmp_path):
        D.save(tmp_path / "model.npz")
        (tmp_path / "model.npz").chmod(0o600)
        D.save(tmp_path / "model.npz")
        assert (tmp_path / "model.npz").stat().st_mode & 0o777 == 0o600

    def test_a_link_stays_one(self, tmp_path):
        (tmp_path / "there").mkdir()
        (tmp_path / "model.npz").symlink_to("there/model.npz")
        D.save(tmp_path / "model.npz")
        assert (tmp_path / "model.npz").is_symlink()
        assert _names(tmp_path / "there") == ["model.npz"]

    def test_order_of_memory_comes_back(self, tmp_path):
        """BLAS may give other bits for a matrix stored by columns."""
        arrays = {
            "C": np.ones((3, 4)),
            "F": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
            "strided": np.arange(24.0).reshape(4, 6)[:, ::2],
            "none": np.zeros((5, 0)),
            "number": np.array(0.25),
            "flag": np.array(True),
        }
        arrays["again"] = arrays["F"]
        archive.write_archive(tmp_path / "a", "thing", 1, {}, arrays)
        _, found = archive.read_archive(tmp_path / "a", "thing", 1)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype
        assert found["F"].flags.f_contiguous
        assert found["C"].flags.c_contiguous
        assert found["again"] is found["F"]

    def test_interrupted_while_it_is_renamed(self, tmp_path, monkeypatch):
        place = tmp_path / "file"
        place.write_bytes(b"old")
        monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError("no")))
        with pytest.raises(OSError, match="no"):
            write_beside(place, lambda out: out.write(b"new"))
        assert _names(tmp_path) == ["file"]
        assert place.read_bytes() == b"old"


def test_matlab_gets_everything(tmp_path):
    D.export_mat(tmp_path / "model.mat")
    found = scipy.io.loadmat(tmp_path / "model.mat", simplify_cells=True)
    np.testing.assert_array_equal(found["W"], D.W)
    np.testing.assert_array_equal(found["H"], D.H)
    assert (found["error"], found["algorithm"], found["status"]) == (D.error, "em", "MAX_ITER")
    assert found["settings"] == {"sweeps": 2, "column_noise": False, "nonnegative": False}
    np.testing.assert_array_equal(found["history"]["log_likelihood"], D.history.log_likelihood)


def test_matlab_columns_stand_upright(tmp_path):
    D.export_mat(tmp_path / "model.mat")
    found = scipy.io.loadmat(tmp_path / "model.mat")
    assert found["history"]["error"][0, 0].shape == (D.n_iter + 1, 1)


def test_matlab_without_settings_and_too_large(tmp_path, monkeypatch):
    d = relunmd.decompose(X, 4, "tsvd")
    d.export_mat(tmp_path / "model.mat")
    assert "settings" not in scipy.io.loadmat(tmp_path / "model.mat")
    monkeypatch.setattr("relunmd.result._MOST_MATLAB", 100)
    with pytest.raises(relunmd.InputError, match="below 2 GiB"):
        D.export_mat(tmp_path / "model.mat")


def test_metadata_is_bounded(tmp_path):
    D.save(tmp_path / "model.npz")
    members = members_of((tmp_path / "model.npz").read_bytes())
    members["metadata.npy"] = npy(np.zeros(2 * archive._MOST_METADATA, np.uint8))
    (tmp_path / "model.npz").write_bytes(sealed(members, reseal=False))
    with pytest.raises(FileError, match="bytes of metadata"):
        relunmd.Decomposition.load(tmp_path / "model.npz")


def test_a_compressed_member_is_not_unpacked(tmp_path):
    """It could be a few bytes that become gigabytes."""
    D.save(tmp_path / "model.npz")
    out = io.BytesIO(sealed(members_of((tmp_path / "model.npz").read_bytes()), zipfile.ZIP_DEFLATED))
    (tmp_path / "model.npz").write_bytes(out.getvalue())
    with pytest.raises(FileError, match="compressed"):
        relunmd.Decomposition.load(tmp_path / "model.npz")


class TestSomethingElseIsThere:
    """Devices, pipes and folders are not replaced by a file, nor files by a folder."""

    @pytest.mark.parametrize("write", [D.save, D.export_mat])
    @pytest.mark.parametrize("linked", [False, True])
    def test_a_pipe_stays(self, tmp_path, write, linked):
        place = pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        if linked:
            place = tmp_path / "link"
            place.symlink_to(pipe)
        with pytest.raises(
            FileError, match=r"pipe could not be written: it exists and is a device, a pipe or a socket; name"
        ):
            write(place)
        assert pipe.is_fifo()
        assert {file.name for file in tmp_path.iterdir()} <= {"pipe", "link"}

    @pytest.mark.parametrize("write", [D.save, D.export_mat])
    def test_a_device_stays(self, monkeypatch, write):
        """The refusal comes before anything is written beside it; so no test harms /dev."""
        monkeypatch.setattr(Path, "open", None)
        monkeypatch.setattr(Path, "replace", None)
        with pytest.raises(FileError, match=r"/dev/null could not be written: it exists and is a device"):
            write("/dev/null")
        assert Path("/dev/null").is_char_device()

    def test_a_folder_stays(self, tmp_path):
        (tmp_path / "folder").mkdir()
        with pytest.raises(FileError, match="it exists and is a folder; name a file"):
            D.save(tmp_path / "folder")

    @pytest.mark.parametrize("make", [os.mkfifo, Path.touch])
    def test_what_is_no_folder_stays(self, tmp_path, make):
        make(tmp_path / "X.zarr")
        before = (tmp_path / "X.zarr").stat()
        with pytest.raises(FileError, match=r"it exists and is a .*; name a folder"):
            write_folder_beside(tmp_path / "X.zarr", lambda folder: pytest.fail("nothing is to be written"))
        assert (tmp_path / "X.zarr").stat().st_ino == before.st_ino
        assert len(list(tmp_path.iterdir())) == 1

    def test_the_name_is_shown_escaped(self, tmp_path):
        os.mkfifo(tmp_path / "\x1b[2J")
        with pytest.raises(FileError) as caught:
            D.save(tmp_path / "\x1b[2J")
        assert str(caught.value).isprintable()
