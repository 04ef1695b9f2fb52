"""World: everything that is global in this package, in one object.

A process has one World; `use` gives a thread another, so that ranks can live in one
process as threads (tests do). Nothing else in the package is global, except tables that
only grow. Initializing, destroying and making groups are for one thread at a time;
looking a group up is safe from any.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta

from allhands.backends.coalescing import CoalescingCommunicator
from allhands.backends.communicator import Communicator
from allhands.backends.hooks import Around
from allhands.backends.observer import Observer, observing
from allhands.backends.remote_exception import headline, told
from allhands.backends.work import Work
from allhands.errors import DistError
from allhands.groups.agreed_calls import AgreedCalls
from allhands.groups.fault_point import FaultPoint
from allhands.groups.host_links import HostLinks
from allhands.groups.process_group import (
    GOODBYE_OF_THE_FAILED,
    LONGEST_GOODBYE,
    ProcessGroup,
)
from allhands.groups.visible_group import VisibleGroup
from allhands.options import DebugLevel
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.roster import Roster
from allhands.store import Store

__all__ = [
    "NON_GROUP_MEMBER",
    "Scope",
    "World",
    "coalescing",
    "current",
    "default_group",
    "is_process_wide",
    "scope",
    "use",
    "when_a_group_has_ended",
    "when_the_ranks_have_met",
    "when_this_is_a_rank",
]

NON_GROUP_MEMBER = -100
"""What `new_group` returns to a rank that is not in the group."""


class World:
    """The groups of one rank."""

    def __init__(self) -> None:
        self.debug_level: DebugLevel | None = None
        """What was set; None until somebody asks for it."""
        self.observer: Observer | None = None
        """What is told of each operation; see `observe`."""
        self.around: Around | None = None
        """What carries out each operation; see `surround`."""
        self.fault_point = FaultPoint(lambda: current() is self)
        self.agreed_calls: AgreedCalls | None = None
        """Of `new_group`; see `order`. None until the first."""
        self._has_no_guests()
        self._ending = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self.default: ProcessGroup | None = None
        self.groups: dict[str, ProcessGroup] = {}
        self.num_groups = 0
        """Made so far, also those that this rank is not in."""
        self._num_named = 0
        self._num_alike: Counter[tuple[int, ...]] = Counter()
        self._store: Store | None = None
        self._exchange: Callable[[], Roster] | None = None
        self._roster: Roster | None = None
        self.fault_point.links = None
        self._others: list[Communicator] = []
        self._before_ends: dict[str, Callable[[], None]] = {}
        if self.agreed_calls is not None:
            self.agreed_calls.close()
        self.agreed_calls = None

    def open(self, store: Store, exchange: Callable[[], Roster], rank: int) -> None:
        """Begin: the ranks share `store`, and `exchange` tells who they are.

        Raises:
            ValueError: ALLHANDS_FAULTS cannot be read.
        """
        self._begin(rank)
        self._store = store
        self._exchange = exchange
        self._num_named = 1  # "0" is the world

    def _begin(self, rank: int) -> None:
        self.fault_point.read_setting()
        self.fault_point.rank = rank
        if self is _process_world:
            for call in _beginnings:
                call()

    @property
    def store(self) -> Store:
        """What the world was initialized with."""
        assert self._store is not None, "open() comes first"
        return self._store

    @property
    def has_met(self) -> bool:
        """Whether it is known who the ranks are; some backends need not know."""
        return self._roster is not None

    def roster(self) -> Roster:
        """The processes of this world; the first call waits until all have come."""
        if self._roster is None:
            assert self._exchange is not None, "open() comes first"
            with self.carrying_out("", "init_process_group"):
                self._roster = self._exchange()
            rank = self.fault_point.rank
            self.fault_point.links = HostLinks(self._roster, rank)
            self._tell_meeting(self._roster, rank)
        return self._roster

    def _tell_meeting(self, roster: Roster, rank: int) -> None:
        if self is _process_world:
            for call in _meetings:
                call(roster, rank)

    @contextmanager
    def carrying_out(self, group: str, op: str) -> Iterator[None]:
        """An operation that Python carries out is the `with` block.

        As those of communicators it meets the faults that were asked for, and the
        observer is told of it.
        """
        self.meet_faults(group, op)
        with observing(self.observer, group, op):
            yield

    def meet_faults(self, group: str, op: str) -> None:
        """`op`, which is no `Call`, is about to begin on that group.

        Raises:
            InjectedError: it is asked for.
        """
        known = self.groups.get(group)
        names = (group,) if known is None else (group, known.group_desc)
        self.fault_point.meet(names, op)

    def observe(self, observer: Observer | None) -> None:
        """Tell `observer` of each later operation of this rank; None: nobody."""
        self.observer = observer
        for group in self.visible_groups():
            group.communicator.observe(observer)

    def surround(self, around: Around | None) -> None:
        """Have `around` carry out each later operation of this world's groups.

        It is handed the group's communicator and the call. None: no more.
        """
        self.around = around
        for group in self.groups.values():
            group.set_around(around)

    def count_alike(self, ranks: Iterable[int]) -> int:
        """How many groups of these ranks were made before the one now being made.

        All members make their groups of the same ranks in the same order, whatever else
        they make in between; so this tells such groups apart without communication.
        """
        self.num_groups += 1
        key = tuple(ranks)
        self._num_alike[key] += 1
        return self._num_alike[key] - 1

    def num_alike(self, ranks: Iterable[int]) -> int:
        """How many groups of these ranks were made."""
        return self._num_alike[tuple(ranks)]

    def next_name(self) -> str:
        """The next of the names "1", "2", ... that all ranks count alike."""
        self._num_named += 1
        return str(self._num_named - 1)

    def take_back_name(self) -> None:
        """The last `next_name` was for a group that not all ranks count."""
        self._num_named -= 1

    def add(self, group: ProcessGroup) -> None:
        """Register `group`; the first one is the default."""
        self.groups[group.group_name] = group
        if self.observer is not None:
            group.communicator.observe(self.observer)
        if self.around is not None:
            group.set_around(self.around)
        self.fault_point.add(group)
        if self.default is None:
            self.default = group
            group.is_world = True
            if self is _process_world:
                atexit.register(self.destroy_at_end)

    def close_with_it(self, communicator: Communicator) -> None:
        """Close `communicator`, which is in no group, when this world ends."""
        self._others.append(communicator)

    def before_end_of(self, group: ProcessGroup, call: Callable[[], None]) -> None:
        """Have `call` called before `group` is shut down, instead of an earlier one.

        For what holds the group outside of this package.
        """
        self._before_ends[group.group_name] = call

    def remove(self, group: ProcessGroup) -> None:
        """Shut `group` down and forget it."""
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
        """Shut all groups down, the newest first, and become as new.

        They have `grace` together. Where one raises, the others are shut down all the
        same. The port for ranks of other hosts is closed, unless another world is to
        go on with it (`keeps_port`).
        """
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

    def _has_no_guests(self) -> None:
        # A group that nobody holds any more is none.
        self._guests: weakref.WeakValueDictionary[str, VisibleGroup] = (
            weakref.WeakValueDictionary()
        )
        self._guests_roster: Roster | None = None

    def begin_guests(self, rank: int) -> None:
        """Groups that are not made here come next; this process is `rank` among theirs.

        They are those of torch.distributed on the native engine, of which tools are to
        know as of those of this world.

        Raises:
            ValueError: ALLHANDS_FAULTS cannot be read.
        """
        if self.default is None and not self._guests:
            return self._begin(rank)
        self.fault_point.read_setting()
        self.fault_point.rank = rank
        for group in self.groups.values():  # faults may be meant for this rank now
            self.fault_point.add(group)

    def meet_guests(self, roster: Roster) -> None:
        """The processes of the guests' world are known."""
        self._guests_roster = roster
        if self.default is None:
            self._tell_meeting(roster, self.fault_point.rank)

    def add_guest(self, group: VisibleGroup) -> None:
        """Let tools see `group`, as long as somebody else holds it."""
        self._guests[group.group_name] = group
        if self.observer is not None:
            group.communicator.observe(self.observer)

    def remove_guest(self, group: VisibleGroup) -> None:
        """Forget `group`, which has been shut down."""
        if self._guests.get(group.group_name) is group:  # or one of the next world
            del self._guests[group.group_name]
            if group.is_world:
                self._guests_roster = None
        self._tell_end(group)

    def visible_groups(self) -> list[VisibleGroup]:
        """All groups of this rank, those of torch.distributed last."""
        guests = [ref() for ref in self._guests.valuerefs()]  # as of one moment
        return [*self.groups.values(), *(g for g in guests if g is not None)]

    def is_visible(self, group: VisibleGroup) -> bool:
        """Whether `group` is one of `visible_groups`."""
        name = group.group_name
        return self.groups.get(name) is group or self._guests.get(name) is group

    @property
    def whole(self) -> VisibleGroup | None:
        """The group of all ranks: `default`, or else torch's."""
        return next((group for group in self.visible_groups() if group.is_world), None)

    @property
    def known_roster(self) -> Roster | None:
        """The processes of `whole`; None where they have not met."""
        return self._roster if self.default is not None else self._guests_roster

    def _tell_end(self, group: VisibleGroup) -> None:
        text = f"left group {group.group_name!r}"
        say(LogLevel.INFO, "groups", self.fault_point.rank, text)
        if self is _process_world:
            for call in _ends:
                call(group)

    def destroy_at_end(self) -> None:
        """For a program that never called `destroy_process_group`."""
        with self._ending:
            error = getattr(sys, "last_value", None)  # an exception that nobody caught
            if error is None:
                self.destroy()
                return
            reason, cause = headline(error), told(error)
            for group in self.groups.values():
                group.communicator.note_failure(reason, cause)
            with suppress(DistError):  # that the program failed has been said
                self.destroy(GOODBYE_OF_THE_FAILED)


