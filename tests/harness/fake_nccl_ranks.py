"""A pytest plugin: thread ranks make worlds of backend nccl on stand-ins for CUDA."""

import pytest

from harness import fake_cuda, thread_ranks

fake_cuda.install(pytest.MonkeyPatch())
thread_ranks.become("nccl")
