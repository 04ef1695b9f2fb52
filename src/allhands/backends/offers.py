"""Backends that installed packages offer, by entry points of `allhands.backends`.

They are read only where a name is asked for that no backend has: that takes some
milliseconds, and to import what reads them takes tens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

__all__ = ["ENTRY_POINTS", "Offer", "offers", "why_no_offer"]

ENTRY_POINTS = "allhands.backends"
"""The group of the entry points."""


@dataclass(frozen=True)
class Offer:
    """A backend that a package offers: what makes its communicators, by name."""

    name: str
    """Of the backend, in lower case."""
    value: str
    """Where the function or class is: "module:attribute"."""
    package: str
    """The package's name and version."""

    def __str__(self) -> str:
        return f"{self.package} (entry point {self.name} = {self.value})"

    def load(self) -> Callable[..., Any]:
        """Import it.

        Raises:
            RuntimeError: that failed, its cause says why; or it cannot be called.
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
    """What all packages that are installed offer, in the order of names.

    Raises:
        RuntimeError: what a package says of itself cannot be read.
    """
    from importlib.metadata import entry_points

    try:
        found = {
            Offer(entry.name.lower(), entry.value, _package(entry.dist))
            for entry in entry_points(group=ENTRY_POINTS)
        }
    except Exception as error:  # of a damaged file, whatever the reader makes of it
        raise RuntimeError(
            f"the entry points of the packages that are installed cannot be read: "
            f"{type(error).__name__}: {error}"
        ) from error
    return sorted(found, key=lambda offer: (offer.name, offer.package, offer.value))


def why_no_offer(theirs: list[Offer]) -> str:
    """Why these offers of one name are of no use; empty: the one may be loaded.

    Nothing is imported for it.
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
    except (ImportError, ValueError):  # no name of a module
        return False
