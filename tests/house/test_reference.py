"""The reference pages hold every public name once, and mkdocs.yml every page."""

import importlib
import re

import pytest

from harness.documents import ROOT, documents

DOCUMENTS = documents()
PAGES = [document for name, document in DOCUMENTS.items() if "reference/" in name]
DOCUMENTED = [
    "allhands",
    "allhands.backends.communicator",
    "allhands.launch",
    "allhands.run",
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


def test_every_document_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(DOCUMENTS)
