"""A library whose arrays are on a device that is not there: it only hides its memory.

It has what `arrays.devices.DeviceLibrary` wants. `use(monkeypatch)` puts it in the
table of libraries.
"""

from contextlib import contextmanager

import numpy as np

from allhands import arrays
from allhands.arrays.devices import DeviceArrayError
from allhands.arrays.future import Future
from harness import fake_cuda

reducers = {}
log = []
"""What was copied and awaited, in order."""


class Hidden:
    """An array on the device, whose memory is freed in the order of a stream."""

    def __init__(self, values, device=0):
        self.values = np.asarray(values)
        self.device = device
        self._stream = fake_cuda.current()

    def __del__(self):
        self._stream.free(self.values)

    def tolist(self):
        fake_cuda.current().synchronize()
        return self.values.tolist()


def use(monkeypatch):
    monkeypatch.setitem(arrays.MODULES, "harness", __name__)
    log.clear()


def accepts(kind):
    return issubclass(kind, Hidden)


def as_buffer(array, writable):
    raise DeviceArrayError("the array is on the device")


def device_of(array):
    return "cuda"


def new_future():
    return Future()


def device_memory(array, writable):
    return arrays.as_buffer(array.values, writable=writable)


def device_number(array):
    return array.device


def contiguous(array):
    fake_cuda.current().synchronize()
    return Hidden(np.ascontiguousarray(array.values), array.device)


def assign(array, source):
    fake_cuda.current().synchronize()
    log.append("to host" if isinstance(source, Hidden) else "to device")
    target = getattr(array, "values", array)
    target[...] = getattr(source, "values", source)


def empty_on_host(array):
    return np.full_like(array.values, 99, order="C", subok=False)


def current_stream(device):
    return fake_cuda.current().handle


@contextmanager
def on_stream(handle, device):
    before = fake_cuda.current()
    fake_cuda.local.stream = fake_cuda.Stream.from_handle(handle)
    yield
    fake_cuda.local.stream = before


def synchronize(device):
    log.append(f"wait {device}")
