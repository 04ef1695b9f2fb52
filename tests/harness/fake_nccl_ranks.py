"""A pytest plugin: thread ranks make worlds of backend nccl on stand-ins for CUDA.

What asks for another backend than the default gets it.
"""

import pytest

from harness import fake_cuda, ranks

LIMIT = 20.0  # seconds: tests that fail on one rank leave the others waiting

fake_cuda.install(pytest.MonkeyPatch())
_of_any_backend = ranks.run_ranks


def run_ranks(size, body, *, timeout=LIMIT, backend=None, init=True):
    """See `harness.ranks.run_ranks`."""
    chosen = "nccl" if backend in (None, "native") else backend
    return _of_any_backend(
        size, body, timeout=min(timeout, LIMIT), backend=chosen, init=init
    )


ranks.run_ranks = run_ranks
ranks.BACKEND = "nccl"
