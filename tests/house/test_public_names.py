"""What a module exports is there, sorted, documented, and nothing else is."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import textwrap

import pytest

import allhands as dist

EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
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


def test_python_suggests_the_name_that_a_misspelt_one_means():
    asked = [sys.executable, "-c", "import allhands; allhands.all_reduec"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stderr
    assert "no attribute 'all_reduec'. Did you mean: 'all_reduce'?" in told


# Names that say all there is to show: yes or no, older names, bases of errors,
# records of options.
NEED_NO_EXAMPLE = re.compile(
    "is_.*available|is_torchelastic_launched|(all_)?gather_into_tensor"
    "|reduce_scatter_tensor|Dist.*Error|.*Options|Backend|DebugLevel"
)


@pytest.mark.parametrize("name", sorted(dist.__all__))
def test_every_public_name_is_documented(name):
    value = getattr(dist, name)
    if inspect.isfunction(value) or inspect.isclass(value):
        text = inspect.getdoc(value)
        assert text
        assert "```python\n" in text or NEED_NO_EXAMPLE.fullmatch(name)


def documented(owner):
    """Public classes and functions of `owner`, and theirs, with their docstrings."""
    for name, value in vars(owner).items():
        if name in getattr(owner, "__all__", [name]) and not name.startswith("_"):
            value = getattr(value, "__func__", value)
            if inspect.isfunction(value) or inspect.isclass(value):
                yield value.__qualname__, inspect.getdoc(value) or ""
            if inspect.isclass(value) and inspect.ismodule(owner):
                yield from documented(value)


DOCSTRINGS = dict(documented(dist))


@pytest.mark.parametrize("name", DOCSTRINGS)
def test_examples_are_python_and_name_what_there_is(name):
    for code in EXAMPLE.findall(DOCSTRINGS[name]):
        for node in ast.walk(ast.parse(textwrap.dedent(code))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "dist" or hasattr(dist, node.attr), node.attr


@pytest.mark.parametrize("name", DOCSTRINGS)
def test_examples_are_fenced(name):
    """As Markdown, `>>>` is a quotation of a quotation of a quotation."""
    assert ">>>" not in DOCSTRINGS[name]


def test_the_second_path_has_the_same_names():
    other = dist.distributed_c10d
    assert all(getattr(other, name) is getattr(dist, name) for name in dist.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dist.nothing
