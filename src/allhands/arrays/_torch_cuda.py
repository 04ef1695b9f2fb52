"""torch tensors in the memory of CUDA devices; see `devices.DeviceLibrary`."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any

__all__ = [
    *("assign", "contiguous", "current_stream", "device_number", "empty_on_host"),
    *("on_stream", "synchronize"),
]

_torch: Any = importlib.import_module("torch")


def device_number(array: Any) -> int:
    """See `DeviceLibrary.device_number`."""
    return int(array.get_device())


def contiguous(array: Any) -> Any:
    """See `DeviceLibrary.contiguous`."""
    with _torch.no_grad():
        return array.contiguous()


def assign(array: Any, source: Any) -> None:
    """See `DeviceLibrary.assign`."""
    with _torch.no_grad():
        array.detach().copy_(source.detach(), non_blocking=True)


def empty_on_host(array: Any) -> Any:
    """See `DeviceLibrary.empty_on_host`."""
    return _torch.empty(array.shape, dtype=array.dtype, pin_memory=True)


def current_stream(device: int) -> int:
    """See `DeviceLibrary.current_stream`."""
    return int(_torch._C._cuda_getCurrentRawStream(device))


def on_stream(handle: int, device: int) -> AbstractContextManager[Any]:
    """See `DeviceLibrary.on_stream`."""
    stream = _torch.cuda.ExternalStream(handle, device)
    context: AbstractContextManager[Any] = _torch.cuda.stream(stream)
    return context


def synchronize(device: int) -> None:
    """See `DeviceLibrary.synchronize`."""
    _torch.cuda.current_stream(device).synchronize()
