"""The exception classes that allhands defines, for every module that raises them.

    DistError (RuntimeError)
    ├── DistBackendError                 a collective or point-to-point call failed
    │   ├── RankFailedError              a rank of the group died or left
    │   ├── CollectiveMismatchError      the ranks called different things
    │   ├── ContentMismatchError         data that must be the same on all ranks is not
    │   └── CollectiveTimeoutError       also TimeoutError: some rank did not come
    ├── DistNetworkError                 a connection could not be made or was lost
    └── DistStoreError                   a store call failed or timed out
        └── QueueEmptyError              queue_pop(block=False) on an empty queue
    ArgumentError                        a ValueError and a RuntimeError: arguments that
                                         the engine cannot carry out
    UnsupportedDTypeError                a TypeError and a RuntimeError: a dtype that
                                         cannot be communicated
    DistError also has ChildFailedError: ranks that this process started have failed,
    see `elastic.multiprocessing.errors`.
    InjectedError (RuntimeError)         a fault on demand, see `debug.faults`
    RemoteError (Exception)              never raised: the cause of a RankFailedError

A mistake of the caller raises `ValueError` or `TypeError` instead, before any data is
sent. Where torch raises RuntimeError, the class is derived from that, too.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
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
    "UnsupportedDTypeError",
]


class ArgumentError(ValueError, RuntimeError):
    """A call that the engine cannot carry out, such as with arrays that do not fit.

    Stores raise it too, such as for `add` to a value that is no number.
    Nothing was changed. Where torch refuses such a call, it raises a RuntimeError.

    Example:
        ```python
        try:
            dist.all_gather_single(gathered, array)
        except dist.ArgumentError:  # the sizes do not fit
            print(gathered.shape, array.shape, dist.get_world_size())
            raise
        ```
    """


class UnsupportedDTypeError(TypeError, RuntimeError):
    """The dtype of an array cannot be communicated.

    Nothing was sent. torch raises a RuntimeError.

    Example:
        ```python
        try:
            dist.broadcast(array, src=0)
        except dist.UnsupportedDTypeError:
            dist.broadcast_object_list([array], src=0)
        ```
    """


class DistError(RuntimeError):
    """The base class of all errors that arise between ranks."""


class DistBackendError(DistError):
    """A collective or point-to-point operation failed.

    A collective that fails breaks its group: every further call on the group raises at
    once. `CollectiveMismatchError` and `ContentMismatchError` are exceptions: the group
    stays usable after them. To continue in the same processes, call `shrink_group` to
    keep the surviving ranks, destroy the group, or destroy and re-initialize the world.

    A point-to-point message that fails does not break its group.
    """


class RankFailedError(DistBackendError):
    """A rank of the group died or left while others still needed it.

    A rank that is merely late does not cause this error: see `CollectiveTimeoutError`.
    Every surviving rank of the group gets the same `ranks`. If an uncaught exception
    ended a rank, and that rank could report it, the `__cause__` of this error is a
    `RemoteError` that describes the exception.

    Example:
        ```python
        try:
            dist.all_reduce(array)
        except dist.RankFailedError as error:
            dist.shrink_group(error.ranks)
        ```
    """

    ranks: list[int]
    """The group ranks that died or left."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.ranks = []


class CollectiveMismatchError(DistBackendError):
    """The ranks of a group called different operations at the same position.

    Every rank raises it before any output is written. The group stays usable: its next
    operation works again.

    Example:
        ```python
        try:
            dist.all_reduce(np.ones(dist.get_rank() + 1))
        except dist.CollectiveMismatchError as error:
            print(error)  # what each rank called
        ```
    """

    ranks: list[int]
    """The group ranks whose call differs from the call of this rank."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.ranks = []


class ContentMismatchError(DistBackendError):
    """What must be the same on all ranks is not.

    Only two checks raise it, both on request: `ALLHANDS_CHECK=content`, which compares
    the arrays of each collective, and `debug.check_equal`. Every rank of the group
    raises it. The group stays usable, but do not trust the contents of the arrays.

    Example:
        ```python
        try:
            dist.debug.check_equal(model.state_dict())
        except dist.ContentMismatchError as error:
            print("other weights than most:", error.ranks)
        ```
    """

    ranks: list[int]
    """The group ranks that differ from the majority; all ranks if there is none."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.ranks = []


class CollectiveTimeoutError(DistBackendError, TimeoutError):
    """Some ranks of the group did not come within the time limit, but are alive.

    If the missing ranks are on this host and answer, the message says why they did not
    come: which ranks wait for each other in a cycle, or which line of its program a
    rank has reached. This rank asks them by SIGUSR2, as `allhands debug` does, if it
    has waited a second or more. Asking takes 0.3 s at most, or 0.6 s if other ranks
    waited together with this one.

    Example:
        ```python
        try:
            dist.barrier(timeout=timedelta(seconds=10))
        except dist.CollectiveTimeoutError as error:
            print("still missing:", error.ranks)
        ```
    """

    ranks: list[int]
    """The group ranks that had not arrived."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.ranks = []


class DistNetworkError(DistError):
    """A network connection could not be made or was lost."""


class DistStoreError(DistError):
    """A store operation failed or did not finish within its timeout."""


class QueueEmptyError(DistStoreError):
    """`Store.queue_pop(key, block=False)` found the queue empty.

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

    It stands for an exception of the program itself, so it is not a `DistError`. Only
    `ALLHANDS_FAULTS` and `allhands.debug.faults` cause it.

    Example:
        ```python
        with dist.debug.faults("rank=1,op=barrier,do=raise"):
            try:
                dist.barrier(timeout=timedelta(seconds=1))
            except (dist.InjectedError, dist.CollectiveTimeoutError):
                pass  # raised on rank 1, and on the ranks that wait for it
        ```
    """


class RemoteError(Exception):
    """The exception that ended another rank, as text; `__cause__` of a RankFailedError.

    It holds what the rank could report as it ended: at most the last 16 kB of the
    traceback, with unprintable characters escaped. A rank that was killed, or that left
    by `sys.exit`, reports nothing.

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
    """The group rank of the process that ended."""
    type_name: str
    """The exception class, with its module unless that is `__main__` or `builtins`."""
    message: str
    """The first 1000 characters of `str(exception)` on that rank."""
    traceback: str
    """The traceback as Python prints it, with the exceptions that caused it."""

    def __init__(self, rank: int, type_name: str, message: str, traceback: str) -> None:
        super().__init__(rank, type_name, message, traceback)
        self.rank = rank
        self.type_name = type_name
        self.message = message
        self.traceback = traceback

    def __str__(self) -> str:
        lines = self.traceback.splitlines()
        return "\n  ".join([f"what ended rank {self.rank}:", *lines])
