"""FaultPoint: the point at which the operations of a rank meet requested faults.

It consists of hooks on the rank's groups and one hook on stores. They appear with the
first fault and disappear with the last. Without faults, no operation runs any of this
code. On a rank for which no fault is meant, groups have no hook either.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence

from allhands import settings
from allhands.backends.communicator import Communicator
from allhands.backends.fault_text import parse
from allhands.backends.faults import STORE, Faults
from allhands.backends.hooks import HookedCommunicator, Hooks, PreHookArgs
from allhands.groups.host_links import HostLinks
from allhands.groups.process_group import ProcessGroup
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.ranges import in_ranges
from allhands.store import hook

__all__ = ["FaultPoint"]


class FaultPoint:
    """See the module. Add and remove faults only while no operation is under way.

    Args:
        is_here: returns whether the calling thread belongs to this rank.
    """

    def __init__(self, is_here: Callable[[], bool]) -> None:
        self._is_here = is_here
        self.forget()

    def forget(self) -> None:
        """Forget all faults; hooks on groups stay without effect.

        This is for a forked child, where another thread's lock on faults would stay
        locked.
        """
        self.rank = -1
        """The rank in the world; -1 before it is known."""
        self.links: HostLinks | None = None
        """None before the ranks have met."""
        self._leave_stores: Callable[[], object] | None = None
        """Removes the hook on stores; None while this rank has none."""
        self.asked: tuple[Faults, ...] = ()
        """What was asked for, for any rank."""
        self._by_setting: tuple[str, Faults] | None = None

    def ask_for(self, faults: Faults, groups: Iterable[ProcessGroup]) -> None:
        """Apply `faults` to later operations of `groups` and of groups made later."""
        self._set((*self.asked, faults), groups)

    def ask_no_more_for(self, faults: Faults, groups: Iterable[ProcessGroup]) -> None:
        """Undo `ask_for`."""
        self._set(tuple(kept for kept in self.asked if kept is not faults), groups)

    def read_setting(self) -> None:
        """Ask for the faults in ALLHANDS_FAULTS, before there are groups.

        If the setting has not changed, its faults continue to count.

        Raises:
            ValueError: the setting cannot be parsed.
        """
        text = settings.faults.get()
        known = self._by_setting
        if known is not None and known[0] != text:
            self.ask_no_more_for(known[1], [])
            self._by_setting = known = None
        if text and known is None:
            subject = f"environment variable {settings.faults.name}"
            faults = Faults(parse(text, subject))
            self._by_setting = text, faults
            self.ask_for(faults, [])

    def add(self, group: ProcessGroup) -> None:
        """Let the operations of a new group meet the faults."""
        if self._is_meant():
            self._hang_on(group)

    def in_front_of(
        self,
        communicator: Communicator,
        names: Sequence[str],
        links: HostLinks | None,
    ) -> Communicator:
        """Return `communicator`, behind hooks if any fault is meant for this rank.

        This is for a group of torch with these names, which has its own links.
        """
        if not self._is_meant():
            return communicator
        meet = Hooks(first=lambda told: self.meet(names, told.op, links))
        return HookedCommunicator(communicator, meet)

    def meet(
        self, names: Sequence[str], op: str, links: HostLinks | None = None
    ) -> None:
        """Meet the faults of an operation that is about to begin, on a named group.

        `links` are those of the group if it has its own.

        Raises:
            InjectedError: a fault asks for it.
        """
        links = links or self.links
        for faults in self.asked:
            if links is None:
                faults.meet(self.rank, names, op)
            else:
                faults.meet(self.rank, names, op, links.drop)

    def check(self, links: HostLinks | None = None) -> None:
        """Refuse faults that can never happen, now that the ranks are known.

        `links` are those of the group in question if it has its own.

        Raises:
            ValueError: a fault is to drop a link that does not exist.
        """
        links = links or self.links
        for fault in (fault for faults in self.asked for fault in faults.all):
            if links is not None:
                links.check(fault)
            elif fault.do == "drop-link":
                raise ValueError(
                    "a fault with do=drop-link cuts connections between hosts, and "
                    "this world's backend has none that this package could cut"
                )

    def tell_of_strangers(self, size: int) -> None:
        """Say which faults are meant for ranks that a world of `size` ranks lacks.

        Rank 0 says so. A world that lost ranks may lack them rightly.
        """
        asked = (fault.rank for faults in self.asked for fault in faults.all)
        strangers = {rank for rank in asked if rank is not None and rank >= size}
        if self.rank == 0 and strangers:
            text = f"faults are asked for on ranks {in_ranges(sorted(strangers))}, "
            text += f"but this world has {size} ranks, from 0 on"
            say(LogLevel.WARNING, "faults", self.rank, text)

    def _set(self, asked: tuple[Faults, ...], groups: Iterable[ProcessGroup]) -> None:
        self.asked = asked
        is_of_stores = any(
            fault.op.startswith(STORE) for faults in asked for fault in faults.all
        )
        if is_of_stores and self._leave_stores is None:
            self._leave_stores = self._hang_on_stores()
        elif not is_of_stores and self._leave_stores is not None:
            self._leave_stores()
            self._leave_stores = None
        for group in groups:
            self._hang_on(group)

    def _hang_on(self, group: ProcessGroup) -> None:
        def meet(told: PreHookArgs) -> None:
            self.meet((group.group_name, group.group_desc), told.op)

        group.set_first_hook(meet if self._is_meant() else None)

    def _is_meant(self) -> bool:
        """Whether any requested fault can happen to this rank."""
        return bool(self.asked) and any(
            fault.rank in (None, self.rank)
            for faults in self.asked
            for fault in faults.all
        )

    def _hang_on_stores(self) -> Callable[[], object]:
        """Add the hook on stores; return a function that removes it."""
        point = weakref.ref(self)

        def meet(request: str) -> None:
            here = point()
            if here is not None:
                here._meet_request(request)

        hook.hang(meet)
        leave = weakref.finalize(self, hook.take_down, meet)
        leave.atexit = False
        return leave

    def _meet_request(self, request: str) -> None:
        if self._is_here():
            self.meet((), f"{STORE}{request}")
