"""Finds out from the end of a program's stderr which exception ended it.

Reads what CPython 3.10-3.14 prints: tracebacks with chained exceptions, notes, messages
of several lines, exception groups, syntax errors (which have no traceback), colours,
lines that start with `[rankN]: `, and the dump of `faulthandler`. Text in, a `Raised`
out; only the command that an installed program was started by is looked at, too.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from allhands import errors
from allhands.elastic.installed import installed_package, package_of_command

__all__ = ["Frame", "Raised", "last_line", "parse_exception"]

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_RANK = re.compile(r"^\[rank\d+\]:? ?", re.MULTILINE)
_HEADER_END = "Traceback (most recent call last):"
# After an unended line (a progress bar) the header does not begin its line; in margins
# and indented, it is part of another exception's text.
_HEADER = re.compile(
    r"(?:[^\s|].*?)??(?P<group>  \+ Exception Group )?" + re.escape(_HEADER_END)
)
_FRAME = re.compile(
    r'\s+File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<name>.+))?$'
)
_DUMPED = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>.+)$')
_EXCEPTION = re.compile(r"(?P<type>[^\W\d][\w.<>]*)(?:: (?P<message>.*))?$")
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError)(?:: |$)")
_CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# Tracebacks that Python prints and goes on.
_SURVIVED = ("Exception ignored in", "Exception in thread", "--- Logging error ---")
_OUR_ERRORS = f"{errors.__name__}."
_MARGIN = re.compile(r"  (?:(?P<members>\+|  +[|+])|\|) ?")


@dataclass(frozen=True)
class Frame:
    """One place in the code."""

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        where += f", in {self.function}" if self.function else ""
        return f"{where}: {self.code}" if self.code else where


@dataclass(frozen=True)
class Raised:
    """An exception as its text tells it."""

    type: str
    message: str
    where: Frame | None
    """The user's innermost frame: none of the library's, the interpreter's, or ours."""

    @property
    def is_ours(self) -> bool:
        """Whether it is an exception of this package."""
        return self.type.startswith(_OUR_ERRORS)

    @property
    def name(self) -> str:
        """The type for people: of this package's without the module."""
        return self.type.removeprefix(_OUR_ERRORS)


def parse_exception(text: str, foreign: Sequence[str] | None = None) -> Raised | None:
    """The last exception in `text` that may have ended the program, or None.

    Args:
        text: the end of what the program wrote to stderr.
        foreign: folders whose frames are not the user's; default: the standard
            library and this package. Installed packages are not the user's either,
            except the one that is the program itself.
    """
    lines = _plain(text).split("\n")
    foreign = _foreign() if foreign is None else foreign
    start = _start(lines)
    if start is None:
        return _parse_dump(lines, foreign)
    header = _HEADER.fullmatch(lines[start])
    is_group = header is not None and header["group"] is not None
    body = _ungrouped(lines[start + 1 :]) if is_group else lines[start + 1 :]
    frames, rest = _frames(body)
    return _raised(rest, _users(frames, foreign))


def last_line(text: str) -> str:
    """The last line that says anything, or an empty text."""
    said = [line.strip() for line in _plain(text).split("\n") if line.strip()]
    return said[-1] if said else ""


def _plain(text: str) -> str:
    text = _RANK.sub("", _ESCAPE.sub("", text).replace("\r\n", "\n"))
    return text.replace("\r", "\n")


def _start(lines: list[str]) -> int | None:
    """Index of the line before the frames of the last exception that counts."""
    start = None
    for index, line in enumerate(lines):
        # The cheap look first: there may be thousands of lines of many ranks.
        if line.endswith(_HEADER_END) and _HEADER.fullmatch(line):
            before = lines[index - 1] if index else ""
            if not before.startswith(_SURVIVED):
                start = index
        elif _SYNTAX.match(line):
            start = _start_of_syntax_error(lines, index, start)
    return start


