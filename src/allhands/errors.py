"""Every exception that allhands raises of its own.

    DistError (RuntimeError)
    ├── DistBackendError                 a collective or point-to-point call failed
    │   ├── RankFailedError              a rank of the group died or left
    │   ├── CollectiveMismatchError      the ranks called different things
    │   ├── ContentMismatchError     what must be the same on all ranks is not
    │   └── CollectiveTimeoutError       also TimeoutError: some rank did not come
    ├── DistNetworkError                 a connection could not be made or was lost
    └── DistStoreError                   a store call failed or timed out
        └── QueueEmptyError              queue_pop(block=False) on an empty queue
    InjectedError (RuntimeError)         a fault on demand, see `debug.faults`
    RemoteError (Exception)              never raised: the cause of a RankFailedError

The caller's own mistakes are `ValueError` and `TypeError`, raised before a byte moves.
"""

from __future__ import annotations

__all__ = [
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "ContentMismatchError",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "InjectedError",
    "QueueEmptyError",
    "RankFailedError",
    "RemoteError",
]


class DistError(RuntimeError):
    """Base of everything that goes wrong between ranks."""


class DistBackendError(DistError):
    """A collective or point-to-point operation failed.

    After a collective has failed the group is broken, except by
    `CollectiveMismatchError` and `ContentMismatchError`: every further call on it
    raises at once. To go on in the same processes, `shrink_group` to the ranks that are
    left, destroy the group, or destroy and re-initialize the world.

    A point-to-point message fails alone, and its group works on.
    """


class RankFailedError(DistBackendError):
    """A rank of the group died or left while others still needed it.

    You don't get it for a rank that is merely late: see `CollectiveTimeoutError`.
    Every surviving rank of the group gets the same `ranks`. Where an exception that
    nobody caught ended one, and it could say so, that is the `__cause__`, a
    `RemoteError`.

    Example:
        ```python
        try:
            dist.all_reduce(array)
        except dist.RankFailedError as error:
            dist.shrink_group(error.ranks)
        ```
    """

    ranks: list[int]
    """Ranks (of the group) that are gone."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.ranks = []


class CollectiveMismatchError(DistBackendError):
    """The ranks of a group called different operations at the same position.

    Raised on every rank, before any output is written; the next operation on the group
    works again.

    Example:
        ```python
        try:
            dist.all_reduce(np.ones(dist.get_rank() + 1))
        except dist.CollectiveMismatchError as error:
            print(error)  # what each rank called
        ```
    """

    ranks: list[int]
    """Ranks (of the group) whose call differs from this rank's."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.ranks = []


class ContentMismatchError(DistBackendError):
    """What must be the same on all ranks is not.

    You don't get it unless the program asks: by `ALLHANDS_CHECK=content`, of the arrays
    of its collectives, or by `debug.check_equal`. Raised on every rank of the group,
    which works on; what the arrays hold is not to be trusted.

    Example:
        ```python
        try:
            dist.debug.check_equal(model.state_dict())
        except dist.ContentMismatchError as error:
            print("other weights than most:", error.ranks)
        ```
    """

    ranks: list[int]
    """Ranks (of the group) that have something else than most; all, if no most have."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.ranks = []


class CollectiveTimeoutError(DistBackendError, TimeoutError):
    """Some ranks of the group did not come within the time limit, but are alive.

    Where these are on this host and answer, the text says why they did not come: who
    waits for whom in a circle, or which line of its program a rank is at. They are
    asked for that by SIGUSR2, as `allhands debug` does, after a wait of a second or
    more; it takes 0.3 s at most, where other ranks waited with this one 0.6 s.

    Example:
        ```python
        try:
            dist.barrier(timeout=timedelta(seconds=10))
        except dist.CollectiveTimeoutError as error:
            print("still missing:", error.ranks)
        ```
    """

    ranks: list[int]
    """Ranks (of the group) that had not arrived."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.ranks = []


class DistNetworkError(DistError):
    """A connection could not be made, or was lost."""


class DistStoreError(DistError):
    """A store operation failed or did not finish within its timeout."""


class QueueEmptyError(DistStoreError):
    """`Store.queue_pop(key, block=False)` found nothing.

    Example:
        ```python
        try:
            task = store.queue_pop("tasks", block=False)
        except dist.QueueEmptyError:
            task = None
        ```
    """


class InjectedError(RuntimeError):
    """A fault on demand that says `do=raise`: the operation has not begun on this rank.

    It stands for an exception of the program's own, so it is no `DistError`. You don't
    get it unless `ALLHANDS_FAULTS` or `allhands.debug.faults` asks for it.

    Example:
        ```python
        with dist.debug.faults("rank=1,op=barrier,do=raise"):
            try:
                dist.barrier(timeout=timedelta(seconds=1))
            except (dist.InjectedError, dist.CollectiveTimeoutError):
                pass  # rank 1, and who waits for it
        ```
    """


class RemoteError(Exception):
    """The exception that ended another rank, as text; `__cause__` of a RankFailedError.

    It has what the rank could tell as it ended: no more than the last 16 kB of the
    traceback, with escapes for what cannot be printed. A rank that was killed, or left
    by `sys.exit`, tells nothing.

    Example:
        ```python
        try:
            dist.all_reduce(array)
        except dist.RankFailedError as error:
            if isinstance(error.__cause__, dist.RemoteError):
                print(error.__cause__.type_name, error.__cause__.message)
            raise
        ```
    """

    rank: int
    """Its rank in the group."""
    type_name: str
    """The class, with its module unless that is the program or of Python's own."""
    message: str
    """What `str` said of it there, its first 1000 characters."""
    traceback: str
    """The text that Python shows of it, with what it came of."""

    def __init__(self, rank: int, type_name: str, message: str, traceback: str) -> None:
        super().__init__(rank, type_name, message, traceback)
        self.rank = rank
        self.type_name = type_name
        self.message = message
        self.traceback = traceback

    def __str__(self) -> str:
        lines = self.traceback.splitlines()
        return "\n  ".join([f"what ended rank {self.rank}:", *lines])
