"""The reference pages hold every public name once, and mkdocs.yml every page."""

import importlib
import inspect
import re
import sys

import pytest

import allhands
from harness.documents import ROOT, documents

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCUMENTS = documents()
PAGES = [document for name, document in DOCUMENTS.items() if "reference/" in name]
DOCUMENTED = [
    "allhands",
    "allhands.backends.communicator",
    "allhands.elastic.multiprocessing",
    "allhands.elastic.multiprocessing.errors",
    "allhands.launch",
    "allhands.launcher",
    "allhands.run",
    "allhands.torch.data_parallel",
    "allhands.torch.world",
]


def resolve(path):
    """The object that the dotted `path` names; a module wins over what it shadows."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        owner, _, name = path.rpartition(".")
        return getattr(resolve(owner), name)


def shown():
    """Dotted paths of what the pages show; a module stands for its public names."""
    paths = []
    for page in PAGES:
        for path, options in page.references():
            names = getattr(resolve(path), "__all__", None)
            if names is None:
                paths.append(path)
            elif "members: []" not in options:
                paths += [f"{path}.{name}" for name in names]
    return paths


@pytest.mark.parametrize("module", DOCUMENTED)
def test_every_public_name_is_on_one_page(module):
    objects = [id(resolve(path)) for path in shown()]
    package = importlib.import_module(module)
    times = {
        name: objects.count(id(getattr(package, name))) for name in package.__all__
    }
    assert {name: n for name, n in times.items() if n != 1} == {}


def test_nothing_is_shown_twice():
    paths = shown()
    assert len(set(paths)) == len(paths)


def test_every_parameter_of_an_operation_has_its_text():
    """As in docs/parameters.py, which puts the texts into the pages."""
    texts = tomllib.loads((ROOT / "docs" / "parameters.toml").read_text())
    operations = {
        name: list(inspect.signature(value).parameters)
        for name, value in vars(allhands).items()
        if inspect.isfunction(value) and value.__module__.startswith("allhands.ops.")
    }
    assert "all_reduce" in operations
    lacking = [
        f"{name}: {parameter}"
        for name, parameters in operations.items()
        for parameter in parameters
        if name in allhands.__all__
        and "Args:" not in (getattr(allhands, name).__doc__ or "")
        and parameter not in {**texts["every"], **texts.get(name, {})}
    ]
    assert lacking == []
    stale = [
        f"{name}: {parameter}"
        for name, own in texts.items()
        for parameter in own
        if name != "every" and parameter not in operations.get(name, [])
    ]
    assert stale == []


def test_every_document_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(DOCUMENTS)
