"""GroupNumbers: numbers that all ranks give to their groups without communication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

__all__ = ["GroupNumbers"]


class GroupNumbers:
    """Counts the groups that ranks make together. Not thread-safe."""

    def __init__(self) -> None:
        self._num_named = 1  # "0" is the world
        self._num_alike: Counter[tuple[int, ...]] = Counter()
        self._refused: tuple[object, str, int] | None = None

    def next_name(self) -> str:
        """Return the next of the names "1", "2", ..., which all ranks count alike."""
        self._num_named += 1
        return str(self._num_named - 1)

    def take_back_name(self) -> None:
        """Undo the last `next_name`, which was for a group that not all ranks count."""
        self._num_named -= 1

    def count_alike(self, ranks: Iterable[int]) -> int:
        """Return how many groups of these ranks were made before the one being made.

        All members make their groups of the same ranks in the same order, whatever
        other groups they make in between. So this number distinguishes such groups
        without communication.
        """
        key = tuple(ranks)
        self._num_alike[key] += 1
        return self._num_alike[key] - 1

    def take_back_alike(self, ranks: Iterable[int]) -> None:
        """Undo the last `count_alike` of these ranks, whose group was not made."""
        self._num_alike[tuple(ranks)] -= 1

    def note_refused(self, call: object, name: str, num_alike: int) -> None:
        """Keep the numbers of the last call, whose group this rank did not make."""
        self._refused = call, name, num_alike

    def take_refused(self, call: object) -> tuple[str, int] | None:
        """Return the numbers of the call before, if it was the same and was refused.

        Other ranks may have made that group, and this rank now makes it, too. Any other
        call gets numbers of its own: all ranks may have refused the one before.
        """
        refused, self._refused = self._refused, None
        return refused[1:] if refused is not None and refused[0] == call else None

    def num_alike(self, ranks: Iterable[int]) -> int:
        """Return the number of groups of these ranks."""
        return self._num_alike[tuple(ranks)]

    @property
    def num_groups(self) -> int:
        """The number of groups made so far, also those that this rank is not in."""
        return self._num_alike.total()
