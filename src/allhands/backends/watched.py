"""WatchedCommunicator: a polled group that looks whether its members are alive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.gathering import await_members, keys_of, store_of
from allhands.backends.polled import PolledCommunicator, refuse_options
from allhands.backends.polled_work import Subject
from allhands.backends.threaded_request import ThreadedRequest
from allhands.errors import DistBackendError, DistError, RankFailedError
from allhands.rendezvous.identity import is_alive
from allhands.store import Store

__all__ = ["WatchedCommunicator", "meet", "met", "not_built_in"]

_LOOK = 0.25
"""Seconds between two checks for members that died while the library connects them."""


def met(
    name: str, library: str, options: CommunicatorOptions, pg_options: Any, problem: str
) -> Store:
    """Return the store of a new group, for `library`, once every member has come.

    Raises:
        TypeError: `pg_options` is given.
        RuntimeError: there is a `problem`: why the library is missing.
        RankFailedError: a member died before it came.
        CollectiveMismatchError: a member refused to make the group.
        DistStoreError: a member did not come in time.
    """
    refuse_options(name, pg_options)
    if problem:
        raise not_built_in(name, library, problem)
    store = store_of(library, options)
    meet("here", store, options, name)
    return store


def not_built_in(name: str, library: str, problem: str) -> RuntimeError:
    """Return the error for a backend whose library is missing, in torch's words."""
    return RuntimeError(
        f"Distributed package doesn't have {library.upper()} built in: backend "
        f"{name!r}: {problem}"
    )


def meet(where: str, store: Store, options: CommunicatorOptions, name: str) -> None:
    """Return when every member has reached this point.

    Raises:
        RankFailedError: a member died before it came.
        DistStoreError: a member did not come in time.
    """
    keys = keys_of(options, where)
    store.set(keys[options.group_rank], b"")
    await_members(store, keys, options, name)


class WatchedCommunicator(PolledCommunicator):
    """One rank's end of a group whose library does not say which rank died."""

    def __init__(self, store: Store, options: CommunicatorOptions) -> None:
        super().__init__(store, options)
        identities = options.roster().identities
        self._members = [identities[rank] for rank in options.global_ranks_in_group]

    def pause(self, requests: list[Any], pauses: Iterator[None]) -> None:
        """See `PolledGroup.pause`: the end of a request wakes the waiting thread."""
        for request in requests:
            request.block()

    def look(self, subject: Subject) -> DistBackendError | None:
        """See `PolledGroup.look`."""
        # first: a rank that said why it left has died since
        told = super().look(subject)
        dead = self._dead() if told is None else []
        is_needed = bool(subject.sequence) or subject.peer in dead
        return self._died(subject, dead) if dead and is_needed else told

    def _await_thread(
        self,
        request: ThreadedRequest,
        subject: Subject,
        limit: float,
        late: Callable[[], DistError],
    ) -> None:
        """Wait while a thread lets the library connect members.

        Raises:
            RankFailedError: a member died meanwhile.
            DistError: what `late` returns, when the limit in seconds is over.
            Exception: what the library has raised.
        """
        start = time.monotonic()
        look_at = start + _LOOK
        while not request.Test():
            request.block()
            now = time.monotonic()
            if now >= look_at:
                look_at = now + _LOOK
                dead = self._dead()
                if dead:
                    raise self._died(subject, dead)
            if now - start >= limit:
                raise late()

    def _died(self, subject: Subject, dead: list[int]) -> RankFailedError:
        pids = ", ".join(
            f"rank {rank} (pid {self._members[rank].pid})" for rank in dead
        )
        error = RankFailedError(
            f"{subject}: {self.title} needs {pids}, which died without leaving"
        )
        error.ranks = dead
        return error

    def _dead(self) -> list[int]:
        """Return the members whose process has ended, as far as this host knows."""
        return [rank for rank, m in enumerate(self._members) if not is_alive(m)]
