"""Whose line it is: the program's, a library's, or this package's."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from allhands.backends.frames import (
    SourceLine,
    inside,
    source_lines,
    source_lines_among,
)

PROGRAM = """
import json, sys, sysconfig
from types import ModuleType

packages = sysconfig.get_path("purelib")
how = sys.argv[1]

def module(file, source):
    made = ModuleType(file)
    made.__file__ = f"{packages}/{file}"
    sys.modules[file] = made
    exec(compile(source, made.__file__, "exec"), made.__dict__)
    return made

library = module("library/core.py", '''
import sys
from allhands.backends.frames import source_lines, source_lines_of_traceback
def call():
    return [place.filename for place in source_lines(sys._getframe())]
def fail():
    raise ValueError
def places_of(error):
    return [place.filename for place in source_lines_of_traceback(error.__traceback__)]
''')
trainer = module("trainer/loop.py", '''
def step(function):
    return function()
''')
if how == "module":
    __file__ = f"{packages}/trainer/__main__.py"
elif how == "command":
    __file__ = sys.argv[2]
    sys.modules["trainer"] = trainer
elif how == "own":
    __file__ = "/home/u/train.py"
called = trainer.step(library.call)
try:
    trainer.step(library.fail)
except ValueError as error:
    raised = library.places_of(error)
print(json.dumps([name.removeprefix(packages) for name in (called[0], raised[0])]))
"""


@pytest.mark.parametrize(
    ("how", "first"),
    [
        ("module", "/trainer/loop.py"),
        ("command", "/trainer/loop.py"),
        ("own", "<string>"),
    ],
)
def test_installed_code_is_the_programs_where_it_is_what_runs(how, first, tmp_path):
    command = tmp_path / "bin" / "train"
    command.parent.mkdir()
    command.write_text("import sys\nfrom trainer.loop import step\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, command],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == [first, first]


@dataclass(frozen=True)
class Made:
    number: int


class Named(NamedTuple):
    number: int


def test_methods_that_python_writes_are_no_program():
    """A signal may come in one of them while an error of a rank is being explained."""
    seen = []

    def look(frame, event, _):
        if event == "call" and frame.f_code.co_filename == "<string>":
            seen.append(
                (frame.f_code.co_name, source_lines(frame)[0].name, inside(frame))
            )

    sys.setprofile(look)
    try:
        Made(1), Named(1)
    finally:
        sys.setprofile(None)
    test = "test_methods_that_python_writes_are_no_program"
    assert seen == [("__init__", test, ""), ("<lambda>", test, "")]
    made, line = (
        SourceLine("__init__", "<string>", 7),
        SourceLine("<module>", "<string>", 3),
    )
    assert source_lines_among([made, line]) == [line]
