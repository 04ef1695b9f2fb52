"""A block of coalesced operations: a scope in which a group only collects them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from allhands.backends.coalescing import CoalescingCommunicator
from allhands.backends.work import Work
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import Scope, scope

__all__ = ["coalescing"]


@contextmanager
def coalescing(group: ProcessGroup, works: list[Work]) -> Iterator[None]:
    """Start every operation of this thread on `group` within a `with` block.

    Their handles are added to `works`.
    """
    here = scope.get()
    block = CoalescingCommunicator(group.communicator, works)
    token = scope.set(Scope(here.world, {**(here.blocks or {}), group: block}))
    try:
        yield
    finally:
        scope.reset(token)
