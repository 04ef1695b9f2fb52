"""Distributed communication for Python arrays, with torch.distributed's API."""

import importlib

from allhands.backend import (
    Backend,
    BackendConfig,
    get_default_backend_for_device,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_ucc_available,
    is_xccl_available,
)
from allhands.coalesced import _coalescing_manager as _coalescing_manager
from allhands.coalesced import all_gather_coalesced, all_reduce_coalesced
from allhands.collectives import (
    all_gather,
    all_gather_into_tensor,
    all_gather_single,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    scatter,
)
from allhands.debug import (
    breakpoint,
    get_debug_level,
    record_comm,
    set_debug_level,
    set_debug_level_from_env,
)
from allhands.device_mesh import DeviceMesh, init_device_mesh
from allhands.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
    RankFailedError,
)
from allhands.groups import destroy_process_group, init_process_group, new_group
from allhands.membership import (
    GroupMember,
    get_backend,
    get_backend_config,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    is_available,
    is_initialized,
    is_torchelastic_launched,
)
from allhands.monitoring import monitored_barrier
from allhands.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from allhands.options import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    DebugLevel,
    GatherOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    default_pg_timeout,
    reduce_op,
    supports_complex,
)
from allhands.p2p import (
    P2POp,
    batch_isend_irecv,
    irecv,
    isend,
    recv,
    send,
    sendrecv,
)
from allhands.persistent import (
    all_gather_single_init,
    all_reduce_init,
    all_to_all_single_init,
    barrier_init,
    broadcast_init,
    gather_init,
    reduce_init,
    reduce_scatter_single_init,
    scatter_init,
)
from allhands.process_group import ProcessGroup
from allhands.reductions import (
    all_reduce,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_tensor,
)
from allhands.rendezvous import register_rendezvous_handler, rendezvous
from allhands.request import PersistentRequest
from allhands.shared_arrays import empty_shared, peer_array
from allhands.store import FileStore, HashStore, PrefixStore, Store, TCPStore
from allhands.subgroups import (
    new_subgroups,
    new_subgroups_by_enumeration,
    shrink_group,
    split_group,
)
from allhands.work import Work

__all__ = [
    "AllToAllOptions",
    "AllreduceCoalescedOptions",
    "AllreduceOptions",
    "Backend",
    "BackendConfig",
    "BarrierOptions",
    "BroadcastOptions",
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "DebugLevel",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "GatherOptions",
    "GroupMember",
    "HashStore",
    "P2POp",
    "PersistentRequest",
    "PrefixStore",
    "ProcessGroup",
    "QueueEmptyError",
    "RankFailedError",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ScatterOptions",
    "Store",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_gather_single_init",
    "all_reduce",
    "all_reduce_coalesced",
    "all_reduce_init",
    "all_to_all",
    "all_to_all_single",
    "all_to_all_single_init",
    "barrier",
    "barrier_init",
    "batch_isend_irecv",
    "breakpoint",
    "broadcast",
    "broadcast_init",
    "broadcast_object_list",
    "default_pg_timeout",
    "destroy_process_group",
    "empty_shared",
    "gather",
    "gather_init",
    "gather_object",
    "get_backend",
    "get_backend_config",
    "get_debug_level",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "peer_array",
    "record_comm",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_init",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_init",
    "reduce_scatter_tensor",
    "register_rendezvous_handler",
    "rendezvous",
    "scatter",
    "scatter_init",
    "scatter_object_list",
    "send",
    "send_object_list",
    "sendrecv",
    "set_debug_level",
    "set_debug_level_from_env",
    "shrink_group",
    "split_group",
    "supports_complex",
]


def __getattr__(name: str) -> object:
    # A module above this one, so it can only be loaded when somebody asks for it.
    if name == "distributed_c10d":
        return importlib.import_module("allhands.distributed_c10d")
    if name == "__version__":
        # Looked up where it is asked for: this import takes longer than all of ours.
        return importlib.import_module("importlib.metadata").version("allhands")
    raise AttributeError(f"module 'allhands' has no attribute {name!r}")
