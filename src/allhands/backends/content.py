"""Content: the arrays of one collective on one rank, as hashes that others compare.

What must be the same on all ranks has one hash: the result of an `all_reduce`, what is
broadcast. Of what goes from rank to rank both sides have a hash, the sender's taken
before the operation begins. A hash is of the elements in their order, wherever they lie
in memory; 0 stands for what a rank does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from allhands._C import Buffer, CheckedCall
from allhands.arrays import Array, SparseArrayError, as_buffer, library_of
from allhands.backends.call import Call
from allhands.backends.rows import memory_of, pack
from allhands.rendezvous.ranges import in_ranges

__all__ = ["COMPARED", "Content", "Difference", "compare", "hash_of", "odd_ones"]

_ALIKE = ("all_reduce", "all_reduce_coalesced", "broadcast")
_PASSED = (
    *("all_gather", "all_gather_single", "all_gather_coalesced"),
    *("all_gather_single_coalesced", "gather", "gather_single", "scatter"),
    *("all_to_all", "all_to_all_single"),
)
_ONE_SENT = ("all_gather", "gather")
_ONE_RECEIVED = ("scatter",)
COMPARED = frozenset((*_ALIKE, *_PASSED))
"""The operations of which ranks have something in common."""


class Difference(NamedTuple):
    """What ranks have in common and is not the same on all of them."""

    ranks: list[int]
    """The odd ones: those that are outvoted, or all where nobody is."""
    text: str


def hash_of(arrays: Iterable[Array]) -> int:
    """Of the elements of arrays, one after the other."""
    return _hash([part for array in arrays for part in _memory(array)])


class Content:
    """See the module. It is made before the operation begins, and asked once it ended.

    Raises:
        TypeError, ValueError: arguments that no operation can have.
    """

    def __init__(self, call: Call, rank: int, size: int) -> None:
        self._call, self._rank, self._size = call, rank, size
        self._sent: list[int] = []
        self._parts: list[CheckedCall] = []
        if call.op in _PASSED:
            singles = call.singles() or [call]
            self._parts = [CheckedCall(single, rank, size) for single in singles]
            inputs = [part.inputs for part in self._parts]
            self._sent = self._passed(inputs, _ONE_SENT)

    def hashes(self) -> list[int]:
        """One, or what this rank has sent to each and received from each."""
        if self._call.op in _ALIKE:
            return [hash_of(self._call.outputs())]
        outputs = [part.outputs for part in self._parts]
        return self._sent + self._passed(outputs, _ONE_RECEIVED)

    def _passed(self, sides: list[list[Buffer]], one_for: Sequence[str]) -> list[int]:
        """By rank; `sides` has, of each single operation, what is there on this rank.

        In the operations `one_for` it is one array, which goes to or comes from each
        rank or the root, in others one per rank, or nothing.
        """
        name, root = self._parts[0].name, self._parts[0].root
        ranks = range(self._size)
        if name in one_for:
            found = _hash([side[0] for side in sides])
            return [found if name == "all_gather" or r == root else 0 for r in ranks]
        return [_hash([side[r] for side in sides]) if sides[0] else 0 for r in ranks]


def compare(op: str, table: np.ndarray[Any, Any]) -> Difference | None:
    """What differs between ranks; `table` has the hashes of each, as a row."""
    if op in _ALIKE:
        found = table[:, 0].tolist()
        odd = odd_ones(found)
        return Difference(odd, _who_has_what(found, odd)) if odd else None
    size = len(table)
    sent, received = table[:, :size], table[:, size:]
    bad = [np.flatnonzero(sent[i] != received[:, i]).tolist() for i in range(size)]
    first = next((sender for sender in range(size) if bad[sender]), None)
    if first is None:
        return None
    odd_ranks: set[int] = set()
    for sender, receivers in enumerate(bad):
        is_to_all = op.startswith("all_gather")
        if receivers and not (is_to_all and 2 * len(receivers) < size):
            odd_ranks.add(sender)
        if not (is_to_all and 2 * len(receivers) > size):
            odd_ranks.update(receivers)
    at = bad[first][0]
    return Difference(
        sorted(odd_ranks),
        f"rank {first} sent {_shown(sent[first, at])}, {_ranks(bad[first])} received "
        f"something else, rank {at} {_shown(received[at, first])}",
    )


def odd_ones(values: Sequence[Any]) -> list[int]:
    """The ranks whose value is not that of most; all, where no value has most ranks."""
    counts = Counter(values).most_common()
    if len(counts) < 2:
        return []
    if counts[0][1] == counts[1][1]:
        return list(range(len(values)))
    return [rank for rank, value in enumerate(values) if value != counts[0][0]]


def _who_has_what(values: list[int], odd: list[int]) -> str:
    order = dict.fromkeys([*(values[rank] for rank in odd), *values])
    holders = [
        f"{_ranks([r for r, v in enumerate(values) if v == value])} {_shown(value)}"
        for value in order
    ]
    return ", ".join(holders)


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {in_ranges(ranks)}"


def _shown(value: Any) -> str:
    return f"{int(value):016x}"


def _memory(array: Array) -> list[Buffer]:
    try:
        return [as_buffer(array, writable=False)]
    except SparseArrayError:
        parts = library_of(array).parts_of(array)  # type: ignore[attr-defined]
        return [
            as_buffer(parts.indices, writable=False),
            as_buffer(parts.values, writable=False),
        ]


def _hash(buffers: Iterable[Buffer]) -> int:
    found = blake2b(digest_size=8)
    for buffer in buffers:
        row = buffer if buffer.is_contiguous else pack([buffer])
        found.update(memory_of(row).data)
    return int.from_bytes(found.digest(), "little") or 1
