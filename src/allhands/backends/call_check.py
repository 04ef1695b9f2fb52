"""A communicator whose ranks compare their calls before each collective.

The native engine compares the calls of all ranks by itself; other libraries do not, and
give wrong numbers, wait, or end the process where calls differ. The ranks compare over
a second group, which uses the native engine. The comparison is synchronous, also for an
operation with `async_op`. Messages are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Any

import numpy as np

from allhands._C import Buffer, CheckedCall
from allhands.backends.call import Call
from allhands.backends.checking import CheckingCommunicator, checked_by
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.native import NativeCommunicator
from allhands.backends.polled import COLLECTIVES
from allhands.backends.work import Work
from allhands.errors import CollectiveMismatchError, DistBackendError

__all__ = ["CallCheckedCommunicator", "calls_checked"]

_REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan")
_TEXT_BYTES = 256


def calls_checked(
    communicator: Communicator, options: CommunicatorOptions
) -> Communicator:
    """Return `communicator`, behind a check of calls if the setting asks for it.

    Raises as `checked_by` does.
    """
    if isinstance(communicator, NativeCommunicator):  # compares by itself
        return communicator
    return checked_by(CallCheckedCommunicator, "calls", communicator, options)


class CallCheckedCommunicator(CheckingCommunicator):
    """See the module. Any thread may use it."""

    _num_compared = 0

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`; calls with data on other devices are not compared.

        Raises:
            CollectiveMismatchError: on every rank, before the operation begins.
        """
        for single in call.singles() or [call]:
            if single.op in COLLECTIVES and single.device() == "cpu":
                self._compare(single)
        return self.communicator.submit(call)

    def _compare(self, call: Call) -> None:
        checked = CheckedCall(call, self._rank, self._size)
        sent, received = _counts(checked.inputs), _counts(checked.outputs)
        text = _described(call, checked, self._size)
        self._num_compared += 1
        row = np.zeros(1 + 2 * self._size, np.int64)
        row[0] = _hash(text)
        if checked.name == "all_to_all":
            row[1 : 1 + self._size], row[1 + self._size :] = sent, received
        table = np.empty((self._size, row.size), np.int64)
        self._exchange(checked.name, table, row, call.timeout)
        sizes = table[:, 1 : 1 + self._size], table[:, 1 + self._size :].T
        if np.all(table[:, 0] == row[0]) and np.array_equal(*sizes):
            return
        if checked.name == "all_to_all":
            text = f"{text[:-1]}, counts to ranks {sent}, from ranks {received})"
        raise self._mismatch(checked.name, text, call.timeout)

    def _exchange(
        self,
        op: str,
        table: np.ndarray[Any, Any],
        row: np.ndarray[Any, Any],
        timeout: timedelta | None,
    ) -> None:
        """Gather the rows of all ranks."""
        try:
            self._beside.all_gather_single(table, row, timeout, False)
        except DistBackendError as error:
            told = type(error)(f"check of the call of {op} on {self._title}: {error}")
            told.__dict__.update(error.__dict__)  # such as its ranks
            raise told from error.__cause__

    def _mismatch(
        self, op: str, text: str, timeout: timedelta | None
    ) -> CollectiveMismatchError:
        mine = np.zeros(_TEXT_BYTES, np.uint8)
        short = np.frombuffer(text.encode()[:_TEXT_BYTES], np.uint8)
        mine[: short.size] = short
        table = np.empty((self._size, _TEXT_BYTES), np.uint8)
        self._exchange(op, table, mine, timeout)
        texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in table]
        told = "; ".join(
            f"rank {rank}{' (this process)' * (rank == self._rank)}: {each}"
            for rank, each in enumerate(texts)
        )
        error = CollectiveMismatchError(
            f"the ranks of {self._title} called different things as operation "
            f"#{self._num_compared}: {told}"
        )
        error.ranks = [r for r, each in enumerate(texts) if each != texts[self._rank]]
        return error


def _described(call: Call, checked: CheckedCall, size: int) -> str:
    """Return what all ranks must say alike, in the words of the native engine."""
    buffers = [*checked.outputs, *checked.inputs]
    facts = [buffer.dtype.name.lower() for buffer in buffers[:1]]
    facts += _sizes(checked, size)
    if checked.root >= 0:
        facts.append(f"root {checked.root}")
    if checked.name in _REDUCTIONS:
        facts.append(str(call.reduce_op).removeprefix("RedOpType."))
    return f"{checked.name}({', '.join(facts)})"


def _sizes(checked: CheckedCall, size: int) -> list[str]:
    """Return the sizes that all ranks must have alike."""
    name = checked.name
    if name in ("all_to_all", "barrier"):
        return []
    if name in ("all_gather", "scatter"):
        counts = _counts(checked.outputs)
    elif name in ("gather", "reduce_scatter"):
        counts = _counts(checked.inputs)
    else:
        counts = _counts(checked.outputs or checked.inputs)
    is_even = len(set(counts)) == 1
    return [f"count {counts[0]}" if is_even else f"counts {counts}"]


def _counts(buffers: Sequence[Buffer]) -> list[int]:
    return [buffer.count for buffer in buffers]


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "little")
