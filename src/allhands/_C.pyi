"""
The native core of allhands. Private: use the names that allhands exports.
"""

from collections.abc import Callable, Mapping, Sequence
import datetime
import enum
from typing import Any

import numpy
import numpy.typing


def errno_text(code: int) -> str:
    """
    As os.strerror, and where a limit of this process is reached also the limit and what raises it.
    """

def as_finalizer(function: Callable[[Any], object]) -> Callable[[Any], None]:
    """
    A callback for `weakref.ref` that calls `function`. What that raises in the main thread, as Ctrl-C makes it do, is raised there right after the callback.
    """

class DType(enum.Enum):
    """Element types the core knows."""

    Bool = 0

    Int8 = 1

    Int16 = 2

    Int32 = 3

    Int64 = 4

    UInt8 = 5

    UInt16 = 6

    UInt32 = 7

    UInt64 = 8

    Float16 = 9

    BFloat16 = 10

    Float32 = 11

    Float64 = 12

    Complex64 = 13

    Complex128 = 14

class Buffer:
    """An array as the core sees it; keeps its memory alive."""

    def __init__(self, address: int, dtype: DType, shape: Sequence[int], strides: Sequence[int] | None, owner: object | None) -> None:
        """
        Memory at `address`, kept alive by `owner`; strides in bytes, None where contiguous in C order.
        """

    @staticmethod
    def from_numpy(array: object, writable: bool) -> Buffer | None:
        """
        The memory of a numpy.ndarray, of any layout; None if it is read-only but to be written, or its dtype is none of these.

        Raises:
            ValueError: it reaches beyond the memory that it is a view of.
        """

    @staticmethod
    def is_exported_by(kind: type) -> bool:
        """Whether objects of this type have the buffer protocol."""

    @property
    def address(self) -> int: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def count(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...

    @property
    def is_contiguous(self) -> bool: ...

class CheckedCall:
    """A collective's Call as memory, for an engine of another's."""

    def __init__(self, call: Any, rank: int, size: int) -> None:
        """Checks the arguments as the native engine does, with its errors."""

    @property
    def name(self) -> str:
        """Of the collective: all_gather of an all_gather_single."""

    @property
    def root(self) -> int:
        """-1: it has none."""

    @property
    def inputs(self) -> list[Buffer]:
        """What it reads: one array, or one for each rank."""

    @property
    def outputs(self) -> list[Buffer]:
        """What it writes, likewise; in place: what it reads."""

    @property
    def written(self, /) -> list[Any]:
        """The arrays that it writes, as the caller passed them."""

def copy_buffer(source: Buffer, target: Buffer) -> None:
    """
    All elements of an array, of any layout, to one of as many of that dtype.
    """

def reduce_buffers(output: Buffer, inputs: Sequence[Buffer], ops: list[Any]) -> None:
    """
    output = the inputs reduced in their order, with the numerics of the native engine. All are contiguous and alike; `ops`: the ReduceOp of each, which may have a factor.
    """

def register_tensors(type: type, api: object, is_lazy: Callable[[Any], bool], handle_at: int, storage_bytes: int, elements_before: int) -> None:
    """
    Reads arrays of exactly this type through its `__dlpack_c_exchange_api__`. `is_lazy` says of one whether its value is not what its memory holds. `handle_at` is where in an object the handle lies that the C functions at the addresses `storage_bytes` and `elements_before` take: how many bytes its storage has, and how many elements of it come before the first.
    """

class Work:
    """An operation under way."""

    @property
    def _limit(self) -> float:
        """The seconds of its own time limit."""

    @property
    def _outputs(self) -> list[object]:
        """The arrays that it writes."""

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """
        Returns True when the operation has ended, or raises what it raised; CollectiveTimeoutError when `timeout`, unless None or 0, passes first, and the operation goes on.
        """

    def is_completed(self) -> bool: ...

    def exception(self) -> BaseException | None:
        """What it raised; None while it runs and when it succeeded."""

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """
        Called when the operation has ended, from the thread that ran it; at once if it has ended already.
        """

    def _hurry(self) -> None:
        """See `Work._hurry`."""

    def _postpone(self) -> None:
        """See `Work._postpone`."""

    def _envelope(self) -> tuple[int, int, int] | None:
        """
        Of the message of a receive or probe that has ended its source, tag and bytes; the source is -1 where none has come. None of anything else.
        """

class Request:
    """A persistent request; see allhands.PersistentRequest."""

    def __call__(self) -> None:
        """See PersistentRequest.__call__."""

    def __repr__(self) -> str: ...

    def start(self) -> None:
        """See PersistentRequest.start."""

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """See PersistentRequest.wait."""

    def is_active(self) -> bool:
        """See PersistentRequest.is_active."""

class SparseArray:
    """Rows of a dense array whose others are zero, for all_reduce of parts."""

    def __init__(self, indices: Buffer, values: Buffer, num_rows: int, width: int) -> None:
        """
        `values`: rows of `width` elements each, those that `indices` name of `num_rows`, in ascending order.
        """

    @property
    def all_indices(self) -> numpy.typing.NDArray[numpy.int64]:
        """Of the rows that some rank has, once the operation has ended."""

    @property
    def sums(self) -> numpy.typing.NDArray[numpy.uint8]:
        """The bytes of these rows, reduced."""

def load_ucx(library: str) -> str:
    """
    Load UCX from there, unless it was loaded before, and return its version.

    Raises:
        DistBackendError: It cannot be loaded, or is too old.
    """

class TcpPort:
    """
    Where this process listens for ranks of other hosts, and its connections to them.
    """

    def __init__(self, hosts: Sequence[str], first_port: int, last_port: int, *, advertised: Sequence[tuple[str, int]] = [], heartbeat: float = 5.0, is_encrypted: bool = False, rail: int = 0, sockets: int = 1, ucx: str = 'no') -> None:
        """
        Listen on each of `hosts`, addresses of this machine, at one port of `[first_port, last_port]`; 0 and 0: any. Others reach it at `advertised`, addresses and ports, if that is given; port 0 there stands for its own.

        A peer from which nothing comes for `heartbeat` seconds counts as dead. `is_encrypted`: all connections by TLS 1.3, the same on all ranks. `rail`: which address of a peer is tried first, modulo how many it has. `sockets`: over how many sockets large bodies go to each peer, 1 to 16, the same on all ranks; each begins at the next address. `ucx`: whether large bodies go by UCX: `no`, `offered` to peers that offer it too, or `needed` by all.

        Raises:
            ValueError: Bad arguments.
            DistNetworkError: It cannot listen there.
            DistBackendError: There is no OpenSSL 3 to encrypt with, or no UCX.
        """

    def endpoints(self) -> list[str]:
        """
        Where others reach it: `10.0.0.3:4471`, for each host, or as advertised.
        """

    def start(self, secret: bytes, *, speaker: str = '') -> None:
        """
        From now on accept those who prove that they know these 32 bytes. `speaker`: how its lines on stderr begin; empty: it prints none.
        """

    def break_socket(self, endpoints: str, pid: int, start: int) -> bool:
        """
        Break the socket to that process, as an abort of its connection does, which then goes on over another socket. False: there is none now.
        """

    def num_sent_by_ucx(self) -> int:
        """How many large bodies this process has sent by UCX."""

    def close(self) -> None:
        """
        Send what was written, for a second at most; then no peer is reached any more. Does nothing the second time, and in a forked child.
        """

def ticks_now() -> int:
    """
    The time as flight records have it, in a unit that only the host knows.
    """

def collective_name(number: int) -> str:
    """Of the operation that has this number in flight records."""

class FlightMemory:
    """
    Where a process keeps its flight records for others of its user to watch; an anonymous file.
    """

    @staticmethod
    def create() -> FlightMemory | None:
        """None where there is no descriptor or no memory for it."""

    def mark(self, world: str, rank: int, size: int, host: str) -> None:
        """Tells who reads it which rank of which world the process is."""

    def leave_to_parent(self) -> None:
        """In a forked child: nobody takes it for the child's."""

def process_identity() -> tuple[str, int, int, str]:
    """
    (host, pid, start time, endpoints) of this process, by which its peers know it; it listens nowhere.
    """

def is_process_alive(pid: int, start: int) -> bool:
    """False once this process of this host has ended."""

ANY_TAG: int = -2147483647

class Communicator:
    """A group of ranks, seen by one."""

    def __init__(self, rank: int, size: int, *, name: str, token: bytes, peers: Sequence[tuple[str, int, int, str]], tuning: Mapping[str, int], figures: str, port: TcpPort | None, timeout: object, patience: float, record_length: int, in_rank_order: bool = False, in_world: str = '', speaker: str = '', flight_memory: FlightMemory | None = None) -> None:
        """
        No communication happens before the first operation. `token`: 32 bytes that only this group's ranks know; `peers`: process_identity() of each rank, with where it listens; `port`: this process's, None where all are on one host; `tuning` and `figures`: as tuning_here()'s; `timeout`: of calls that have none; `patience`: seconds of waiting after which stderr is told for whom, 0 for never; `record_length`: how many collectives and messages the flight recorder keeps; `flight_memory`: where, None where nobody else sees it; `in_rank_order`: whether ranks on several hosts reduce as on one; `in_world`: said behind the name in errors, as in ' (ranks 1, 3 of the world)'; `speaker`: how its lines on stderr begin.
        """

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """The limit of later calls that have none of their own."""

    def observe(self, observer: Any) -> None:
        """Tells an Observer of later operations; None: nobody."""

    def abort(self, reason: str) -> None:
        """Breaks the group for every rank; everybody who waits in it raises."""

    def disagree(self, reason: str) -> None:
        """
        abort() with a CollectiveMismatchError: the ranks made the group unlike.
        """

    def endings(self) -> dict[int, str]:
        """
        The ranks that have aborted the group, each with what it told; and, unless the group is broken, those that have died, which told nothing. Empty for a group that nobody has used yet.
        """

    def note_failure(self, reason: str, cause: str) -> None:
        """close() will tell the peers that this ended the rank."""

    def check_close(self) -> None:
        """
        Raises RuntimeError where close() would: in a callback of the group's own.
        """

    def close(self, grace: float = 0.0) -> None:
        """
        Waits up to `grace` seconds for queued operations, ends the others, and tells the peers that this rank is gone.
        """

    def send(self, tensor: Any, peer: int, tag: int, timeout: datetime.timedelta | None) -> None: ...

    def recv(self, tensor: Any, peer: int | None, tag: int, timeout: datetime.timedelta | None) -> int:
        """The rank it came from; peer None: from any."""

    def isend(self, tensor: Any, peer: int, tag: int, timeout: datetime.timedelta | None) -> Any: ...

    def irecv(self, tensor: Any, peer: int | None, tag: int, timeout: datetime.timedelta | None) -> Any: ...

    def sendrecv(self, tensor: Any, dst: int, tag: int, output: Any, src: int | None, recv_tag: int, timeout: datetime.timedelta | None) -> int: ...

    def shared_bytes(self, dtype: DType, shape: Sequence[int], timeout: datetime.timedelta | None) -> numpy.typing.NDArray[numpy.uint8]:
        """
        Collective: this rank's bytes of a new array in memory that all ranks share, zero at first.
        """

    def peer_bytes(self, buffer: Buffer, peer: int) -> numpy.typing.NDArray[numpy.uint8]:
        """
        The bytes of rank `peer` that are where `buffer` is in a shared array of this rank; they keep `buffer` alive.
        """

    def all_reduce(self, tensor: Any, op: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def reduce(self, tensor: Any, root: int, op: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def reduce_scatter(self, output: Any, input_list: list[Any], op: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def reduce_scatter_single(self, output: Any, input: Any, op: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def broadcast(self, tensor: Any, root: int, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def gather(self, tensor: Any, gather_list: list[Any] | None, root: int, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def scatter(self, tensor: Any, scatter_list: list[Any] | None, root: int, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def all_gather(self, tensor_list: list[Any], tensor: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def all_gather_single(self, output_tensor: Any, input_tensor: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def all_to_all(self, output_tensor_list: list[Any], input_tensor_list: list[Any], timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def all_to_all_single(self, output: Any, input: Any, output_splits: Sequence[int] | None, input_splits: Sequence[int] | None, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def gather_single(self, tensor: Any, gather_tensor: Any | None, root: int, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def scan(self, output: Any, input: Any, op: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def exscan(self, output: Any, input: Any, op: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def all_reduce_coalesced(self, tensors: list[Any], op: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def all_gather_coalesced(self, output_tensor_lists: list[Any], input_tensor_list: list[Any], timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def reduce_scatter_single_coalesced(self, outputs: list[Any], inputs: list[Any], op: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def barrier(self, timeout: datetime.timedelta | None, async_op: bool) -> Any: ...

    def submit(self, call: Any) -> Any:
        """Carries out a Call: None, or with `async_op` its Work."""

    def prepare(self, call: Any) -> Any:
        """A Request that carries out a Call again and again."""

    def all_reduce_parts(self, array: SparseArray, op: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any:
        """all_reduce of a sparse array, which holds the result afterwards."""

    def flight_entries(self, collectives_after: int = 0, messages_after: int = 0) -> list[dict[str, Any]]:
        """
        The group's last operations with higher numbers, those that wait in its queue last; times in nanoseconds since 1970, `thread` as threading.get_ident() has it. `is_waited_for`: somebody waits for operations of this kind.
        """

class StoreTraffic:
    """What a store's server has counted."""

    @property
    def connections(self) -> int: ...

    @property
    def requests(self) -> int: ...

    @property
    def bytes_received(self) -> int:
        """With handshakes; what TCP adds is not counted."""

    @property
    def bytes_sent(self) -> int: ...

class StoreServer:
    """
    A store's server; serves until it is deleted. Its thread never takes the GIL.
    """

    def __init__(self, host: str, port: int, secret: str, timeout: float, listen_fd: int = -1) -> None:
        """
        Listens at `host`:`port`, or on the bound socket `listen_fd`, which it takes over.
        """

    @property
    def port(self) -> int: ...

    def traffic(self) -> StoreTraffic:
        """What it has met since it began."""

class StoreRelay:
    """
    Serves a store to the processes of this host, at 127.0.0.1, and asks the store's server over one connection; serves until it is deleted or the server is gone. Its thread never takes the GIL.
    """

    def __init__(self, host: str, port: int, secret: str, timeout: float) -> None:
        """Connects to the server; keeps trying until the limit."""

    @property
    def port(self) -> int: ...

    @property
    def own_address(self) -> str:
        """This process's address on its way to the server."""

    def traffic(self) -> StoreTraffic:
        """What its clients have sent and received."""

def watch_store_waits(look: Callable[[float, float], None]) -> None:
    """
    Calls `look` in each thread that waits in a StoreClient, ten times a second, with how long the request has waited and its limit, in seconds; if it raises, the request ends with that. Set it once.
    """

class StoreClient:
    """
    One connection to a store's server; every call has its limit in seconds. Thread-safe, one call at a time.
    """

    def __init__(self, host: str, port: int, secret: str, timeout: float, name: str = '') -> None:
        """
        Connects; keeps trying until the limit. Errors call the server `name`, or `host`:`port`.
        """

    @property
    def own_address(self) -> str:
        """This process's address on its way to the server."""

    def set(self, key: str, value: bytes, timeout: float) -> None: ...

    def get(self, key: str, timeout: float) -> bytes: ...

    def get_unwatched(self, key: str, timeout: float) -> bytes:
        """
        As `get`, for waits of this package itself, which looks after ranks on its own: what `watch_store_waits` was told to call is not called.
        """

    def add(self, key: str, amount: int, timeout: float) -> int: ...

    def append(self, key: str, value: bytes, timeout: float) -> None: ...

    def compare_set(self, key: str, expected: bytes, desired: bytes, timeout: float) -> bytes: ...

    def delete_key(self, key: str, timeout: float) -> bool: ...

    def check(self, keys: Sequence[str], timeout: float) -> bool: ...

    def wait(self, keys: Sequence[str], timeout: float) -> None: ...

    def survey(self, prefix: str, count: int, timeout: float) -> bytes: ...

    def num_keys(self, timeout: float) -> int: ...

    def list_keys(self, timeout: float) -> list[str]: ...

    def multi_get(self, keys: Sequence[str], timeout: float) -> list[bytes]: ...

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes], timeout: float) -> None: ...

    def queue_push(self, key: str, value: bytes, timeout: float) -> None: ...

    def queue_pop(self, key: str, block: bool, timeout: float) -> bytes: ...

    def queue_len(self, key: str, timeout: float) -> int: ...

    def leave_will(self, key: str, value: bytes, timeout: float) -> StoreLastWill:
        """
        Delete `key` now, and have the server set it to `value` when this process ends.
        """

    def barrier(self, key: str, size: int, timeout: float) -> None: ...

    def join(self, timeout: float) -> int: ...

    def await_workers(self, count: int, timeout: float) -> None: ...

class StoreLastWill:
    """
    A key that the server sets when this process ends; withdrawn when the object goes before that.
    """

def lock_store_file(file: int) -> int:
    """
    Keep the other open files of this one out until `unlock_store_file`; returns where the file ends.

    Raises:
        OSError: EAGAIN or EACCES where somebody else does that.
    """

def unlock_store_file(file: int) -> None:
    """Let the others in. It may be called without the lock."""

def mark_store_file(file: int, alone: bool) -> None:
    """
    Show the others that somebody is here, until the file is closed.

    Raises:
        OSError: EAGAIN or EACCES where another is here, and this one is to be alone.
    """

def encode_store_record(kind: int, key: str, value: bytes) -> bytes:
    """
    A record of FileStore's file.

    Raises:
        ValueError: key or value is too long.
    """

def store_record_size(data: bytes, offset: int) -> int | None:
    """
    How many bytes the record at `offset` has; those of its head while that is cut. None: it can be no record.
    """

def decode_store_record(data: bytes, offset: int, num_bytes: int) -> tuple[int, str, bytes] | None:
    """
    Kind, key and value of a record that is all there; None: it is damaged.
    """

class StoreTable:
    """
    Values and queues by key, which threads may share; see allhands.Store for what the functions do. None waits but `await_change`.
    """

    def __init__(self) -> None: ...

    def set(self, key: str, value: str | bytes) -> None: ...

    def find(self, key: str) -> bytes | None:
        """The value of `key`; None if it is missing."""

    def add(self, key: str, amount: int) -> int: ...

    def append(self, key: str, value: str | bytes) -> None: ...

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes: ...

    def delete_key(self, key: str) -> bool: ...

    def contains_all(self, keys: list[str]) -> bool:
        """Whether every key has a value or a queue."""

    def find_all(self, keys: list[str]) -> list[bytes] | None:
        """The values of all keys; None where one is missing."""

    def set_all(self, keys: list[str], values: list[str | bytes]) -> None: ...

    def num_keys(self) -> int: ...

    def list_keys(self) -> list[str]: ...

    def push(self, key: str, value: str | bytes) -> None: ...

    def pop(self, key: str) -> bytes | None:
        """The oldest value of the queue `key`, removed; None if there is none."""

    def queue_length(self, key: str) -> int: ...

    @property
    def num_changes(self) -> int:
        """How often something came or was replaced."""

    def await_change(self, seen: int, timeout: float) -> bool:
        """
        Return once `num_changes` is no longer `seen`; False after `timeout` seconds.
        """

    def note_changes(self) -> None:
        """Keep every change for `take_records` from now on."""

    def take_records(self) -> bytes:
        """
        Records of the changes since the last call.

        Raises:
            ValueError: a key or a value is too long.
        """

    def repeat(self, kind: int, key: str, value: bytes) -> bool:
        """
        Make the change that a record tells of; False where there is no such kind.
        """

    def clear(self) -> None:
        """Forget everything, the changes too."""

def interface_addresses() -> list[tuple[str, str, int, bool, bool]]:
    """
    (interface, address, prefix length, is up, is loopback) of each address of this machine.
    """

def addresses_towards(host: str, timeout: float) -> list[str]:
    """
    The address that what this machine sends to `host` comes from, for each address that it means; nothing where no name is found within the limit.
    """

def tuning_here(size: int, *, changes: Mapping[str, int] = {}, figures: str = '') -> dict[str, int]:
    """
    The tuning of a group of `size` ranks that share this process's CPUs, by name, with `changes`. `figures`: the folder in which those of this host may be.
    """

def figures(folder: str, *, rehearse: bool) -> list[tuple[int, int, int]] | None:
    """
    What two ranks take for an exchange on this host: of each size in bytes the nanoseconds by the slots and by reading. Those kept in `folder`; if there are none and `rehearse`, they are found within 3 ms and kept. None: there are none.
    """

def cpu_model() -> str:
    """As the kernel names it."""

def num_cpus(peers: Sequence[tuple[str, int, int, str]]) -> int:
    """CPUs that at least one of these processes of this host may run on."""

def ways(op: str, bytes: int, ranks: int, *, can_read_peers: bool, has_shared_arrays: bool, tuning: Mapping[str, int], figures: str = '') -> list[tuple[str, bool, str]]:
    """
    The ways of an operation on arrays of `bytes`, best first: its name, whether it is worth it here, and why. The first that is worth it, and that all ranks' arrays allow, is taken. `tuning` and `figures`: as tuning_here()'s.
    """

def can_read_child(pid: int) -> bool:
    """
    Whether the host lets this process read the memory of its forked child.
    """
