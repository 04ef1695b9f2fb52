"""World: the groups of one rank, and which World the running code has.

A process has one World, the global state of this package. `use` gives a thread another
one, so that several ranks can live in one process as threads, as in tests. The package
has no other global state, except tables to which entries are only added. Only one
thread at a time may initialize, destroy and make groups. Any thread may look up a
group.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta

from allhands.backends.communicator import Communicator
from allhands.backends.hooks import Around
from allhands.backends.observer import Observer, observing
from allhands.backends.remote_exception import headline, told
from allhands.errors import DistError
from allhands.groups.agreed_calls import AgreedCalls
from allhands.groups.deaths import Deaths
from allhands.groups.fault_point import FaultPoint
from allhands.groups.group_numbers import GroupNumbers
from allhands.groups.guests import Guests
from allhands.groups.host_links import HostLinks
from allhands.groups.late_waits import LateWaits
from allhands.groups.process_group import (
    GOODBYE_OF_THE_FAILED,
    LONGEST_GOODBYE,
    ProcessGroup,
)
from allhands.groups.visible_group import VisibleGroup
from allhands.groups.world_listeners import tell_beginning, tell_end, tell_meeting
from allhands.options import DebugLevel
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.roster import Roster
from allhands.store import Store

__all__ = [
    "NON_GROUP_MEMBER",
    "Scope",
    "World",
    "current",
    "default_group",
    "scope",
    "use",
]

NON_GROUP_MEMBER = -100
"""The result of `new_group` on a rank that is not in the group."""


class World:
    """The groups of one rank."""

    def __init__(self, is_process_wide: bool = False) -> None:
        self.is_process_wide = is_process_wide
        """Whether threads have this World without `use`."""
        self.debug_level: DebugLevel | None = None
        """The level that was set; None until it is first read."""
        self.observer: Observer | None = None
        """It is told of each operation; see `observe`."""
        self.around: Around | None = None
        """Carries out each operation if set; see `surround`."""
        self.is_of_fork = False
        """Whether this process is a forked child of a rank, and no rank itself."""
        self.has_begun = False
        """Whether there ever was a group, or an attempt to make one."""
        self.fault_point = FaultPoint(lambda: current() is self)
        self.agreed_calls: AgreedCalls | None = None
        """The calls of `new_group`; see `order`. None until the first call."""
        self._guests = Guests()
        self._ending = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self.default: ProcessGroup | None = None
        self.groups: dict[str, ProcessGroup] = {}
        self.numbers = GroupNumbers()
        self._store: Store | None = None
        self._exchange: Callable[[], Roster] | None = None
        self._roster: Roster | None = None
        self.fault_point.links = None
        self.deaths = Deaths()
        self.late_waits = LateWaits()
        self._others: list[Communicator] = []
        self._before_ends: dict[str, Callable[[], None]] = {}
        if self.agreed_calls is not None:
            self.agreed_calls.close()
        self.agreed_calls = None

    def open(self, store: Store, exchange: Callable[[], Roster], rank: int) -> None:
        """Begin: the ranks share `store`, and `exchange` returns their processes.

        Raises:
            ValueError: ALLHANDS_FAULTS cannot be parsed.
        """
        self._begin(rank)
        self._store = store
        self._exchange = exchange

    def _begin(self, rank: int) -> None:
        self.has_begun = True
        self.is_of_fork = False
        self.fault_point.read_setting()
        self.fault_point.rank = rank
        if self.is_process_wide:
            tell_beginning()

    @property
    def store(self) -> Store:
        """The store that the world was initialized with."""
        assert self._store is not None, "open() comes first"
        return self._store

    @property
    def has_met(self) -> bool:
        """Whether the processes of the ranks are known; some backends need not know."""
        return self._roster is not None

    def roster(self) -> Roster:
        """Return the processes of this world; the first call waits for all ranks."""
        if self._roster is None:
            assert self._exchange is not None, "open() comes first"
            with self.carrying_out("", "init_process_group"):
                self._roster = self._exchange()
            rank = self.fault_point.rank
            self.fault_point.links = HostLinks(self._roster, rank)
            self._tell_meeting(self._roster, rank)
        return self._roster

    def _tell_meeting(self, roster: Roster, rank: int) -> None:
        if self.is_process_wide:
            tell_meeting(roster, rank)

    @contextmanager
    def carrying_out(self, group: str, op: str) -> Iterator[None]:
        """Run a `with` block as an operation that Python carries out.

        Like the operations of communicators, it meets requested faults, and the
        observer is told of it.
        """
        self.meet_faults(group, op)
        with observing(self.observer, group, op):
            yield

    def meet_faults(self, group: str, op: str) -> None:
        """Meet the faults of `op`, which is about to begin on `group` without a `Call`.

        Raises:
            InjectedError: a fault asks for it.
        """
        known = self.groups.get(group)
        names = (group,) if known is None else (group, known.group_desc)
        self.fault_point.meet(names, op)

    def observe(self, observer: Observer | None) -> None:
        """Tell `observer` of each later operation of this rank; None stops this."""
        self.observer = observer
        for group in self.visible_groups():
            group.communicator.observe(observer)

    def surround(self, around: Around | None) -> None:
        """Have `around` carry out each later operation of this world's groups.

        `around` gets the group's communicator and the call. None ends this.
        """
        self.around = around
        for group in self.groups.values():
            group.set_around(around)

    def add(self, group: ProcessGroup) -> None:
        """Register `group`; the first group is the default."""
        self.groups[group.group_name] = group
        if self.observer is not None:
            group.communicator.observe(self.observer)
        if self.around is not None:
            group.set_around(self.around)
        self.fault_point.add(group)
        if self.default is None:
            self.default = group
            group.is_world = True
            if self.is_process_wide:
                atexit.register(self.destroy_at_end)

    def close_with_it(self, communicator: Communicator) -> None:
        """Close `communicator`, which belongs to no group, when this world ends."""
        self._others.append(communicator)

    def before_end_of(self, group: ProcessGroup, call: Callable[[], None]) -> None:
        """Call `call` before `group` is shut down, instead of an earlier function.

        For code outside of this package that holds the group.
        """
        self._before_ends[group.group_name] = call

    def remove(self, group: ProcessGroup) -> None:
        """Shut `group` down and forget it.

        Raises:
            RuntimeError: a callback of an operation of the group calls it.
        """
        group.communicator.check_close()
        del self.groups[group.group_name]
        before_end = self._before_ends.pop(group.group_name, None)
        with ExitStack() as shutdowns:
            shutdowns.callback(self._tell_end, group)
            shutdowns.callback(group.shutdown)
            if before_end is not None:
                before_end()

    def destroy(
        self, grace: timedelta = LONGEST_GOODBYE, keeps_port: bool = False
    ) -> None:
        """Shut all groups down, the newest first, and return to the initial state.

        All groups together have `grace`. If one raises an error, the others are still
        shut down. The port for ranks of other hosts is closed, unless another world is
        to use it (`keeps_port`).

        Raises:
            RuntimeError: a callback of an operation calls it; the world stays.
        """
        for group in self.groups.values():
            group.communicator.check_close()
        atexit.unregister(self.destroy_at_end)
        groups, others = list(self.groups.values()), self._others
        port = self._roster.port if self._roster is not None else None
        before_ends = list(self._before_ends.values())
        self._reset()
        end = time.monotonic() + grace.total_seconds()
        with ExitStack() as shutdowns:  # runs them from the last to the first
            if port is not None and not keeps_port:
                shutdowns.callback(port.close)
            for communicator in others:
                shutdowns.callback(communicator.close, 0.0)
            for group in groups:
                shutdowns.callback(self._tell_end, group)
                shutdowns.callback(_shut_down, group, end)
            for call in before_ends:
                shutdowns.callback(call)

    def begin_guests(self, rank: int) -> None:
        """Prepare for groups of another maker, whose world has this process as `rank`.

        These are groups of torch.distributed on the native engine. Tools see them like
        the groups of this world.

        Raises:
            ValueError: ALLHANDS_FAULTS cannot be parsed.
        """
        if self.default is None and not self._guests:
            return self._begin(rank)
        self.fault_point.read_setting()
        self.fault_point.rank = rank
        for group in self.groups.values():  # faults may be meant for this rank now
            self.fault_point.add(group)

    def meet_guests(self, roster: Roster) -> None:
        """Set the processes of the guests' world, which are known now."""
        self._guests.roster = roster
        if self.default is None:
            self._tell_meeting(roster, self.fault_point.rank)

    def add_guest(self, group: VisibleGroup) -> None:
        """Let tools see `group`, as long as other code holds it."""
        self._guests.add(group)
        if self.observer is not None:
            group.communicator.observe(self.observer)

    def remove_guest(self, group: VisibleGroup) -> None:
        """Forget `group`, which has been shut down."""
        self._guests.remove(group)
        self._tell_end(group)

    def visible_groups(self) -> list[VisibleGroup]:
        """Return all groups of this rank, those of torch.distributed last."""
        return [*self.groups.values(), *self._guests.groups()]

    def is_visible(self, group: VisibleGroup) -> bool:
        """Return whether `group` is one of `visible_groups`."""
        is_own = self.groups.get(group.group_name) is group
        return is_own or self._guests.has(group)

    @property
    def whole(self) -> VisibleGroup | None:
        """The group of all ranks: `default`, or else torch's."""
        return next((group for group in self.visible_groups() if group.is_world), None)

    @property
    def known_roster(self) -> Roster | None:
        """The processes of `whole`; None if they have not met."""
        return self._roster if self.default is not None else self._guests.roster

    def _tell_end(self, group: VisibleGroup) -> None:
        text = f"left group {group.group_name!r}"
        say(LogLevel.INFO, "groups", self.fault_point.rank, text)
        if self.is_process_wide:
            tell_end(group)

    def destroy_at_end(self) -> None:
        """Destroy the world of a program that did not call `destroy_process_group`."""
        with self._ending:
            error = getattr(sys, "last_value", None)  # an uncaught exception
            if error is None:
                self._destroy_after_success()
                return
            reason, cause = headline(error), told(error)
            for group in self.groups.values():
                group.communicator.note_failure(reason, cause)
            with suppress(DistError):  # the failure of the program has been reported
                self.destroy(GOODBYE_OF_THE_FAILED)

    def _destroy_after_success(self) -> None:
        rank = self.fault_point.rank
        try:
            self.destroy()
        except DistError as error:
            # Nobody can catch it here, and a traceback would show this package alone.
            text = f"the world ended with the program: {error}"
            say(LogLevel.WARNING, "groups", rank, text)


