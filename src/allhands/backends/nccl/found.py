"""Whether NVIDIA's bindings of NCCL are installed, looked up as this module is loaded.

The look goes through all folders of `sys.path`. Ranks that are forked from a process
that has loaded this module need no look of their own.
"""

from importlib.util import find_spec

__all__ = ["HAS_BINDINGS"]

HAS_BINDINGS = find_spec("nccl") is not None
