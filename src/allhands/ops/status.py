"""Status: which message came, for a receiver that does not know it beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np

from allhands._C import ANY_TAG
from allhands.backends.work import Work
from allhands.groups.process_group import ProcessGroup

__all__ = ["ANY_TAG", "Status"]


class Status:
    """Source, tag and size of a message, as `recv`, `irecv` and `probe` report them.

    `recv` and `irecv` fill the Status that they get as an argument; `probe` and
    `iprobe` return one. The Status of an `irecv` can be read after its `Work.wait()`
    has returned.

    Example:
        ```python
        status, array = dist.Status(), np.empty(100)
        dist.recv(array, tag=dist.ANY_TAG, status=status)
        came = array[: status.count(array.dtype)]
        print(status.source, status.tag, came)
        ```
    """

    __slots__ = ("_came", "_member", "_work")

    def __init__(self) -> None:
        self._member: ProcessGroup | None = None
        self._work: Work | None = None
        self._came = (-1, 0, 0)

    @property
    def source(self) -> int:
        """The sender's global rank.

        Raises:
            RuntimeError: no message has come yet.
        """
        source, _, _ = self._message()
        assert self._member is not None, "a message came from one of a group"
        return self._member.global_rank(source)

    @property
    def tag(self) -> int:
        """The message's tag.

        Raises:
            RuntimeError: no message has come yet.
        """
        return self._message()[1]

    @property
    def num_bytes(self) -> int:
        """The size of the message's data.

        Raises:
            RuntimeError: no message has come yet.
        """
        return self._message()[2]

    def count(self, dtype: Any) -> int:
        """Return the number of elements of `dtype`, NumPy's or torch's, in the message.

        Raises:
            ValueError: this is not a whole number.
            RuntimeError: no message has come yet.
        """
        itemsize = getattr(dtype, "itemsize", None)
        if not isinstance(itemsize, int):  # float, np.float32, "f4"
            itemsize = np.dtype(dtype).itemsize
        count, rest = divmod(self.num_bytes, itemsize)
        if rest:
            raise ValueError(
                f"Status.count: a message of {self.num_bytes} bytes has no whole "
                f"number of {dtype}, {itemsize} bytes each"
            )
        return count

    def __repr__(self) -> str:
        work = self._work
        if self._member is None or (work and not work.is_completed()):
            return "Status()"
        return (
            f"Status(source={self.source}, tag={self.tag}, num_bytes={self.num_bytes})"
        )

    def _follow(self, member: ProcessGroup, work: Work) -> None:
        """Report the message of `work` on the group `member` once it has come."""
        self._member, self._work = member, work
        if work.is_completed():
            self._message()

    def _message(self) -> tuple[int, int, int]:
        """Return the source, a group rank, the tag, and the number of bytes."""
        if self._member is None:
            raise RuntimeError("Status: no recv or irecv was given this one")
        work = self._work  # another thread may remove it
        if work is not None:
            self._came = work.envelope()
            self._work = None  # this also frees its arrays
        return self._came
