"""The layers of layers.toml hold, in Python and in C++."""

import ast
import pathlib
import re
import sys

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "allhands"
CORE = ROOT / "csrc" / "allhands"
MAP = tomllib.loads((ROOT / "layers.toml").read_text())
INCLUDE = re.compile(r'^#include "(allhands/[^"]+)"', re.MULTILINE)


def level_of(table: list[list[str]]) -> dict[str, int]:
    return {name: level for level, names in enumerate(table) for name in names}


def python_files() -> dict[str, pathlib.Path]:
    files = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        files[".".join(p for p in parts if p != "__init__")] = path
    return files


def imported(path: pathlib.Path, known: set[str]) -> set[str]:
    """Modules of the package that `path` imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import; write the whole path"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = inner.removeprefix("allhands.") in known
                found.add(inner if is_module else str(node.module))
    names = {n for n in found if n == "allhands" or n.startswith("allhands.")}
    return {n.removeprefix("allhands").removeprefix(".") for n in names}


LEVELS = level_of([layer["holds"] for layer in MAP["python"]])
FILES = python_files()
IMPORTS = {name: imported(path, {*FILES, "_C"}) for name, path in FILES.items()}


def room(module: str) -> str:
    """What the map lists: the module at the top, or the package that it is in."""
    return module.split(".")[0]


def without_leaves(graph: dict[str, set[str]]) -> set[str]:
    """What is left of `graph` when nothing without arrows can be taken away."""
    while leaves := {name for name, out in graph.items() if not out & graph.keys()}:
        graph = {name: out for name, out in graph.items() if name not in leaves}
    return set(graph)


def test_map_lists_exactly_the_modules_there_are():
    assert set(LEVELS) == {room(module) for module in FILES} | {"_C"}


def test_the_house_is_small_at_the_top():
    assert len({room(module) for module in FILES}) <= 20
    assert len(MAP["python"]) <= 12


@pytest.mark.parametrize("module", sorted(FILES))
def test_python_module_imports_only_lower_layers(module):
    for other in IMPORTS[module]:
        allowed = room(other) == room(module) != ""
        allowed |= LEVELS[room(other)] < LEVELS[room(module)]
        assert allowed, f"{module} imports {other}"


def test_python_modules_have_no_cycle():
    cycle = without_leaves(IMPORTS)
    assert not cycle, f"modules that import each other: {sorted(cycle)}"


FOLDERS = level_of(MAP["cpp"])


def test_map_lists_exactly_the_folders_there_are():
    inner = [path for path in CORE.rglob("*") if path.is_dir()]
    assert set(FOLDERS) == {str(path.relative_to(CORE)) for path in inner}


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_cpp_folder_includes_only_lower_layers(folder):
    for path in sorted((CORE / folder).glob("*.[ch]pp")):
        for included in INCLUDE.findall(path.read_text()):
            other = included.removeprefix("allhands/").rpartition("/")[0]
            allowed = other == folder or FOLDERS[other] < FOLDERS[folder]
            assert allowed, f"{path.name} includes {included}"


def test_cpp_headers_have_no_cycle():
    graph = {
        str(path.relative_to(ROOT / "csrc")): set(INCLUDE.findall(path.read_text()))
        for path in CORE.rglob("*.hpp")
    }
    cycle = without_leaves(graph)
    assert not cycle, f"headers that include each other: {sorted(cycle)}"


def test_python_headers_stay_in_the_binding():
    for path in CORE.rglob("*.[ch]pp"):
        if path.parent.name != "python":
            text = path.read_text()
            assert "Python.h" not in text, path
            assert "nanobind" not in text, path


def test_core_reads_no_environment():
    for path in CORE.rglob("*.[ch]pp"):
        assert "getenv" not in path.read_text(), path


def test_waits_are_interrupted_at_one_place():
    """Whoever waits by hand would look for the interrupt by hand as well."""
    made = "Error(ErrorKind::Interrupted"
    texts = {path.name: path.read_text() for path in CORE.rglob("*.[ch]pp")}
    assert {n: t.count(made) for n, t in texts.items() if made in t} == {"wait.hpp": 1}


def test_no_file_is_long():
    for folder, pattern in (
        *(("src", "*.py"), ("tests", "*.py"), ("benchmarks", "*.py")),
        *(("examples", "*.py"), ("csrc", "*.[ch]pp")),
    ):
        for path in (ROOT / folder).rglob(pattern):
            assert len(path.read_text().splitlines()) <= 500, path
