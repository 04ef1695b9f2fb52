"""Content: the arrays of one collective on one rank, as hashes for comparison.

Data that must be the same on all ranks has one hash: the result of an `all_reduce`, or
the array of a broadcast. For data that one rank sends to another, both sides compute a
hash; the sender does so before the operation begins. A hash covers the elements in
their order, whatever the layout in memory. 0 stands for data that a rank does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from allhands._C import Buffer, CheckedCall
from allhands.arrays import (
    Array,
    SparseArrayError,
    as_buffer,
    library_of,
    on_host,
)
from allhands.arrays.devices import DeviceArrayError
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
"""The operations whose ranks have data in common."""


class Difference(NamedTuple):
    """Data that should be the same on several ranks but is not."""

    ranks: list[int]
    """The ranks that differ from the majority; all ranks if there is no majority."""
    text: str


def hash_of(arrays: Iterable[Array]) -> int:
    """Return the hash of the elements of all arrays in turn."""
    return _hash([part for array in arrays for part in _memory(array)])


class Content:
    """See the module. Make it before the operation begins; call `hashes` after its end.

    Raises:
        TypeError, ValueError: no operation can have these arguments.
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
        """Return one hash, or those of the data sent to and received from each rank."""
        if self._call.op in _ALIKE:
            return [hash_of(self._call.outputs())]
        outputs = [part.outputs for part in self._parts]
        return self._sent + self._passed(outputs, _ONE_RECEIVED)

    def _passed(self, sides: list[list[Buffer]], one_for: Sequence[str]) -> list[int]:
        """Return hashes by rank from the buffers of each single operation on this rank.

        In the operations `one_for`, one array goes to or comes from each rank or the
        root. In the others there is one array per rank, or none.
        """
        name, root = self._parts[0].name, self._parts[0].root
        ranks = range(self._size)
        if name in one_for:
            found = _hash([side[0] for side in sides])
            return [found if name == "all_gather" or r == root else 0 for r in ranks]
        return [_hash([side[r] for side in sides]) if sides[0] else 0 for r in ranks]


def compare(op: str, table: np.ndarray[Any, Any]) -> Difference | None:
    """Return the difference between ranks, if any; each row of `table` is a rank."""
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
    """Return the ranks that differ from the majority; all ranks if there is none."""
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
    except DeviceArrayError:
        return [as_buffer(on_host(array), writable=False)]
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