def _shut_down(group: ProcessGroup, end: float) -> None:
    if type(group).shutdown is not ProcessGroup.shutdown:
        group.shutdown()  # a user's own, without arguments as in torch
    else:
        group.shutdown(timedelta(seconds=max(0.0, end - time.monotonic())))


class Scope:
    """What code that runs now sees: a world, and its coalescing blocks by their group.

    Never changes.
    """

    __slots__ = ("blocks", "world")

    def __init__(
        self, world: World, blocks: Mapping[ProcessGroup, Communicator] | None = None
    ) -> None:
        self.world = world
        self.blocks = blocks


_process_world = World()
_beginnings: list[Callable[[], object]] = []
_meetings: list[Callable[[Roster, int], object]] = []
_ends: list[Callable[[VisibleGroup], object]] = []
_everywhere = Scope(_process_world)
scope: ContextVar[Scope] = ContextVar("allhands", default=_everywhere)
"""Of this thread, or asyncio task."""


def _forget_after_fork() -> None:
    """A forked child is no rank: it must not touch what its parent shares."""
    world = current()
    atexit.unregister(world.destroy_at_end)
    world.fault_point.forget()
    world._has_no_guests()
    world._reset()


os.register_at_fork(after_in_child=_forget_after_fork)


def current() -> World:
    """The World of the calling thread."""
    return scope.get().world


