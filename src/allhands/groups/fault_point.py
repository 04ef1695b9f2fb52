"""FaultPoint: where the operations of a rank meet the faults that were asked for.

Hooks on its groups, which come with the first fault and go with the last: without
faults nothing of this is on the way of their operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from allhands import settings
from allhands.backends.faults import Faults, parse
from allhands.backends.hooks import PreHookArgs
from allhands.groups.process_group import ProcessGroup

__all__ = ["FaultPoint"]


class FaultPoint:
    """See the module. Faults come and go while no operation is under way."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Ask for nothing, as in the beginning; hooks on groups stay, and do nothing.

        For a forked child, where another thread's lock on faults would stay locked.
        """
        self.rank = -1
        """Of the world; -1 before it is known."""
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
        if self._asked:
            self._hang_on(group)

    @property
    def is_asked(self) -> bool:
        """Whether there is any fault that operations can meet."""
        return bool(self._asked)

    def meet(self, names: Sequence[str], op: str) -> None:
        """That operation is about to begin, of a group of these names.

        Raises:
            InjectedError: it is asked for.
        """
        for faults in self._asked:
            faults.meet(self.rank, names, op)

    def _set(self, asked: tuple[Faults, ...], groups: Iterable[ProcessGroup]) -> None:
        self._asked = asked
        for group in groups:
            self._hang_on(group)

    def _hang_on(self, group: ProcessGroup) -> None:
        def meet(told: PreHookArgs) -> None:
            self.meet((group.group_name, group.group_desc), told.op)

        group.set_first_hook(meet if self._asked else None)
