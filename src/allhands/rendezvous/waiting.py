"""Waiting: a rank's waits while the world meets, in slices, reported when long."""

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
    """The waits of one rank, which together have `limit` seconds, until `deadline`.

    Args:
        subject: the name of the operation and the rank, for texts.
        rank: the rank in the world.
        limit: the limit in seconds.
        deadline: a time of `time.monotonic()`.
        slice_s: seconds of waiting before the rank checks the others.
        is_first_to_tell: returns whether this rank reports for whom all wait.
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
        """Call `act` until its result is not None; return the result.

        Args:
            act: waits up to the given time; a RuntimeError says that this passed.
            look_around: called after each slice; may raise.
            missing: returns a text on what is missing; empty if it came at the last
                moment.

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
        except RuntimeError as error:  # also of a user's own store
            what = missing() if time.monotonic() >= self._deadline else ""
            if not what:
                raise
            raise DistStoreError(
                f"{self._subject} timed out: waited {self._limit:g} s (its timeout) "
                f"for {what}"
            ) from error

    def pause(self, limit: timedelta) -> None:
        """Let a slice pass, because the store cannot wait for the awaited event.

        Raises:
            DistStoreError: the deadline has passed.
        """
        time.sleep(limit.total_seconds())
        if time.monotonic() >= self._deadline:
            raise DistStoreError(f"{self._subject} has waited {self._limit:g} s")

    def _try(self, act: Callable[[timedelta], T | None]) -> T | None:
        """Return the result of `act` within one slice.

        Raises:
            RuntimeError: an error of the store, also if the deadline has passed.
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
