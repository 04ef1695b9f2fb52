"""FaultPoint: where the operations of a rank meet the faults that were asked for.

Hooks on its groups, and one of stores, which come with the first fault and go with the
last. Without faults nothing of this is on the way of their operations. Groups have none
either on a rank that no fault is meant for.
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
from allhands.store import hook

__all__ = ["FaultPoint"]


class FaultPoint:
    """See the module. Faults come and go while no operation is under way.

    Args:
        is_here: whether the calling thread is of this rank.
    """

    def __init__(self, is_here: Callable[[], bool]) -> None:
        self._is_here = is_here
        self.forget()

    def forget(self) -> None:
        """Ask for nothing, as in the beginning; hooks on groups stay, and do nothing.

        That of stores has gone.

        For a forked child, where another thread's lock on faults would stay locked.
        """
        self.rank = -1
        """Of the world; -1 before it is known."""
        self.links: HostLinks | None = None
        """None before it is known who the ranks are."""
        self._leave_stores: Callable[[], object] | None = None
        """Takes the hook of stores down; None while there is none of this rank."""
        self._asked: tuple[Faults, ...] = ()
        self._by_setting: tuple[str, Faults] | None = None

    def ask_for(self, faults: Faults, groups: Iterable[ProcessGroup]) -> None:
        """Let `faults` happen to later operations of `groups`, and of those to come."""
        self._set((*self._asked, faults), groups)

    def ask_no_more_for(self, faults: Faults, groups: Iterable[ProcessGroup]) -> None:
        """Take back `ask_for`."""
        self._set(tuple(kept for kept in self._asked if kept is not faults), groups)

    def read_setting(self) -> None:
        """Ask for what ALLHANDS_FAULTS says; there are no groups yet.

        Where it says the same as before, the faults count on.

        Raises:
            ValueError: it cannot be read.
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
        """A new group, whose operations are to meet the faults."""
        if self._is_meant():
            self._hang_on(group)

    def in_front_of(
        self,
        communicator: Communicator,
        names: Sequence[str],
        links: HostLinks | None,
    ) -> Communicator:
        """`communicator`, behind what meets faults while any is meant for this rank.

        For a group of torch's, of these names, which has links of its own.
        """
        if not self._is_meant():
            return communicator
        meet = Hooks(first=lambda told: self.meet(names, told.op, links))
        return HookedCommunicator(communicator, meet)

    def meet(
        self, names: Sequence[str], op: str, links: HostLinks | None = None
    ) -> None:
        """That operation is about to begin, of a group of these names.

        `links` are those of the group, where it has its own.

        Raises:
            InjectedError: it is asked for.
        """
        links = links or self.links
        for faults in self._asked:
            if links is None:
                faults.meet(self.rank, names, op)
            else:
                faults.meet(self.rank, names, op, links.drop)

    def check(self, links: HostLinks | None = None) -> None:
        """Refuse faults that can never come to pass, now that the ranks are known.

        `links` are those of the group that it is about, where it has its own.

        Raises:
            ValueError: one is to drop a link where there is none.
        """
        links = links or self.links
        for fault in (fault for faults in self._asked for fault in faults.all):
            if links is not None:
                links.check(fault)
            elif fault.do == "drop-link":
                raise ValueError(
                    "a fault with do=drop-link cuts connections between hosts, and "
                    "this world's backend has none that this package could cut"
                )

    def _set(self, asked: tuple[Faults, ...], groups: Iterable[ProcessGroup]) -> None:
        self._asked = asked
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
        """Whether any fault that is asked for can happen to this rank."""
        return bool(self._asked) and any(
            fault.rank in (None, self.rank)
            for faults in self._asked
            for fault in faults.all
        )

    def _hang_on_stores(self) -> Callable[[], object]:
        """Returns what takes the hook down, at the latest when this object goes."""
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