def _shut_down(group: ProcessGroup, end: float) -> None:
    if type(group).shutdown is not ProcessGroup.shutdown:
        group.shutdown()  # a user's own method, without arguments as in torch
    else:
        group.shutdown(timedelta(seconds=max(0.0, end - time.monotonic())))


class Scope:
    """The world and the coalescing blocks, by group, of the running code. Immutable."""

    __slots__ = ("blocks", "world")

    def __init__(
        self, world: World, blocks: Mapping[ProcessGroup, Communicator] | None = None
    ) -> None:
        self.world = world
        self.blocks = blocks


_OF_FORK = (
    " This process is a forked child of a rank, and the group is its parent's: "
    "communicate in the parent, or start ranks with `allhands run` or "
    'multiprocessing.get_context("spawn")'
)

_everywhere = Scope(World(is_process_wide=True))
scope: ContextVar[Scope] = ContextVar("allhands", default=_everywhere)
"""The scope of this thread or asyncio task."""


def _forget_after_fork() -> None:
    """Reset a forked child: it is no rank and must not touch its parent's state."""
    world = current()
    world.fault_point.forget()
    if not world.has_begun:
        return
    atexit.unregister(world.destroy_at_end)
    world.is_of_fork = world.is_of_fork or world.default is not None
    world._guests = Guests()
    world._reset()
    world.has_begun = False


os.register_at_fork(after_in_child=_forget_after_fork)


def current() -> World:
    """Return the World of the calling thread."""
    return scope.get().world


@contextmanager
def use(world: World) -> Iterator[World]:
    """Make `world` the current one for this thread, within a `with` block."""
    token = scope.set(Scope(world))
    try:
        yield world
    finally:
        scope.reset(token)


def default_group() -> ProcessGroup:
    """Return the group of all ranks.

    Raises:
        ValueError: there is no world yet, or it is that of this forked child's parent.
    """
    world = current()
    if world.default is None:
        reason = _OF_FORK if world.is_of_fork else ""
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            f"init_process_group.{reason}"
        )
    return world.default
