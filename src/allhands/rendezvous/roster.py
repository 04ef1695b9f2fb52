"""Who the ranks of a world are: the one exchange over the store that a world needs.

Each rank publishes the process it is (host, pid, start time), rank 0 also a random
token of the job; then everyone knows which ranks share a host and can prove to be of
this job.
Groups made later need no store: their tokens are derived from the job's.

Rank 0 waits for all ranks and publishes the outcome, which the others wait for: that
all have come, or why it gave up, as where one of them has died. It often hosts the
store, so it leaves last, after the others have read all that they need.

A store may serve several worlds one after the other. `join/<rank>` counts the worlds a
rank has entered, and the count, the same on every rank, prefixes all other keys. A rank
whose exchange fails takes its count back, so that the ranks can try again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from allhands import settings
from allhands._C import is_process_alive, process_identity
from allhands.errors import DistNetworkError, DistStoreError, RankFailedError
from allhands.rendezvous import presence
from allhands.store import Store
from allhands.store.compare_set import look
from allhands.store.limits import poll

__all__ = ["HostLeft", "Identity", "Roster", "exchange"]


Identity: TypeAlias = tuple[str, int, int]
"""Host, pid and start time of a process: who it is among all hosts."""

_SLICE = 0.3  # seconds of waiting until a rank looks around
# Who does not answer within so many seconds is stopped or dying.
_ANSWER = 2.0


class Roster(NamedTuple):
    """The world as every rank sees it: identities by global rank, the job's token."""

    identities: list[Identity]
    token: bytes

    def token_for(self, *parts: object) -> bytes:
        """A token that only members of this job can make, for what `parts` name."""
        import hashlib  # some milliseconds that a mere import need not take

        key = hashlib.blake2b(key=self.token, digest_size=32)
        key.update(json.dumps(parts).encode())
        return key.digest()


class HostLeft(DistNetworkError):
    """The store was lost before rank 0 had come.

    Where rank 0 hosts it, this may have been the store of the world before, which was
    on its way out: to look for the next one is worth a try.
    """


def exchange(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
    operation: str,
    start: float | None = None,
    found: Store | None = None,
) -> Roster:
    """Publish this rank's identity and read everyone's; returns once all have come.

    Rank 0 returns last, since it often hosts the store that the others still read.
    `operation` is what errors name. `timeout` runs since `start`, a time of
    `time.monotonic()`; by default since now. `found` is the store in which the ranks
    found each other, where it may know of some that died before they came here.

    Raises:
        DistStoreError: some ranks did not come within `timeout`, of this rank or of
            rank 0; names them.
        RankFailedError: on rank 0 one came and died before all had come, on the others
            rank 0 did.
        DistNetworkError: the store was lost meanwhile; `HostLeft` where rank 0 had not
            come yet.
        ValueError: the ranks do not agree about `size`.
    """
    start = time.monotonic() if start is None else start
    meeting = _Meeting(store, rank, size, timeout, operation, start, found)
    try:
        return meeting.hold()
    except BaseException as error:
        meeting.give_up(error)
        if isinstance(error, DistNetworkError):
            raise meeting.lost(error) from error
        raise


