"""What a module exports is there, sorted, documented, and nothing else is."""

import importlib
import inspect
import pkgutil

import pytest

import allhands as dist

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(dist.__path__, "allhands.")
    if not module.name.rpartition(".")[2].startswith("_")
)


@pytest.mark.parametrize("name", ["allhands", *MODULES])
def test_all_lists_what_there_is(name):
    module = importlib.import_module(name)
    listed = module.__all__
    assert len(set(listed)) == len(listed)
    for public in listed:
        assert hasattr(module, public), public


def test_the_packages_names_are_those_of_all():
    public = {
        name
        for name, value in vars(dist).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(dist.__all__)


@pytest.mark.parametrize("name", sorted(dist.__all__))
def test_every_public_name_is_documented(name):
    value = getattr(dist, name)
    if inspect.isfunction(value) or inspect.isclass(value):
        assert inspect.getdoc(value)


def test_the_second_path_has_the_same_names():
    other = dist.distributed_c10d
    assert all(getattr(other, name) is getattr(dist, name) for name in dist.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dist.nothing
