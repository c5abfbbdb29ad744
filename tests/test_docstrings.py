"""Docstrings of the public API follow numpydoc, so that they render on the documentation site."""

import dataclasses
import inspect
import warnings
from pathlib import Path

import numpy as np
import pytest

import relunmd
from relunmd import comparison, datasets, errors, plot

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Sphinx and docutils warn about their own imports.
    from numpydoc.docscrape import get_doc_object
    from numpydoc.validate import validate

ROOT = Path(__file__).parents[1]
MODULES = (relunmd, plot, datasets, comparison, errors)
EXCUSED = {
    "GL01": "the text starts on the line of the quotes",
    "GL02": "a docstring of one line ends on it",
    "ES01": "many summaries need no further text",
    "SA01": "most names have no close relatives",
}
OF_PROPERTIES = {"EX01", "RT01", "RT03"}
"""A property is an attribute with a name and a summary: an example would only repeat it."""
RETURNED = {"Comparison", "Decomposition", "FittedRows", "FoldFit", "History", "Opened", "Progress", "RankRow",
            "RankSelection", "Status"}  # fmt: skip
"""Classes whose objects the library makes: they document attributes, not the parameters of a constructor (PR01)."""


def own_members(owner):
    """The public methods and properties in the body of a class, but for those that inherit their docstring.

    A method without a docstring that overrides another one has its docstring, in help() and in Sphinx.
    """
    for name, member in vars(owner).items():
        documents = isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member)
        overrides = any(hasattr(parent, name) for parent in owner.__bases__)
        if documents and not name.startswith("_") and (member.__doc__ or not overrides):
            yield name


def public_names():
    """Dotted names of the public functions, classes and their members, each of them once."""
    found = {}
    for module in MODULES:
        for name in module.__all__:
            thing = getattr(module, name)
            if isinstance(thing, type) or inspect.isroutine(thing):
                found.setdefault(thing, f"{module.__name__}.{name}")
    for thing, name in list(found.items()):
        if isinstance(thing, type):
            private = [
                base for base in inspect.getmro(thing) if base.__module__.startswith("relunmd.") and base not in found
            ]
            found |= {(thing, member): f"{name}.{member}" for base in (thing, *private) for member in own_members(base)}
    return sorted(found.values())


def excused(name):
    """The codes that do not apply to a name."""
    codes = set(EXCUSED)
    owner, _, last = name.removeprefix("relunmd.").rpartition(".")
    if isinstance(inspect.getattr_static(getattr(relunmd, owner, None), last, None), property):
        codes |= OF_PROPERTIES
    return codes | {"PR01"} if last in RETURNED else codes


@pytest.mark.parametrize("name", public_names())
def test_a_docstring_follows_numpydoc(name):
    found = [f"{code}: {text}" for code, text in validate(name)["errors"] if code not in excused(name)]
    assert not found, "\n".join([name, *found])


def test_every_public_name_has_a_page():
    listed = {*(ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8").split()}
    names = {name.removeprefix("relunmd.") for name in public_names() if not name.startswith("relunmd.errors.")}
    methods = {name for name in names if name.rpartition(".")[0] in names}
    assert names - methods <= listed


def attributes(kind):
    """The names of the attributes that objects of a class get from its body or its constructor."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if kind is relunmd.Status:
        return list(kind.__members__)
    seen = []
    relunmd.decompose(np.eye(3), 1, max_iter=1, callback=seen.append)
    return [name for name in vars(seen[0]) if not name.startswith("_")]


@pytest.mark.parametrize("name", sorted(RETURNED))
def test_the_attributes_of_a_result_are_documented(name):
    kind = getattr(relunmd, name)
    assert [entry.name for entry in get_doc_object(kind)["Attributes"] if entry.desc] == attributes(kind)
