"""torch.distributed's second path to the same names, for programs that use it.

Some names with an underscore are here, too: programs take them from torch's module.
"""

from allhands import *  # noqa: F403 - re-exports all of it
from allhands import ProcessGroup, Store
from allhands import __all__ as __all__
from allhands import _all_gather_base as _all_gather_base
from allhands import _coalescing_manager as _coalescing_manager
from allhands import _reduce_scatter_base as _reduce_scatter_base
from allhands.groups.queries import set_timeout as _set_pg_timeout  # noqa: F401
from allhands.groups.world import NON_GROUP_MEMBER, current
from allhands.groups.world import default_group as _get_default_group


def _get_default_store() -> Store:
    """What the ranks met in, with the keys of the package in it.

    Raises:
        ValueError: there is no world yet.
    """
    _get_default_group()
    return current().store


def _rank_not_in_group(group: ProcessGroup | int | None) -> bool:
    """Whether `group` is one that this rank is not in; None is the group of all."""
    return group == NON_GROUP_MEMBER
