"""Installed packages: which of them a file of code belongs to.

Errors and records name the innermost line of the user's own code. An installed package
is not the user's own code, unless it is the program that runs: `python -m trainer`, or
a command that pip has made for it.
"""

from __future__ import annotations

import os
import re

__all__ = ["installed_package", "package_of_command"]

_FOLDERS = ("/site-packages/", "/dist-packages/")
# What the commands of pip, uv and their like begin with: they import what they call.
_IMPORT = re.compile(r"^from ([^\W.]+)[\w.]* import ", re.MULTILINE)
_LONGEST = 1 << 12  # characters of a command that are read


def installed_package(file: str) -> str:
    """Return the folder of the installed package that has `file`.

    For a module that lies directly in `site-packages` it is the file itself. The result
    is empty if `file` is not installed.
    """
    for folder in _FOLDERS:
        before, found, inside = file.rpartition(folder)
        if found:
            name, slash, _ = inside.partition("/")
            return f"{before}{found}{name}{slash}"
    return ""


def package_of_command(file: str) -> str:
    """Return the name of the package whose command `file` is; else an empty text.

    A command lies in a folder `bin`, and its name has no dot. This function reads it.
    """
    folder, name = os.path.split(file)
    if os.path.basename(folder) != "bin" or "." in name:
        return ""
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            found = _IMPORT.search(opened.read(_LONGEST))
    except OSError:
        return ""
    return found[1] if found else ""
