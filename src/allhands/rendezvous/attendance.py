"""Attendance: which ranks came to a meeting, gave up or died, according to the store.

There is one key per rank: `identity/<rank>` holds the rank's introduction after it has
come, and is empty after it gave up. So one survey of these keys shows which ranks are
missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from allhands.rendezvous import presence
from allhands.rendezvous.identity import Introduction, is_alive
from allhands.rendezvous.ranges import in_ranges
from allhands.store import PrefixStore, Store
from allhands.store.endings import Endings
from allhands.store.found import Found

__all__ = ["Attendance"]

_IDENTITY, _READ, _NUM_TOLD = "identity/", "read/", "num_told"


class Attendance:
    """The `size` ranks of one world, as one rank sees them.

    Args:
        store: the store that the ranks share for this and other worlds.
        world: the number of this world.
        size: the number of ranks.
        found: the store in which the ranks found each other, if this is known.
    """

    def __init__(self, store: Store, world: int, size: int, found: Store | None):
        self.store = PrefixStore(str(world), store)
        """The part for this world alone."""
        self._next_world = PrefixStore(str(world + 1), store)
        self._size = size
        self._found = found
        self._known: dict[int, Introduction] = {}
        self._seen: frozenset[int] = frozenset()
        """The ranks that were present when last looked at."""
        self._is_telling = False

    def come(self, rank: int, introduction: Introduction) -> None:
        """Note that `rank` has come."""
        self.store.set(f"{_IDENTITY}{rank}", introduction.to_bytes())

    def give_up(self, rank: int) -> None:
        """Note that `rank` has left."""
        self.store.set(f"{_IDENTITY}{rank}", b"")
        self.retract(f"{_READ}{rank}")

    def have_read(self, rank: int) -> None:
        """Note that `rank` has read all that it needs."""
        self.store.set(f"{_READ}{rank}", b"")

    def keys_of_absent(self) -> list[str]:
        """Return keys that exist when each rank has come, even if one gave up since.

        The keys of ranks that were present when last looked at are left out.
        """
        return self._keys_of(r for r in range(self._size) if r not in self._seen)

    @staticmethod
    def keys_of_readers(ranks: Iterable[int]) -> list[str]:
        """Return keys that exist when `ranks` have read all that they need."""
        return [f"{_READ}{rank}" for rank in ranks]

    def key_of_rank_0(self) -> str:
        """Return the key that exists when rank 0 has come."""
        return f"{_IDENTITY}0"

    def introductions(self) -> list[Introduction] | None:
        """Return all introductions after all came; None if a rank gave up since."""
        said = self.store.multi_get(self._keys_of(range(self._size)))
        if not all(said):
            return None
        return [Introduction.read(rank, text) for rank, text in enumerate(said)]

    def present(self) -> list[int]:
        """Return the ranks that are present."""
        present = _ranks_with(Found.SOME_VALUE, self._survey())
        self._seen = frozenset(present)
        return present

    def who_died(self) -> dict[int, int]:
        """Return the pids of ranks that ended before they read all, without giving up.

        Only rank 0 asks; it is not included.
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
        """Return the pid of `rank` if it ended early and did not give up; else None."""
        pid = presence.died(self._found, rank) if self._found else None
        if pid is None:
            said = self._introduction(rank)
            has_ended = said is not None and not is_alive(said.identity)
            # It may have given up properly meanwhile.
            if said is not None and has_ended and self._introduction(rank) == said:
                pid = said.identity.pid
        return None if self.store.check([f"{_READ}{rank}"]) else pid

    def who_ended_well(self, endings: Endings) -> list[int]:
        """Return the ranks that ended well before they came.

        Args:
            endings: what the launcher notes of the ranks of this world.
        """
        ended = endings.ranks()
        found = self._survey() if ended else b""
        return [rank for rank in ended if found[rank] != Found.SOME_VALUE]

    def take_out(self, rank: int) -> None:
        """Remove the traces of `rank`, which died."""
        self.retract(f"{_IDENTITY}{rank}")
        self._known.pop(rank, None)
        if self._found:
            with suppress(NotImplementedError):  # a user's store without last wills
                presence.forget(self._found, rank)

    def is_first_to_tell(self) -> bool:
        """Return whether this rank is the one that reports long waits."""
        self._is_telling = self.store.add(_NUM_TOLD, 1) == 1
        return self._is_telling

    def let_others_tell(self) -> None:
        """Let another rank report long waits from now on."""
        if self._is_telling:
            self.store.set(_NUM_TOLD, b"0")

    def retract(self, key: str) -> None:
        """Delete a key of the world; leave it empty in a store that cannot delete."""
        try:
            self.store.delete_key(key)
        except NotImplementedError:
            self.store.set(key, b"")

    def who_is_missing(self) -> str:
        """Return a text on the ranks that did not come; empty if all came at last."""
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
        # A second process of a rank counts itself for the next world.
        again = [r for r, what in enumerate(self._survey_next()) if what]
        if again:
            text += f"; several processes say that they are rank {again[0]}"
        return text

    def lagging(self) -> list[int]:
        """Return the ranks other than 0 that have not read all that they need."""
        found = self.store._survey(_READ, self._size)
        return [rank for rank in _ranks_with(Found.NOTHING, found) if rank != 0]

    def who_lags(self) -> str:
        """Return a text on the ranks that stopped reading; empty if none did."""
        lagging = self.lagging()
        if not lagging:
            return ""
        return (
            f"{len(lagging)} of {self._size} ranks, which came and stopped: "
            f"{in_ranges(lagging)}"
        )

    @staticmethod
    def _keys_of(ranks: Iterable[int]) -> list[str]:
        return [f"{_IDENTITY}{rank}" for rank in ranks]

    def _survey(self) -> bytes:
        return self.store._survey(_IDENTITY, self._size)

    def _survey_next(self) -> bytes:
        return self._next_world._survey(_IDENTITY, self._size)

    def _know(self, ranks: Sequence[int]) -> None:
        """Remember the introductions of these ranks, whose keys exist."""
        said = self.store.multi_get(self._keys_of(ranks))
        for rank, text in zip(ranks, said, strict=True):
            if text:
                self._known[rank] = Introduction.read(rank, text)

    def _introduction(self, rank: int) -> Introduction | None:
        """Return the current introduction of `rank`."""
        text = self.store._look(f"{_IDENTITY}{rank}")
        if not text:
            self._known.pop(rank, None)
            return None
        self._known[rank] = Introduction.read(rank, text)
        return self._known[rank]


def _ranks_with(what: Found, found: bytes) -> list[int]:
    return [rank for rank, each in enumerate(found) if each == what]
