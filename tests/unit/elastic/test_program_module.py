"""Which modules the launcher says are missing, and what it runs to know: nothing."""

import subprocess
import sys

import pytest

from allhands.elastic.program_module import check_module

RAISES = "raise RuntimeError('it was run')\n"
FILES = {
    "plain.py": RAISES,
    "package/__init__.py": RAISES,
    "package/inner.py": RAISES,
    "package/deeper/__init__.py": RAISES,
    "package/deeper/__main__.py": RAISES,
    "elsewhere/__init__.py": "__path__.append('/somewhere')\n" + RAISES,
    "namespace/inner.py": RAISES,
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def is_found_by_python(name):
    done = subprocess.run(
        [sys.executable, "-m", name], capture_output=True, text=True, check=False
    )
    return "it was run" in done.stderr


@pytest.mark.parametrize(
    "name",
    ["plain", "package.inner", "package.deeper", "package.deeper.__main__"],
)
def test_a_module_that_is_there_is_not_run(name):
    assert is_found_by_python(name)
    check_module(name)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("nothing", "nothing"),
        ("nothing.inner", "nothing"),
        ("package.nothing", "package.nothing"),
        ("package.nothing.inner", "package.nothing"),
        ("plain.py", "plain.py"),
        ("package", "package.__main__"),
    ],
)
def test_a_module_that_is_missing_is_named(name, missing):
    with pytest.raises(FileNotFoundError, match=f"No such module: '{missing}'$"):
        check_module(name)


@pytest.mark.parametrize(
    "name", ["elsewhere", "elsewhere.inner", "namespace.inner", "json.tool", "sys.no"]
)
def test_what_cannot_be_known_is_left_to_the_ranks(name):
    check_module(name)


def test_a_module_of_the_python_path_is_found(folder, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    with pytest.raises(FileNotFoundError):
        check_module("plain")
    monkeypatch.syspath_prepend(str(folder))
    check_module("plain")
