"""Whether `python -m NAME` would find its module, told without running any of it."""

from __future__ import annotations

import errno
import importlib.util
import os
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

__all__ = ["check_module"]


def check_module(name: str) -> None:
    """Return if the ranks would find the module, and where that cannot be known.

    A package is searched where its file lies: to import it could do anything. One that
    says itself where its modules are, and one with a loader of its own, is believed to
    have the module.

    Raises:
        FileNotFoundError: there is no such module, or a package that cannot be run.
    """
    searched, *parts = name.split(".")
    spec = _top_level(searched)
    for part in parts:
        if spec is None or not _says_where(spec):
            break
        searched = f"{searched}.{part}"
        spec = _within(spec, searched)
    if spec is not None and searched == name and spec.submodule_search_locations:
        if not _says_where(spec):
            return
        searched = f"{name}.__main__"
        spec = _within(spec, searched)
    if spec is None:
        raise FileNotFoundError(errno.ENOENT, "No such module", searched)


def _top_level(name: str) -> ModuleSpec | None:
    here = [] if getattr(sys.flags, "safe_path", False) else [os.getcwd()]
    try:
        return PathFinder.find_spec(name, here) or importlib.util.find_spec(name)
    except ValueError:  # one of this process's own, which has none
        return ModuleSpec(name, None)


def _within(package: ModuleSpec, name: str) -> ModuleSpec | None:
    places: Iterable[str] = package.submodule_search_locations or []
    return PathFinder.find_spec(name, list(places))


def _says_where(spec: ModuleSpec) -> bool:
    """Whether the modules of a package are where its spec says."""
    loader = spec.loader
    if not isinstance(loader, SourceFileLoader):
        return False
    return b"__path__" not in loader.get_data(loader.path)
