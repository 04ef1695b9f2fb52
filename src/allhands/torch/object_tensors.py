"""Objects as tensors, under the names that programs take from torch's module.

`allhands.distributed_c10d` has them, too. This package's own calls do not need them.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch

from allhands.groups.arguments import Group, member_of

__all__: list[str] = []


def _get_pg_default_device(group: Group = None) -> torch.device:
    """Return the device for tensors of any operation on `group`: the CPU, if possible.

    Raises:
        ValueError: this process is not a member, or there is no such group.
    """
    config = member_of(group).config
    return torch.device("cpu" if config is None else config.usual_device_type)


def _object_to_tensor(
    obj: Any, device: Any, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `obj`, pickled, as a tensor of bytes, and the number of bytes."""
    pickled = bytearray(pickle.dumps(obj))
    content = torch.frombuffer(pickled, dtype=torch.uint8).to(device)
    return content, torch.tensor([len(pickled)], dtype=torch.int64, device=device)


def _tensor_to_object(tensor: torch.Tensor, tensor_size: Any, group: Group) -> Any:
    """Return the object in the first `tensor_size` bytes of `tensor`.

    Unpickling runs code that the sender chose.
    """
    content = tensor.cpu().numpy().tobytes()[: int(tensor_size)]
    return pickle.Unpickler(io.BytesIO(content)).load()
