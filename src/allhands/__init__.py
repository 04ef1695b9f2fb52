"""Distributed communication for Python arrays, with torch.distributed's API."""

import importlib

from allhands.backend import Backend, BackendConfig, is_backend_available
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
)
from allhands.options import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    default_pg_timeout,
    reduce_op,
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
from allhands.store import FileStore, HashStore, PrefixStore, Store, TCPStore
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
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "GatherOptions",
    "GroupMember",
    "HashStore",
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
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "default_pg_timeout",
    "destroy_process_group",
    "gather",
    "get_backend",
    "get_backend_config",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_backend_available",
    "is_initialized",
    "new_group",
    "reduce",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "register_rendezvous_handler",
    "rendezvous",
    "scatter",
]


def __getattr__(name: str) -> object:
    # A module above this one, so it can only be loaded when somebody asks for it.
    if name == "distributed_c10d":
        return importlib.import_module("allhands.distributed_c10d")
    raise AttributeError(f"module 'allhands' has no attribute {name!r}")
