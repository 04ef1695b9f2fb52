"""torch.distributed's second path to the same names, for programs that use it."""

from allhands import *  # noqa: F403 - re-exports all of it
from allhands import __all__ as __all__
from allhands import _coalescing_manager as _coalescing_manager
from allhands.groups.world import default_group as _get_default_group  # noqa: F401
