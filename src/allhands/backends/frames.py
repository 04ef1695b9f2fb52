"""The lines of a program's code that were running, from its innermost frame out."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import islice
from types import FrameType, TracebackType
from typing import NamedTuple

from allhands.elastic.installed import installed_package, package_of_command

__all__ = [
    "SourceLine",
    "called_frame",
    "called_operation",
    "inside",
    "source_lines",
    "source_lines_among",
    "source_lines_of_traceback",
]

_MOST = 16
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_NO_PROGRAMS = ("<frozen", "<__array_function__")
_OF_TEXT = "<string>"
"""The file of `python -c`, and of the methods that dataclasses and named tuples get."""


class SourceLine(NamedTuple):
    """A line of code that was running, with its function."""

    name: str
    """The name of the function."""
    filename: str
    line: int

    def __str__(self) -> str:
        return f"{self.filename}:{self.line}"


def source_lines(frame: FrameType | None) -> list[SourceLine]:
    """Return the lines of the program that called the code in `frame`.

    The list begins with the innermost frame that belongs neither to this package nor to
    Python's libraries. An installed package counts as the program if it is what runs.
    """
    found: list[SourceLine] = []
    while frame is not None and len(found) < _MOST:
        code = frame.f_code
        if found or _is_of_a_program(code.co_filename, code.co_name):
            found.append(
                SourceLine(code.co_name, code.co_filename, frame.f_lineno or 0)
            )
        frame = frame.f_back
    return found


def source_lines_of_traceback(traceback: TracebackType | None) -> list[SourceLine]:
    """Return the lines from which an exception came, in the same order."""
    raised: list[SourceLine] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        raised.append(
            SourceLine(code.co_name, code.co_filename, traceback.tb_lineno or 0)
        )
        traceback = traceback.tb_next
    raised.reverse()
    return source_lines_among(raised) or raised[:_MOST]


def source_lines_among(found: Sequence[SourceLine]) -> list[SourceLine]:
    """Return the lines of the program among those of a stack, innermost first."""
    for i, place in enumerate(found):
        if _is_of_a_program(place.filename, place.name):
            return list(islice(found, i, i + _MOST))
    return []


def inside(frame: FrameType | None) -> str:
    """Return the function of this package that the program called, above `frame`.

    The name is empty if the program called none.
    """
    called = called_frame(frame)
    return "" if called is None else called.f_code.co_name


def called_operation() -> str:
    """Return what the program called: a function of this package, or a class."""
    called = called_frame(sys._getframe(1))
    if called is None:
        return "allhands"
    name = called.f_code.co_name
    return type(called.f_locals["self"]).__name__ if name == "__init__" else name


def called_frame(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the function that `inside` names."""
    called = None
    while frame is not None:
        code = frame.f_code
        if _is_of_a_program(code.co_filename, code.co_name):
            break
        if code.co_filename.startswith(_OURS):
            called = frame
        frame = frame.f_back
    return called


@lru_cache(1024)
def _is_of_a_program(filename: str, name: str) -> bool:
    if filename.startswith((_OURS, *_NO_PROGRAMS)):
        return False
    if filename == _OF_TEXT and (name == "<lambda>" or name.startswith("__")):
        return False
    return not filename.startswith(_libraries()) or filename.startswith(_installed())


@cache
def _installed() -> tuple[str, ...]:
    """Return the folder of the program, if it is installed."""
    file = getattr(sys.modules["__main__"], "__file__", None) or ""
    if name := package_of_command(file):
        file = getattr(sys.modules.get(name), "__file__", None) or ""
    folder = installed_package(file)
    return (folder,) if folder else ()


@cache
def _libraries() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(sysconfig.get_paths()[name] + os.sep for name in names)