class _Meeting:
    """One attempt of this rank to enter a world."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        operation: str,
        start: float,
        found: Store | None,
    ) -> None:
        self._store = store
        self._found = found
        self._world = 0  # not known yet
        self._rank, self._size = rank, size
        self._limit = timeout.total_seconds()
        self._deadline = start + self._limit
        self._subject = f"{operation}: rank {rank} (this process)"
        self._is_open = rank == 0
        """Whether rank 0 has come."""
        self._is_called_off = False
        """Whether rank 0 has said that it gives up."""

    def hold(self) -> Roster:
        """See `exchange`."""
        store = self._store
        self._world = store.add(f"join/{self._rank}", 1)
        if self._rank == 0:
            store.set(self._key("token"), os.urandom(16).hex())
        mine = [self._size, *process_identity()]
        store.set(self._process(self._rank), json.dumps(mine[1:]))
        store.set(self._identity(self._rank), json.dumps(mine))
        keys = [self._identity(peer) for peer in range(self._size)]
        if self._rank == 0:
            self._wait(keys, self._who_is_missing)
        else:
            self._wait_for_outcome()
        said = [json.loads(text) for text in store.multi_get(keys)]
        if self._rank == 0:
            self._check_sizes([size for size, *_ in said])
            store.set(self._key("outcome"), "")
        token = bytes.fromhex(store.get(self._key("token")).decode())
        self._forget_the_world_before()
        store.set(self._read(self._rank), "")
        if self._rank == 0:
            self._wait([*map(self._read, range(self._size))], self._who_lags)
        return Roster([tuple(identity) for _, *identity in said], token)

    def _key(self, name: str) -> str:
        return f"{self._world}/{name}"

    def _identity(self, rank: int) -> str:
        return self._key(f"identity/{rank}")

    def _process(self, rank: int) -> str:
        """Of a rank that has come some time: unlike its identity it stays."""
        return self._key(f"process/{rank}")

    def _read(self, rank: int) -> str:
        return self._key(f"read/{rank}")

    def _gave_up(self, rank: int) -> str:
        return self._key(f"gave_up/{rank}")

    def _wait_for_outcome(self) -> None:
        """Wait for what rank 0 says of this meeting.

        Raises:
            DistStoreError, ValueError: what rank 0 gave up for.
        """
        host = None
        while host is None:  # it may have given up since, and come again
            self._wait([self._identity(0)], self._who_is_missing)
            host = self._read_now(self._identity(0))
        self._is_open = True
        size, *_ = json.loads(host)
        if size > self._size:  # it waits for ranks that there are not
            raise self._other_size(0, size)
        self._wait([self._key("outcome")], self._who_is_missing)
        problem = self._read_now(self._key("outcome"))
        if size != self._size:
            raise self._other_size(0, size)
        if problem is None:  # it did not wait until this rank had read it
            problem = b"gave up"
        self._is_called_off = bool(problem)
        if problem:
            reason = problem.decode()
            raise DistStoreError(f"{self._subject} heard from rank 0: it {reason}")

    def _read_now(self, key: str) -> bytes | None:
        """The value of a key that was there; None if it has vanished since."""
        try:
            return look(self._store, key)
        except NotImplementedError:  # a user's store need not be able to
            return self._store.get(key)

    def lost(self, error: DistNetworkError) -> DistNetworkError:
        """The error of this rank where the store is lost."""
        kind = DistNetworkError if self._is_open else HostLeft
        return kind(
            f"{self._subject} lost the store before all ranks had come: {error}"
        )

    def give_up(self, error: BaseException) -> None:
        """Leave the meeting, because of `error`, as if this rank had not come.

        Where rank 0 has called it off, it has left before this returns.
        """
        if not self._world:
            return
        store = self._store
        with suppress(Exception):  # the store itself may be what failed
            if self._rank == 0:
                self._call_off(error)
            store.set(self._gave_up(self._rank), "")
            store.delete_key(self._identity(self._rank))
            if self._rank == 0:
                self._take_out_the_dead()
                store.delete_key(self._key("outcome"))
            store.add(f"join/{self._rank}", -1)
            if self._is_called_off:
                self._let_rank_0_leave()

    def _let_rank_0_leave(self) -> None:
        """Else this rank could come again while its answer is still awaited."""
        for _ in poll(timedelta(seconds=_ANSWER + 1)):
            if look(self._store, self._key("outcome")) is None:
                return

    def _take_out_the_dead(self) -> None:
        """Leave the meeting for ranks that could not, so that others may replace them.

        The others have heard of them, and only rank 0 looks for their traces.
        """
        store = self._store
        for peer in range(1, self._size):
            if self._dead_process(peer) is None:
                continue
            store.delete_key(self._identity(peer))
            if store.add(f"join/{peer}", 0) == self._world:  # it had come so far
                store.add(f"join/{peer}", -1)
            if self._found:
                presence.forget(self._found, peer)

    def _call_off(self, error: BaseException) -> None:
        """Tell the ranks that have come; returns once they have heard it.

        The store may go with this rank; then they could not even say who is missing.
        """
        text = str(error)
        is_ours = text.startswith(self._subject)
        reason = text.removeprefix(self._subject) if is_ours else f"raised {error!r}"
        answers = [
            self._gave_up(peer)
            for peer in range(1, self._size)
            if self._store.check([self._identity(peer)])
            and self._dead_process(peer) is None
        ]
        with suppress(NotImplementedError):
            for key in answers:  # of who has come a second time
                self._store.delete_key(key)
        self._store.set(self._key("outcome"), reason.strip())
        patience = _ANSWER if isinstance(error, Exception) else 0.2  # Ctrl-C acts soon
        with suppress(RuntimeError):
            self._store.wait(answers, timedelta(seconds=patience))

    def _wait(self, keys: list[str], missing: Callable[[], str]) -> None:
        """Wait for `keys`; where the time passes first, `missing` says what for."""
        start = time.monotonic()
        patience = settings.patience.get()
        is_told = not 0 < patience < self._deadline - start
        try:
            while not self._have_come(keys):
                self._raise_if_one_died()
                if not is_told and time.monotonic() - start >= patience:
                    is_told = True
                    self._tell_if_first(patience, missing())
        except (DistNetworkError, RankFailedError):
            raise
        except RuntimeError as error:  # of a user's own store, too
            what = missing()
            if not what:
                raise
            raise DistStoreError(
                f"{self._subject} timed out: waited {self._limit:g} s (its timeout) "
                f"for {what}"
            ) from error

    def _have_come(self, keys: list[str]) -> bool:
        """Wait for `keys` until it is time to look around.

        Raises:
            RuntimeError: the store's, where the deadline has passed, too.
        """
        start = time.monotonic()
        limit = min(_SLICE, max(self._deadline - start, 0.001))
        try:
            self._store.wait(keys, timedelta(seconds=limit))
        except DistNetworkError:
            raise
        except RuntimeError:
            now = time.monotonic()
            has_waited = now - start > limit / 2  # another error comes at once
            if now < self._deadline and has_waited:
                return False
            raise
        return True

    def _tell_if_first(self, waited: float, missing: str) -> None:
        lower = range(self._rank)
        is_first = not any(self._store.check([self._identity(p)]) for p in lower)
        if missing and is_first:
            text = f"has waited {waited:g} s (limit {self._limit:g} s) for {missing}"
            sys.stderr.write(f"allhands: {self._subject} {text}\n")

    def _raise_if_one_died(self) -> None:
        """Rank 0 looks at all that have come, the others at rank 0.

        Raises:
            RankFailedError: one of them has ended.
        """
        for peer in range(1, self._size) if self._rank == 0 else [0]:
            pid = self._dead_process(peer)
            if pid is not None:
                error = RankFailedError(
                    f"{self._subject} needs rank {peer} (pid {pid}), which came and "
                    "died"
                )
                error.ranks = [peer]
                raise error

    def _dead_process(self, peer: int) -> int | None:
        """The pid of a rank that ended before it had read all, without giving up."""
        store = self._store
        pid = presence.died(self._found, peer) if self._found else None
        if pid is None and store.check([self._identity(peer)]):
            host, number, start = json.loads(store.get(self._process(peer)))
            is_alive = is_process_alive(host, number, start)
            # It may have given up in order meanwhile.
            if not is_alive and store.check([self._identity(peer)]):
                pid = int(number)
        return None if store.check([self._read(peer)]) else pid

    def _who_is_missing(self) -> str:
        """The ranks that did not come; nothing if all did in the last moment."""
        store = self._store
        peers = range(self._size)
        absent = [p for p in peers if not store.check([self._identity(p)])]
        came = [p for p in absent if store.check([self._gave_up(p)])]
        if not absent:
            return ""
        missing = [p for p in absent if p not in came]
        text = f"{len(missing)} of {self._size} ranks, which did not come: {missing}"
        if came:
            text += f"; of the others, {came} gave up waiting earlier"
        again = [p for p in peers if store.add(f"join/{p}", 0) > self._world]
        if again:
            text += f"; several processes say that they are rank {again[0]}"
        return text

    def _who_lags(self) -> str:
        """The ranks that did not read on; nothing if all did in the last moment."""
        peers = range(self._size)
        lagging = [p for p in peers if not self._store.check([self._read(p)])]
        if not lagging:
            return ""
        return (
            f"{len(lagging)} of {self._size} ranks, which came and stopped: {lagging}"
        )

    def _check_sizes(self, sizes: list[int]) -> None:
        for peer, size in enumerate(sizes):
            if size != self._size:
                raise self._other_size(peer, size)

    def _other_size(self, peer: int, size: int) -> ValueError:
        return ValueError(
            f"{self._subject} has world_size {self._size}, rank {peer} has {size}; it "
            "must be the same on every rank"
        )

    def _forget_the_world_before(self) -> None:
        """Delete its keys: every rank has left it, since all have come to this one."""
        world = self._world - 1
        kinds = "identity", "process", "read", "gave_up"
        names = [f"{kind}/{self._rank}" for kind in kinds]
        if self._rank == 0:
            names += ["token", "outcome"]
        with suppress(NotImplementedError):  # a user's store need not be able to
            for name in names if world else ():
                self._store.delete_key(f"{world}/{name}")
