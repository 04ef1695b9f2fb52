"""Distributed communication for Python arrays, with torch.distributed's API."""

import importlib
import sys

from allhands import debug, errors, store
from allhands.backends.availability import (
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_ucc_available,
    is_xccl_available,
)
from allhands.backends.config import BackendConfig
from allhands.backends.registry import Backend, get_default_backend_for_device
from allhands.backends.request import PersistentRequest
from allhands.backends.work import Work
from allhands.debug import *
from allhands.device_mesh import DeviceMesh, init_device_mesh
from allhands.errors import *
from allhands.groups import lifetime, queries, sampler, subgroups
from allhands.groups.lifetime import *
from allhands.groups.process_group import ProcessGroup
from allhands.groups.queries import *
from allhands.groups.sampler import *
from allhands.groups.subgroups import *
from allhands.ops import (
    collectives,
    gathers,
    gradients,
    locations,
    objects,
    p2p,
    persistent,
    reductions,
    shared_arrays,
    uneven,
    waits,
)
from allhands.ops.coalesced import (
    _coalescing_manager as _coalescing_manager,
)
from allhands.ops.coalesced import (
    all_gather_coalesced,
    all_reduce_coalesced,
)
from allhands.ops.collectives import *
from allhands.ops.gathers import *
from allhands.ops.gathers import _all_gather_base as _all_gather_base
from allhands.ops.gradients import *
from allhands.ops.locations import *
from allhands.ops.monitored_barrier import monitored_barrier
from allhands.ops.objects import *
from allhands.ops.p2p import *
from allhands.ops.persistent import *
from allhands.ops.reductions import *
from allhands.ops.reductions import _reduce_scatter_base as _reduce_scatter_base
from allhands.ops.shared_arrays import *
from allhands.ops.uneven import *
from allhands.ops.waits import *
from allhands.options import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    DebugLevel,
    GatherOptions,
    NativeOptions,
    NcclOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    default_pg_timeout,
    reduce_op,
    supports_complex,
)
from allhands.rendezvous import register_rendezvous_handler, rendezvous
from allhands.store import *

# All that these modules offer is public here, too.
_OFFERING = [
    *(collectives, debug, errors, gathers, gradients, lifetime, objects, p2p),
    *(persistent, queries, reductions, sampler, shared_arrays, store, subgroups),
    *(locations, uneven, waits),
]
__all__ = [name for module in _OFFERING for name in module.__all__]
__all__ += [
    "AllToAllOptions",
    "AllreduceCoalescedOptions",
    "AllreduceOptions",
    "Backend",
    "BackendConfig",
    "BarrierOptions",
    "BroadcastOptions",
    "DebugLevel",
    "DeviceMesh",
    "GatherOptions",
    "NativeOptions",
    "NcclOptions",
    "PersistentRequest",
    "ProcessGroup",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ScatterOptions",
    "Work",
    "all_gather_coalesced",
    "all_reduce_coalesced",
    "default_pg_timeout",
    "get_default_backend_for_device",
    "init_device_mesh",
    "is_backend_available",
    "is_gloo_available",
    "is_mpi_available",
    "is_nccl_available",
    "is_ucc_available",
    "is_xccl_available",
    "monitored_barrier",
    "reduce_op",
    "register_rendezvous_handler",
    "rendezvous",
    "supports_complex",
]


_TORCHS_OWN = {
    *("algorithms", "autograd", "checkpoint", "fsdp"),
    *("nn", "optim", "pipelining", "tensor"),
}
_IN_C10D = {
    *("_CoalescingManager", "_get_process_group_name"),
    *("_make_nccl_premul_sum", "_rank_not_in_group"),
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    # One is above this module, the other imports torch: loaded when somebody asks.
    if name in ("distributed_c10d", "torch"):
        return importlib.import_module(f"allhands.{name}")
    if name == "__version__":
        # Looked up where it is asked for: this import takes longer than all of ours.
        return importlib.import_module("importlib.metadata").version("allhands")
    if name in _IN_C10D:
        return getattr(importlib.import_module("allhands.distributed_c10d"), name)
    problem = f"module 'allhands' has no attribute {name!r}"
    if name in _TORCHS_OWN:
        problem += (
            f": import torch.distributed.{name}, and let "
            "allhands.torch.process_group() lend torch this package's groups"
        )
    # With these, Python adds "Did you mean" where the name is misspelt.
    raise AttributeError(problem, name=name, obj=sys.modules[__name__])
