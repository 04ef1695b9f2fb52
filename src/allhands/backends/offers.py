"""Backends that installed packages offer, by entry points of `allhands.backends`.

Entry points are read only if a program names an unknown backend: reading them takes
some milliseconds, and importing their reader takes tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

__all__ = ["ENTRY_POINTS", "Offer", "offers", "why_no_offer"]

ENTRY_POINTS = "allhands.backends"
"""The name of the entry point group."""


@dataclass(frozen=True)
class Offer:
    """A backend that a package offers, by the function that makes communicators."""

    name: str
    """The name of the backend, in lower case."""
    value: str
    """The place of the function or class: "module:attribute"."""
    package: str
    """The package's name and version."""

    def __str__(self) -> str:
        return f"{self.package} (entry point {self.name} = {self.value})"

    def load(self) -> Callable[..., Any]:
        """Import the function or class.

        Raises:
            RuntimeError: the import failed, as the cause says; or the object cannot be
                called.
        """
        from importlib.metadata import EntryPoint

        what = f"backend {self.name!r} of {self} "
        try:
            func = EntryPoint(self.name, self.value, ENTRY_POINTS).load()
        except Exception as error:
            raise RuntimeError(
                f"{what}cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        if not callable(func):
            raise RuntimeError(
                f"{what}is no function or class that makes communicators: {func!r}"
            )
        made: Callable[..., Any] = func
        return made


def offers() -> list[Offer]:
    """Return the offers of all installed packages, sorted by name.

    Raises:
        RuntimeError: the metadata of a package cannot be read.
    """
    from importlib.metadata import entry_points

    try:
        found = {
            Offer(entry.name.lower(), entry.value, _package(entry.dist))
            for entry in entry_points(group=ENTRY_POINTS)
        }
    except Exception as error:  # a damaged file raises any error of its reader
        raise RuntimeError(
            f"the entry points of the packages that are installed cannot be read: "
            f"{type(error).__name__}: {error}"
        ) from error
    return sorted(found, key=lambda offer: (offer.name, offer.package, offer.value))


def why_no_offer(theirs: list[Offer]) -> str:
    """Return why these offers of one name cannot be used; empty if one can be loaded.

    The call imports nothing.
    """
    first, *others = theirs
    if others:
        return (
            f"{len(theirs)} offers have the name {first.name!r}: "
            f"{', '.join(map(str, theirs))}; uninstall what is not meant, or give "
            f"Backend.register_backend the one that is"
        )
    module = first.value.partition(":")[0].partition(".")[0].strip()
    if _is_there(module):
        return ""
    return f"{first} offers it, but there is no module {module!r}"


def _package(distribution: Any) -> str:
    return f"{distribution.name} {distribution.version}"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # not the name of a module
        return False
