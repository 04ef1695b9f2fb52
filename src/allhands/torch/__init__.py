"""The native engine as a backend of torch.distributed.

If the package is installed, torch knows the backend by name:

    torch.distributed.init_process_group("allhands")

This makes groups whose operations on CPU tensors run on the native engine. Everything
that is built on torch.distributed uses them as it uses Gloo's groups. Programs of this
package lend their own groups to torch by `process_group`. The module works with torch
2.13 to 2.15.
"""

from allhands.torch.creation import create
from allhands.torch.data_parallel import DistributedDataParallel
from allhands.torch.native_group import AllhandsProcessGroup
from allhands.torch.profiled import profiler_events
from allhands.torch.world import process_group

__all__ = [
    "AllhandsProcessGroup",
    "DistributedDataParallel",
    "create",
    "process_group",
    "profiler_events",
]
