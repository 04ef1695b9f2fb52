"""What makes Python run a mutant: loaded by each that has this folder on its path.

MUTANT is the number of the mutant that this process runs. MUTANTS_REACHED is a file
with a byte for each mutant, which becomes 1 where a process comes by it. MUTANTS is the
folder with the mutants of Python and the extension that has those of C++.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import mmap
import os
import pathlib
import sys

_folder = pathlib.Path(os.environ["MUTANTS"])
_chosen = os.environ.get("MUTANT", "0")
_reached_path = os.environ.get("MUTANTS_REACHED")
_of_file = json.loads((_folder / "python.json").read_text())  # {path: {number: line}}
_extension = _folder / "_C.so"
_load_code = importlib.machinery.SourceFileLoader.get_code


def reached(number):
    """Note that this process came by a mutant."""
    _reached[number] = 1


class Extension(importlib.abc.MetaPathFinder):
    """Finds the extension that has the mutants of C++."""

    def find_spec(self, name, path, target=None):
        if name != "allhands._C":
            return None
        return importlib.util.spec_from_file_location(name, _extension)


def _code(loader, name):
    path = loader.get_filename(name)
    mutants = _of_file.get(path, {})
    if _chosen in mutants:
        changed = (_folder / f"{_chosen}.py").read_text()
        return compile(changed, path, "exec", dont_inherit=True)
    if mutants and _reached_path:
        return compile(_marked(path, mutants), path, "exec", dont_inherit=True)
    return _load_code(loader, name)


def _marked(path, mutants):
    """The file with a call of `reached` before each statement that a mutant is of."""
    tree = ast.parse(pathlib.Path(path).read_text())
    places = [
        (*place, int(number))
        for number, line in mutants.items()
        for place in _places(tree, line)
    ]
    for body, statement, number in places:
        call = f"__import__('sitecustomize').reached({number})"
        [mark] = ast.parse(call).body
        ast.copy_location(mark, statement)
        body.insert(body.index(statement), mark)
    return ast.fix_missing_locations(tree)


def _places(tree, line):
    """[(body, statement)] before which a mutant of a line is reached.

    Of a constant of the module's own, before the first statement of each function: the
    statement itself runs in all that import the module.
    """
    body, statement = _statement(tree, line)
    if body is tree.body and _is_private_constant(statement):
        functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
        return [
            (f.body, f.body[ast.get_docstring(f) is not None :][0])
            for f in functions
            if f.body[ast.get_docstring(f) is not None :]
        ]
    return [(body, statement)]


def _statement(tree, line):
    """(body, statement) of the innermost statement that a line is in."""
    found = None
    for node in ast.walk(tree):  # the outer ones first
        for _, body in ast.iter_fields(node):
            for part in body if isinstance(body, list) else []:
                if (
                    isinstance(part, ast.stmt)
                    and part.lineno <= line <= part.end_lineno
                ):
                    found = body, part
    return found


def _is_private_constant(node):
    return isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Name) and target.id.startswith("_")
        for target in node.targets
    )


importlib.machinery.SourceFileLoader.get_code = _code
if _extension.exists():
    sys.meta_path.insert(0, Extension())
if _reached_path:
    with open(_reached_path, "r+b") as file:
        _reached = mmap.mmap(file.fileno(), 0)
