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
    Return the text of os.strerror. If a limit of this process is reached, the text also has the limit and the command that raises it.
    """

def as_finalizer(function: Callable[[Any], object]) -> Callable[[Any], None]:
    """
    Return a callback for `weakref.ref` that calls `function`. An exception of `function` in the main thread, such as that of Ctrl-C, is raised there right after the callback.
    """

class DType(enum.Enum):
    """The element types that the core knows."""

    Bool = 0

    Int8 = 1

    Int16 = 2

    Int32 = 3

    Int64 = 4

    UInt8 = 5

    UInt16 = 6

    UInt32 = 7

    UInt64 = 8

    Float4_E2M1Fn_X2 = 9

    Float8_E4M3Fn = 10

    Float8_E4M3FnUz = 11

    Float8_E5M2 = 12

    Float8_E5M2FnUz = 13

    Float8_E8M0Fnu = 14

    Float16 = 15

    BFloat16 = 16

    Float32 = 17

    Float64 = 18

    Complex64 = 19

    Complex128 = 20

class Buffer:
    """An array as the core sees it. It keeps the memory alive."""

    def __init__(self, address: int, dtype: DType, shape: Sequence[int], strides: Sequence[int] | None, owner: object | None) -> None:
        """
        Describe the memory at `address`, which `owner` keeps alive. Strides are in bytes; None means C order without gaps.
        """

    @staticmethod
    def from_numpy(array: object, writable: bool) -> Buffer | None:
        """
        Return the memory of a numpy.ndarray of any layout. Return None if the array is read-only although `writable` is asked for, or if the core has no such dtype.

        Raises:
            ValueError: the array reaches beyond the memory that it is a view of.
        """

    @staticmethod
    def is_exported_by(kind: type) -> bool:
        """Return whether objects of this type have the buffer protocol."""

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

def usual_dtype(array: object) -> DType | None:
    """
    Return the dtype of a writable, contiguous array in CPU memory; None for any other object, and for arrays whose memory has to be looked at more closely.
    """

class CheckedCall:
    """The Call of a collective as memory, for engines of other libraries."""

    def __init__(self, call: Any, rank: int, size: int) -> None:
        """Check the arguments as the native engine does, with the same errors."""

    @property
    def name(self) -> str:
        """The name of the collective, which is all_gather for all_gather_single."""

    @property
    def root(self) -> int:
        """The root; -1 if the collective has none."""

    @property
    def inputs(self) -> list[Buffer]:
        """The memory that it reads: one buffer, or one for each rank."""

    @property
    def outputs(self) -> list[Buffer]:
        """
        The memory that it writes: one buffer, or one for each rank. In place it is the memory that it reads.
        """

    @property
    def written(self, /) -> list[Any]:
        """The arrays that it writes, as the caller passed them."""

def copy_buffer(source: Buffer, target: Buffer) -> None:
    """
    Copy all elements of an array of any layout to an array with as many elements of the same dtype.
    """

def reduce_buffers(output: Buffer, inputs: Sequence[Buffer], ops: list[Any]) -> None:
    """
    Reduce the inputs in their order into `output`, with the numerics of the native engine. All arrays are contiguous, of one dtype and size. `ops` has the ReduceOp of each input, which may have a factor.
    """

def register_tensors(type: type, api: object, is_lazy: Callable[[Any], bool], handle_at: int, storage_bytes: int, elements_before: int) -> None:
    """
    Read arrays of exactly this type through its `__dlpack_c_exchange_api__`.

    Args:
        is_lazy: returns whether the memory of an array lacks its value.
        handle_at: the offset in an object of the handle that the C functions take.
        storage_bytes: the address of a C function that returns the bytes of the storage.
        elements_before: the address of a C function that returns how many elements of the storage come before the first one.
    """

class MpiAllReduce:
    """
    MPI's all-reduce in place of a communicator, for usual arrays. The caller lets only one thread at a time call MPI, if the library needs that.
    """

    def __init__(self, iallreduce: int, test: int, in_place: int, comm: int, request_bytes: int, types: Sequence[tuple[int, int]], ops: Sequence[tuple[int, int]], failed: object) -> None:
        """
        Args:
            iallreduce: the address of MPI_Iallreduce.
            test: the address of MPI_Test.
            in_place: MPI_IN_PLACE.
            comm: the communicator's handle.
            request_bytes: the size of MPI_Request.
            types: the handles of MPI's types, by the numbers of dtypes.
            ops: the handles of MPI's operations, by the numbers of reduce operations.
            failed: the exception's type; it takes MPI's error code.
        """

    def __call__(self, array: object, op: object) -> int | None:
        """
        Reduce `array`, and wait a moment for the end.

        Returns:
            None: it is over. A number: the handle of the request that goes on. NotImplemented: it has not begun, because the array is not usual, or MPI does not reduce it as this package does.
        """

class Work:
    """An operation under way."""

    @property
    def _limit(self) -> float:
        """The seconds of its own time limit."""

    @property
    def _outputs(self) -> list[object]:
        """The arrays that it writes."""

    @property
    def _read(self) -> type | None:
        """The type of an array that it reads; None: unknown."""

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """
        Wait for the end of the operation and return True, or raise its error. If `timeout` passes first and is not 0, raise CollectiveTimeoutError; the operation goes on.
        """

    def is_completed(self) -> bool: ...

    def exception(self) -> BaseException | None:
        """
        Return the error of the operation; None while it runs and after a success.
        """

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """
        Call a function when the operation has ended, in the thread that ran it. If the operation has ended already, call it at once.
        """

    def _hurry(self) -> None:
        """See `Work._hurry`."""

    def _postpone(self) -> None:
        """See `Work._postpone`."""

    def _envelope(self) -> tuple[int, int, int] | None:
        """
        Return the source, tag and bytes of the message of an ended receive or probe. The source is -1 if no message has come. Return None for other operations.
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
    """A dense array with few rows that are not zero, for all_reduce_parts."""

    def __init__(self, indices: Buffer, values: Buffer, num_rows: int, width: int) -> None:
        """
        Take the rows `indices`, in ascending order, of an array of `num_rows` rows. `values` has these rows, with `width` elements each.
        """

    @property
    def all_indices(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        The indices of the rows that any rank has; known when the operation has ended.
        """

    @property
    def sums(self) -> numpy.typing.NDArray[numpy.uint8]:
        """The bytes of these rows after the reduction."""

def load_ucx(library: str) -> str:
    """
    Load UCX from the file `library`, unless it is loaded, and return its version.

    Raises:
        DistBackendError: UCX cannot be loaded, or is too old.
    """

class TcpPort:
    """
    The address at which this process listens for ranks of other hosts, and its connections to them.
    """

    def __init__(self, hosts: Sequence[str], first_port: int, last_port: int, *, advertised: Sequence[tuple[str, int]] = [], heartbeat: float = 5.0, is_encrypted: bool = False, rail: int = 0, sockets: int = 1, ucx: str = 'no') -> None:
        """
        Listen on each of `hosts`, at one port of `[first_port, last_port]`.

        Args:
            hosts: addresses of this machine.
            first_port: the lowest port to try; 0 and 0 mean any port.
            last_port: the highest port to try.
            advertised: the addresses and ports at which others reach this process, if they differ. Port 0 stands for the port that was found.
            heartbeat: a peer that sends nothing for so many seconds counts as dead.
            is_encrypted: whether all connections use TLS 1.3. All ranks need the same value.
            rail: the index of the address of a peer that is tried first, modulo the number of its addresses.
            sockets: the number of sockets for large bodies to each peer, 1 to 16. All ranks need the same value. Each socket begins at the next address.
            ucx: `no`, or `offered` to use UCX for large bodies with peers that offer it too, or `needed` if all ranks must use it.

        Raises:
            ValueError: an argument is wrong.
            DistNetworkError: the process cannot listen there.
            DistBackendError: there is no OpenSSL 3 to encrypt with, or no UCX.
        """

    def endpoints(self) -> list[str]:
        """
        Return where others reach this process: `10.0.0.3:4471` for each host, or the advertised addresses.
        """

    def start(self, secret: bytes, *, speaker: str = '') -> None:
        """
        Accept peers from now on, if they prove that they know these 32 bytes. Lines on stderr begin with `speaker`; if that is empty, nothing is printed.
        """

    def break_socket(self, endpoints: str, pid: int, start: int) -> bool:
        """
        Break the socket to a process, as a reset by the network would. The connection goes on over another socket. Return False if there is no socket now.
        """

    def num_sent_by_ucx(self) -> int:
        """Return the number of large bodies that this process has sent by UCX."""

    def close(self) -> None:
        """
        Send what was written, for a second at most, and close all connections. A second call does nothing, nor does a call in a forked child.
        """

def ticks_now() -> int:
    """
    Return the time in the unit of flight records, which differs between hosts.
    """

def collective_name(number: int) -> str:
    """Of the operation that has this number in flight records."""

class FlightMemory:
    """
    The anonymous file in which a process keeps its flight records. Other processes of the same user can read it.
    """

    @staticmethod
    def create() -> FlightMemory | None:
        """Create the file; None if there is no descriptor or no memory for it."""

    def mark(self, world: str, rank: int, size: int, host: str) -> None:
        """Let readers know which rank of which world this process is."""

    def leave_to_parent(self) -> None:
        """
        Detach a forked child: readers no longer take the file for the child's.
        """

def process_identity() -> tuple[str, int, int, str]:
    """
    Return (host, pid, start time, endpoints) of this process, by which its peers know it. The endpoints are empty: the process listens nowhere.
    """

def is_process_alive(pid: int, start: int) -> bool:
    """Return False once this process of this host has ended."""

ANY_TAG: int = -2147483647

class Communicator:
    """A group of ranks, as one of them sees it."""

    def __init__(self, rank: int, size: int, *, name: str, token: bytes, peers: Sequence[tuple[str, int, int, str]], tuning: Mapping[str, int], figures: str, port: TcpPort | None, timeout: object, patience: float, record_length: int, in_rank_order: bool = False, in_world: str = '', speaker: str = '', flight_memory: FlightMemory | None = None) -> None:
        """
        Make this rank's end of a group. It communicates from the first operation on.

        Args:
            token: 32 bytes that only the ranks of this group know.
            peers: process_identity() of each rank, with its endpoints.
            tuning: as for tuning_here().
            figures: as for tuning_here().
            port: the port of this process; None if all ranks are on one host.
            timeout: the limit of calls that have none of their own.
            patience: a rank that waits longer than these seconds says on stderr for whom; 0 means that it never does.
            record_length: the number of collectives and messages that the flight recorder keeps.
            in_rank_order: whether ranks on several hosts reduce in the order of one host.
            in_world: the text behind the name in errors, as in ' (ranks 1, 3 of the world)'.
            speaker: how the lines of this rank on stderr begin.
            flight_memory: where the records are kept; None if no other process reads them.
        """

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Set the limit of later calls that have none of their own."""

    def observe(self, observer: Any) -> None:
        """Tell an Observer of later operations. None means that nobody is told."""

    def abort(self, reason: str) -> None:
        """
        Break the group for every rank. All calls that wait in it raise an error.
        """

    def disagree(self, reason: str) -> None:
        """
        Abort with a CollectiveMismatchError, because the ranks made different groups.
        """

    def endings(self) -> dict[int, str]:
        """
        Return the ranks that have aborted the group, each with its reason. Unless the group is broken, the result also has the ranks that have died, with an empty reason. It is empty for a group that no rank has used yet.
        """

    def note_failure(self, reason: str, cause: str) -> None:
        """Let close() tell the peers that this failure ended the rank."""

    def check_close(self) -> None:
        """
        Raise RuntimeError if close() would, which is in a callback of this group.
        """

    def close(self, grace: float = 0.0) -> None:
        """
        Wait up to `grace` seconds for queued operations, end those that are left, and tell the peers that this rank is gone.
        """

    def send(self, tensor: Any, peer: int, tag: int, timeout: datetime.timedelta | None) -> None: ...

    def recv(self, tensor: Any, peer: int | None, tag: int, timeout: datetime.timedelta | None) -> int:
        """Receive a message and return its source. `peer` None means any rank."""

    def isend(self, tensor: Any, peer: int, tag: int, timeout: datetime.timedelta | None) -> Any: ...

    def irecv(self, tensor: Any, peer: int | None, tag: int, timeout: datetime.timedelta | None) -> Any: ...

    def sendrecv(self, tensor: Any, dst: int, tag: int, output: Any, src: int | None, recv_tag: int, timeout: datetime.timedelta | None) -> int: ...

    def shared_bytes(self, dtype: DType, shape: Sequence[int], timeout: datetime.timedelta | None) -> numpy.typing.NDArray[numpy.uint8]:
        """
        Make an array in memory that all ranks share; return this rank's bytes, which are zero. All ranks call it.
        """

    def peer_bytes(self, buffer: Buffer, peer: int) -> numpy.typing.NDArray[numpy.uint8]:
        """
        Return the bytes of rank `peer` at the place of `buffer` in a shared array of this rank. They keep `buffer` alive.
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
        """Carry out a Call. Return its Work if it has `async_op`, else None."""

    def prepare(self, call: Any) -> Any:
        """Return a Request that carries out a Call again and again."""

    def all_reduce_parts(self, array: SparseArray, op: Any, timeout: datetime.timedelta | None, async_op: bool) -> Any:
        """
        Reduce a sparse array across all ranks. The array then holds the result.
        """

    def flight_entries(self, collectives_after: int = 0, messages_after: int = 0) -> list[dict[str, Any]]:
        """
        Return the last operations of the group with higher numbers. Those that wait in the queue come last. Times are nanoseconds since 1970. `thread` is the number of threading.get_ident(). `is_waited_for` says whether a thread waits for operations of this kind.
        """

class StoreTraffic:
    """What a store's server has counted since it began."""

    @property
    def connections(self) -> int: ...

    @property
    def requests(self) -> int: ...

    @property
    def bytes_received(self) -> int:
        """The handshakes count too; the headers of TCP do not."""

    @property
    def bytes_sent(self) -> int: ...

class StoreServer:
    """
    The server of a store, which serves until it is deleted. Its thread never takes the GIL.
    """

    def __init__(self, host: str, port: int, secret: str, timeout: float, listen_fd: int = -1) -> None:
        """
        Listen at `host`:`port`, or on the bound socket `listen_fd`, which the server then owns.
        """

    @property
    def port(self) -> int: ...

    def traffic(self) -> StoreTraffic:
        """Return what the server has counted since it began."""

class StoreRelay:
    """
    Serves a store to the processes of this host, at 127.0.0.1, and asks the store's server over one connection. It serves until it is deleted or the server is gone. Its thread never takes the GIL.
    """

    def __init__(self, host: str, port: int, secret: str, timeout: float) -> None:
        """Connect to the server. Keep trying until the limit."""

    @property
    def port(self) -> int: ...

    @property
    def own_address(self) -> str:
        """The address of this process on its way to the server."""

    def traffic(self) -> StoreTraffic:
        """Return what the clients have sent and received."""

def watch_store_waits(look: Callable[[float, float], None]) -> None:
    """
    Call `look` ten times a second in each thread that waits in a StoreClient. `look` gets the seconds that the request has waited and its limit in seconds. If `look` raises an error, the request ends with that error. Call this function only once.
    """

class StoreClient:
    """
    One connection to a store's server. Every call has a limit in seconds. Threads may share it; it makes one call at a time.
    """

    def __init__(self, host: str, port: int, secret: str, timeout: float, name: str = '') -> None:
        """
        Connect to the server. Keep trying until the limit. Errors call the server `name`, or `host`:`port` if that is empty.
        """

    @property
    def own_address(self) -> str:
        """The address of this process on its way to the server."""

    def set(self, key: str, value: bytes, timeout: float) -> None: ...

    def get(self, key: str, timeout: float) -> bytes: ...

    def get_unwatched(self, key: str, timeout: float) -> bytes:
        """
        Like `get`, but without calls of the function of `watch_store_waits`. It is for waits of this package itself, which watches the ranks in another way.
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
        Delete `key` now, and let the server set it to `value` when this process ends.
        """

    def barrier(self, key: str, size: int, timeout: float) -> None: ...

    def join(self, is_key: bool, timeout: float) -> int: ...

    def await_workers(self, count: int, timeout: float) -> None: ...

class StoreLastWill:
    """
    A key that the server sets when this process ends. If this object is deleted before, the server does not set it.
    """

def lock_store_file(file: int) -> int:
    """
    Lock the file against its other users until `unlock_store_file`. Return its length.

    Raises:
        OSError: EAGAIN or EACCES if another user holds the lock.
    """

def unlock_store_file(file: int) -> None:
    """Release the lock, if this process holds it."""

def mark_store_file(file: int, alone: bool) -> None:
    """
    Show other processes that this one uses the file, until the file is closed.

    Raises:
        OSError: EAGAIN or EACCES if this process asks to be alone and is not.
    """

def encode_store_record(kind: int, key: str, value: bytes) -> bytes:
    """
    Return a record for the file of a FileStore.

    Raises:
        ValueError: the key or the value is too long.
    """

def store_record_size(data: bytes, offset: int) -> int | None:
    """
    Return the number of bytes of the record at `offset`. If its head is cut, return the number of bytes of the head. None means that no record can begin so.
    """

def decode_store_record(data: bytes, offset: int, num_bytes: int) -> tuple[int, str, bytes] | None:
    """
    Return the kind, key and value of a complete record; None if it is damaged.
    """

class StoreTable:
    """
    Values and queues by key. Threads may share it. allhands.Store describes the functions. Only `await_change` waits.
    """

    def __init__(self) -> None: ...

    def set(self, key: str, value: str | bytes) -> None: ...

    def find(self, key: str) -> bytes | None:
        """Return the value of `key`; None if it is missing."""

    def add(self, key: str, amount: int) -> int: ...

    def append(self, key: str, value: str | bytes) -> None: ...

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes: ...

    def delete_key(self, key: str) -> bool: ...

    def contains_all(self, keys: list[str]) -> bool:
        """Return whether every key has a value or a queue."""

    def find_all(self, keys: list[str]) -> list[bytes] | None:
        """Return the values of all keys; None if one is missing."""

    def set_all(self, keys: list[str], values: list[str | bytes]) -> None: ...

    def num_keys(self) -> int: ...

    def list_keys(self) -> list[str]: ...

    def push(self, key: str, value: str | bytes) -> None: ...

    def pop(self, key: str) -> bytes | None:
        """
        Remove the oldest value of the queue `key` and return it; None if there is none.
        """

    def queue_length(self, key: str) -> int: ...

    @property
    def num_changes(self) -> int:
        """Return how often a value came or was replaced."""

    def await_change(self, seen: int, timeout: float) -> bool:
        """
        Wait until `num_changes` differs from `seen`. Return False after `timeout` seconds.
        """

    def note_changes(self) -> None:
        """Keep every later change for `take_records`."""

    def take_records(self) -> bytes:
        """
        Return records of the changes since the last call.

        Raises:
            ValueError: a key or a value is too long.
        """

    def repeat(self, kind: int, key: str, value: bytes) -> bool:
        """Make the change of a record. Return False if its kind is unknown."""

    def clear(self) -> None:
        """Forget everything, also the changes."""

def interface_addresses() -> list[tuple[str, str, int, bool, bool]]:
    """
    Return (interface, address, prefix length, is up, is loopback) for each address of this machine.
    """

def addresses_towards(host: str, timeout: float) -> list[str]:
    """
    Return the source addresses of packets to `host`, one for each address of `host`. The list is empty if the name is not resolved within the limit.
    """

def tuning_here(size: int, *, changes: Mapping[str, int] = {}, figures: str = '') -> dict[str, int]:
    """
    Return the tuning, with `changes`, of a group of `size` ranks that share the CPUs of this process, by name. `figures` is the folder that may hold the figures of this host.
    """

def figures(folder: str, *, rehearse: bool) -> list[tuple[int, int, int]] | None:
    """
    Return what an exchange of two ranks takes on this host: for each size in bytes the nanoseconds by the slots and by reading. They are read from `folder`. If `folder` has none and `rehearse` is true, they are measured within 3 ms and kept. The result is None if there are none.
    """

def cpu_model() -> str:
    """Return the CPU's name, as the kernel spells it."""

def num_cpus(peers: Sequence[tuple[str, int, int, str]]) -> int:
    """CPUs that at least one of these processes of this host may run on."""

def ways(op: str, bytes: int, ranks: int, *, can_read_peers: bool, has_shared_arrays: bool, tuning: Mapping[str, int], figures: str = '') -> list[tuple[str, bool, str]]:
    """
    Return the ways of an operation on arrays of `bytes`, best first: the name, whether the way is worth it here, and why. The operation takes the first way that is worth it and that the arrays of all ranks allow. `tuning` and `figures` are those of tuning_here().
    """

def can_read_child(pid: int) -> bool:
    """
    Return whether the host lets this process read the memory of its forked child.
    """
