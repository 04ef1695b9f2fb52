"""A rank's waits while the world meets: in slices, told of when long, never endless."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from allhands import settings
from allhands.errors import DistNetworkError, DistStoreError, RankFailedError
from allhands.rendezvous.log import LogLevel, say

__all__ = ["Waiting"]

T = TypeVar("T")


class Waiting:
    """The waits of one rank, which has `limit` seconds, until `deadline`, for all.

    Args:
        subject: how texts name the operation and the rank.
        rank: of the world.
        limit: in seconds.
        deadline: by `time.monotonic()`.
        slice_s: seconds of waiting until the rank looks around.
        is_first_to_tell: whether this rank is to say whom all wait for.
    """

    def __init__(
        self,
        subject: str,
        rank: int,
        limit: float,
        deadline: float,
        slice_s: float,
        is_first_to_tell: Callable[[], bool],
    ) -> None:
        self._subject = subject
        self._rank = rank
        self._limit = limit
        self._deadline = deadline
        self._slice = slice_s
        self._is_first_to_tell = is_first_to_tell

    def until(
        self,
        act: Callable[[timedelta], T | None],
        look_around: Callable[[], None],
        missing: Callable[[], str],
    ) -> T:
        """What `act` gives, called until that is not None.

        Args:
            act: waits for as long as it is told; a RuntimeError says that this passed.
            look_around: called after each slice; may raise.
            missing: what for; nothing, if that has come in the last moment.

        Raises:
            DistStoreError: the deadline passed first.
            RuntimeError: another error of the store, or of `act`.
        """
        start = time.monotonic()
        patience = settings.patience.get()
        is_told = not 0 < patience < self._deadline - start
        try:
            while True:
                found = self._try(act)
                if found is not None:
                    return found
                look_around()
                if not is_told and time.monotonic() - start >= patience:
                    is_told = True
                    self._tell(patience, missing)
        except (DistNetworkError, RankFailedError):
            raise
        except RuntimeError as error:  # of a user's own store, too
            what = missing() if time.monotonic() >= self._deadline else ""
            if not what:
                raise
            raise DistStoreError(
                f"{self._subject} timed out: waited {self._limit:g} s (its timeout) "
                f"for {what}"
            ) from error

    def pause(self, limit: timedelta) -> None:
        """Let a slice pass: what is awaited cannot be waited for in the store.

        Raises:
            DistStoreError: the deadline has passed.
        """
        time.sleep(limit.total_seconds())
        if time.monotonic() >= self._deadline:
            raise DistStoreError(f"{self._subject} has waited {self._limit:g} s")

    def _try(self, act: Callable[[timedelta], T | None]) -> T | None:
        """What `act` gives until it is time to look around.

        Raises:
            RuntimeError: the store's, where the deadline has passed, too.
        """
        start = time.monotonic()
        limit = min(self._slice, max(self._deadline - start, 0.001))
        try:
            return act(timedelta(seconds=limit))
        except DistNetworkError:
            raise
        except RuntimeError:
            now = time.monotonic()
            has_waited = now - start > limit / 2  # another error comes at once
            if now < self._deadline and has_waited:
                return None
            raise

    def _tell(self, waited: float, missing: Callable[[], str]) -> None:
        what = missing() if self._is_first_to_tell() else ""
        if what:
            text = f"has waited {waited:g} s (limit {self._limit:g} s) for {what}"
            say(LogLevel.WARNING, "waiting", self._rank, f"{self._subject} {text}")
