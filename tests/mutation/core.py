"""Core: the core and its extension with guards for all mutants of C++ of a run."""

import json
import re
import shutil
import subprocess
import sys
import threading
from os.path import normpath

import guards
from workplace import ROOT, RULES, run

_BUILD_LIMIT = 7200  # seconds
_PLACE = re.compile(r"([^\s:]+):(\d+)[:,]")
# Not across files and optimised little: made in a third of the time. A literal that a
# guard makes an expression may be narrowed.
_FLAGS = "-O1 -w -Wno-narrowing"


class Core:
    """A copy of the core that is built once, with the guards that compile.

    The copy is in `folder`, as is its extension, `_C.so`.
    """

    def __init__(self, folder, drawn):
        self.folder = folder
        self._programs = folder / "build/programs"
        self._extension = folder / "build/extension"
        self._guards = {}  # by path
        self._lines = {}  # {path in the copy: {number: lines}}
        self._refused = folder / "refused.json"
        self._building = threading.Lock()
        for mutant in drawn:
            self._add(mutant)

    def build(self):
        """Build it; the numbers of the mutants in it: those whose guards compile."""
        refused = self._refused
        self._drop(set(json.loads(refused.read_text())) if refused.exists() else set())
        if self._numbers():
            self._build()
        return self._numbers()

    def _add(self, mutant):
        guard = guards.guard_of(mutant)
        there = self._guards.setdefault(mutant.path, [])
        if guard and not any(guards.overlap(guard, other) for other in there):
            there.append(guard)

    def _numbers(self):
        return {guard.number for found in self._guards.values() for guard in found}

    def _build(self):
        self._write()
        targets = {self._programs: "allhands_core", self._extension: "_C"}
        for folder, target in targets.items():
            while not (made := self._make(folder, target))[0]:
                self._drop(self._blamed(folder, made[1]) or _give_up(made[1]))
                self._write()
        [built] = self._extension.glob("_C.*.so")
        shutil.copy(built, self.folder / "_C.so")

    def program(self, name):
        """Where one of its tests is, once built."""
        return self._programs / name

    def build_program(self, name):
        """Build one of its tests; whether that works."""
        with self._building:
            return self._make(self._programs, name)[0]

    def _make(self, folder, target):
        """(whether a target is built, what was said)."""
        if not (folder / "build.ninja").exists():
            command = ["cmake", "-S", self.folder, "-B", folder, "-G", "Ninja"]
            command += ["-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_CXX_FLAGS={_FLAGS}"]
            command += [
                f"-DALLHANDS_TESTS={'ON' if folder == self._programs else 'OFF'}"
            ]
            code, output = run([*command, f"-DPython_EXECUTABLE={sys.executable}"], 600)
            if code != 0:
                _give_up(output)
        command = ["cmake", "--build", folder, "-j", "2", "--target", target]
        code, output = run([*command, "--", "-k", "0"], _BUILD_LIMIT)
        return code == 0, output

    def _blamed(self, folder, output):
        """The mutants that a compiler speaks of; it may name files from its folder."""
        return {
            number
            for path, line in set(_PLACE.findall(output))
            for number, lines in self._lines.get(normpath(folder / path), {}).items()
            if int(line) in lines
        }

    def _drop(self, numbers):
        for path, found in self._guards.items():
            self._guards[path] = [g for g in found if g.number not in numbers]
        known = json.loads(self._refused.read_text()) if self._refused.exists() else []
        self._refused.write_text(json.dumps(sorted({*known, *numbers})))

    def _write(self):
        """Write the copy; what is as it was keeps its time."""
        names = ["CMakeLists.txt", "csrc/allhands"]
        listed = subprocess.check_output(
            ["git", "ls-files", *names], cwd=ROOT, text=True
        )
        for name in listed.split():
            text, found = (ROOT / name).read_bytes(), self._guards.get(ROOT / name)
            if found:
                text, self._lines[str(self.folder / name)] = guards.guarded(text, found)
            _write_if_other(self.folder / name, text)
        own = (RULES / "guard.cpp").read_bytes()
        _write_if_other(self.folder / "csrc/allhands/base/mutation_guard.cpp", own)
        for name in ("csrc/tests", "docs"):  # as they are by now
            if not (self.folder / name).exists():
                (self.folder / name).symlink_to(ROOT / name)


def _write_if_other(path, text):
    if not path.exists() or path.read_bytes() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def _give_up(output):
    print(f"The guarded core does not build:\n{output[-4000:]}", flush=True)
    sys.exit("mutate.py: the guarded core does not build")
