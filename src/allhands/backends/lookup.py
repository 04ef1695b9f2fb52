"""Finds a backend by its name: a registered one, or one of an installed package."""

from __future__ import annotations

from allhands.backends.gloo.library import why_no_gloo
from allhands.backends.nccl.library import why_no_nccl
from allhands.backends.offers import ENTRY_POINTS, Offer, offers, why_no_offer
from allhands.backends.registry import ABSENT, Backend, engine_of, is_registered
from allhands.backends.xccl.library import why_no_xccl
from allhands.rendezvous.mpi_library import why_no_mpi_library

__all__ = ["look_up", "why_not"]

_LIBRARIES = {
    **{"mpi": why_no_mpi_library, "gloo": why_no_gloo, "xccl": why_no_xccl},
    "nccl": why_no_nccl,
}


def look_up(name: str) -> None:
    """Make sure that there is a backend `name`; register it if a package offers it.

    Raises:
        AssertionError: there is no such backend.
        RuntimeError: the offered backend cannot be loaded, or several packages offer
            one.
    """
    if name in Backend.backend_list:
        return
    found = offers()
    theirs = [offer for offer in found if offer.name == name]
    if not theirs:
        raise AssertionError(_unknown(name, found))
    if len(theirs) > 1:
        raise RuntimeError(f"backend {name!r}: {why_no_offer(theirs)}")
    func = theirs[0].load()
    devices = getattr(func, "devices", ("cpu", "cuda"))
    try:
        Backend.register_backend(name, func, extended_api=True, devices=devices)
    except (TypeError, ValueError) as error:
        raise RuntimeError(
            f"backend {name!r} of {theirs[0]} cannot be registered for devices "
            f"{devices!r}: {error}"
        ) from error


def why_not(name: str) -> str:
    """Return why the registered backend `name` cannot be used; empty if it can."""
    if is_registered(name):
        return ""
    engine = engine_of(name)
    look = _LIBRARIES.get(engine)
    return ABSENT.get(engine, "") if look is None else look()


def _unknown(name: str, found: list[Offer]) -> str:
    """Return the error text for a name that no backend has."""
    from difflib import get_close_matches  # some milliseconds that an import can spare

    known = [known for known in Backend.backend_list if known != Backend.UNDEFINED]
    there = [_described(known) for known in known if known not in ABSENT]
    there += [f"{o.name} (of {o.package})" for o in found if o.name not in known]
    close = get_close_matches(name, [*known, *(offer.name for offer in found)], n=1)
    guess = f", did you mean {close[0]!r}?" if close else "."
    return (
        f"Unknown backend type {name or repr(name)}{guess} There are "
        f"{', '.join(there)}; `allhands info` says which of them can be used here. "
        f"Packages add backends by entry points {ENTRY_POINTS!r}, programs by "
        f"Backend.register_backend"
    )


def _described(name: str) -> str:
    return f"{name} (registered)" if is_registered(name) else name