def when_this_is_a_rank(call: Callable[[], object]) -> None:
    """Have `call` called each time this process begins to be a rank."""
    _beginnings.append(call)


def when_the_ranks_have_met(call: Callable[[Roster, int], object]) -> None:
    """Have `call` called with each roster of this process's world, and its rank."""
    _meetings.append(call)


def when_a_group_has_ended(call: Callable[[VisibleGroup], object]) -> None:
    """Have `call` called with each group of this process's world, once it is shut down.

    The world's comes last.
    """
    _ends.append(call)


def is_process_wide(world: World) -> bool:
    """Whether `world` is the one that threads have without `use`."""
    return world is _process_world


@contextmanager
def use(world: World) -> Iterator[World]:
    """Make `world` the current one for this thread, within a `with` block."""
    token = scope.set(Scope(world))
    try:
        yield world
    finally:
        scope.reset(token)


@contextmanager
def coalescing(group: ProcessGroup, works: list[Work]) -> Iterator[None]:
    """Start every operation of this thread on `group`, within a `with` block.

    Their handles are added to `works`.
    """
    here = scope.get()
    block = CoalescingCommunicator(group.communicator, works)
    token = scope.set(Scope(here.world, {**(here.blocks or {}), group: block}))
    try:
        yield
    finally:
        scope.reset(token)


def default_group() -> ProcessGroup:
    """The group of all ranks.

    Raises:
        ValueError: there is none yet.
    """
    group = current().default
    if group is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    return group
