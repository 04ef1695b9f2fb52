"""Installed packages: which of them a file of code belongs to.

Errors and records name the innermost line of the user's own code. An installed package
is not the user's own code, unless it is the program that runs: `python -m trainer`, or
a command that pip has made for it.
"""

from __future__ import annotations

import os

__all__ = ["installed_package", "is_command"]

_FOLDERS = ("/site-packages/", "/dist-packages/")


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


def is_command(file: str) -> bool:
    """Return whether `file` is a command like those that pip makes for a package."""
    folder, name = os.path.split(file)
    return os.path.basename(folder) == "bin" and "." not in name