def _start_of_syntax_error(lines: list[str], end: int, start: int | None) -> int | None:
    """A syntax error in the script itself has one frame and no header."""
    for index in range(end - 1, max(-1, end - 6), -1):
        if _FRAME.fullmatch(lines[index]):
            has_header = start is not None and all(
                line.startswith("  ") for line in lines[start + 1 : index]
            )
            return start if has_header else index - 1
    return start


def _ungrouped(lines: list[str]) -> list[str]:
    """An exception group without its margin, and of its members the last lines only."""
    body: list[str] = []
    for line in lines:
        match = _MARGIN.match(line)
        if match is None:
            break
        text = line[match.end() :]
        is_own = match["members"] is None
        if is_own or (not text.startswith("  ") and _EXCEPTION.match(text)):
            body.append(text)
    return body


def _frames(lines: list[str]) -> tuple[list[Frame], list[str]]:
    """Frames at the head of `lines`, and what follows them."""
    frames: list[Frame] = []
    for index, line in enumerate(lines):
        match = _FRAME.fullmatch(line)
        if match:
            code = lines[index + 1].strip() if index + 1 < len(lines) else ""
            has_code = bool(code) and lines[index + 1].startswith("    ")
            frames.append(_frame(match, code if has_code else ""))
        elif line and not line.startswith("  "):
            return frames, lines[index:]
    return frames, []


def _frame(match: re.Match[str], code: str) -> Frame:
    return Frame(match["file"], int(match["line"]), match["name"] or "", code)


def _raised(lines: list[str], where: Frame | None) -> Raised | None:
    """Type and message; a message of several lines goes on to the end of the text."""
    match = _EXCEPTION.match(lines[0]) if lines else None
    if match is None:
        return None
    message = [match["message"] or ""]
    for line in lines[1:]:
        if line in _CHAINS or line.startswith(_SURVIVED):
            break
        message.append(line)
    # Python 3.10 names the module of a class of the program itself where 3.11 does not.
    name = match["type"].removeprefix("__main__.")
    return Raised(name, "\n".join(message).strip(), where)


def _parse_dump(lines: list[str], foreign: Sequence[str]) -> Raised | None:
    """What `faulthandler` prints, innermost frame first."""
    for index, line in enumerate(lines):
        if line.startswith("Fatal Python error: "):
            frames = []
            for below in lines[index + 1 :]:
                match = _DUMPED.fullmatch(below)
                if match:
                    frames.append(_frame(match, ""))
                elif frames:
                    break
            error = line.removeprefix("Fatal Python error: ")
            return Raised("Fatal Python error", error, _users(frames[::-1], foreign))
    return None


def _users(frames: list[Frame], foreign: Sequence[str]) -> Frame | None:
    """The innermost frame of the user's own code, else the innermost of all."""
    program = _installed_program(frames)
    for frame in reversed(frames):
        is_own = bool(program) and frame.file.startswith(program)
        if is_own or not _is_foreign(frame.file, foreign):
            return frame
    return frames[-1] if frames else None


def _installed_program(frames: list[Frame]) -> str:
    """Return the folder of the program, if it is installed; else an empty text."""
    files = [frame.file for frame in frames if not frame.file.startswith("<frozen ")]
    if not files:
        return ""
    name = package_of_command(files[0])
    if not name:
        return installed_package(files[0])
    for folder in map(installed_package, files[1:]):
        if os.path.basename(folder.rstrip("/")).removesuffix(".py") == name:
            return folder
    return ""


def _is_foreign(file: str, foreign: Sequence[str]) -> bool:
    if file.startswith("<"):
        return file != "<string>"  # `python -c` is the user's
    return bool(installed_package(file)) or file.startswith(tuple(foreign))


@cache
def _foreign() -> list[str]:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    stdlib = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    folders = [package, *stdlib]
    return [os.path.join(folder, "") for folder in folders]
