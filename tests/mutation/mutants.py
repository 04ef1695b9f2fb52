"""Mutants: one line of one file, changed, that means something else than before.

universalmutator makes them by the rules beside this file: another operator, constant or
condition, or no statement.
"""

import ast
import contextlib
import fnmatch
import io
import pathlib
import random
import subprocess
from dataclasses import dataclass

from universalmutator.mutator import mutants_regexp
from workplace import ROOT, RULES

# Measuring and drawing, which tests do not hold, and what is generated.
SPARED = [
    *("src/allhands/bench/*", "*.pyi", "csrc/allhands/python/module.cpp"),
    "*/preloading/sitecustomize.py",  # in the place of the hook, which cannot change it
]


@dataclass
class Mutant:
    """A line of a file, changed; which draw of the seed it was."""

    number: int
    path: pathlib.Path
    before: str
    after: str

    def change(self):
        """(line number, the line as it was, as it is)."""
        was, now = self.before.splitlines(), self.after.splitlines()
        at = next(
            i
            for i in range(max(len(was), len(now)))
            if was[i : i + 1] != now[i : i + 1]
        )
        shown = now[at].strip() if len(now) == len(was) else "(no line)"
        return at + 1, was[at].strip(), shown

    @property
    def name(self):
        return f"{self.path.relative_to(ROOT)}:{self.change()[0]}"

    @property
    def is_python(self):
        return self.path.suffix == ".py"

    @property
    def is_other_python(self):
        """Whether it is Python that means something else."""
        try:
            return _meaning(self.after) != _meaning(self.before)
        except SyntaxError:
            return False


def sources(only):
    """The files that mutants are made of."""
    listed = subprocess.check_output(
        ["git", "ls-files", "src", "csrc"], cwd=ROOT, text=True
    )
    return [
        ROOT / name
        for name in listed.split()
        if name.endswith((".py", ".cpp", ".hpp"))
        and "/tests/" not in name
        and fnmatch.fnmatch(name, only)
        and not any(fnmatch.fnmatch(name, spared) for spared in SPARED)
    ]


def draw(files, seed, number):
    """The `number`-th draw: a mutant of one of `files`, of larger ones more often.

    None where the file has no mutants. The same for the same arguments and files.
    """
    chance = random.Random(f"{seed} {number}")
    weights = [len(path.read_text().splitlines()) for path in files]
    [path] = chance.choices(files, weights)
    lines = path.read_text().splitlines(keepends=True)
    rules = RULES / ("python.rules" if path.suffix == ".py" else "cpp.rules")
    with contextlib.redirect_stdout(io.StringIO()):  # it tells what it does
        found = sorted(
            (at, line)
            for at, line, *_ in mutants_regexp(
                lines, [str(rules)], ignorePatterns=[], ignoreStringOnly=True
            )
        )
    if not found:
        return None
    at, line = chance.choice(found)
    after = "".join([*lines[: at - 1], line, *lines[at:]])
    return Mutant(number, path, "".join(lines), after)


def _meaning(text):
    """Python without comments, docstrings, and what only type checkers read."""
    return ast.dump(_Meaning().visit(ast.parse(text)))


class _Meaning(ast.NodeTransformer):
    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        node.returns = None
        return node

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_Expr(self, node):
        self.generic_visit(node)
        return ast.Pass() if isinstance(node.value, ast.Constant) else node

    def visit_If(self, node):
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return ast.Pass()
        return self.generic_visit(node)
