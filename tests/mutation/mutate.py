"""Do the tests notice when the code is wrong? Breaks it in many places, one at a time.

    make mutants                             60 mutants of both languages
    python tests/mutation/mutate.py --count 10 --only 'csrc/*/engine/*' --seed 7

universalmutator makes the mutants: a line each with another operator, constant or
condition, or without its statement. Files are drawn by a seed, larger ones more often.
A mutant that does not compile, or compiles to the same, is no mutant; another one is
drawn. The tests run on it, the nearest first, until one fails. What all tests let pass
is shown at the end; fewer than 90 % noticed is a failure.

It changes files in place, one at a time, and puts them back, so the checkout must have
no changes of yours.
"""

import argparse
import ast
import contextlib
import fnmatch
import hashlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = sys.executable
WANTED = 0.9
LIMIT = 1500  # seconds that all tests may take on one mutant
# What tests do not hold: measuring, drawing, the generated stub.
SPARED = ["src/allhands/bench/*", "*.pyi", "csrc/allhands/python/module.cpp"]
SUITES = ["unit", "contract", "seeds", "process", "property", "tensors"]


@dataclass
class Mutant:
    """A line of a file, changed."""

    path: pathlib.Path
    before: str
    after: str

    def __str__(self) -> str:
        pairs = enumerate(
            zip(self.before.splitlines(), self.after.splitlines(), strict=False), 1
        )
        line, (was, now) = next((n, p) for n, p in pairs if p[0] != p[1])
        name = self.path.relative_to(ROOT)
        return f"{name}:{line}\n  - {was.strip()}\n  + {now.strip()}"

    @property
    def is_python(self) -> bool:
        return self.path.suffix == ".py"


def run(*command: str) -> bool:
    """Whether `command` succeeds in time. Whatever it started ends with it."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            return process.wait(LIMIT) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def sources(only: str) -> list[pathlib.Path]:
    listed = subprocess.check_output(["git", "ls-files", "src", "csrc"], cwd=ROOT)
    return [
        ROOT / name
        for name in listed.decode().split()
        if name.endswith((".py", ".cpp", ".hpp"))
        and "/tests/" not in name
        and fnmatch.fnmatch(name, only)
        and not any(fnmatch.fnmatch(name, spared) for spared in SPARED)
    ]


def meaning(text: str) -> str:
    """Python without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [
                line
                for line in body
                if not (
                    isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
                )
            ] or [ast.Pass()]
    return ast.dump(tree)


def built() -> str:
    """What the extension and the core consist of, as a number."""
    digest = hashlib.sha256()
    for folder in ("build/plain", "build"):
        for path in sorted(ROOT.glob(f"{folder}/**/*.o")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def build() -> bool:
    return run("make", "build") and run("make", "native")


def draw(path: pathlib.Path, chance: random.Random) -> Mutant | None:
    """One of all mutants of `path`; None where it has none."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["mutate", str(path), "--noCheck", "--mutantDir", folder]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        found = sorted(pathlib.Path(folder).iterdir())
        if not found:
            return None
        return Mutant(path, path.read_text(), chance.choice(found).read_text())


def is_different(mutant: Mutant, original: str) -> bool:
    """Whether the mutant, which is in place, compiles to something else."""
    if not mutant.is_python:
        return run("make", "build") and built() != original
    try:
        return meaning(mutant.after) != meaning(mutant.before)
    except SyntaxError:
        return False


def stages(mutant: Mutant) -> list[list[str]]:
    """Commands of tests, the nearest first."""
    pytest = [PYTHON, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    everything = [*pytest, "-n", "2", *(f"tests/{suite}" for suite in SUITES)]
    if not mutant.is_python:
        return [["make", "native"], everything]
    near = ROOT / "tests/unit" / mutant.path.parent.name
    return [[*pytest, str(near)], everything] if near.is_dir() else [everything]


def is_noticed(mutant: Mutant) -> bool:
    return not all(run(*command) for command in stages(mutant))


def examine(mutant: Mutant, original: str) -> bool | None:
    """Whether the tests notice `mutant`; None where it is none."""
    mutant.path.write_text(mutant.after)
    try:
        return is_noticed(mutant) if is_different(mutant, original) else None
    finally:
        mutant.path.write_text(mutant.before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="*", help="a pattern of file names")
    given = parser.parse_args()
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
        sys.exit("mutate.py: the checkout has changes; commit or stash them first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("mutate.py: terminated"))
    if not build():
        sys.exit("mutate.py: the code does not build, or the core's tests fail")
    original = built()
    chance = random.Random(given.seed)
    files = sources(given.only)
    weights = [len(path.read_text().splitlines()) for path in files]
    survivors: list[Mutant] = []
    done = 0
    while done < given.count:
        [path] = chance.choices(files, weights)
        mutant = draw(path, chance)
        begin = time.monotonic()
        noticed = None if mutant is None else examine(mutant, original)
        if mutant is None or noticed is None:
            continue
        done += 1
        if not noticed:
            survivors.append(mutant)
        verdict = "noticed" if noticed else "SURVIVED"
        took = time.monotonic() - begin
        print(f"{done}/{given.count} {verdict} in {took:.0f} s: {mutant}", flush=True)
    build()
    share = 1 - len(survivors) / given.count
    print(f"\n{share:.0%} of {given.count} noticed (seed {given.seed}); survivors:")
    for survivor in survivors:
        print(survivor)
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
