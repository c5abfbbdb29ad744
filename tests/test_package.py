"""The package as strangers get it: its wheel alone, its public names, its documents."""

import dataclasses
import importlib.metadata
import inspect
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import relunmd
import reproduction
from benchmarks import choice
from relunmd import comparison, datasets

ROOT = Path(__file__).parents[1]


def declared_dependencies(requirements, seen=None):
    """The distributions that requirements ask for, extras left out, all the way down."""
    seen = {} if seen is None else seen
    for requirement in requirements or []:
        name = re.match(r"[A-Za-z0-9._-]+", requirement).group().lower()
        if "extra ==" in requirement or name in seen:
            continue
        try:
            seen[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # For another platform or Python.
        declared_dependencies(seen[name].requires, seen)
    return seen


def test_a_wheel_installed_alone_works(tmp_path):
    """A wheel of this tree, and links to just what it declares to need: nothing of this environment else."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
    assert (site / "relunmd" / "py.typed").exists()
    required = re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)
    for distribution in declared_dependencies(required).values():
        for top in {Path(file).parts[0] for file in distribution.files if not str(file).startswith("..")}:
            if top != "__pycache__" and not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import numpy as np, relunmd;"
        "assert relunmd.__file__.startswith(sys.argv[1]), relunmd.__file__;"
        "d = relunmd.decompose(np.eye(12), 5, random_state=0, progress=True);"
        "print(relunmd.__version__, d.error < 0.7)"
    )
    # -I -S: neither this environment's packages nor its variables.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(site)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{relunmd.__version__} True"


def test_public_names_are_documented():
    for module in (relunmd, datasets, comparison, reproduction):
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing):
                assert inspect.getdoc(thing), name
    settings = [
        thing for thing in vars(relunmd).values() if dataclasses.is_dataclass(thing) and hasattr(thing, "summary")
    ]
    for thing in settings:
        for field in dataclasses.fields(thing):
            assert field.name in inspect.getdoc(thing), (thing, field.name)


def test_the_package_of_algorithms_is_importable_and_callable():
    import relunmd.algorithm.em as module

    assert module.EM is relunmd.EM
    assert "em" in relunmd.algorithms()


def test_versions_agree():
    assert f"## {relunmd.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"version: {relunmd.__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_measurements_behind_the_advice_run(tmp_path, capsys):
    choice.main(["errors", "features", "--quick", "--picture", str(tmp_path / "equal_rank.png")])
    printed = capsys.readouterr().out
    assert "Relative errors" in printed
    assert "| digits" in printed
    assert "Accuracy on 719 unseen of 1797 rows: digits" in printed
    assert "5 neighbors" in printed
    assert (tmp_path / "equal_rank.png").stat().st_size > 10_000
