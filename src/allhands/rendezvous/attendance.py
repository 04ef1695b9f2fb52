"""Who has come to a meeting, gave up or died, as the store tells it.

One key a rank says it all: `identity/<rank>` has the rank's introduction once it has
come, and is empty after it gave up. So one survey of these keys tells who is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from allhands.rendezvous import presence
from allhands.rendezvous.identity import Introduction, is_alive
from allhands.rendezvous.ranges import in_ranges
from allhands.store import PrefixStore, Store
from allhands.store.found import Found

__all__ = ["Attendance"]

_IDENTITY, _READ, _NUM_TOLD = "identity/", "read/", "num_told"


class Attendance:
    """The ranks of one world, of `size`, as one rank sees them.

    Args:
        store: what the ranks share for this and other worlds.
        world: the number of this one.
        size: how many ranks there are.
        found: the store in which they found each other, if that is known.
    """

    def __init__(self, store: Store, world: int, size: int, found: Store | None):
        self.store = PrefixStore(str(world), store)
        """What belongs to this world alone."""
        self._next_world = PrefixStore(str(world + 1), store)
        self._size = size
        self._found = found
        self._known: dict[int, Introduction] = {}
        self._is_telling = False

    def come(self, rank: int, introduction: Introduction) -> None:
        """Say that `rank` is there."""
        self.store.set(f"{_IDENTITY}{rank}", introduction.to_bytes())

    def give_up(self, rank: int) -> None:
        """Say that `rank` is there no more."""
        self.store.set(f"{_IDENTITY}{rank}", b"")
        self.retract(f"{_READ}{rank}")

    def have_read(self, rank: int) -> None:
        """Say that `rank` has read all that it needs."""
        self.store.set(f"{_READ}{rank}", b"")

    def keys_of_all(self) -> list[str]:
        """What is there once each rank has come, even if one gave up since."""
        return [f"{_IDENTITY}{rank}" for rank in range(self._size)]

    @staticmethod
    def keys_of_readers(ranks: Iterable[int]) -> list[str]:
        """What is there once `ranks` have read all that they need."""
        return [f"{_READ}{rank}" for rank in ranks]

    def key_of_rank_0(self) -> str:
        """What is there once rank 0 has come."""
        return f"{_IDENTITY}0"

    def introductions(self) -> list[Introduction] | None:
        """What all have said, once they have come; None where one gave up since."""
        said = self.store.multi_get(self.keys_of_all())
        if not all(said):
            return None
        return [Introduction.read(rank, text) for rank, text in enumerate(said)]

    def present(self) -> list[int]:
        """The ranks that are there."""
        return _ranks_with(Found.SOME_VALUE, self._survey())

    def who_died(self) -> dict[int, int]:
        """The pids of ranks that ended before they had read all, without giving up.

        What rank 0 asks; it is not among them.
        """
        present = self.present()
        self._know([rank for rank in present if rank not in self._known])
        suspects = {
            rank
            for rank in present
            if rank in self._known and not is_alive(self._known[rank].identity)
        }
        if self._found:
            suspects.update(presence.who_died(self._found, self._size))
        suspects.discard(0)
        if not suspects:
            return {}
        read = self.store._survey(_READ, self._size)
        suspects.difference_update(r for r in range(self._size) if read[r])
        pids = {rank: self.dead_process(rank) for rank in sorted(suspects)}
        return {rank: pid for rank, pid in pids.items() if pid is not None}

    def dead_process(self, rank: int) -> int | None:
        """The pid of `rank` if it ended before it had read all, without giving up."""
        pid = presence.died(self._found, rank) if self._found else None
        if pid is None:
            said = self._introduction(rank)
            has_ended = said is not None and not is_alive(said.identity)
            # It may have given up in order meanwhile.
            if said is not None and has_ended and self._introduction(rank) == said:
                pid = said.identity.pid
        return None if self.store.check([f"{_READ}{rank}"]) else pid

    def take_out(self, rank: int) -> None:
        """Have it that `rank`, which died, has never come."""
        self.retract(f"{_IDENTITY}{rank}")
        self._known.pop(rank, None)
        if self._found:
            with suppress(NotImplementedError):  # a user's store, without last wills
                presence.forget(self._found, rank)

    def is_first_to_tell(self) -> bool:
        """Whether this rank is the one that says whom all wait for."""
        self._is_telling = self.store.add(_NUM_TOLD, 1) == 1
        return self._is_telling

    def let_others_tell(self) -> None:
        """From now on another rank may be that."""
        if self._is_telling:
            self.store.set(_NUM_TOLD, b"0")

    def retract(self, key: str) -> None:
        """Delete a key of the world; in a store that cannot, leave it empty."""
        try:
            self.store.delete_key(key)
        except NotImplementedError:
            self.store.set(key, b"")

    def who_is_missing(self) -> str:
        """The ranks that did not come; nothing if all did in the last moment."""
        found = self._survey()
        missing = _ranks_with(Found.NOTHING, found)
        gave_up = _ranks_with(Found.EMPTY_VALUE, found)
        if not missing and not gave_up:
            return ""
        text = (
            f"{len(missing)} of {self._size} ranks, which did not come: "
            f"{in_ranges(missing)}"
        )
        if gave_up:
            text += f"; of the others, {in_ranges(gave_up)} gave up waiting earlier"
        # A second process of a rank takes itself for one that comes to the next world.
        again = [r for r, what in enumerate(self._survey_next()) if what]
        if again:
            text += f"; several processes say that they are rank {again[0]}"
        return text

    def who_lags(self) -> str:
        """The ranks that did not read on; nothing if all did in the last moment."""
        found = self.store._survey(_READ, self._size)
        lagging = [r for r in _ranks_with(Found.NOTHING, found) if r != 0]
        if not lagging:
            return ""
        return (
            f"{len(lagging)} of {self._size} ranks, which came and stopped: "
            f"{in_ranges(lagging)}"
        )

    def _survey(self) -> bytes:
        return self.store._survey(_IDENTITY, self._size)

    def _survey_next(self) -> bytes:
        return self._next_world._survey(_IDENTITY, self._size)

    def _know(self, ranks: Sequence[int]) -> None:
        """Remember who these ranks are; their keys exist."""
        said = self.store.multi_get([f"{_IDENTITY}{rank}" for rank in ranks])
        for rank, text in zip(ranks, said, strict=True):
            if text:
                self._known[rank] = Introduction.read(rank, text)

    def _introduction(self, rank: int) -> Introduction | None:
        """What `rank` says of itself now."""
        text = self.store._look(f"{_IDENTITY}{rank}")
        if not text:
            self._known.pop(rank, None)
            return None
        self._known[rank] = Introduction.read(rank, text)
        return self._known[rank]


def _ranks_with(what: Found, found: bytes) -> list[int]:
    return [rank for rank, each in enumerate(found) if each == what]
